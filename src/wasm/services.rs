//! What a guest may ask the server for, as the server implements it.

use std::fmt;
use std::sync::Arc;

use super::line_budget::LineBudget;

/// What a guest may ask for.
pub trait Services: Send + Sync + fmt::Debug {
    /// What it may write, with all others whose lines are the same plug-in's. Without more it stands alone.
    fn line_budget(&self) -> Arc<LineBudget> {
        Arc::default()
    }

    fn log(&self, level: u32, message: &str);
    fn metric_add(&self, name: &str, value: f64);
    fn key_text(&self, key: u64) -> Option<String>;
    fn sequence_text(&self, sequence: u64) -> Option<String>;
}
