//! Tests the admin listener over real sockets, with a fake plug-in registry.

pub(crate) mod certificates;
mod commands;
mod described;
mod fake;
mod http;
mod rig;
mod tls;
