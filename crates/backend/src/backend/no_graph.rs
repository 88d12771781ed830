//! Replaces the graph of a model that has none. It is never run.

use super::{BackendError, Context, Feed, Fetch, Graph};
use crate::config::model::Signature;

/// The graph of a model without one.
#[derive(Debug, Default)]
pub struct NoGraph(Signature);

#[derive(Debug)]
struct NoContext;

impl Graph for NoGraph {
    fn signature(&self) -> &Signature {
        &self.0
    }

    fn context(&self, _: &[String], _: &[String]) -> Result<Box<dyn Context>, BackendError> {
        Ok(Box::new(NoContext))
    }
}

impl Context for NoContext {
    fn run(&mut self, _: &[Feed<'_>], _: &mut [Fetch<'_>]) -> Result<(), BackendError> {
        Err(BackendError("the model has no graph".to_owned()))
    }
}
