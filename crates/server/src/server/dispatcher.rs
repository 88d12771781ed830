//! Handles every request of every listener: builds its [`RequestContext`], runs the listener's checks, and passes it on. Inference calls go
//! straight to their service, which is cheaper than the router. All other requests go to the router.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::header::UPGRADE;
use axum::http::{HeaderMap, Request, Response, Version};
use hyper::body::Incoming;
use tower::Service;

use super::activity::Activity;
use super::checks::{ConnectionChecks, ListenerChecks};
use super::connection_limit::ConnectionPermit;
use super::request_body::{BodyKind, BodyLimits, RequestBody};
use super::response_body::{ResponseBody, ResponseContent, ResponseSender};
use super::shutdown::Shutdown;
use crate::api::echo::EchoedHeaders;
use crate::api::kserve::infer::InferService;
use crate::api::kserve::{INFER, STREAM_INFER};
use crate::api::message_meter::MessageMeter;
use crate::api::peers::Peer;
use crate::api::status::is_grpc;
use crate::api::tfs::PREDICT;
use crate::api::tfs::predict::PredictService;
use crate::api::{Api, Caller, ConnectionOrder, RequestContext, RequestHead, Status, Upgrades};
use crate::executor::ExecutorHandle;

/// The reflection service. Its streams may be idle, as those of inference.
const REFLECTION: &str = "/grpc.reflection.";

/// The services and checks of one listener. Each connection has a clone.
#[derive(Debug, Clone)]
pub(crate) struct Dispatcher {
    infer: Option<InferenceServices>,
    /// Every path, those of the inference services included.
    router: Router,
    checks: ListenerChecks,
    bodies: BodyLimits,
}

/// The services whose calls bypass the router, with the limits and models for a client's request context.
#[derive(Debug, Clone)]
pub(crate) struct InferenceServices {
    pub(crate) api: Api,
    pub(crate) kserve: InferService,
    pub(crate) tfs: PredictService,
}

/// The parts of a connection that its requests need.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionHandle {
    pub(crate) caller: Arc<Caller>,
    /// The caller's holdings. They begin to be counted when a reload sets the first maximum of one client.
    pub(crate) peer: RefCell<Peer>,
    pub(crate) checks: ConnectionChecks,
    pub(crate) executor: ExecutorHandle,
    pub(crate) order: ConnectionOrder,
    pub(crate) shutdown: Shutdown,
    pub(crate) activity: Activity,
    pub(crate) keepalive: Duration,
    /// Counts the messages of the connection once it is upgraded.
    pub(crate) meter: MessageMeter,
    pub(crate) permit: Arc<ConnectionPermit>,
}

impl Dispatcher {
    pub(crate) fn new(
        infer: Option<InferenceServices>,
        router: Router,
        checks: ListenerChecks,
        bodies: BodyLimits,
    ) -> Dispatcher {
        // Makes the router ready once instead of for every connection.
        Dispatcher { infer, router: router.with_state(()), checks, bodies }
    }

    /// The same services with other checks.
    pub(crate) fn with_checks(&self, checks: ListenerChecks) -> Dispatcher {
        Dispatcher { checks, ..self.clone() }
    }

    /// The same services with another maximum time between two reads of a body.
    pub(super) fn with_stall(&self, stall: Duration) -> Dispatcher {
        let bodies = BodyLimits { stall, ..self.bodies.clone() };
        Dispatcher { bodies, ..self.clone() }
    }

    /// The checks for the requests of a new connection.
    pub(super) fn checks(&self) -> ConnectionChecks {
        self.checks.of_connection()
    }

    /// The activity of a new connection.
    pub(super) fn activity(&self) -> Activity {
        Activity::new(self.bodies.queued.clone())
    }

    /// The holdings of a caller on this listener.
    pub(crate) fn peer(&self, caller: &Caller) -> Peer {
        self.infer.as_ref().map(|services| services.api.peers().find(caller)).unwrap_or_default()
    }

    /// The holdings of the connection's caller.
    fn peer_of(&self, connection: &ConnectionHandle) -> Peer {
        let mut peer = connection.peer.borrow_mut();
        if !peer.is_counted() && self.infer.as_ref().is_some_and(|services| services.api.peers().is_limited()) {
            *peer = self.peer(&connection.caller);
        }
        peer.clone()
    }

    pub(crate) fn call(&self, connection: &ConnectionHandle, mut request: Request<Incoming>) -> ResponseFuture {
        let (in_pieces, echo) = (request.version() == Version::HTTP_2, EchoedHeaders::of(request.headers()));
        let context = match self.admit(connection, &request) {
            Ok(context) => context,
            Err(status) => {
                let refused = PendingResponse::Refused(ready(status.response(request.headers())));
                return self.respond(connection, self.peer_of(connection), (in_pieces, echo), refused);
            }
        };
        let (peer, form) = (context.peer.clone(), (in_pieces, echo));
        let path = request.uri().path();
        let kind = kind(path, request.headers());
        let receive = |kind| {
            let (bodies, peer) = (self.bodies.clone(), context.peer.clone());
            move |body| RequestBody::new(body, kind, bodies, peer)
        };
        match (&self.infer, path) {
            (Some(services), INFER) => {
                let request = request.map(receive(BodyKind::Message));
                let answer = services.kserve.clone().call(context, request);
                return self.respond(connection, peer, form, PendingResponse::Infer(Box::pin(answer)));
            }
            (Some(services), PREDICT) => {
                let request = request.map(receive(BodyKind::Message));
                let answer = services.tfs.clone().call(context, request);
                return self.respond(connection, peer, form, PendingResponse::Infer(Box::pin(answer)));
            }
            (Some(services), STREAM_INFER) => {
                let request = request.map(receive(BodyKind::Messages));
                let answer = services.kserve.clone().stream(context, request);
                return self.respond(connection, peer, form, PendingResponse::Infer(Box::pin(answer)));
            }
            _ => {}
        }
        // Streams of inference watch the phase themselves.
        let closing = path.starts_with(REFLECTION).then(|| connection.shutdown.closing.clone());
        if request.headers().contains_key(UPGRADE) {
            request.extensions_mut().insert(connection.upgrades());
        }
        let receive = receive(kind);
        request.extensions_mut().insert(context);
        let request = request.map(|body| match closing {
            None => receive(body),
            Some(closing) => receive(body).until(closing),
        });
        let answer = PendingResponse::Router(Box::pin(self.router.clone().call(request)));
        self.respond(connection, peer, form, answer)
    }

    fn respond(
        &self,
        connection: &ConnectionHandle,
        peer: Peer,
        (in_pieces, echo): (bool, EchoedHeaders),
        answer: PendingResponse,
    ) -> ResponseFuture {
        let sender = ResponseSender { request: connection.activity.begin(), peer, in_pieces };
        ResponseFuture { answer, to_client: Some((sender, echo)) }
    }

    fn admit<T>(&self, connection: &ConnectionHandle, request: &Request<T>) -> Result<RequestContext, Status> {
        let mut context = RequestContext::new(&connection.caller, &connection.order, request.headers());
        let head = RequestHead { method: request.method(), uri: request.uri(), headers: request.headers() };
        connection.checks.check(&mut context, &head)?;
        context.connection = Some(connection.executor.clone());
        context.peer = match Arc::ptr_eq(&context.caller, &connection.caller) {
            true => self.peer_of(connection),
            false => self.peer(&context.caller),
        };
        if let Some(services) = &self.infer {
            if !context.peer.is_counted() && may_last(request) {
                context.peer = services.api.peers().find_for_stream(&context.caller);
            }
            context.headers = services.api.feature_headers(request.headers());
        }
        Ok(context)
    }
}

impl ConnectionHandle {
    fn upgrades(&self) -> Upgrades {
        let Shutdown { connections, cut, .. } = &self.shutdown;
        let (permit, keepalive) = (Arc::<ConnectionPermit>::clone(&self.permit), self.keepalive);
        Upgrades { open: connections.clone(), cut: cut.clone(), keepalive, meter: self.meter.clone(), permit }
    }
}

/// Whether a request may last as long as its connection, with many messages: a stream of inference or a WebSocket.
fn may_last<T>(request: &Request<T>) -> bool {
    request.uri().path() == STREAM_INFER || request.headers().contains_key(UPGRADE)
}

/// The kind of the body on this path.
fn kind(path: &str, headers: &HeaderMap) -> BodyKind {
    match path {
        _ if !is_grpc(headers) => BodyKind::Whole,
        STREAM_INFER => BodyKind::Messages,
        _ if path.starts_with(REFLECTION) => BodyKind::Messages,
        _ => BodyKind::Message,
    }
}

/// The response to a request.
pub(crate) struct ResponseFuture {
    answer: PendingResponse,
    /// The connection's side, and the headers that are copied. `None` once the response is there.
    to_client: Option<(ResponseSender, EchoedHeaders)>,
}

enum PendingResponse {
    Infer(Pin<Box<dyn Future<Output = Response<tonic::body::Body>> + Send>>),
    Router(Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>),
    Refused(Ready<Response<Body>>),
}

impl Future for ResponseFuture {
    type Output = Result<Response<ResponseBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut response = match &mut self.answer {
            PendingResponse::Infer(answer) => std::task::ready!(answer.as_mut().poll(cx)).map(ResponseContent::Infer),
            PendingResponse::Router(answer) => {
                std::task::ready!(answer.as_mut().poll(cx))?.map(ResponseContent::Router)
            }
            PendingResponse::Refused(answer) => {
                std::task::ready!(Pin::new(answer).poll(cx)).map(ResponseContent::Router)
            }
        };
        // The future is not polled after its end.
        let Some((sender, echo)) = self.to_client.take() else { return Poll::Pending };
        echo.add_to(response.headers_mut());
        Poll::Ready(Ok(response.map(|content| ResponseBody::new(content, sender))))
    }
}
