//! Runs WebAssembly components of users. Only this crate uses wasmtime's engine. It handles bytes, worlds and calls. The purpose of a
//! component is defined by its world, outside this crate.
//!
//! Four lifetimes, each a type: [`engine::Engine`] (process and mode) → [`component::Component`] (one version, compiled) →
//! [`guest::WasmGuest`] (running) → a call.
//!
//! # Layout
//!
//! - [`world`]: the trait of a kind of components · [`instances`]: the guests of one owner: one, or a pool.
//! - [`loader`]: from files to components · [`component`]: one version, compiled and checked · [`manifest`] and [`settings`]: its
//!   `plugin.toml` · `outline`: its imports and exports before compilation · `function_limit`: the size of its
//!   functions · `imports`, [`grants`]: the allowed imports ·
//!   [`component_error`]: reasons of a refusal · [`cache`]: compiled code on disk · `component_store`: the bytes of a loaded component.
//! - [`guest`]: a running component · [`suspension`]: calls of it that may wait · [`host`]: the functions that it may call, `contract` as
//!   Rust traits, [`services`] as the server implements them · [`call_error`]: why a call gave no answer.
//! - [`limits`]: CPU time and memory of a guest · `budget`: both enforced during a call · `urgency`: how the thread of a long call yields
//!   its core.
//! - [`room`]: how many guests there may be, and the share of each place.
//! - [`engine`]: compiles · `ticker`: its clock · `call_clock`: CPU time at a tick within a call · `clock_random`: the guest's own clock
//!   and random source.
//! - [`versions`]: plug-ins by name, with their current and previous version, and their files (`folder_watch`: whether one has changed) ·
//!   [`changes`]: how one version replaces another at all places of a plug-in · [`plugin_error`]: why an operation on a plug-in failed · [`audit`]: one line for each change · [`strikes`]: failures of a plug-in
//!   within a minute.
//! - [`journal`]: the last lines of a plug-in, and its own counters ([`counter`]: their names) · `line_budget`: lines per second ·
//!   `rfc3339`: times in JSON · `background`: yields the core during work off the request path.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")
)]

pub mod audit;
pub mod background;
pub(crate) mod budget;
pub mod cache;
mod call_clock;
pub mod call_error;
#[cfg(test)]
mod change_tests;
pub mod changes;
pub(crate) mod clock_random;
pub mod component;
pub mod component_error;
pub(crate) mod component_store;
pub mod contract;
pub mod counter;
pub mod engine;
pub mod folder_watch;
mod function_limit;
pub mod grants;
pub mod guest;
pub mod host;
mod imports;
pub mod instances;
pub mod journal;
pub mod limits;
pub mod line_budget;
pub mod loader;
pub mod manifest;
pub(crate) mod outline;
pub mod plugin_error;
pub mod rfc3339;
pub mod room;
pub mod services;
pub mod settings;
pub mod strikes;
pub mod suspension;
mod ticker;
pub mod urgency;
pub mod versions;
pub mod world;
