//! The requests of an ensemble and of its members in their tables: making a flow, and applying its end.

use std::sync::{Arc, Weak};

use sequor_core::{EndReason, Event, Preparation, Refusal, Req, RequestMeta, Seq, Time};

use crate::config::model::settings::Scheduling;
use crate::error::Failure;
use crate::model::execute::RunTimes;
use crate::model::sequences::ensembles::{EnsembleFlow, EnsembleMembers, FlowGuard, FlowHost, FlowRequest, FlowState};
use crate::model::sequences::jobs::Job;
use crate::sync::Mutex;
use crate::tensor::Tensor;

use super::job_stage::JobStage;
use super::model_table::Table;

/// The code of `Refusal::Failed` for a request whose member failed. The job has the failure.
const BY_MEMBER: u32 = 5;

/// The operations of flows on the table of an ensemble or of a member.
pub(in crate::model::sequences) trait FlowTable {
    /// Makes the flow of a request whose turn has arrived. `None` if the request is over.
    fn make_flow(
        &mut self,
        ensemble: Weak<dyn FlowHost>,
        members: Arc<EnsembleMembers>,
        req: Req,
    ) -> Option<Arc<EnsembleFlow>>;

    /// Answers a request whose steps are all done.
    fn flow_done(&mut self, now: Time, req: Req, outputs: Vec<Option<Tensor>>, compute: RunTimes);

    /// Refuses a request whose member failed, and ends its sequence if that must end.
    fn flow_failed(&mut self, now: Time, req: Req, ends: Option<Seq>, failure: Failure);

    /// Ends the ensemble's sequence, because this member has lost its own.
    fn end_for_member(&mut self, now: Time, seq: Seq, why: EndReason, member: &str);

    /// Passes its inputs to a START that has its slot. Does nothing if the START is over.
    fn provide(&mut self, now: Time, req: Req, meta: RequestMeta, fill: impl FnOnce(&mut Job));
}

impl FlowTable for Table {
    fn make_flow(
        &mut self,
        ensemble: Weak<dyn FlowHost>,
        members: Arc<EnsembleMembers>,
        req: Req,
    ) -> Option<Arc<EnsembleFlow>> {
        let job = self.jobs.get_mut(req).and_then(JobStage::job_mut)?;
        let (load, seq) = (Arc::clone(&job.load), job.seq);
        let FlowRequest { mut request, headers, until, callers, connection } = *job.in_ensemble.flow_request.take()?;
        // The server may have assigned the id.
        request.sequence.id = job.id.clone();
        if let Scheduling::Sequence(sequence) = &load.settings.scheduling {
            request.dialect = sequence.dialect.unwrap_or(request.dialect);
        }
        let state = Mutex::new(FlowState::new(&load.ensemble.as_ref()?.plan, std::mem::take(&mut job.inputs)));
        let held = seq.and_then(|seq| self.live(seq)).and_then(|live| live.members.clone());
        let starts = request.sequence.start && held.is_some();
        let previous = self.ending_members.get(&request.sequence.id).filter(|_| starts).cloned();
        let flow = Arc::new(EnsembleFlow {
            ensemble,
            req,
            seq,
            load,
            members,
            request,
            headers,
            until,
            callers,
            connection,
            held,
            previous,
            state,
        });
        let job = self.jobs.get_mut(req).and_then(JobStage::job_mut)?;
        job.in_ensemble.flow = Some(FlowGuard(Arc::clone(&flow)));
        Some(flow)
    }

    fn flow_done(&mut self, now: Time, req: Req, outputs: Vec<Option<Tensor>>, compute: RunTimes) {
        let step = self.core.step_of_request(req);
        let Some(job) = self.jobs.get_mut(req).and_then(JobStage::job_mut) else { return };
        (job.answer, job.compute) = (Some(Ok(outputs)), compute);
        if let Some(span) = &job.span {
            span.runs(step);
        }
        self.set_stage(req, JobStage::Queued);
        self.apply(now, Event::Prepared(req, Preparation::Reply));
    }

    fn flow_failed(&mut self, now: Time, req: Req, ends: Option<Seq>, failure: Failure) {
        let Some(job) = self.jobs.get_mut(req).and_then(JobStage::job_mut) else { return };
        let ender = match &failure {
            Failure::Member { member, .. } if ends.is_some() => Some((job.id.clone(), member.clone())),
            _ => None,
        };
        job.failure = Some(failure);
        self.set_stage(req, JobStage::Queued);
        let refusal = Refusal::Failed(BY_MEMBER);
        self.apply(
            now,
            match ends {
                Some(seq) => Event::End(seq, EndReason::Member),
                None => Event::Prepared(req, Preparation::Refuse { refusal, ends: false }),
            },
        );
        if let Some((id, member)) = ender {
            self.member_enders.note_member(&self.core, now, &id, &member);
        }
    }

    fn end_for_member(&mut self, now: Time, seq: Seq, why: EndReason, member: &str) {
        let id = self.core.view_of(seq).map(|seen| seen.id);
        self.apply(now, Event::End(seq, why));
        if let Some(id) = id {
            self.member_enders.note_member(&self.core, now, &id, member);
        }
    }

    fn provide(&mut self, now: Time, req: Req, meta: RequestMeta, fill: impl FnOnce(&mut Job)) {
        let Some(job) = self.jobs.get_mut(req).and_then(JobStage::job_mut) else { return };
        fill(job);
        job.in_ensemble.reservation = None;
        let (seq, is_prepared) = (job.seq, job.processed.is_some() || job.source.store.is_some());
        if !is_prepared {
            self.set_stage(req, JobStage::Queued);
            self.apply(now, Event::Prepared(req, Preparation::Run(meta)));
        } else if let Some(event) = self.lend_to_prepare(req, seq) {
            self.apply(now, event);
        }
    }
}
