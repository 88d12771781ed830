//! Models: the repository of what is served, and the way of a request through it.

pub mod request;

use std::sync::Arc;

use sequor_core::{DataType, Dims};

pub use request::{InferAnswer, InferRequest, Parameter, SequenceStep};

pub use crate::tensor::{Named, Tensor};

use crate::config::proto;
use crate::error::{Failure, NotServed};

/// Everything that is served. Cheap to clone; all clones are one repository.
#[derive(Debug, Clone)]
pub struct Repository(Arc<()>);

/// One version (or the server's choice of it) of one model, found and ready.
#[derive(Debug, Clone)]
pub struct Served(Arc<()>);

/// What clients are told of a model. Controls, states and batch inputs are not listed; shapes have the batch dimension in front.
#[derive(Debug, Clone)]
pub struct Metadata {
    pub name: String,
    pub versions: Vec<u64>,
    pub platform: String,
    pub inputs: Vec<TensorMetadata>,
    pub outputs: Vec<TensorMetadata>,
}

#[derive(Debug, Clone)]
pub struct TensorMetadata {
    pub name: String,
    pub dtype: DataType,
    pub dims: Dims,
}

/// A request on its way. Dropping it cancels the request.
#[derive(Debug)]
pub struct Pending(());

impl Repository {
    /// Of no models; it is ready.
    pub fn empty() -> Repository {
        Repository(Arc::new(()))
    }

    /// Finds a model; `version` is as the client wrote it, empty for the server's choice.
    pub fn find(&self, model: &str, version: &str) -> Result<Served, Failure> {
        let _ = version;
        Err(Failure::NotServed(NotServed::UnknownModel { model: model.to_owned() }))
    }

    /// Whether every model that is wanted is ready.
    pub fn ready(&self) -> bool {
        true
    }

    /// Admits a request: checks it, and puts it in its queue. Requests submitted one after the other keep that order.
    pub fn submit(&self, request: InferRequest) -> Result<Pending, Failure> {
        Err(Failure::NotServed(NotServed::UnknownModel { model: request.model }))
    }
}

impl Served {
    pub fn metadata(&self) -> Arc<Metadata> {
        Arc::new(Metadata {
            name: String::new(),
            versions: vec![],
            platform: String::new(),
            inputs: vec![],
            outputs: vec![],
        })
    }

    pub fn config(&self) -> Arc<proto::ModelConfig> {
        Arc::new(proto::ModelConfig::default())
    }
}

impl std::future::Future for Pending {
    type Output = Result<InferAnswer, Failure>;
    fn poll(self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> std::task::Poll<Self::Output> {
        std::task::Poll::Pending
    }
}
