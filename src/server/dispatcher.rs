//! The one way that every request of every listener takes: the dispatcher makes its [`RequestContext`], asks the listener's checks, and hands
//! it over. `ModelInfer` calls go straight to their service, which is cheaper than the router; everything else goes to the router.

use std::convert::Infallible;
use std::error::Error;
use std::future::{Future, Ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::http::header::UPGRADE;
use axum::http::{Request, Response};
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use tower::Service;

use super::shutdown::Shutdown;
use crate::api::kserve::unary::InferService;
use crate::api::kserve::{INFER, STREAM_INFER};
use crate::api::{Caller, Check, ConnectionSpawner, RequestContext, RequestHead, Status, Upgrades};

/// What one listener serves. Each connection has a clone.
#[derive(Debug, Clone)]
pub(crate) struct Dispatcher {
    infer: Option<InferService>,
    /// Every path, `ModelInfer` included.
    router: Router,
    checks: Arc<[Arc<dyn Check>]>,
}

/// What requests need of their connection.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionHandle {
    pub(crate) caller: Arc<Caller>,
    pub(crate) spawner: ConnectionSpawner,
    pub(crate) shutdown: Shutdown,
}

impl Dispatcher {
    /// A request must pass the checks in their order.
    pub(crate) fn new(infer: Option<InferService>, router: Router, checks: Vec<Arc<dyn Check>>) -> Dispatcher {
        // Makes the router ready once instead of for every connection.
        Dispatcher { infer, router: router.with_state(()), checks: checks.into() }
    }

    pub(crate) fn call(&self, connection: &ConnectionHandle, mut request: Request<Incoming>) -> ResponseFuture {
        let context = match self.admit(&connection.caller, &request) {
            Ok(context) => context,
            Err(status) => return ResponseFuture::Refused(std::future::ready(status.response(request.headers()))),
        };
        let path = request.uri().path();
        if let (Some(service), INFER) = (&self.infer, path) {
            return ResponseFuture::Infer(Box::pin(service.clone().call(context, request)));
        }
        if path == STREAM_INFER {
            request.extensions_mut().insert(connection.spawner.clone());
        } else if request.headers().contains_key(UPGRADE) {
            let Shutdown { connections, cut, .. } = &connection.shutdown;
            request.extensions_mut().insert(Upgrades { open: connections.clone(), cut: cut.clone() });
        }
        request.extensions_mut().insert(context);
        ResponseFuture::Router(Box::pin(self.router.clone().call(request)))
    }

    fn admit<T>(&self, caller: &Arc<Caller>, request: &Request<T>) -> Result<RequestContext, Status> {
        let mut context = RequestContext::new(caller, request.headers());
        let head = RequestHead { method: request.method(), uri: request.uri(), headers: request.headers() };
        self.checks.iter().try_for_each(|check| check.check(&mut context, &head))?;
        Ok(context)
    }
}

/// The response to a request.
pub(crate) enum ResponseFuture {
    Infer(Pin<Box<dyn Future<Output = Response<tonic::body::Body>> + Send>>),
    Router(Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>),
    Refused(Ready<Response<Body>>),
}

impl Future for ResponseFuture {
    type Output = Result<Response<ResponseBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = match &mut *self {
            ResponseFuture::Infer(answer) => ready!(answer.as_mut().poll(cx)).map(ResponseBody::Infer),
            ResponseFuture::Router(answer) => ready!(answer.as_mut().poll(cx))?.map(ResponseBody::Router),
            ResponseFuture::Refused(answer) => ready!(Pin::new(answer).poll(cx)).map(ResponseBody::Router),
        };
        Poll::Ready(Ok(answer))
    }
}

/// The body of a response.
#[derive(Debug)]
pub(crate) enum ResponseBody {
    Infer(tonic::body::Body),
    Router(Body),
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Box<dyn Error + Send + Sync>>>> {
        match &mut *self {
            ResponseBody::Infer(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            ResponseBody::Router(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            ResponseBody::Infer(body) => body.is_end_stream(),
            ResponseBody::Router(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ResponseBody::Infer(body) => body.size_hint(),
            ResponseBody::Router(body) => body.size_hint(),
        }
    }
}
