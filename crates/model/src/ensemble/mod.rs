//! Ensembles: a model whose steps are requests to other models.
//!
//! - `plan`: the flow of tensors through the steps, checked against the members' inputs and outputs.
//! - `walk`: the progress of one request.
//! - `gate`: limits the requests in flight of each step, and of all steps.
//!
//! This module does not know loaded models: `model::sequences` sends the requests.

mod gate;
mod plan;
mod walk;

pub(crate) use gate::{EnsembleGate, EnsembleGates, GatedRequest};
pub(crate) use plan::{EnsembleFault, EnsemblePlan, MemberSignature, MemberStep};
pub(crate) use walk::FlowProgress;
