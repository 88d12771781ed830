//! The entry points of a model: requests of clients, and steps of ensembles.
//!
//! - `submission`: finds the load, checks the request, and adds it to the table. `pending`: a submitted request as its API holds it.
//! - `gated`: submits a request of a client. `claims`: requests whose sequences belong to no server, or to another one.
//! - `ensemble_links`: a model as its ensembles use it, and an ensemble as its members use it.
//!
//! An API's texts and the checks of a single tensor are not here (`model/request`).

pub(in crate::model::sequences) mod claims;
mod ensemble_links;
pub(in crate::model) mod gated;
mod pending;
pub(in crate::model) mod submission;

pub use pending::Pending;
