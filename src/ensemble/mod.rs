//! Ensembles: a model whose steps are requests to other models.
//!
//! - `plan`: the flow of tensors through the steps, held against the members' inputs and outputs.
//! - `walk`: how far one request has come.
//! - `gate`: how many requests are in flight of each step, and in all.
//!
//! This room knows no model that is loaded: `model::sequences` sends the requests.

mod gate;
mod plan;
mod walk;

pub(crate) use gate::{EnsembleGate, EnsembleGates};
pub(crate) use plan::{EnsembleFault, EnsemblePlan, MemberSignature, MemberStep};
pub(crate) use walk::FlowProgress;
