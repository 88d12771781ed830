//! Admits a request to the table of its model: makes a missing id, takes memory for the sequence that it starts, and counts that for its
//! client. The contents of the request were checked before.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sequor_core::{Id, NoId, QueueTerms, Req, RequestMeta, Submit, Time};

use crate::config::model::settings::Scheduling;
use crate::error::Failure;
use crate::model::load::{LoadedModel, SequenceStore};
use crate::model::request::InferRequest;
use crate::model::sequences::jobs::{Job, SequenceOwner, SequencePermit};
use crate::model::sequences::offloaded::WantedMemory;
use crate::model::sequences::table::{SequenceLookup, Table};
use crate::model::sequences::write_back::spill;
use crate::state::budget::{Budget, Ticket};
use crate::sync::AtomicU64;

/// The limits and ids for requests of one model name.
#[derive(Debug)]
pub(in crate::model::sequences) struct RequestAdmission {
    model: String,
    budget: Budget,
    /// The next id for a sequence whose START came without one.
    fresh_ids: AtomicU64,
    store: Option<Arc<SequenceStore>>,
}

/// Bits of an id that count the ids of an epoch.
pub(in crate::model) const ID_BITS: u32 = 14;

/// Makes a request without an id a whole sequence, if its model is iterative. No ONNX model asks for a further iteration, so the first one is
/// the last.
pub(in crate::model::sequences) fn make_whole(load: &LoadedModel, request: &mut InferRequest) {
    if is_iterative(load) && request.sequence.id == Id::None {
        (request.sequence.start, request.sequence.end) = (true, true);
    }
}

fn is_iterative(load: &LoadedModel) -> bool {
    matches!(&load.settings.scheduling, Scheduling::Sequence(sequence) if sequence.iterative)
}

impl RequestAdmission {
    pub(in crate::model::sequences) fn new(
        model: &str,
        budget: Budget,
        (first_id, store): (u64, Option<Arc<SequenceStore>>),
    ) -> RequestAdmission {
        RequestAdmission { model: model.to_owned(), budget, fresh_ids: AtomicU64::new(first_id), store }
    }

    /// An id that no sequence had before.
    fn fresh_id(&self) -> u64 {
        let id = self.fresh_ids.fetch_add(1, Ordering::Relaxed);
        if let Some(store) = &self.store {
            store.uses(id >> ID_BITS);
        }
        id
    }

    /// A new id for the sequence of this request, if the server has to assign one.
    pub(in crate::model::sequences) fn assigned_id(&self, load: &LoadedModel, request: &InferRequest) -> Option<u64> {
        let Scheduling::Sequence(sequence) = &load.settings.scheduling else { return None };
        let assigns = is_iterative(load)
            || (request.sequence.start && sequence.dialect.unwrap_or(request.dialect).no_id == NoId::Assign);
        (assigns && request.sequence.id == Id::None).then(|| self.fresh_id())
    }

    pub(in crate::model::sequences) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// A request as an event for the core. Its key is set when it enters the table.
    pub(in crate::model::sequences) fn event(
        &self,
        (load, version): (&LoadedModel, Option<u64>),
        request: &InferRequest,
        (meta, patience): (RequestMeta, Option<Duration>),
        now: Time,
    ) -> Submit {
        let sequence = match &load.settings.scheduling {
            Scheduling::Sequence(sequence) => Some(sequence),
            _ => None,
        };
        let timeout = request.timeout.map(|t| now + t);
        let wait = sequence.and_then(|s| s.backlog_timeout).map(|t| now + t).filter(|_| request.sequence.start);
        let step = &request.sequence;
        let mut dialect = sequence.and_then(|s| s.dialect).unwrap_or(request.dialect);
        if is_iterative(load) {
            dialect.no_id = NoId::Assign;
        }
        let makes_id = sequence.is_some() && step.id == Id::None && step.start && dialect.no_id == NoId::Assign;
        Submit {
            req: Req::new(0, std::num::NonZeroU32::MIN),
            id: step.id.clone(),
            fresh_id: if makes_id { self.fresh_id() } else { 0 },
            start: step.start,
            end: step.end,
            adopt: None,
            adopt_on: None,
            prepare: false,
            step: step.step,
            version,
            dialect,
            deadline: timeout.or(patience.map(|t| now + t)),
            backlog_until: timeout.into_iter().chain(wait).min(),
            queue_until: match &load.settings.scheduling {
                Scheduling::Sequence(sequence) => timeout.filter(|_| sequence.reject_expired),
                Scheduling::Dynamic { queue, .. } => {
                    let policy = queue.policy_of(queue.level_of(request.priority));
                    policy.timeout_of(request.timeout).map(|t| now + t)
                }
                Scheduling::Each => None,
            },
            queue: queue_terms(&load.settings.scheduling, request.priority),
            idle: step.idle,
            priority: request.priority,
            meta,
            origin: 0,
        }
    }

    /// Gives a request its id, its permit and its memory. The table is locked, and unchanged if this fails.
    pub(in crate::model::sequences) fn admit(
        &self,
        table: &mut Table,
        (job, submit): (&mut Job, &mut Submit),
        owner: Option<&Arc<dyn SequenceOwner>>,
        now: Time,
    ) -> Result<(), Failure> {
        // A client may have chosen the id that the server would make next.
        while submit.fresh_id != 0 && table.core.find(&Id::Int(submit.fresh_id), None).is_some() {
            submit.fresh_id = self.fresh_id();
            job.id = Id::Int(submit.fresh_id);
        }
        job.claims.permit = self.permit(table, &job.load, submit, owner)?;
        match self.ticket(table, &job.load, submit) {
            Ok(ticket) => job.claims.ticket = ticket,
            // Idle sequences move to the store instead, to make room.
            Err(_) if spill::can_spill(table, now, &job.load) => {
                let bytes = bytes_to_begin(table, &job.load, submit);
                job.claims.wants = Some(Box::new(WantedMemory { bytes, meta: submit.meta }));
                submit.prepare = true;
            }
            Err(no_room) => return Err(no_room),
        }
        Ok(())
    }

    /// State memory for the sequence that this request starts. A live sequence restarts in the memory that it has.
    fn ticket(&self, table: &mut Table, load: &LoadedModel, submit: &Submit) -> Result<Option<Ticket>, Failure> {
        let bytes = bytes_to_begin(table, load, submit);
        let begins = submit.start || table.resumes(&submit.id, submit.version);
        if !begins || bytes == 0 || table.holds(&submit.id, submit.version, load.key) {
            return Ok(None);
        }
        let taken = self.budget.take_under_lock(bytes, &mut table.actions.unneeded);
        taken.map(Some).map_err(|no_room| Failure::StateMemory {
            model: self.model.clone(),
            id: submit.id.clone(),
            wanted: no_room.wanted,
            used: no_room.used,
            limit: no_room.limit,
        })
    }

    /// Counts the sequence that this request starts for its owner.
    fn permit(
        &self,
        table: &Table,
        load: &LoadedModel,
        submit: &Submit,
        owner: Option<&Arc<dyn SequenceOwner>>,
    ) -> Result<Option<SequencePermit>, Failure> {
        let is_sequence = matches!(load.settings.scheduling, Scheduling::Sequence(_));
        let starts =
            is_sequence && (submit.start || table.has_import(&submit.id) || table.resumes(&submit.id, submit.version));
        let Some(owner) = owner.filter(|_| starts) else { return Ok(None) };
        if table.is_owned(&submit.id, submit.version, owner) {
            return Ok(Some(SequencePermit::instead(owner)));
        }
        SequencePermit::try_new(owner).map(Some).map_err(|limit| Failure::PeerSequences {
            model: self.model.clone(),
            id: submit.id.clone(),
            limit,
        })
    }
}

/// State memory with which a sequence begins: the size at START, or more for a stored state that has grown.
fn bytes_to_begin(table: &Table, load: &LoadedModel, submit: &Submit) -> u64 {
    let bytes = load.state_bytes();
    if submit.start || !load.grows() {
        return bytes;
    }
    table.kept.get(&submit.id).map_or(bytes, |kept| load.state_bytes_of(kept.head.bytes))
}

/// The queue level for this priority, and the limits of that level.
fn queue_terms(scheduling: &Scheduling, priority: u32) -> QueueTerms {
    match scheduling {
        Scheduling::Each => QueueTerms::default(),
        Scheduling::Dynamic { queue, .. } => {
            let level = queue.level_of(priority);
            let policy = queue.policy_of(level);
            QueueTerms { level, most: policy.max_size.unwrap_or(0), delays: policy.delays }
        }
        Scheduling::Sequence(sequence) => {
            let levels = sequence.backlog_levels;
            let level = if (1..=levels).contains(&priority) { priority } else { levels };
            QueueTerms { level, ..QueueTerms::default() }
        }
    }
}
