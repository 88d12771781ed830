//! The common part of KServe's protocols, besides intake: registered shared memory, trace settings, and answers in this protocol's words.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::settings::Traces;
use super::shared_memory::Regions;
use crate::api::intake::{ByDeadline, Decoded, Underway};
use crate::api::request_count::RequestCount;
use crate::api::{Api, RequestContext, Status, triton};
use crate::config::server::settings::SharedMemory;
use crate::error::Failure;
use crate::model::{InferAnswer, ModelHandle, VersionStatistics};
use crate::telemetry::Surface;
use sequor_proto::ModelInferRequest;

/// The KServe surface of a server, over gRPC, HTTP and WebSocket. Cheap to clone; clones share the clients' registrations and settings.
#[derive(Debug, Clone)]
pub struct Kserve(Arc<KserveParts>);

#[derive(Debug)]
struct KserveParts {
    api: Api,
    traces: Traces,
    regions: Regions,
}

impl Kserve {
    /// `allowed`: the system shared memory that clients may register.
    pub fn new(api: &Api, allowed: SharedMemory) -> Kserve {
        let regions = Regions::new(api.limits().request(), allowed);
        Kserve(Arc::new(KserveParts { api: api.clone(), traces: Traces::default(), regions }))
    }

    pub(crate) fn api(&self) -> &Api {
        &self.0.api
    }

    pub(crate) fn regions(&self) -> &Regions {
        &self.0.regions
    }

    pub(crate) fn traces(&self) -> &Traces {
        &self.0.traces
    }

    /// Finds a model, or refuses in Triton's words.
    pub(crate) fn find(&self, model: &str, version: &str) -> Result<ModelHandle, Status> {
        self.0.api.find(model, version).map_err(|failure| triton::status(&failure))
    }

    /// Refuses a model with `decoupled`, for calls that have one answer. `refusal` is Triton's sentence.
    pub(crate) fn check_coupled(model: &ModelHandle, refusal: &str) -> Result<(), Status> {
        match model.is_decoupled() {
            false => Ok(()),
            true => {
                let text = format!(
                    "{refusal} [send the request on a stream or to generate, or remove model_transaction_policy]"
                );
                Err(Status::unimplemented(text))
            }
        }
    }

    pub(crate) fn statistics(&self, model: &str, version: &str) -> Result<Vec<VersionStatistics>, Status> {
        self.0.api.statistics(model, version).map_err(|failure| triton::status(&failure))
    }

    /// Admits a request now, in the order of the calls. If the request is refused, its answer is the refusal.
    pub(crate) fn begin(
        &self,
        context: &RequestContext,
        call: CallNames,
        decoded: Result<Decoded, Status>,
    ) -> CallAnswer {
        let api = &self.0.api;
        let known = decoded.as_ref().ok().map(|decoded| &decoded.model);
        let mut count = api.count(context, call.surface, (&call.model, &call.version), known);
        let begun = decoded
            .and_then(|decoded| api.begin(context, decoded, &mut count).map_err(|failure| triton::status(&failure)));
        CallAnswer { call, count, begun: begun.map_err(Some) }
    }
}

/// The names that a refusal needs, available even if the request could not be decoded.
#[derive(Debug, Clone)]
pub(crate) struct CallNames {
    pub(crate) surface: Surface,
    pub(crate) model: String,
    pub(crate) version: String,
    /// The request's own id.
    pub(crate) id: String,
}

impl CallNames {
    /// The names in a message of the gRPC service.
    pub(super) fn in_message(message: &ModelInferRequest) -> CallNames {
        let ModelInferRequest { model_name, model_version, id, .. } = message;
        let [model, version, id] = [model_name, model_version, id].map(String::clone);
        CallNames { surface: Surface::KserveGrpc, model, version, id }
    }
}

/// The answer to a request of a client. Dropping it cancels the request. Polling it counts nothing: the answer is not written yet.
#[derive(Debug)]
#[must_use = "dropping it cancels the request"]
pub(crate) struct CallAnswer {
    pub(crate) call: CallNames,
    /// Counts the request once its answer is sent.
    pub(crate) count: RequestCount,
    /// The poll that returns a refusal takes it.
    begun: Result<Underway, Option<Status>>,
}

impl CallAnswer {
    /// The answer until the client's deadline. Polling it counts a refusal; an answer is counted once it is written.
    pub(crate) fn by_deadline(self) -> AnswerByDeadline {
        let CallAnswer { count, begun, .. } = self;
        AnswerByDeadline { count: Some(count), begun: begun.map(Underway::by_deadline) }
    }
}

/// The answer to a single call. Dropping it cancels the request. It is no `async` block, because every call moves it.
#[derive(Debug)]
#[must_use = "dropping it cancels the request"]
pub(crate) struct AnswerByDeadline {
    /// `None` once the answer is there.
    count: Option<RequestCount>,
    begun: Result<ByDeadline, Option<Status>>,
}

impl Future for AnswerByDeadline {
    type Output = Result<(InferAnswer, RequestCount), Status>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = match &mut self.begun {
            Ok(underway) => std::task::ready!(Pin::new(underway).poll(cx)).map_err(|failure| triton::status(&failure)),
            Err(refused) => Err(refused.take().unwrap_or_else(polled_again)),
        };
        Poll::Ready(match (outcome, self.count.take()) {
            (Ok(answer), Some(count)) => Ok((answer, count)),
            (Err(status), Some(count)) => count.answer(Err(status)),
            (_, None) => Err(polled_again()),
        })
    }
}

impl Future for CallAnswer {
    type Output = Result<InferAnswer, Status>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = match &mut self.begun {
            Ok(underway) => std::task::ready!(Pin::new(underway).poll(cx)).map_err(|failure| triton::status(&failure)),
            Err(refused) => Err(refused.take().unwrap_or_else(polled_again)),
        };
        Poll::Ready(outcome)
    }
}

fn polled_again() -> Status {
    triton::status(&Failure::Internal("an answer was asked for twice".to_owned()))
}
