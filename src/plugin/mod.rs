//! Plug-ins: WebAssembly components of users that decide in the server's place. The one room that knows how they are run; what they decide
//! about (requests, slots, states) never comes here.
//!
//! # Layout
//!
//! - [`guest`]: what a running plug-in is to the rest of the house, whatever runs it: the traits, and the words they speak.
//! - [`report`]: what operators ask of plug-ins and what they are shown · `when`: its times.
//! - `attachment`: a plug-in at a load, on the way of a request · `lane`: the guest that answers · `load_link`: where a load is reached, whoever
//!   decides there · `inbox`: what it has told · `health`: strikes and parking · `invalid_answer`: what was wrong with an answer · `meter`, `showing`: what is counted of it, and shown.
//! - `making`: how guests come into their lanes, off the way of requests, to which it gives way (`background`) · `tending`: when, and what else
//!   is done for one that decides · `recent`: questions to try a new version on.
//! - `registry`: the named plug-ins, and where they are attached · `versions`: one in the place of another · `stored`: their bytes · `maintenance`:
//!   the thread that looks after them · `files`, `watch`: their folder · `model_files`: where models name them.
//! - `journal` (`line_budget`: how much), `guest_services`: what a plug-in writes and may ask for · [`texts`]: keys and the texts behind them.
//!
//! # Locks
//!
//! Whoever holds one takes none above it. Those not named are held for a store or a look, and nothing is taken under them.
//!
//! | lock | held by | for |
//! |---|---|---|
//! | `changing` | whoever changes which plug-ins there are or where; not who parks | one change, with what is compiled and tried for it |
//! | a model's gate | whoever loads or attaches | one load, with its first instance |
//! | `making` of an attachment | whoever makes an instance or puts one in place; not who parks | a start, and what is told a newcomer |
//! | the occupant of a lane | whoever calls the guest | one call |
//! | `calls` of a load's link | whoever changes what the core calls for | one `Attach` of the core |
//! | a model's table | requests, and the core's `Attach` | microseconds |
//! | `health` | who strikes, parks, or stores a lane | a look and a store |
//!
//! A guest that is called reaches the table for the text of an id, and nothing else.
//!
//! # Who counts what
//!
//! - A **strike**: [`Attachment`], against the guest that answered, when an answer is wrong or a call fails.
//! - A **fallback**: the core, which knows whether a round still stood when its answer came; whatever the reason, also where nobody was there.
//! - **Stale** picks: the core, which knows what has changed since it asked. They are nobody's fault.
//!
//! WebAssembly, the one home of wasmtime; four lifetimes, each a type:
//!
//! - [`engine`]: one a process and mode. Its clock is `ticker`.
//! - [`component`]: one version of a plug-in, compiled and checked; `contract` is the WIT, `outline` what is seen of it from outside, `imports`
//!   what may be asked for, [`grants`] what
//!   operators add (`clock_random` is behind some), `refused` why a file is none, [`manifest`] and `settings` what it says of itself, [`cache`] compiled code on disk.
//! - [`loader`]: files in, plug-ins out.
//! - [`instance`]: a running one, `source`: where it is started. `host` is what it may call, `question` how it is asked.
//! - a call: `budget` is what it may use, `call_clock` what is seen of its time, `urgency` how its thread stands to others while it takes long,
//!   `call_fault` what it died of; [`round_file`]: one that went wrong, to be put again; `round_folder`: where it lies; `shown`: its columns.

mod attachment;
mod background;
mod budget;
pub mod cache;
mod call_clock;
mod call_fault;
mod clock_random;
pub mod component;
mod contract;
mod driver;
pub mod engine;
mod files;
pub mod grants;
pub mod guest;
mod guest_services;
mod health;
mod host;
mod imports;
#[cfg(test)]
pub(crate) mod in_text;
mod inbox;
pub mod instance;
mod invalid_answer;
mod journal;
mod lane;
mod line_budget;
mod load_link;
pub mod loader;
mod maintenance;
mod making;
pub mod manifest;
mod meter;
mod model_files;
mod outline;
mod question;
mod recent;
mod refused;
mod registry;
pub mod report;
pub mod round_file;
mod round_folder;
mod settings;
mod showing;
mod shown;
mod source;
#[cfg(test)]
pub(crate) mod stand_in;
mod stored;
mod tending;
#[cfg(test)]
mod tests;
pub mod texts;
mod ticker;
mod urgency;
mod versions;
mod watch;
mod when;

pub use attachment::{Answer, Attachment, Shadow, Terms};
pub use component::Component;
pub use contract::{VERSION, WORLD};
pub use driver::{Alarm, Clock, Driver};
pub use engine::{Engine, Mode};
pub use grants::Grants;
pub use invalid_answer::{sentence, word};
pub use journal::Journal;
pub use load_link::LoadLink;
pub use loader::Loader;
pub use making::{Ready, Unfit};
pub use model_files::ModelFiles;
pub use refused::Refused;
pub use registry::{MakeSource, Registry, Rules};
pub use showing::Shared;
pub use urgency::as_any as leave_thread_as_it_was;
