//! Every transition of a binding, with guests under a test's control and a core in virtual time. The property throughout: no request is
//! lost, and after each failure the built-in policy answers in the same round.

mod binding;
mod contract;
mod guests;
mod limits;
mod races;
mod replacement;
mod rig;
mod swap;
pub(super) mod wasm;
