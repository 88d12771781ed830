//! Runs streams of running sums under load until a test has seen what it waits for. Every answer is compared with the expected sum, and
//! timed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use sequor_proto::service::grpc_inference_service_client::GrpcInferenceServiceClient;
use sequor_proto::{ModelInferRequest, ModelStreamInferResponse};
use tokio::sync::mpsc::{self, Sender};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

use crate::server::Server;
use crate::steps::step;

/// Steps in flight.
const AHEAD: usize = 2;
const STEPS: u32 = 20;
/// Streams that share a connection.
const SHARED: usize = 8;
/// A timeout that only a hang reaches.
const HANGS: Duration = Duration::from_secs(180);

/// Ids are never reused, so the remains of one load cannot affect the next.
static IDS: AtomicI64 = AtomicI64::new(1);

/// Streams of one model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) model: &'static str,
    pub(crate) streams: usize,
    /// Every other stream sends rows of two elements.
    pub(crate) uneven: bool,
}

impl Part {
    pub(crate) fn of(model: &'static str, streams: usize) -> Part {
        Part { model, streams, uneven: false }
    }
}

/// The results of all streams of a part.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) wrong: Vec<String>,
    /// Time from sending to the answer, in microseconds.
    pub(crate) took: Histogram<u64>,
}

impl Seen {
    fn nothing() -> Seen {
        Seen { wrong: Vec::new(), took: Histogram::new(3).unwrap() }
    }

    pub(crate) fn sums(&self) -> u64 {
        self.took.len()
    }

    /// Milliseconds within which this share of the requests was answered.
    pub(crate) fn ms(&self, share: f64) -> f64 {
        self.took.value_at_quantile(share) as f64 / 1e3
    }
}

/// The number of right answers of each stream.
#[derive(Debug)]
pub(crate) struct Progress(Vec<Arc<AtomicU64>>);

impl Progress {
    /// Waits until every stream has `more` more right answers.
    pub(crate) async fn everybody(&self, more: u64) {
        let now = |sums: &Arc<AtomicU64>| sums.load(Ordering::Relaxed);
        let want: Vec<u64> = self.0.iter().map(|sums| now(sums) + more).collect();
        let since = Instant::now();
        while self.0.iter().zip(&want).any(|(sums, want)| now(sums) < *want) {
            assert!(since.elapsed() < HANGS, "{:?} of {want:?}", self.0);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until the condition holds. It is evaluated on the test's own thread, where it may block.
    pub(crate) async fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let since = Instant::now();
        while !is_so() {
            assert!(since.elapsed() < HANGS, "never: {what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Keeps all streams running while `what` runs, and then ends their sequences. Returns the result of `what`, and the results of each part.
pub(crate) async fn during<T>(
    server: &Server,
    parts: &[Part],
    what: impl AsyncFnOnce(&Progress) -> T,
) -> (T, Vec<Seen>) {
    let enough = Arc::new(AtomicBool::new(false));
    let (mut progress, mut players, mut client) = (Vec::new(), Vec::new(), server.client().await);
    for part in parts {
        let mut of_part = tokio::task::JoinSet::new();
        for n in 0..part.streams {
            if n % SHARED == 0 {
                client = server.client().await;
            }
            let sums = Arc::new(AtomicU64::new(0));
            progress.push(Arc::clone(&sums));
            let width = if part.uneven { 1 + n % 2 } else { 1 };
            let seen = Seen::nothing();
            let player = Player { client: client.clone(), model: part.model, width, sums, seen, value: n as i32 };
            of_part.spawn(player.play(Arc::clone(&enough)));
        }
        players.push(of_part);
    }
    let message = what(&Progress(progress)).await;
    enough.store(true, Ordering::Relaxed);
    let mut all = Vec::new();
    for of_part in players {
        let mut part = Seen::nothing();
        for seen in of_part.join_all().await {
            part.wrong.extend(seen.wrong);
            part.took.add(seen.took).unwrap();
        }
        all.push(part);
    }
    (message, all)
}

struct Player {
    client: GrpcInferenceServiceClient<Channel>,
    model: &'static str,
    width: usize,
    sums: Arc<AtomicU64>,
    seen: Seen,
    value: i32,
}

/// An expected answer.
struct Awaited {
    mark: String,
    sum: i32,
    since: Instant,
}

impl Player {
    async fn play(mut self, enough: Arc<AtomicBool>) -> Seen {
        if let Err(wrong) = self.stream(&enough).await {
            self.seen.wrong.push(format!("{}: {wrong}", self.model));
        }
        self.seen
    }

    /// Runs one sequence after the other on one stream.
    async fn stream(&mut self, enough: &AtomicBool) -> Result<(), String> {
        let (requests, receiver) = mpsc::channel(AHEAD);
        let opened = self.client.model_stream_infer(ReceiverStream::new(receiver)).await;
        let mut replies = opened.map_err(|status| format!("not opened: {status}"))?.into_inner();
        while !enough.load(Ordering::Relaxed) {
            self.sequence(&requests, &mut replies).await?;
        }
        Ok(())
    }

    async fn sequence(
        &mut self,
        requests: &Sender<ModelInferRequest>,
        replies: &mut Streaming<ModelStreamInferResponse>,
    ) -> Result<(), String> {
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        let (mut sum, mut awaited) = (0i32, VecDeque::new());
        for at in 1..=STEPS {
            self.value = self.value.wrapping_mul(1_103_515_245).wrapping_add(12_345) >> 1;
            sum = sum.wrapping_add(self.value);
            let mark = format!("{id}/{at}");
            let mut request = step(self.model, id, mark.clone(), self.value, at == 1, at == STEPS);
            request.inputs[0].shape = vec![1, self.width as i64];
            request.raw_input_contents[0] = self.value.to_le_bytes().repeat(self.width).into();
            awaited.push_back(Awaited { mark, sum, since: Instant::now() });
            requests.send(request).await.map_err(|e| format!("not sent: {e}"))?;
            if awaited.len() == AHEAD {
                self.take(replies, awaited.pop_front()).await?;
            }
        }
        while !awaited.is_empty() {
            self.take(replies, awaited.pop_front()).await?;
        }
        Ok(())
    }

    /// Compares the next answer with the expected one.
    async fn take(
        &mut self,
        replies: &mut Streaming<ModelStreamInferResponse>,
        awaited: Option<Awaited>,
    ) -> Result<(), String> {
        let Awaited { mark, sum, since } = awaited.ok_or("an unexpected answer")?;
        let next = tokio::time::timeout(HANGS, replies.next()).await.map_err(|_| format!("{mark}: no answer"))?;
        let reply = next.ok_or("the stream ended")?.map_err(|status| format!("{mark}: {status}"))?;
        let answer = reply.infer_response.unwrap_or_default();
        let at = answer.outputs.iter().position(|output| output.name == "OUTPUT").unwrap_or_default();
        let got = answer.raw_output_contents.get(at).map(|bytes| bytes.to_vec()).unwrap_or_default();
        if !reply.error_message.is_empty() || answer.id != mark || got != sum.to_le_bytes().repeat(self.width) {
            return Err(format!("{mark}: want {sum}, got {got:?} of {}: {}", answer.id, reply.error_message));
        }
        let micros = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.seen.took.record(micros).map_err(|e| format!("{mark}: {e}"))?;
        self.sums.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
