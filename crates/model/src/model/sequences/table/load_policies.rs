//! The policy of each load of a model name for which a plug-in decides or is about to decide.

use sequor_core::LoadId;

use crate::scheduling::{Decider, LoadPolicy};

#[derive(Debug, Default)]
pub(super) struct LoadPolicies(Vec<(LoadId, LoadPolicy<Decider>)>);

impl LoadPolicies {
    /// The plug-in that decides for a load.
    pub(in crate::model::sequences) fn decider(&self, load: LoadId) -> Option<Decider> {
        let (_, policy) = self.0.iter().find(|(of, _)| *of == load)?;
        policy.decider().cloned()
    }

    /// The policy of a load.
    pub(in crate::model::sequences) fn get(&self, load: LoadId) -> LoadPolicy<Decider> {
        let of = self.0.iter().find(|(of, _)| *of == load);
        of.map(|(_, policy)| policy.clone()).unwrap_or_default()
    }

    /// Sets the policy of a load. Returns the previous one.
    pub(super) fn set(&mut self, load: LoadId, policy: LoadPolicy<Decider>) -> LoadPolicy<Decider> {
        match self.0.iter_mut().find(|(of, _)| *of == load) {
            Some((_, place)) => std::mem::replace(place, policy),
            None => {
                self.0.push((load, policy));
                LoadPolicy::default()
            }
        }
    }

    /// Removes the policy of a load that is gone.
    pub(in crate::model::sequences) fn forget(&mut self, load: LoadId) -> Option<LoadPolicy<Decider>> {
        let at = self.0.iter().position(|(of, _)| *of == load)?;
        Some(self.0.swap_remove(at).1)
    }
}
