//! Tests the admin listener over real sockets, with a fake plug-in registry.

mod commands;
mod described;
mod fake;
mod http;
pub(crate) mod papers;
mod rig;
mod tls;
