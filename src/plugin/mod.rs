//! Plug-ins: WebAssembly components of users that decide in the server's place. The one room that knows how they are run; what they decide
//! about (requests, slots, states) never comes here.
//!
//! # Layout
//!
//! - [`guest`]: what a running plug-in is to the rest of the house, whatever runs it: the traits, and the words they speak.
//! - [`report`]: what operators ask of plug-ins and what they are shown · `when`: its times.
//! - `attachment`: a plug-in at a load, on the way of a request · `lane`: the guest that answers · `outlet`: where a load is reached, whoever
//!   decides there · `inbox`: what it has told · `health`: strikes and parking · `nonsense`: what was wrong with an answer · `meter`, `showing`: what is counted of it, and shown.
//! - `making`: how guests come into their lanes, off the way of requests · `recent`: questions to try a new version on.
//! - `registry`: the named plug-ins with their versions, and where they are attached · `keeper`: the thread that looks after them ·
//!   `files`, `watch`: their folder.
//! - `journal`, `voice`: what a plug-in writes and may ask for · [`texts`]: keys and the texts behind them.
//!
//! WebAssembly, the one home of wasmtime; four lifetimes, each a type:
//!
//! - [`engine`]: one a process and mode. Its clock is `ticker`.
//! - [`component`]: one version of a plug-in, compiled and checked; `contract` is the WIT, `outline` what is seen of it from outside, `imports`
//!   what may be asked for, [`grants`] what
//!   operators add, [`manifest`] and `settings` what it says of itself, [`cache`] compiled code on disk.
//! - [`loader`]: files in, plug-ins out.
//! - [`instance`]: a running one. `host` is what it may call, `question` how it is asked.
//! - a call: `budget` is what it may use, `blame` what it died of; [`round_file`]: one that went wrong, to be put again; `shown`: its columns.

mod attachment;
mod blame;
mod budget;
pub mod cache;
pub mod component;
mod contract;
pub mod engine;
mod files;
pub mod grants;
pub mod guest;
mod health;
mod host;
mod imports;
#[cfg(test)]
pub(crate) mod in_text;
mod inbox;
pub mod instance;
mod journal;
mod keeper;
mod lane;
pub mod loader;
mod making;
pub mod manifest;
mod meter;
mod nonsense;
mod outlet;
mod outline;
mod question;
mod recent;
mod registry;
pub mod report;
pub mod round_file;
mod settings;
mod showing;
mod shown;
#[cfg(test)]
pub(crate) mod stand_in;
#[cfg(test)]
mod tests;
pub mod texts;
mod ticker;
mod voice;
mod watch;
mod when;

pub use attachment::{Answer, Attachment, Bell, Clock, Driver, Shadow, Terms};
pub use component::Component;
pub use contract::{VERSION, WORLD};
pub use engine::{Engine, Mode};
pub use grants::Grants;
pub use journal::Journal;
pub use loader::Loader;
pub use making::{Ready, Unfit};
pub use nonsense::{sentence, word};
pub use outlet::Outlet;
pub use registry::{MakeSource, Registry, Rules};
pub use showing::Shared;
