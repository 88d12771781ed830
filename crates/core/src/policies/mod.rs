//! The built-in policies. Each sees the same as an external one.

mod deadline;
mod direct;
mod oldest;

pub use deadline::EarliestDeadline;
pub use direct::Direct;
pub use oldest::Oldest;

use std::time::Duration;

use crate::policy::Policy;
use crate::spec::{LoadSpec, Strategy};

/// The policy that plans a load's batches if no external one does.
pub fn built_in(spec: &LoadSpec) -> Box<dyn Policy> {
    match &spec.strategy {
        Strategy::Stateless { batching: false, .. } => Box::new(Oldest::one_by_one()),
        Strategy::Stateless { preferred, delay, .. } | Strategy::Oldest { preferred, delay, .. } => {
            Box::new(Oldest::new(spec.max_batch, preferred, *delay))
        }
        Strategy::Direct { delay, min_use, .. } => Box::new(Direct::new(spec.slots(), *delay, *min_use)),
        Strategy::Deadline { .. } => Box::new(EarliestDeadline),
    }
}

/// The policy for a round in which a request has waited for too long: no delay, no preference.
pub(crate) fn forced(spec: &LoadSpec) -> Box<dyn Policy> {
    match &spec.strategy {
        Strategy::Stateless { batching: false, .. } => Box::new(Oldest::one_by_one()),
        Strategy::Direct { .. } => Box::new(Direct::new(spec.slots(), Duration::ZERO, 0.0)),
        _ => Box::new(Oldest::new(spec.max_batch, &[], Duration::ZERO)),
    }
}
