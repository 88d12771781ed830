//! Chains of processors, driven with guests in the text format of WebAssembly.

mod chains;
mod handles;
mod registry;
