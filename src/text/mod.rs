//! Text for terminals. Nothing here knows what it shows.
//!
//! # Layout
//!
//! - [`mod@table`]: rows in columns.

mod table;

pub use table::table;
