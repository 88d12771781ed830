//! The models of this server, for the store that it shares with other servers.

use std::sync::{Arc, Weak};

use crate::model::catalog::Catalog;
use crate::model::sequences::handover;
use crate::state::tier::{HandoverState, SharedHost, TierKey};

#[derive(Debug)]
pub(super) struct SharedModels(Weak<Catalog>);

impl SharedModels {
    pub(super) fn new(catalog: &Arc<Catalog>) -> SharedModels {
        SharedModels(Arc::downgrade(catalog))
    }
}

impl SharedHost for SharedModels {
    fn hand_over(&self, key: &TierKey) -> HandoverState {
        let model = self.0.upgrade().and_then(|catalog| catalog.model(&key.model));
        model.map_or(HandoverState::Absent, |model| handover::hand_over(&model, &key.id))
    }

    fn keep(&self, key: &TierKey) {
        if let Some(model) = self.0.upgrade().and_then(|catalog| catalog.model(&key.model)) {
            handover::keep(&model, &key.id);
        }
    }

    fn lost(&self, keys: Vec<TierKey>) {
        let Some(catalog) = self.0.upgrade() else { return };
        for key in keys {
            if let Some(model) = catalog.model(&key.model) {
                handover::lost(&model, &key.id);
            }
        }
    }

    fn release_unused(&self, all: bool) {
        let models = self.0.upgrade().map(|catalog| catalog.models()).unwrap_or_default();
        models.iter().for_each(|model| handover::release_unused(model, all));
    }
}
