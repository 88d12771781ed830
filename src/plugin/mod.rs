//! Plug-ins: WebAssembly components of users that decide in the server's place. The one room that knows how they are run; what they decide
//! about (requests, slots, states) never comes here.
//!
//! # Layout
//!
//! - [`guest`]: what a running plug-in is to the rest of the house, whatever runs it: the traits, and the words they speak.
//! - [`report`]: what operators ask of plug-ins and what they are shown · `when`: its times.
//! - `attachment`: a plug-in at a load, on the way of a request · `lane`: where its guest sits · `inbox`: what it is to be told · `health`:
//!   strikes and parking · `nonsense`: what was wrong with an answer · `meter`, `showing`: what is counted of it, and shown.
//! - `making`: how guests come into their lanes, off the way of requests · `recent`: questions to try a new version on.
//! - `registry`: the named plug-ins with their versions, and where they are attached · `keeper`: the thread that looks after them.
//! - `journal`, `voice`: what a plug-in writes and may ask for · [`texts`]: keys and the texts behind them.

mod attachment;
pub mod guest;
mod health;
mod inbox;
mod journal;
mod keeper;
mod lane;
mod making;
mod meter;
mod nonsense;
mod recent;
mod registry;
pub mod report;
mod showing;
#[cfg(test)]
pub(crate) mod stand_in;
#[cfg(test)]
mod tests;
pub mod texts;
mod voice;

pub use attachment::{Answer, Attachment, Bell, Clock, Driver, Shadow, Terms};
pub use journal::Journal;
pub use making::Unfit;
pub use registry::{Loader, Registry, Rules};
pub use showing::Shared;
mod when;
