//! Runs many streams at once that behave like clients: steps sent ahead, ids reused at once, streams dropped in the middle, slow readers.
//! No sum may be wrong, and at the end nothing may be left behind.
//!
//! `SEQUOR_SOAK=SECONDS` sets the duration; `cargo xtask soak` uses it.

use std::collections::VecDeque;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sequor_proto::service::grpc_inference_service_client::GrpcInferenceServiceClient;
use sequor_proto::{ModelInferRequest, ModelStreamInferResponse};
use tokio::sync::mpsc::{self, Sender};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

use crate::server::{Call, Server};
use crate::steps::{STRATEGIES, accumulators, metric, step, sum};

type Client = GrpcInferenceServiceClient<Channel>;

const STREAMS: usize = 64;
/// Streams that share a connection.
const SHARED: usize = 8;
/// Steps in flight.
const AHEAD: usize = 4;
const STEPS: u32 = 20;
/// Sequences on one stream, one after the other.
const SEQUENCES: u32 = 3;
/// Slots of each model; fewer than its streams, so that sequences also wait for a slot.
const SLOTS: u32 = 24;
const IDLE: Duration = Duration::from_secs(10);
/// Maximum time beyond the idle time until the server has freed everything.
const FORGETS: Duration = Duration::from_secs(60);
/// Minimum number of sums of all streams together. Enough for reset streams and restarted sequences, and to warm caches, pools and threads
/// before the first measurement of memory.
const SUMS: u64 = 5000;

pub(crate) fn seconds() -> Duration {
    let asked = std::env::var("SEQUOR_SOAK").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(asked.unwrap_or(5))
}

/// The results of one or more players.
#[derive(Debug, Default)]
struct Seen {
    sums: u64,
    streams: u64,
    resets: u64,
    restarts: u64,
    wrong: Vec<String>,
}

impl Seen {
    fn add(&mut self, other: Seen) {
        self.sums += other.sums;
        self.streams += other.streams;
        self.resets += other.resets;
        self.restarts += other.restarts;
        self.wrong.extend(other.wrong);
    }
}

/// A small random generator, so that runs can be repeated.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(n)) as u32
    }
}

/// A series of clients: each opens a stream, runs its sequences on it, and closes or drops it.
struct Player {
    client: Client,
    model: &'static str,
    /// Two ids in turn. The connection may still hold steps of a dropped stream, which must not count as steps of the next one.
    ids: [i64; 2],
    /// Whether it reads late, and then everything at once.
    slow: bool,
    chance: Chance,
    seen: Seen,
}

/// The steps of a stream, with the expected answers.
struct Script<'a> {
    player: &'a mut Player,
    id: i64,
    /// The running sum of the current sequence, and its step.
    sum: i32,
    at: u32,
    sequences: u32,
}

impl Script<'_> {
    /// The next step and its sum; `None` after the last sequence's END. One in ten sequences is restarted instead of ended.
    fn next(&mut self) -> Option<(ModelInferRequest, String, i32)> {
        if self.sequences == 0 {
            return None;
        }
        let chance = &mut self.player.chance;
        let anew = self.at > 0 && chance.below(10 * STEPS) == 0;
        if anew {
            self.player.seen.restarts += 1;
        }
        let start = self.at == 0 || anew;
        let value = self.player.chance.below(2_000_000) as i32 - 1_000_000;
        self.sum = if start { value } else { self.sum.wrapping_add(value) };
        self.at = if start { 1 } else { self.at + 1 };
        let end = self.at == STEPS;
        let mark = format!("{}/{}/{}", self.id, self.sequences, self.at);
        let request = step(self.player.model, self.id, mark.clone(), value, start, end);
        if end {
            (self.at, self.sequences) = (0, self.sequences - 1);
        }
        Some((request, mark, self.sum))
    }
}

/// An open stream, and the expected answers.
struct Open {
    requests: Sender<ModelInferRequest>,
    replies: Streaming<ModelStreamInferResponse>,
    awaited: VecDeque<(String, i32)>,
}

impl Open {
    async fn new(client: &mut Client) -> Result<Open, tonic::Status> {
        let (requests, receiver) = mpsc::channel(AHEAD);
        let replies = client.model_stream_infer(ReceiverStream::new(receiver)).await?.into_inner();
        Ok(Open { requests, replies, awaited: VecDeque::new() })
    }

    async fn send(&mut self, (request, mark, sum): (ModelInferRequest, String, i32)) -> Result<(), String> {
        self.awaited.push_back((mark, sum));
        self.requests.send(request).await.map_err(|e| format!("not sent: {e}"))
    }

    /// Compares the next answer with the expected one.
    async fn take(&mut self) -> Result<(), String> {
        let (mark, want) = self.awaited.pop_front().ok_or("an unexpected answer")?;
        let reply =
            self.replies.next().await.ok_or("the stream ended")?.map_err(|status| format!("{mark}: {status}"))?;
        let answer = reply.infer_response.unwrap_or_default();
        let got = sum(&answer);
        if reply.error_message.is_empty() && answer.id == mark && got == Some(want) {
            return Ok(());
        }
        Err(format!("{mark}: want {want}, got {got:?} of {}: {}", answer.id, reply.error_message))
    }
}

impl Player {
    /// Plays until this time, and until all players together have the minimum number of sums.
    async fn play(mut self, until: Instant, sums: Arc<AtomicU64>) -> Seen {
        while (Instant::now() < until || sums.load(Ordering::Relaxed) < SUMS) && self.seen.wrong.is_empty() {
            let (reset, before) = (self.chance.below(10) == 0, self.seen.sums);
            if let Err(wrong) = self.stream(reset).await {
                self.seen.wrong.push(format!("{}: {wrong}", self.model));
            }
            sums.fetch_add(self.seen.sums - before, Ordering::Relaxed);
        }
        self.seen
    }

    /// Runs one stream. A reset stream is dropped with steps in flight, and leaves its sequence to the server.
    async fn stream(&mut self, reset: bool) -> Result<(), String> {
        let mut open = Open::new(&mut self.client).await.map_err(|status| format!("not opened: {status}"))?;
        self.seen.streams += 1;
        let mut left = if reset { 1 + self.chance.below(SEQUENCES * STEPS - 1) } else { u32::MAX };
        let (id, slow) = (self.ids[0], self.slow);
        let mut script = Script { player: self, id, sum: 0, at: 0, sequences: SEQUENCES };
        let mut is_through = false;
        while !is_through || !open.awaited.is_empty() {
            while !is_through && open.awaited.len() < AHEAD {
                match script.next() {
                    Some(next) => open.send(next).await?,
                    None => is_through = true,
                }
                left -= 1;
                if left == 0 {
                    script.player.seen.resets += 1;
                    script.player.ids.reverse();
                    return Ok(());
                }
            }
            if slow {
                let late = Duration::from_millis(u64::from(script.player.chance.below(30)));
                tokio::time::sleep(late).await;
            }
            let burst = if slow { open.awaited.len() } else { 1 };
            for _ in 0..burst {
                open.take().await?;
                script.player.seen.sums += 1;
            }
        }
        Ok(())
    }
}

/// Plays for this long, and until there are [`SUMS`]. Returns the results of all players.
async fn play(server: &Server, seed: u64, length: Duration) -> Seen {
    let (until, sums) = (Instant::now() + length, Arc::<AtomicU64>::default());
    let mut channels = Vec::new();
    for _ in 0..STREAMS / SHARED {
        channels.push(server.client().await);
    }
    let mut players = tokio::task::JoinSet::new();
    for n in 0..STREAMS {
        let id = 1 + 2 * n as i64;
        players.spawn(
            Player {
                client: channels[n / SHARED].clone(),
                model: STRATEGIES[n % 2],
                ids: [id, id + 1],
                slow: n / 2 % 2 == 0,
                chance: Chance(seed + n as u64),
                seen: Seen::default(),
            }
            .play(until, Arc::clone(&sums)),
        );
    }
    let mut all = Seen::default();
    for seen in players.join_all().await {
        all.add(seen);
    }
    all
}

/// Resident memory of the server in bytes.
pub(crate) fn resident(server: &Server) -> u64 {
    bytes_of(server, "VmRSS:")
}

/// Resident memory of the server, once it is within the limit, or after a timeout.
pub(crate) async fn settled(server: &Server, limit: f64) -> u64 {
    let until = Instant::now() + FORGETS;
    while resident(server) as f64 > limit && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    resident(server)
}

/// The same without pages of files, which are mostly the program's code.
fn anonymous(server: &Server) -> u64 {
    bytes_of(server, "RssAnon:")
}

fn bytes_of(server: &Server, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.process.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}

/// What the server still holds: live sequences, waiting sequences, used slots, requests in flight, bytes of state.
fn held(server: &Server) -> [f64; 5] {
    [
        metric(server, "sequor_sequences_live", &[]),
        metric(server, "sequor_sequences_backlogged", &[]),
        metric(server, "sequor_slots", &["state=\"used\""]),
        metric(server, "sequor_requests_in_flight", &[]),
        metric(server, "sequor_state_bytes", &[]),
    ]
}

/// Waits until the server holds nothing, up to the maximum time.
async fn forgotten(server: &Server) -> Duration {
    let since = Instant::now();
    loop {
        let held = held(server);
        if held == [0.0; 5] {
            return since.elapsed();
        }
        assert!(since.elapsed() < IDLE + FORGETS, "after {:?}: {held:?}", since.elapsed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_of_every_kind_return_correct_sums_and_leak_nothing() {
    let call = Call::serve("repository");
    accumulators(&call.folder.path().join("repository"), SLOTS, IDLE.as_micros() as u64);
    let server = call.start();
    assert_eq!(held(&server), [0.0; 5]);
    let warm = play(&server, 1, Duration::ZERO).await;
    assert!(warm.wrong.is_empty(), "{:#?}", warm.wrong);
    forgotten(&server).await;
    let before = resident(&server);

    let length = seconds();
    let seen = play(&server, 1000, length).await;
    assert!(seen.wrong.is_empty(), "{} wrong of {}: {:#?}", seen.wrong.len(), seen.sums, seen.wrong);
    let took = forgotten(&server).await;
    let after = settled(&server, before as f64 * 1.1).await;
    assert!(seen.resets > 0 && seen.restarts > 0, "{seen:?}");
    println!(
        "load: {STREAMS} streams at a time for {} s: {} opened, {} reset; {} sums, 0 wrong, {} sequences started anew; all forgotten after \
         {:.1} s; resident {:.1} MiB before, {:.1} MiB after",
        length.as_secs(),
        seen.streams,
        seen.resets,
        seen.sums,
        seen.restarts,
        took.as_secs_f64(),
        before as f64 / 1048576.0,
        after as f64 / 1048576.0
    );
    assert!(after as f64 <= before as f64 * 1.1, "resident memory grew from {before} to {after}");
    assert_eq!(server.stop().code, Some(0));
}

/// Prints the memory after many streams, with one sequence each, were open at once and closed. The target is at most 15 MiB above idle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_are_closed_leave_no_sequence_behind() {
    let is_soak = std::env::var_os("SEQUOR_SOAK").is_some();
    let (count, pause) = if is_soak { (3000, Duration::from_secs(15)) } else { (300, Duration::ZERO) };
    let call = Call::serve("repository");
    accumulators(&call.folder.path().join("repository"), SLOTS, IDLE.as_micros() as u64);
    let server = call.start();
    let memory = || [resident(&server), anonymous(&server)].map(|bytes| bytes as f64 / 1048576.0);
    let idle = memory();
    let mut streams = Vec::new();
    let mut client = server.client().await;
    for n in 0..count {
        if n % 100 == 0 {
            client = server.client().await;
        }
        let mut open = Open::new(&mut client).await.unwrap();
        let id = i64::from(n) + 1;
        open.send((step(STRATEGIES[0], id, n.to_string(), n, true, true), n.to_string(), n)).await.unwrap();
        streams.push(open);
    }
    for open in &mut streams {
        open.take().await.unwrap();
    }
    let open = memory();
    drop((client, streams));
    forgotten(&server).await;
    tokio::time::sleep(pause).await;
    let closed = memory();
    for (what, n) in [("resident", 0), ("without pages of files", 1)] {
        println!(
            "memory, {what}: {:.1} MiB idle, {:.1} MiB with {count} streams open, {:.1} MiB {} s after they were closed",
            idle[n],
            open[n],
            closed[n],
            pause.as_secs()
        );
    }
    assert_eq!(server.stop().code, Some(0));
}
