//! Plug-ins: WebAssembly components of users that decide in the server's place. The one room that knows how they are run; what they decide
//! about (requests, slots, states) never comes here.
//!
//! # Layout
//!
//! - [`guest`]: what a running plug-in is to the rest of the house, whatever runs it: the traits, and the words they speak.
//! - [`report`]: what operators ask of plug-ins and what they are shown · `when`: its times.

pub mod guest;
pub mod report;
mod when;
