//! Chooses which waiting instance runs next, by the resources that each needs for a run. It uses no thread, lock or clock.
//!
//! Instances get their turns by priority: each turn moves an instance back by its priority, and the foremost one is next. An instance that
//! has not waited for a while joins at the front and has no saved turns. The resources that a waiting instance needs are reserved against
//! those behind it, so that many small needs never starve a large one.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::model::settings::{InstanceRate, ResourceNeed};
use crate::config::server::rates::ResourceLimit;

/// A resource of one device, or of all devices.
type ResourceKey = (String, Option<u16>);

/// Identifies an instance.
pub(super) type InstanceKey = u64;

#[derive(Debug, Default)]
pub(super) struct RateLedger {
    /// The configured limits. A resource without a limit has as much as one instance needs at most.
    limits: Vec<ResourceLimit>,
    instances: BTreeMap<InstanceKey, RatedInstance>,
    in_use: BTreeMap<ResourceKey, u64>,
    /// Waiting instances, in the order of their requests.
    waiting: Vec<InstanceKey>,
    /// Instances that may run and have not taken their grant yet.
    granted: BTreeSet<InstanceKey>,
    next_key: InstanceKey,
    /// The position of the instance that had the last turn.
    front: u64,
}

#[derive(Debug)]
struct RatedInstance {
    needs: Vec<(ResourceKey, u64)>,
    priority: u64,
    /// Its position: the number of its turns times its priority.
    turns: u64,
}

fn needs(rate: &InstanceRate) -> Vec<(ResourceKey, u64)> {
    let mut all: BTreeMap<ResourceKey, u64> = BTreeMap::new();
    for ResourceNeed { name, device, count } in &rate.resources {
        *all.entry((name.clone(), *device)).or_default() += u64::from(*count);
    }
    all.into_iter().collect()
}

impl RateLedger {
    pub(super) fn new(limits: Vec<ResourceLimit>) -> RateLedger {
        RateLedger { limits, ..RateLedger::default() }
    }

    /// Adds instances. The error is the reason why none of them is added.
    pub(super) fn add(&mut self, rates: &[Option<InstanceRate>]) -> Result<Vec<Option<InstanceKey>>, String> {
        let all: Vec<_> = rates.iter().flatten().map(needs).collect();
        let known = self.instances.values().map(|instance| &instance.needs).chain(&all);
        let keys: BTreeSet<&ResourceKey> = known.flatten().map(|(key, _)| key).collect();
        for ((name, device), count) in all.iter().flatten() {
            let is_other = |other: &&&ResourceKey| other.0 == *name && other.1.is_none() != device.is_none();
            if keys.iter().any(|key| is_other(&key)) {
                return Err(format!(
                    "Resource \"{name}\" is present as both global and device-specific resource in the model configuration."
                ));
            }
            if let Some(limit) = self.limit(name, *device).filter(|limit| limit < count) {
                return Err(format!(
                    "Resource count for \"{name}\" is limited to {limit} which will prevent scheduling of one or more \
                     model instances, the minimum required count is {count}"
                ));
            }
        }
        Ok(rates.iter().map(|rate| rate.as_ref().map(|rate| self.insert(rate))).collect())
    }

    fn insert(&mut self, rate: &InstanceRate) -> InstanceKey {
        let key = self.next_key;
        self.next_key += 1;
        let instance = RatedInstance { needs: needs(rate), priority: u64::from(rate.priority), turns: self.front };
        self.instances.insert(key, instance);
        key
    }

    /// Removes an instance that neither runs nor waits.
    pub(super) fn remove(&mut self, key: InstanceKey) {
        self.instances.remove(&key);
    }

    /// Records that an instance wants to run. [`RateLedger::take_grant`] returns whether it may.
    pub(super) fn wait(&mut self, key: InstanceKey) {
        if let Some(instance) = self.instances.get_mut(&key) {
            instance.turns = instance.turns.max(self.front);
            self.waiting.push(key);
        }
        self.grant();
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Releases the resources of a run. Returns whether other instances may run now.
    pub(super) fn release(&mut self, key: InstanceKey) -> bool {
        self.free(key);
        self.grant()
    }

    /// Releases the resources and the turn of an instance that had nothing to run. Returns whether other instances may run now.
    pub(super) fn release_unused(&mut self, key: InstanceKey) -> bool {
        if let Some(instance) = self.instances.get_mut(&key) {
            instance.turns = instance.turns.saturating_sub(instance.priority);
        }
        self.release(key)
    }

    /// Releases the resources of a run and asks for the next run at once, so that the instance competes with those that wait. Returns
    /// whether any may run now.
    pub(super) fn release_and_wait(&mut self, key: InstanceKey) -> bool {
        self.free(key);
        self.wait(key);
        !self.granted.is_empty()
    }

    fn free(&mut self, key: InstanceKey) {
        for (resource, count) in self.instances.get(&key).into_iter().flat_map(|instance| &instance.needs) {
            if let Some(used) = self.in_use.get_mut(resource) {
                *used = used.saturating_sub(*count);
            }
        }
    }

    /// Whether this instance may run. The grant is valid for one run.
    pub(super) fn take_grant(&mut self, key: InstanceKey) -> bool {
        // An unknown instance is not limited.
        self.granted.remove(&key) || !self.instances.contains_key(&key)
    }

    /// Gives a turn to the waiting instances that may run. Returns whether there are any, so that the caller wakes them. Must be called
    /// whenever a resource is released or added.
    pub(super) fn grant(&mut self) -> bool {
        let turns = |key: &InstanceKey| self.instances.get(key).map_or(0, |instance| instance.turns);
        let mut order = self.waiting.clone();
        // The sort is stable: of equals, the first to ask is first.
        order.sort_by_key(turns);
        let (mut kept, mut any) = (BTreeSet::new(), false);
        for key in order {
            let Some(instance) = self.instances.get(&key) else { continue };
            let is_free = |(resource, count): &(ResourceKey, u64)| {
                let used = self.in_use.get(resource).copied().unwrap_or(0);
                !kept.contains(resource) && used + count <= self.capacity(resource)
            };
            if !instance.needs.iter().all(is_free) {
                kept.extend(instance.needs.iter().map(|(resource, _)| resource.clone()));
                continue;
            }
            any = true;
            self.begin(key);
        }
        any
    }

    fn begin(&mut self, key: InstanceKey) {
        self.waiting.retain(|waiting| *waiting != key);
        self.granted.insert(key);
        let Some(instance) = self.instances.get_mut(&key) else { return };
        self.front = self.front.max(instance.turns);
        instance.turns += instance.priority;
        for (resource, count) in &instance.needs {
            *self.in_use.entry(resource.clone()).or_default() += count;
        }
    }

    /// The configured count of a resource.
    fn limit(&self, name: &str, device: Option<u16>) -> Option<u64> {
        let of = |wanted: Option<u16>| {
            let limits = self.limits.iter().filter(move |limit| limit.name == name && limit.device == wanted);
            limits.map(|limit| u64::from(limit.count)).max()
        };
        device.and_then(|device| of(Some(device))).or_else(|| of(None))
    }

    /// The available count of a resource.
    fn capacity(&self, (name, device): &ResourceKey) -> u64 {
        let most = || {
            let all = self.instances.values().flat_map(|instance| &instance.needs);
            all.filter(|((of, on), _)| of == name && on == device).map(|(_, count)| *count).max().unwrap_or(0)
        };
        self.limit(name, *device).unwrap_or_else(most)
    }
}

#[cfg(test)]
#[path = "tests/rate_ledger.rs"]
mod tests;
