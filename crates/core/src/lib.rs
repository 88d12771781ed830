//! The pure core of Sequor: which sequence holds which slot, and which requests run together. Events and `now` in, effects and work out.
//!
//! No clock, lock, thread, payload, text, log or randomness lives here, and nothing outside `std`: the same events give the same effects.
//! The server drives it with real time, the simulator and the property tests with virtual time.
//!
//! # Layout
//!
//! - [`ids`], [`time`], [`dtype`], [`shape`], [`padding`]: the words everything else is made of.
//! - [`slab`]: the table whose keys carry generations.
//! - [`spec`]: what a load is like, and what a surface means by START.
//! - [`event`]: what goes in and what comes out · `request_meta`: what is known of requests · `ending`: how sequences end.
//! - [`policy`], [`round`], [`observed`], [`roster`]: the contract with policies, built in or not: questions, answers and events.
//!   [`policies`]: those that are built in.
//! - `core`: the state of one model name. `sequence`, `request`, `load`, `loads`: what it keeps. `slab`, `list`, `level_queue`, `timer`, `tombstones`:
//!   what that is kept in.
//! - Its methods, by their subject: `submit` (admission), `begin`, `prepare`, `slot_assignment`, `plan` (what an instance does next), `rounds`
//!   (external policies), `finish`, `steps` (numbers of clients), `due` (deadlines), `leave` (ends), `observe`.
//! - [`seen`]: what operators see · `run_time`: how long a batch takes · `transitions`, `faults`: for tests.

mod begin;
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
pub mod ids;
mod leave;
mod level_queue;
mod list;
mod load;
mod loads;
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
