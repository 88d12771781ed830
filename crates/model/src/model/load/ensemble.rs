//! The parts of an ensemble's load beside its settings.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use sequor_core::Id;

use crate::ensemble::{EnsemblePlan, MemberSignature};
use crate::sync::Mutex;

/// Maximum number of ended sequences whose blamed member is remembered.
const BLAMED: usize = 4096;

/// The plan of an ensemble's load, and the members that ended its sequences.
#[derive(Debug)]
pub(in crate::model) struct LoadEnsemble {
    pub(in crate::model) plan: Arc<EnsemblePlan>,
    /// The signatures that the plan was made for, in the order of the steps.
    pub(in crate::model) members: Vec<MemberSignature>,
    /// Maximum number of live sequences for which all members have slots.
    pub(in crate::model) slots: u32,
    blamed: Mutex<BlamedMembers>,
}

#[derive(Debug, Default)]
struct BlamedMembers {
    members: HashMap<Id, String>,
    /// Oldest first.
    order: VecDeque<Id>,
}

impl LoadEnsemble {
    pub(in crate::model) fn new(plan: EnsemblePlan, members: Vec<MemberSignature>, slots: u32) -> LoadEnsemble {
        LoadEnsemble { plan: Arc::new(plan), members, slots, blamed: Mutex::default() }
    }

    /// Remembers the member whose failure ended a sequence.
    pub(in crate::model) fn blame(&self, id: &Id, member: &str) {
        let mut blamed = self.blamed.lock();
        if blamed.members.insert(id.clone(), member.to_owned()).is_some() {
            return;
        }
        blamed.order.push_back(id.clone());
        if blamed.order.len() > BLAMED
            && let Some(oldest) = blamed.order.pop_front()
        {
            blamed.members.remove(&oldest);
        }
    }

    /// The member whose failure ended the last sequence of this id.
    pub(in crate::model) fn blamed(&self, id: &Id) -> Option<String> {
        self.blamed.lock().members.get(id).cloned()
    }
}
