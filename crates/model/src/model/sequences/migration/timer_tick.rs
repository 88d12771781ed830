//! The timer's work for a model: due work of its core, stored sequences that expire, and sequences that move to another load.

use std::sync::Arc;

use crate::model::runtime::Tick;
use crate::model::sequences::scheduler::ModelScheduler;

use super::carry;

impl Tick for ModelScheduler {
    fn tick(self: Arc<Self>) {
        self.apply_due();
        carry::tick(&self);
    }
}
