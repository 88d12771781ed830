//! The ways into a model: requests of clients, and steps of ensembles.
//!
//! - `submission`: finds the load, checks the request, and puts it into the table. `pending`: the request as its surface holds it.
//! - `ensemble_links`: a model as its ensembles reach it, and an ensemble as its members reach it.
//!
//! A surface's words and the checks of a single tensor are not here (`model/request`).

mod ensemble_links;
mod pending;
pub(in crate::model) mod submission;

pub use pending::Pending;
