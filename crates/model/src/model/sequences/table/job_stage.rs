//! The stage of a request between its submission and its answer. The table keeps the job in its stage.

use crate::model::sequences::ensembles::StepOfFlow;
use crate::model::sequences::jobs::Job;

#[derive(Debug)]
pub(in crate::model::sequences) enum JobStage {
    /// In its queue.
    Queued(Box<Job>),
    /// Its preparation is in progress. The job stays here, so that the request can be refused or cancelled meanwhile.
    Preparing(Box<Job>),
    /// The thread that runs its batch has the job. If the job is lost in a panic, the ensemble that waits for it learns that from here.
    Running(Option<StepOfFlow>),
    /// It has run, and its state is being made durable.
    Sealing(Box<Job>),
    /// It has run, and its answer is being postprocessed.
    Posting(Box<Job>),
}

impl JobStage {
    /// The job, unless a thread has it.
    pub(super) fn into_job(self) -> Option<Box<Job>> {
        match self {
            JobStage::Queued(job) | JobStage::Preparing(job) | JobStage::Sealing(job) | JobStage::Posting(job) => {
                Some(job)
            }
            JobStage::Running(_) => None,
        }
    }

    pub(in crate::model::sequences) fn job(&self) -> Option<&Job> {
        match self {
            JobStage::Queued(job) | JobStage::Preparing(job) | JobStage::Sealing(job) | JobStage::Posting(job) => {
                Some(job)
            }
            JobStage::Running(_) => None,
        }
    }

    pub(in crate::model::sequences) fn job_mut(&mut self) -> Option<&mut Job> {
        match self {
            JobStage::Queued(job) | JobStage::Preparing(job) | JobStage::Sealing(job) | JobStage::Posting(job) => {
                Some(job)
            }
            JobStage::Running(_) => None,
        }
    }

    /// Takes the job for a run.
    pub(super) fn lend(&mut self) -> Option<Box<Job>> {
        let step = self.job()?.reply.step().cloned();
        std::mem::replace(self, JobStage::Running(step)).into_job()
    }

    /// Moves a job that is in the table to another stage.
    pub(in crate::model) fn set(&mut self, stage: fn(Box<Job>) -> JobStage) {
        if let Some(job) = self.lend() {
            *self = stage(job);
        }
    }
}
