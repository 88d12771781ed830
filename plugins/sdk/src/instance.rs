//! A scheduler in the contract's functions, over plain data. The component and the native twin are thin layers over this, so both run the
//! same code.

use crate::admission::Admission;
use crate::columns::Columns;
use crate::config::Config;
use crate::event::Events;
use crate::model::Model;
use crate::plan::Decision;
use crate::ready::Ready;
use crate::round::Round;
use crate::scheduler::Scheduler;

/// One instance: the author's type and the model it decides for.
#[derive(Debug, Default)]
pub struct Instance<P> {
    pub plugin: P,
    model: Model,
}

impl<P: Scheduler> Instance<P> {
    pub fn configure(&mut self, config: &str, model: Model) -> Result<(), String> {
        self.model = model;
        self.plugin.configure(&Config::from_json(config)?, &self.model)
    }

    /// Chooses the candidates to run. `events`: those since the last call.
    pub fn plan(&mut self, round: &Round, ready: &Columns<'_>, events: Events<'_>) -> Option<Decision> {
        self.observe(events);
        self.plugin.plan(round, &Ready::new(ready, &self.model)).decide(round.now_us)
    }

    /// Chooses the sequences that get a slot. `events`: those since the last call.
    pub fn admit(
        &mut self,
        round: &Round,
        waiting: &Columns<'_>,
        room: &[u32],
        victims: &Columns<'_>,
        events: Events<'_>,
    ) -> Vec<Admission> {
        self.observe(events);
        let (waiting, victims) = (Ready::new(waiting, &self.model), Ready::new(victims, &self.model));
        self.plugin.admit(round, &waiting, room, &victims)
    }

    pub fn observe(&mut self, events: Events<'_>) {
        for event in events.each(&self.model) {
            self.plugin.observe(&event);
        }
    }

    pub fn save(&mut self) -> Vec<u8> {
        self.plugin.save()
    }

    pub fn restore(&mut self, saved: &[u8]) -> Result<(), String> {
        self.plugin.restore(saved)
    }

    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }
}
