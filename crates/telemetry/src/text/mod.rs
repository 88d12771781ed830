//! Formats text for terminals and pages. This module does not know what the text is about.
//!
//! # Layout
//!
//! - `table`: renders rows in columns.
//! - [`numbers`]: formats numbers and times.

pub mod numbers;
mod table;

pub use table::table;
