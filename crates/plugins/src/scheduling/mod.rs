//! Plug-ins that decide which requests run together and when, and which sequences get a slot. Requests, slots and states never reach this
//! module.
//!
//! # Layout
//!
//! - [`guest`]: the interface of a running plug-in: traits and their data.
//! - [`report`]: the operations of operators on plug-ins, and the data they see.
//! - `binding`: a plug-in at one load · `asking`: asks it questions, on the request path · `active_guest`: the guest that answers ·
//!   `load_policy`: the policy that decides for a load · `port`: one load, as plug-ins reach it (`scheduler_host`: the server as plug-ins
//!   need it) · `inbox`: the event feed · `health`: strikes, back-off, parking · `cpu_share`: its share of a core · `invalid_answer`:
//!   explains a wrong answer · `status`: the view for operators.
//! - `startup`: starts a guest and puts it in place, off the request path · `supervision`: saves, restarts, parking · `recent`: recorded
//!   rounds for a dry run.
//! - `registry`: plug-ins and their bindings (their versions are in [`sequor_wasm::versions`]) · `replacement`: the bindings, for
//!   [`sequor_wasm::changes`] of versions · `maintenance`: the thread that supervises · `watch`: the plug-in folder.
//! - `guest_services`: the server's services for a guest · [`key_interner`]: keys and the texts behind them.
//! - [`world`]: the scheduler as a world of `wasm` · `contract`: its interface · [`manifest`]: its fields of `plugin.toml` · `question`:
//!   writes a round into a guest's memory (`columns`: the list of its columns) · [`loader`]: from files to plug-ins.
//! - [`round_file`]: a failed round, for a replay (`round_folder`: its folder, `columns_json`: its columns).
//!
//! # Locks
//!
//! A thread that holds one of these locks takes none above it. Locks that are not listed protect one read or write, and no lock is taken
//! under them.
//!
//! | lock | held by | for |
//! |---|---|---|
//! | `changing` | a change of plug-ins or bindings; not `park` | one change, including its dry run; nothing is compiled under it |
//! | a model's gate | a thread that loads or attaches | one load, including its first guest |
//! | `making` of a binding | a thread that starts a guest or puts it in place; not `park` | one start, including the events sent to the new guest |
//! | the cell of an active guest | a thread that calls the guest | one call |
//! | a model's table | requests, and a change of which policy decides | microseconds |
//! | `health` | a thread that strikes, parks, or replaces the active guest | one read and one write |
//!
//! The table owns the choice of policy. Binding, guest and the core's hooks change in one section of its lock ([`LoadPolicy`]).
//!
//! A running guest reaches the table only for the text of an id.
//!
//! # Counters
//!
//! - A **strike**: the binding counts it against the guest that answered, when an answer is wrong or a call fails.
//! - A **fallback**: the core counts it, because only the core knows whether a round was still valid when its answer came.
//! - **Stale** picks: the core counts them, because it knows what changed since it asked. No strike follows.

mod active_guest;
mod asking;
mod binding;
mod columns;
mod columns_json;
mod contract;
mod cpu_share;
pub mod guest;
mod guest_services;
mod health;
mod inbox;
mod invalid_answer;
pub mod key_interner;
mod load_policy;
pub mod loader;
mod maintenance;
pub mod manifest;
mod port;
mod question;
#[cfg(test)]
mod question_tests;
mod recent;
mod registry;
mod replacement;
pub mod report;
pub mod round_file;
mod round_folder;
mod scheduler_host;
#[cfg(any(test, feature = "testing"))]
pub mod stand_in;
mod startup;
mod status;
mod supervision;
#[cfg(test)]
mod tests;
#[cfg(any(test, feature = "testing"))]
pub mod wat_fixture;
mod watch;
pub mod world;

pub use active_guest::AT_ONCE;
pub use asking::{RoundAnswer, Shadow};
pub use binding::{BindingOptions, Decider, SchedulerBinding};
pub use contract::{VERSION, WORLD};
pub use guest_services::PluginServices;
pub use health::{Health, Verdict};
pub use invalid_answer::{sentence, word};
pub use load_policy::LoadPolicy;
pub use port::SchedulerPort;
pub use registry::{MakeSource, PluginRules, Registry};
pub use scheduler_host::{Alarm, Clock, SchedulerHost};
pub use startup::{Ready, Unfit};
pub use status::BindingServices;
pub use supervision::SAVES;
pub use world::{Scheduler, SchedulerComponent, SchedulerGuest};
