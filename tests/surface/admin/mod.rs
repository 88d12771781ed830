//! What operators meet: the admin listener over real sockets, with plug-ins that a stand-in keeps.

mod commands;
mod described;
mod fake;
mod house;
mod http;
pub(crate) mod papers;
mod tls;
