//! The common part of the TensorFlow Serving protocols: the path of a request to its answer, in OVMS's words.

use super::refusal;
use super::request::PredictRequestParts;
use crate::api::intake::Decoded;
use crate::api::order::Turn;
use crate::api::queued::QueuedBytesPermit;
use crate::api::request_count::RequestCount;
use crate::api::{Api, RequestContext, Status};
use crate::error::Failure;
use crate::model::{InferAnswer, ModelHandle};
use crate::telemetry::Surface;

/// The TensorFlow Serving surface of a server, over gRPC and HTTP. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Tfs {
    api: Api,
}

/// A decoded request, with the facts that its answer needs.
#[derive(Debug)]
pub(crate) struct DecodedPredict {
    pub(crate) model: ModelHandle,
    pub(crate) parts: PredictRequestParts,
    pub(crate) permit: QueuedBytesPermit,
}

impl Tfs {
    pub fn new(api: &Api) -> Tfs {
        Tfs { api: api.clone() }
    }

    pub(crate) fn api(&self) -> &Api {
        &self.api
    }

    /// Finds a model, or refuses in OVMS's words.
    pub(crate) fn find(&self, model: &str, version: &str) -> Result<ModelHandle, Status> {
        self.api.find(model, version).map_err(|failure| refusal::status(&failure))
    }

    /// Runs a request and awaits its answer. The caller counts the request once it has written the answer. The request keeps its `turn`
    /// among those of its connection until it is admitted.
    pub(crate) async fn answer(
        &self,
        context: &RequestContext,
        surface: Surface,
        decoded: Result<DecodedPredict, Status>,
        (model, version): (&str, &str),
        turn: Option<Turn>,
    ) -> Result<(InferAnswer, RequestCount), Status> {
        let known = decoded.as_ref().ok().map(|decoded| &decoded.model);
        let mut count = self.api.count(context, surface, (model, version), known);
        let begun = decoded.and_then(|DecodedPredict { model, parts, permit }| {
            let decoded = Decoded { model, request: parts.into_request(), permit };
            self.api.begin(context, decoded, &mut count).map_err(|failure| refusal::status(&failure))
        });
        drop(turn);
        let outcome = match begun {
            Ok(underway) => underway.by_deadline().await.map_err(|failure: Failure| refusal::status(&failure)),
            Err(status) => Err(status),
        };
        match outcome {
            Ok(answer) => Ok((answer, count)),
            Err(status) => count.answer(Err(status)),
        }
    }
}
