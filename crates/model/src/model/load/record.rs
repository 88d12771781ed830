//! Facts for a recording: a load's settings, and the time, size and outcome of each finished request. They contain no tensor and no plain
//! id.

use std::time::Duration;

use sequor_core::{Expiry, LoadSpec, RequestMeta, Strategy, Time};

use crate::model::request::InferRequest;
use crate::recording::{FinishedRequest, trace};

use super::core_spec::strategy_name;
use super::loaded::LoadedModel;

/// The facts of a request at its admission, and the size of its batch.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::model) struct RequestFacts {
    pub(in crate::model) start: bool,
    pub(in crate::model) end: bool,
    bytes: u64,
    shape: u64,
    priority: u32,
    timeout: Option<Duration>,
    /// The size of its batch; 0 until the request is taken.
    pub(in crate::model) batch: u32,
}

impl RequestFacts {
    pub(in crate::model) fn new(request: &InferRequest, meta: &RequestMeta) -> RequestFacts {
        RequestFacts {
            start: request.sequence.start,
            end: request.sequence.end,
            bytes: meta.bytes,
            shape: meta.shape,
            priority: request.priority,
            timeout: request.timeout,
            batch: 0,
        }
    }

    /// The facts of a finished request, with its queue time, run time and outcome.
    pub(in crate::model) fn through(
        &self,
        load: &LoadedModel,
        arrived: Time,
        (queue, run): (Duration, Duration),
        outcome: &'static str,
    ) -> FinishedRequest {
        let RequestFacts { start, end, bytes, shape, priority, timeout, batch } = *self;
        FinishedRequest {
            arrived_us: micros(arrived - Time::ZERO),
            model: load.settings.name.as_str().into(),
            version: load.version,
            start,
            end,
            bytes,
            shape,
            priority,
            timeout_us: timeout.map(micros),
            queue_us: micros(queue),
            run_us: micros(run),
            batch,
            outcome,
        }
    }
}

pub(in crate::model) fn load(load: &LoadedModel, spec: &LoadSpec) -> trace::Load<'static> {
    let delay = match &spec.strategy {
        Strategy::Stateless { delay, .. } | Strategy::Direct { delay, .. } | Strategy::Oldest { delay, .. } => *delay,
        Strategy::Deadline { .. } => Duration::ZERO,
    };
    let idle = match spec.expiry {
        Expiry::Idle(idle) => Some(micros(idle)),
        Expiry::TwoScans { every } => Some(micros(every)),
        Expiry::Never => None,
    };
    trace::Load {
        load: load.settings.name.clone().into(),
        version: load.version,
        strategy: strategy_name(&spec.strategy).into(),
        instances: spec.instances,
        slots: spec.slots(),
        max_batch: spec.max_batch,
        delay_us: micros(delay),
        idle_us: idle,
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
