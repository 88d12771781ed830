//! Tests of chains of processors, with guests in the text format of WebAssembly.

mod calls;
mod chains;
mod handles;
mod registry;
mod replacement;
