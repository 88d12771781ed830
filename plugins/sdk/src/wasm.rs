//! The coat of a component: the types of the generated code to ours and back, and a panic's words to the server's log before the trap.

use crate::Instance;
use crate::bindings::exports::sequor::plugin::scheduler as contract;
use crate::scheduler::{self, Scheduler};

/// Where [`crate::export!`] keeps the one instance of a component.
pub trait Exported {
    type Plugin: Scheduler;

    fn with<R>(call: impl FnOnce(&mut Instance<Self::Plugin>) -> R) -> R;
}

impl<E: Exported> contract::Guest for E {
    fn configure(config: String, model: contract::Model) -> Result<(), String> {
        // The first call: a trap carries no message, so a panic says here what it was.
        std::panic::set_hook(Box::new(|panic| crate::host::error(&panic.to_string())));
        E::with(|instance| instance.configure(&config, model.into()))
    }

    fn plan(round: contract::Round, ready: contract::Columns) -> Option<contract::Decision> {
        let said = E::with(|instance| instance.plan(&round.into(), &ready.into()))?;
        let scheduler::Decision { fire, reject, reject_code, wake_us } = said;
        Some(contract::Decision { fire, reject, reject_code, wake_us })
    }

    fn admit(
        round: contract::Round,
        waiting: contract::Columns,
        room: Vec<u32>,
        victims: contract::Columns,
    ) -> Vec<contract::Admission> {
        let said = E::with(|instance| instance.admit(&round.into(), &waiting.into(), &room, &victims.into()));
        said.into_iter().map(Into::into).collect()
    }

    fn observe(events: contract::Events) {
        let contract::Events { kind, sequence, amount, keys } = events;
        E::with(|instance| instance.observe(&scheduler::Events { kind, sequence, amount, keys }));
    }

    fn save() -> Vec<u8> {
        E::with(Instance::save)
    }

    fn restore(saved: Vec<u8>) -> Result<(), String> {
        E::with(|instance| instance.restore(&saved))
    }
}

impl From<contract::Model> for scheduler::Model {
    fn from(model: contract::Model) -> scheduler::Model {
        let contract::Model { name, version, strategy, max_batch, instances, slots, numbers, keys } = model;
        scheduler::Model { name, version, strategy, max_batch, instances, slots, numbers, keys }
    }
}

impl From<contract::Round> for scheduler::Round {
    fn from(round: contract::Round) -> scheduler::Round {
        let contract::Round { now_us, instance, max_batch, free_instances, live, backlog, not_shown } = round;
        scheduler::Round { now_us, instance, max_rows: max_batch, free_instances, live, backlog, not_shown }
    }
}

impl From<contract::Columns> for scheduler::Columns {
    fn from(columns: contract::Columns) -> scheduler::Columns {
        scheduler::Columns {
            len: columns.len,
            sequence: columns.sequence.unwrap_or_default(),
            step: columns.step.unwrap_or_default(),
            slot: columns.slot.unwrap_or_default(),
            arrival_us: columns.arrival_us.unwrap_or_default(),
            ready_us: columns.ready_us.unwrap_or_default(),
            deadline_us: columns.deadline_us.unwrap_or_default(),
            priority: columns.priority.unwrap_or_default(),
            shape_key: columns.shape_key.unwrap_or_default(),
            start_end: columns.start_end.unwrap_or_default(),
            rows: columns.rows.unwrap_or_default(),
            input_bytes: columns.input_bytes.unwrap_or_default(),
            state_bytes: columns.state_bytes.unwrap_or_default(),
            numbers: columns.numbers.unwrap_or_default(),
            keys: columns.keys.unwrap_or_default(),
        }
    }
}

impl From<scheduler::Admission> for contract::Admission {
    fn from(said: scheduler::Admission) -> contract::Admission {
        match said {
            scheduler::Admission::Take(instance) => contract::Admission::Take(instance),
            scheduler::Admission::Evict(victim) => contract::Admission::Evict(victim),
            scheduler::Admission::Defer => contract::Admission::Defer,
            scheduler::Admission::Reject(code) => contract::Admission::Reject(code),
        }
    }
}
