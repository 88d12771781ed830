//! The pure core of Sequor: it decides which sequence holds which slot, and which requests run together. It takes events and the time, and
//! returns effects and work.
//!
//! It has no clock, lock, thread, payload, text, log or randomness, and uses only `std`. The same events give the same effects. The server
//! drives it with real time, the simulator and the property tests with virtual time.
//!
//! # Layout
//!
//! - [`ids`], [`time`], [`dtype`], [`shape`], [`padding`]: basic types.
//! - [`slab`]: the table whose keys carry generations.
//! - [`spec`]: the settings of a load, and a dialect's meaning of START.
//! - [`event`]: inputs and outputs · `request_meta`: what scheduling knows of a request · `ending`: reasons of ends.
//! - [`policy`], [`round`], [`observed`], [`roster`]: the contract with policies, built-in or external: questions, answers and events.
//!   [`policies`]: the built-in ones.
//! - `core`: the state of one model name. `sequence`, `request`, `load`, `loads`: its entries. `slab`, `list`, `level_queue`, `timer`,
//!   `tombstones`, `chain_links`, `idle_lists`: its containers.
//! - Methods of the core, by subject: `submit` (admission), `id_chains` (the sequences of an id), `begin`, `prepare`,
//!   `slot_assignment`, `plan` (the next step of an instance), `rounds` (external policies), `finish`, `steps` (step numbers of clients),
//!   `due` (deadlines), `leave` (ends), `idle`, `moved_starts`, `observe`.
//! - [`seen`]: views for operators · `run_time`: the run time of a full batch · `transitions`, `faults`: for tests.

mod begin;
mod chain_links;
mod core;
pub mod dtype;
mod due;
mod ending;
pub mod event;
#[cfg(feature = "planted")]
pub mod faults;
#[cfg(not(feature = "planted"))]
mod faults;
mod finish;
mod id_chains;
mod idle;
mod idle_lists;
pub mod ids;
mod leave;
mod level_queue;
mod list;
mod load;
mod loads;
mod moved_starts;
mod observe;
pub mod observed;
pub mod padding;
mod plan;
pub mod policies;
pub mod policy;
mod prepare;
mod request;
mod request_meta;
pub mod roster;
pub mod round;
mod rounds;
mod run_time;
pub mod seen;
mod sequence;
pub mod shape;
pub mod slab;
mod slot_assignment;
pub mod spec;
mod steps;
mod submit;
pub mod time;
mod timer;
mod tombstones;
mod transitions;

pub use crate::core::{Core, StateAt, Usage};
pub use dtype::DataType;
pub use ending::{EndReason, Tombstone};
pub use event::{Batch, Effect, Event, Next, Note, Preparation, RealRow, Refusal, Row, RowEnd, SlotOp, Submit};
pub use ids::{BatchId, Id, Instance, LoadId, Req, RoundId, Seq, Slot};
pub use observed::{Observed, ObservedKind};
pub use padding::{Padding, PaddingSide};
pub use policy::{Admission, Columns, Decision, Hooks, Picks, Policy, PolicyFault, Rejection};
pub use request_meta::{FEATURES, QueueTerms, RequestMeta};
pub use roster::{Portion, Roster};
pub use round::{PolicyAnswer, PolicyQuestion, Round};
pub use run_time::RunTime;
pub use seen::SequenceView;
pub use sequence::Stage;
pub use shape::{Dim, Dims, Shape};
pub use slab::Slab;
pub use spec::{
    Dialect, Expiry, Hold, LoadLimits, LoadSpec, NoId, OnEnding, OnLive, RowLayout, Stages, Strategy, WhenFull,
};
pub use time::Time;
pub use transitions::Transitions;
