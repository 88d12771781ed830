//! The policy that decides for a load: a plug-in (`D`) or the built-in one. The owner of the core keeps it beside the core, under the same
//! lock. So a question and the plug-in that answers it always belong together.

use sequor_core::{Event, Hooks, LoadId};

#[derive(Debug, Clone)]
pub struct LoadPolicy<D> {
    decider: Option<D>,
    /// The hooks of the decider that the core calls. `None`: the decider is parked.
    hooks: Option<Hooks>,
    /// Number of guests that are starting and need the events that happen meanwhile.
    subscribers: usize,
    /// How often the guest or its hooks were replaced.
    swaps: u64,
}

impl<D> Default for LoadPolicy<D> {
    fn default() -> Self {
        LoadPolicy { decider: None, hooks: None, subscribers: 0, swaps: 0 }
    }
}

impl<D> LoadPolicy<D> {
    pub fn decider(&self) -> Option<&D> {
        self.decider.as_ref()
    }

    /// The decider, to change its guest. Questions that are out keep the guest that they were handed out with.
    pub fn decider_mut(&mut self) -> Option<&mut D> {
        self.decider.as_mut()
    }

    /// Lets another plug-in or the built-in policy decide. Questions that are out become void, and the core asks again.
    pub fn swap(&mut self, decider: Option<D>, hooks: Option<Hooks>) -> Option<D> {
        self.hooks = hooks;
        self.swaps += 1;
        std::mem::replace(&mut self.decider, decider)
    }

    /// Whether the core asks the decider.
    pub fn is_asked(&self) -> bool {
        self.hooks.is_some()
    }

    /// Makes the core report events from now on, even if the decider wants none.
    pub fn subscribe(&mut self) {
        self.subscribers += 1;
    }

    pub fn unsubscribe(&mut self) {
        self.subscribers = self.subscribers.saturating_sub(1);
    }

    /// The hooks that the core calls. Subscribers do not change the questions.
    pub fn called(&self) -> Option<Hooks> {
        match self.hooks {
            Some(hooks) => Some(Hooks { observe: hooks.observe || self.subscribers > 0, ..hooks }),
            None => (self.subscribers > 0).then(|| Hooks { observe: true, ..Hooks::default() }),
        }
    }

    /// The event that tells the core about the change from `before` to this.
    pub fn event_since(&self, before: &LoadPolicy<D>, load: LoadId) -> Option<Event> {
        let changed = self.swaps != before.swaps || self.called() != before.called();
        changed.then(|| Event::Attach(load, self.called()))
    }
}
