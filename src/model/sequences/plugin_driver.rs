//! A model, as its plug-ins reach it: what its core is to call for, what they are told, and what they may ask.

use std::sync::{Arc, Weak};

use sequor_core::{Event, Hooks, Id, Load, Observed, Portion, Seq, Time};

use crate::model::load::Loaded;
use crate::model::runtime::Clock;
use crate::scheduling::{self, SchedulerBinding, SchedulerPort};

use super::driver::Model;
use super::table::{Actions, PolicyNotice};

impl scheduling::Clock for Clock {
    fn now(&self) -> Time {
        Clock::now(self)
    }
}

/// A model, as its plug-ins reach it.
#[derive(Debug)]
struct PluginHost(Weak<Model>);

impl scheduling::SchedulerHost for PluginHost {
    fn attach(&self, load: Load, hooks: Option<Hooks>, with: &mut dyn FnMut()) {
        if let Some(model) = self.0.upgrade() {
            model.attach(load, hooks, with);
        }
    }

    fn is_there(&self, load: Load) -> bool {
        self.0.upgrade().is_some_and(|model| model.loads().iter().any(|l| l.key == load))
    }

    fn live(&self, load: Load, from: u32, room: Vec<(u64, Observed)>) -> Option<Portion> {
        self.0.upgrade()?.live_on(load, from, room)
    }

    fn sequence_text(&self, handle: u64) -> Option<String> {
        self.0.upgrade()?.id_of(Seq::of_handle(handle)?).map(|id| id.to_string())
    }
}

/// What a model's external policies are told, and may ask.
impl Model {
    /// Which hooks of an external policy the core calls for this load; `with` is done in the same lock section.
    fn attach(self: &Arc<Self>, load: Load, hooks: Option<Hooks>, with: &mut dyn FnMut()) {
        let now = self.now();
        let mut table = self.table.lock();
        table.apply(now, Event::Attach(load, hooks));
        // What was given up was the round of whoever decided until now.
        let actions = self.settle(&mut table);
        with();
        drop(table);
        self.act(actions, now);
    }

    /// Where plug-ins reach a load.
    pub(in crate::model) fn port(self: &Arc<Self>, load: &Loaded) -> Arc<SchedulerPort> {
        let made = || SchedulerPort::new(load.key, Arc::new(PluginHost(Arc::downgrade(self))));
        Arc::clone(load.port.get_or_init(made))
    }

    /// Some of who lives on a load; `None` once it is gone.
    fn live_on(&self, load: Load, from: u32, room: Vec<(u64, Observed)>) -> Option<Portion> {
        let there = self.loads().iter().any(|l| l.key == load);
        there.then(|| self.table.lock().core.live(load, from, room))
    }

    fn id_of(&self, seq: Seq) -> Option<Id> {
        self.table.lock().core.id_of(seq).cloned()
    }

    /// Who decides for those who start now.
    pub(in crate::model) fn decider(&self) -> Option<Arc<SchedulerBinding>> {
        self.loads().iter().find(|l| !l.is_retired()).and_then(|l| l.binding.load_full())
    }

    /// Who is told what there is to tell: whoever decides now, under the lock under which that changes.
    pub(super) fn address(&self, actions: &mut Actions) {
        if actions.policies.is_empty() {
            return;
        }
        let loads = self.loads();
        for (load, whom, _) in &mut actions.policies {
            *whom = loads.iter().find(|l| l.key == *load).and_then(|l| l.binding.load_full());
        }
    }

    pub(super) fn tell_policy(&self, load: Load, whom: Option<Arc<SchedulerBinding>>, what: PolicyNotice) {
        match (whom, what) {
            (Some(binding), PolicyNotice::News(first, news, lost)) => binding.tell(first, news, lost),
            (Some(binding), PolicyNotice::Fallback) => binding.fell_back(),
            (Some(binding), PolicyNotice::Stale(picks)) => binding.went_stale(picks),
            // Somebody may be about to come.
            (None, PolicyNotice::News(first, news, lost)) => {
                let loads = self.loads();
                let port = loads.iter().find(|l| l.key == load).and_then(|l| l.port.get());
                port.map(|port| port.put(first, news, lost));
            }
            (None, PolicyNotice::Fallback | PolicyNotice::Stale(_)) => {}
        }
    }
}
