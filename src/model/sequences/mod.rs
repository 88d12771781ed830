//! The sequences and requests of one model name: a core and the table of its requests under one lock.
//!
//! - `driver`: the lock. `table`: what the lock guards: the core, the requests, `live` sequences, `load_policies`. `actions`: what is done after it is
//!   released; `carry_out` does it. `scheduler_hosts`: the model as such work reaches it. `batch`: what an instance gets and gives back.
//! - `loads`: the loads of the name. `submission`: the way of a request into the table. `admission`: what it needs before that.
//! - `job`: a request between its submission and its answer. `job_place`: where it is. `pending`: how its surface holds it.
//! - `owner`: where a request comes from, and how many sequences of its client live.
//! - `cached`: answers from the response cache.
//! - `calling`: what calls to other models inherit of a request.
//! - `inline`: leaves a step to a connection's thread.
//! - `first_states`: what sequences begin with, where an initializer says so.
//! - `flow`: a request of an ensemble on its way through the members. `members`: what models and ensembles know of each other.
//!   `flow_stages`, `member_driver`: both sides in the table and the driver. `reply_to`: where an answer goes.
//! - `plugin_driver`: the model as its plug-ins reach it.
//! - `stages`: lends requests to processors and to instances. `processed`: what a request keeps for them.
//! - `sealing`: states on their way to the store. `written`: what it has of live sequences. `room`: requests that wait for state memory. `spill`: moves idle sequences to the store where a START needs their memory.
//! - `kept`: sequences that the server's store keeps; `kept_stages`: their requests in the table. `resume`: goes on from them, and writes live ones when the server stops.
//! - `imports`: states that wait for the next step of their sequence. `carry`: moves sequences of a replaced load. `carried`: where they go. `tick`: what the timer does.
//! - `state_transfer`: exports and imports the state of a sequence. `capture`: the steps of one that follow, too. `captures`: what requests
//!   note for it. `usage`: how full a version is, and what was counted. `listing`: the
//!   sequences as operators see them.
//!
//! Nothing here runs a graph. Under the lock there is no I/O, payload or log.

mod actions;
mod admission;
mod batch;
mod cached;
mod calling;
pub(in crate::model) mod capture;
mod captures;
mod carried;
pub(in crate::model) mod carry;
mod carry_out;
mod driver;
mod first_states;
mod flow;
mod flow_stages;
mod imports;
mod inline;
mod job;
mod job_place;
mod kept;
mod kept_stages;
pub(in crate::model) mod listing;
mod live;
mod load_policies;
mod loads;
mod member_driver;
mod members;
mod owner;
mod pending;
mod plugin_driver;
mod processed;
mod reply_to;
pub(in crate::model) mod resume;
mod room;
mod scheduler_hosts;
mod sealing;
mod spill;
mod stages;
pub(in crate::model) mod state_transfer;
pub(in crate::model) mod submission;
mod table;
mod tick;
pub(in crate::model) mod usage;
mod written;

pub use capture::CaptureLimits;
pub use listing::{EndedSequence, LiveSequence, ResumableSequence};
pub use owner::{RequestOrigin, SequenceOwner};
pub use pending::Pending;
pub use state_transfer::TransferError;
pub use usage::VersionStatistics;

pub(in crate::model) use admission::ID_BITS;
pub(in crate::model) use batch::{FinishedBatch, Step, TakenBatch};
pub(in crate::model) use calling::InheritedContext;
pub(in crate::model) use driver::ModelScheduler;
pub(in crate::model) use job::Job;
pub(in crate::model) use members::{EnsembleParts, Member};
pub(in crate::model) use written::RowToSeal;
