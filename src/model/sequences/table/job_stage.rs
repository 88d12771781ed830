//! Where a request is between its submission and its answer, as the driver's table keeps it.

use crate::model::sequences::jobs::Job;

#[derive(Debug)]
pub(in crate::model::sequences) enum JobPlace {
    /// In its queue.
    Queued(Box<Job>),
    /// Its preparation is under way. The job stays here, so that the request can be refused or cancelled meanwhile.
    Preparing(Box<Job>),
    /// The thread that runs its batch has the job.
    Running,
    /// It has run, and its state is being made durable.
    Sealing(Box<Job>),
    /// It has run, and its answer is being postprocessed.
    Posting(Box<Job>),
}

impl JobPlace {
    /// The job, unless a thread has it.
    pub(super) fn into_job(self) -> Option<Box<Job>> {
        match self {
            JobPlace::Queued(job) | JobPlace::Preparing(job) | JobPlace::Sealing(job) | JobPlace::Posting(job) => {
                Some(job)
            }
            JobPlace::Running => None,
        }
    }

    pub(in crate::model::sequences) fn job(&self) -> Option<&Job> {
        match self {
            JobPlace::Queued(job) | JobPlace::Preparing(job) | JobPlace::Sealing(job) | JobPlace::Posting(job) => {
                Some(job)
            }
            JobPlace::Running => None,
        }
    }

    pub(in crate::model::sequences) fn job_mut(&mut self) -> Option<&mut Job> {
        match self {
            JobPlace::Queued(job) | JobPlace::Preparing(job) | JobPlace::Sealing(job) | JobPlace::Posting(job) => {
                Some(job)
            }
            JobPlace::Running => None,
        }
    }

    /// Takes the job for a run.
    pub(super) fn lend(&mut self) -> Option<Box<Job>> {
        std::mem::replace(self, JobPlace::Running).into_job()
    }

    /// Moves a job that is here to another place.
    pub(in crate::model) fn set(&mut self, place: fn(Box<Job>) -> JobPlace) {
        if let Some(job) = self.lend() {
            *self = place(job);
        }
    }
}
