//! Where a request goes that a connection has read: the calls of the inference service straight to it, everything else to the router, which
//! costs more than is lost on a path that is known.

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::http::{Request, Response};
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use tower::Service;

use crate::api::kserve::INFER;
use crate::api::kserve::generated::grpc_inference_service_server::GrpcInferenceServiceServer;
use crate::api::kserve::grpc::Kserve;

/// What is served on a port. Each connection has a clone.
#[derive(Debug, Clone)]
pub(crate) struct Front {
    infer: Option<GrpcInferenceServiceServer<Kserve>>,
    /// Everything, the calls of that service among them.
    all: Router,
}

impl Front {
    /// `infer` is the service as the router has it, if it does.
    pub(crate) fn new(infer: Option<GrpcInferenceServiceServer<Kserve>>, all: Router) -> Front {
        // Makes the router ready once instead of for every connection.
        Front { infer, all: all.with_state(()) }
    }

    pub(crate) fn call(&self, request: Request<Incoming>) -> Answering {
        match &self.infer {
            Some(service) if request.uri().path() == INFER => Answering::Infer(service.clone().call(request)),
            _ => Answering::Other(Box::pin(self.all.clone().call(request))),
        }
    }
}

type Boxed<T> = Pin<Box<dyn Future<Output = Result<Response<T>, Infallible>> + Send>>;

/// An answer that is awaited.
pub(crate) enum Answering {
    Infer(Boxed<tonic::body::Body>),
    Other(Boxed<Body>),
}

impl Future for Answering {
    type Output = Result<Response<Answer>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = match &mut *self {
            Answering::Infer(answer) => ready!(answer.as_mut().poll(cx))?.map(Answer::Infer),
            Answering::Other(answer) => ready!(answer.as_mut().poll(cx))?.map(Answer::Other),
        };
        Poll::Ready(Ok(answer))
    }
}

/// The body of an answer, as whoever made it made it.
#[derive(Debug)]
pub(crate) enum Answer {
    Infer(tonic::body::Body),
    Other(Body),
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Box<dyn Error + Send + Sync>>>> {
        match &mut *self {
            Answer::Infer(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Answer::Other(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Answer::Infer(body) => body.is_end_stream(),
            Answer::Other(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Answer::Infer(body) => body.size_hint(),
            Answer::Other(body) => body.size_hint(),
        }
    }
}
