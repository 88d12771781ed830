//! Text for terminals and pages. Nothing here knows what it shows.
//!
//! # Layout
//!
//! - `table`: rows in columns.
//! - [`numbers`]: numbers and times in them.

pub mod numbers;
mod table;

pub use table::table;
