//! The core's record of a request, from submission until its answer is released.

use crate::faults::{Planted, fault};
use crate::ids::{LoadId, Req, Seq};
use crate::level_queue::QueuePlace;
use crate::request_meta::RequestMeta;
use crate::spec::Dialect;
use crate::time::Time;

#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) key: Req,
    pub(crate) load: LoadId,
    /// `None` for a stateless request.
    pub(crate) seq: Option<Seq>,
    pub(crate) start: bool,
    pub(crate) end: bool,
    /// Its number within the sequence; 0 for a stateless request.
    pub(crate) step: u64,
    /// Whether the client gave the number.
    pub(crate) counted: bool,
    /// Whether the client named the version.
    pub(crate) names_version: bool,
    pub(crate) dialect: Dialect,
    pub(crate) arrival: Time,
    /// The time at which it became ready. Not valid before.
    pub(crate) ready: Time,
    pub(crate) deadline: Option<Time>,
    pub(crate) priority: u32,
    /// Its place among the ready requests, if it has no sequence.
    pub(crate) place: QueuePlace,
    /// Whether it moves behind the others when it is late, instead of being refused.
    pub(crate) delays: bool,
    pub(crate) meta: RequestMeta,
    pub(crate) stage: RequestStage,
    /// The plan for it; `None` until it is prepared.
    pub(crate) plan: Option<RunPlan>,
    /// Class of the shapes of the first state that was made for this START; `None` means the load's.
    pub(crate) first_shape: Option<u64>,
    /// Number of its runs that succeeded. Between two runs it waits at the head of its queue.
    pub(crate) ran: u32,
    /// Its place in the order of answers, if the load keeps one.
    pub(crate) turn: Option<u64>,
    /// The time at which it is refused if it is still queued.
    pub(crate) queue_until: Time,
    pub(crate) armed: Time,
}

impl Request {
    /// Whether none of its runs has ended well yet. The first run of a START begins its sequence.
    pub(crate) fn is_first_run(&self) -> bool {
        self.ran == 0
    }

    /// Whether it may still be refused: it waits, and no run of it has ended.
    pub(crate) fn is_untouched(&self) -> bool {
        matches!(self.stage, RequestStage::Queued | RequestStage::Preparing)
            && (self.ran == 0 || fault(Planted::CancelledBetweenRuns))
    }
}

/// The plan for a prepared request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RunPlan {
    /// Run this many more times.
    Run(u32),
    /// Answer without a run.
    Reply,
}

// ## Queued    => Preparing | Running | Replying | (released) | (refused)
// ## Preparing => Queued | (released) | (refused)
// ## Running   => Queued | Sealing | Posting | (released)
// ## Sealing   => Posting | (released) | (refused)
// ## Posting   => (released)
// ## Replying  => (released) | (refused)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestStage {
    /// In the queue of its sequence or of its load.
    Queued,
    /// Lent to the driver for preparation. It stays in its queue, so it can be refused or cancelled.
    Preparing,
    Running,
    Sealing,
    Posting,
    /// Its step is done without a run and is being made durable. The sequence does not wait for it.
    Replying,
}

/// Requests by the driver's keys: the driver's table is dense, so this one is too.
#[derive(Debug, Default)]
pub(crate) struct RequestTable {
    entries: Vec<Option<Request>>,
    /// Number of open requests of each load. A load's key is used again only once it has none.
    open: Vec<u32>,
}

impl RequestTable {
    pub(crate) fn insert(&mut self, request: Request) {
        let (ix, load) = (request.key.ix as usize, request.load.ix as usize);
        if self.entries.len() <= ix {
            self.entries.resize_with(ix + 1, || None);
        }
        if self.open.len() <= load {
            self.open.resize(load + 1, 0);
        }
        if let (Some(place), Some(open)) = (self.entries.get_mut(ix), self.open.get_mut(load)) {
            *place = Some(request);
            *open += 1;
        }
    }

    /// Whether a request has its plan, so that it can run or be answered in its turn.
    pub(crate) fn is_prepared(&self, key: Req) -> bool {
        self.get(key).is_some_and(|r| r.plan.is_some())
    }

    pub(crate) fn get(&self, key: Req) -> Option<&Request> {
        self.at(key.ix).filter(|r| r.key == key)
    }

    pub(crate) fn get_mut(&mut self, key: Req) -> Option<&mut Request> {
        self.entries.get_mut(key.ix as usize)?.as_mut().filter(|r| r.key == key)
    }

    pub(crate) fn at(&self, ix: u32) -> Option<&Request> {
        self.entries.get(ix as usize)?.as_ref()
    }

    // Inlined, so that a caller that reads two fields does not copy them all.
    #[inline(always)]
    pub(crate) fn remove(&mut self, key: Req) -> Option<Request> {
        let request = self.entries.get_mut(key.ix as usize)?.take_if(|r| r.key == key)?;
        if let Some(open) = self.open.get_mut(request.load.ix as usize) {
            *open = open.saturating_sub(1);
        }
        Some(request)
    }

    /// Number of requests that are not over.
    pub(crate) fn len(&self) -> usize {
        self.open.iter().map(|open| *open as usize).sum()
    }

    /// Number of requests of this load that are not over.
    pub(crate) fn open(&self, load: LoadId) -> u32 {
        self.open.get(load.ix as usize).copied().unwrap_or(0)
    }
}
