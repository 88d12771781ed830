//! One connection, HTTP/1.1 or HTTP/2, in one task. Its requests are decoded and admitted in the order in which they were complete. Clients
//! that send several steps of a sequence ahead rely on that. Answers of one batch to the same client wake the task once and are written
//! together.

use std::cell::RefCell;
use std::future::{Future as _, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::coop::has_budget_remaining;
use tokio::time::{Instant, Sleep, sleep};

use super::activity::Activity;
use super::connection_limit::{ConnectionLimit, ConnectionPermit};
use super::connection_options::ConnectionOptions;
use super::dispatcher::{ConnectionHandle, Dispatcher};
use super::first_bytes;
use super::metered::MeteredStream;
use super::shutdown::Shutdown;
use super::stalled::{StalledConnection, StreamExecutor};
use super::tls::{self, ListenerTls};
use super::write_timeout::WriteTimeout;
use crate::api::message_meter::MessageMeter;
use crate::api::{Caller, ConnectionOrder};
use crate::config::server::Connections;
use crate::executor::{AfterTurn, ConnectionExecutor};
use crate::telemetry::{ConnectionClosed, Metrics};

/// Maximum bytes that a client may send ahead: per stream, and per connection.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
const FRAME: u32 = 256 << 10;
/// Maximum number of streams that a client may cancel before the server has read them. Correct clients cancel many at once after a
/// deadline.
const EARLY_RESETS: usize = 4096;
/// Maximum rounds of a connection before other connections get their turn.
const ROUNDS: usize = 64;
/// Maximum time for a client to leave after the server has asked it to, because the connection is idle.
const LEAVE: Duration = Duration::from_secs(10);
/// The same time when the server stops. A gRPC client without calls may not read its socket, so it misses the GOAWAY.
const STOP: Duration = Duration::from_secs(1);

/// The shared setup of the connections of one listener.
#[derive(Debug, Clone)]
pub(super) struct ConnectionSetup {
    pub(super) dispatcher: Dispatcher,
    pub(super) keepalive: Duration,
    pub(super) tls: Option<ListenerTls>,
    pub(super) shutdown: Shutdown,
    pub(super) options: Connections,
    pub(super) limit: ConnectionLimit,
    pub(super) metrics: Metrics,
}

/// A connection that was accepted, and its client.
#[derive(Debug)]
pub(super) struct OpenedConnection {
    pub(super) caller: Arc<Caller>,
    pub(super) permit: Arc<ConnectionPermit>,
    pub(super) activity: Activity,
}

impl ConnectionSetup {
    /// The setup of a connection that begins with these options.
    pub(super) fn with(&self, options: ConnectionOptions) -> ConnectionSetup {
        let ConnectionOptions { connections, keepalive } = options;
        let dispatcher = self.dispatcher.with_stall(connections.body.0);
        ConnectionSetup { dispatcher, keepalive, options: connections, ..self.clone() }
    }
}

fn builder(executor: StreamExecutor, keepalive: Duration, options: &Connections) -> auto::Builder<StreamExecutor> {
    let mut builder = auto::Builder::new(executor);
    builder.http1().timer(TokioTimer::new()).header_read_timeout(options.head.0);
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME)
        .max_concurrent_streams(options.streams)
        .max_pending_accept_reset_streams(EARLY_RESETS)
        .keep_alive_interval((!keepalive.is_zero()).then_some(keepalive));
    builder
}

/// Serves a connection until either side ends it.
pub(super) async fn serve(stream: TcpStream, peer: SocketAddr, permit: ConnectionPermit, serving: ConnectionSetup) {
    let permit = Arc::new(permit);
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "TCP_NODELAY");
    }
    let activity = serving.dispatcher.activity();
    let stream = WriteTimeout::new(stream, serving.options.write.0, activity.clone(), serving.metrics.clone());
    let opened = |name: Option<String>| {
        let name = name.unwrap_or_else(|| Caller::LOCAL.to_owned());
        OpenedConnection { caller: Arc::new(Caller { name, address: peer }), permit, activity }
    };
    let Some(tls) = &serving.tls else {
        return talk(stream, opened(None), serving).await;
    };
    let shaken = tokio::select! {
        shaken = tls.tls.accept(stream, serving.options.first_byte.0) => shaken,
        () = serving.shutdown.closing.cancelled() => return,
    };
    match shaken {
        Ok(stream) => {
            let opened = opened(tls::client_name(&stream));
            Box::pin(talk(stream, opened, serving)).await;
        }
        Err(error) => tls.failed.report(peer, &error),
    }
}

/// Serves the requests of a connection, with or without TLS.
pub(super) async fn talk<S>(mut stream: S, opened: OpenedConnection, serving: ConnectionSetup)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Some(head) = begin(&mut stream, &serving).await else { return };
    let ConnectionSetup { dispatcher, keepalive, shutdown, options, metrics, .. } = serving;
    let OpenedConnection { caller, permit, activity } = opened;
    let peer = caller.address;
    let mut tasks = ConnectionExecutor::default();
    let limit = options.write.0;
    let executor = StreamExecutor { tasks: tasks.handle(), activity: activity.clone(), limit };
    let builder = builder(executor, keepalive, &options);
    let mut stalled = StalledConnection::new(activity.clone(), limit * 2);
    let meter = MessageMeter::default();
    let mut idle = IdleTimer::new(options.idle.0, activity.clone());
    let handle = ConnectionHandle {
        peer: RefCell::new(dispatcher.peer(&caller)),
        checks: dispatcher.checks(),
        caller,
        executor: tasks.handle(),
        order: ConnectionOrder::default(),
        shutdown: shutdown.clone(),
        activity,
        keepalive,
        meter: meter.clone(),
        permit,
    };
    let service = service_fn(move |request| dispatcher.call(&handle, request));
    let stream = MeteredStream::new(head, stream, meter, options.body.0);
    let mut connection = pin!(builder.serve_connection_with_upgrades(TokioIo::new(stream), service));
    let mut closing = pin!(shutdown.closing.cancelled());
    let mut is_closing = false;
    let served = poll_fn(|cx| {
        if !is_closing && closing.as_mut().poll(cx).is_ready() {
            is_closing = true;
            connection.as_mut().graceful_shutdown();
            tasks.waker().wake_by_ref();
            idle.leave(STOP);
        }
        match idle.poll(cx) {
            Poll::Pending => {}
            Poll::Ready(Idle::Leave) => {
                metrics.connection_closed(ConnectionClosed::Idle);
                connection.as_mut().graceful_shutdown();
                tasks.waker().wake_by_ref();
            }
            Poll::Ready(Idle::Cut) => return Poll::Ready(Ok(())),
        }
        let turns = poll_in_turns(&mut tasks, cx, |cx| connection.as_mut().poll(cx));
        if turns.is_pending() && stalled.poll(cx).is_ready() {
            metrics.connection_closed(ConnectionClosed::Write);
            return Poll::Ready(Ok(()));
        }
        turns
    });
    tokio::select! {
        end = served => if let Err(error) = end {
            tracing::debug!(%peer, %error, "connection ended");
        },
        () = shutdown.cut.cancelled() => {}
    }
}

/// Reads the first bytes of a connection. `None` if they did not arrive in time, the client left, or the server stops.
async fn begin<S: AsyncRead + Unpin>(stream: &mut S, serving: &ConnectionSetup) -> Option<Bytes> {
    let begun = tokio::select! {
        begun = first_bytes::read(stream, &serving.options) => begun,
        () = serving.shutdown.closing.cancelled() => return None,
    };
    begun.map_err(|reason| reason.into_iter().for_each(|reason| serving.metrics.connection_closed(reason))).ok()
}

/// Polls the connection's tasks and the connection itself in turns, until none of them can continue.
fn poll_in_turns<T>(
    tasks: &mut ConnectionExecutor,
    cx: &mut Context<'_>,
    mut connection: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Poll<T> {
    for _ in 0..ROUNDS {
        // If the task has used up its budget, it pauses here. It is polled again once other tasks have run.
        if !has_budget_remaining() {
            break;
        }
        // Tasks first, so that the connection writes their answers at once.
        if tasks.turn()
            && let Poll::Ready(end) = connection(&mut Context::from_waker(tasks.waker()))
        {
            return Poll::Ready(end);
        }
        // Models last, so that all received requests are in their queues.
        if tasks.next(cx.waker()) == AfterTurn::Rest {
            return Poll::Pending;
        }
    }
    tasks.pause();
    cx.waker().wake_by_ref();
    Poll::Pending
}

/// Closes an idle connection: it asks the client to leave, and cuts the connection if the client does not.
struct IdleTimer {
    sleep: Option<Pin<Box<Sleep>>>,
    every: Duration,
    activity: Activity,
    leaving: bool,
}

enum Idle {
    Leave,
    Cut,
}

impl IdleTimer {
    /// Zero means never.
    fn new(every: Duration, activity: Activity) -> IdleTimer {
        let sleep = (!every.is_zero()).then(|| Box::pin(sleep(every)));
        IdleTimer { sleep, every, activity, leaving: false }
    }

    /// Called when the client has been asked to leave. The connection is cut once it is idle for this long.
    fn leave(&mut self, idle: Duration) {
        // Requests before now do not count.
        self.activity.is_idle();
        (self.leaving, self.every) = (true, idle);
        self.sleep = Some(Box::pin(sleep(idle)));
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Idle> {
        let Some(sleep) = &mut self.sleep else { return Poll::Pending };
        while sleep.as_mut().poll(cx).is_ready() {
            let idle = self.activity.is_idle();
            if idle && self.leaving {
                return Poll::Ready(Idle::Cut);
            }
            let leaves = idle && !self.leaving;
            self.leaving |= idle;
            sleep.as_mut().reset(Instant::now() + if self.leaving { self.every.min(LEAVE) } else { self.every });
            if leaves {
                return Poll::Ready(Idle::Leave);
            }
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::extract::State;
    use axum::http::Uri;
    use futures_util::future::join_all;
    use parking_lot::Mutex;
    use tokio::net::TcpListener;
    use tokio::sync::{mpsc, oneshot};
    use tokio_util::sync::CancellationToken;
    use tokio_util::task::TaskTracker;
    use tonic::transport::Channel;
    use tower::{Service, ServiceExt};

    use super::*;
    use crate::server::checks::ListenerChecks;
    use crate::server::local;
    use crate::server::request_body::BodyLimits;
    use crate::telemetry::kinds::Gauge;

    const HOUR: Duration = Duration::from_secs(3600);

    async fn connect(app: Router) -> Channel {
        let listener = TcpListener::bind(local(0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (closing, cut) = (CancellationToken::new(), CancellationToken::new());
        let shutdown = Shutdown { connections: TaskTracker::new(), closing, cut };
        let serving = ConnectionSetup {
            dispatcher: Dispatcher::new(
                None,
                app,
                ListenerChecks::new(Vec::new()),
                BodyLimits { queued: None, message: usize::MAX, limited_by: "", stall: HOUR },
            ),
            keepalive: Duration::ZERO,
            tls: None,
            shutdown,
            options: Connections::default(),
            limit: ConnectionLimit::new(100, 100, Gauge::default()),
            metrics: Metrics::new(false),
        };
        tokio::spawn(async move {
            while let Ok((stream, peer)) = listener.accept().await {
                let permit = serving.limit.admit(peer).expect("room");
                tokio::spawn(serve(stream, peer, permit, serving.clone()));
            }
        });
        Channel::from_shared(format!("http://{address}")).expect("an address").connect().await.expect("a connection")
    }

    fn request(path: &str) -> axum::http::Request<tonic::body::Body> {
        axum::http::Request::get(path).body(tonic::body::Body::empty()).expect("a request")
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn pipelined_requests_are_handled_in_their_order() {
        let (seen, mut order) = mpsc::channel(1000);
        let take = |State(seen): State<mpsc::Sender<String>>, uri: Uri| async move {
            seen.try_send(uri.path().to_owned()).expect("room");
        };
        let mut channel = connect(Router::new().fallback(take).with_state(seen)).await;
        let mut sent = Vec::new();
        for n in 0..1000 {
            sent.push(channel.ready().await.expect("ready").call(request(&format!("/{n}"))));
        }
        assert!(join_all(sent).await.into_iter().all(|answer| answer.expect("an answer").status() == 200));
        for n in 0..1000 {
            assert_eq!(order.recv().await, Some(format!("/{n}")));
        }
    }

    #[tokio::test]
    async fn a_client_that_gives_up_ends_its_request() {
        let (begun, begins) = oneshot::channel();
        let (held, gone) = oneshot::channel::<()>();
        type Once = Arc<Mutex<Option<(oneshot::Sender<()>, oneshot::Sender<()>)>>>;
        let hold = |State(state): State<Once>| async move {
            let (begun, held) = state.lock().take().expect("one request");
            begun.send(()).expect("listened to");
            std::future::pending::<()>().await;
            drop(held);
        };
        let app = Router::new().fallback(hold).with_state(Arc::new(Mutex::new(Some((begun, held)))));
        let mut channel = connect(app).await;
        let answer = tokio::spawn(channel.ready().await.expect("ready").call(request("/")));
        begins.await.expect("begun");
        answer.abort();
        assert!(gone.await.is_err(), "what the handler held is dropped, not sent");
    }
}
