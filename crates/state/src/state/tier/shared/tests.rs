//! The shared store against a real Redis: what two servers see of one record, and a random history against a reference.

use std::sync::mpsc::sync_channel;
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use sequor_core::{EndReason, Id};

use super::*;
use crate::state::tier::contract::{Released, Tier as _, TierChange};
use crate::state::tier::error::TierError;
use crate::state::tier::record::{EndedState, IdleTime, StateHead, TierKey};

/// A lease that ends only if a test lets it.
pub(super) const LONG: Duration = Duration::from_secs(60);

impl OwnRedis {
    pub(super) fn server(&self, node: &str, lease: Duration) -> OneServer {
        OneServer::start(self.1, node, lease, lease)
    }
}

impl OneServer {
    /// A server whose Redis is at this port. It tries writes without an answer again for this long.
    pub(super) fn start(port: u16, node: &str, lease: Duration, retry: Duration) -> OneServer {
        let url = format!("redis://127.0.0.1:{port}");
        let options = SharedOptions { url: url.clone(), shown: url, node: node.to_owned(), lease };
        let store = SharedStore::open_with(options, retry).unwrap();
        let host = Arc::<QuietHost>::default();
        host.tier.set(Arc::clone(store.tier())).unwrap();
        let counter = Mutex::new(0);
        let next = move |after: u64| {
            let mut counter = counter.lock();
            *counter = (*counter).max(after) + 1;
            *counter
        };
        store.start(Arc::clone(&host) as Arc<dyn SharedHost>, Box::new(next)).unwrap();
        OneServer { store, host }
    }
}

/// Gives everything up that is wanted, and keeps what was lost.
#[derive(Debug, Default)]
pub(super) struct QuietHost {
    pub(super) lost: Mutex<Vec<TierKey>>,
    /// The threads that have released unused sequences, each as often as it did.
    pub(super) released: Mutex<Vec<ThreadId>>,
    tier: OnceLock<Arc<SharedTier>>,
}

impl SharedHost for QuietHost {
    fn hand_over(&self, key: &TierKey) -> HandoverState {
        let tier = self.tier.get().unwrap();
        if !tier.held.contains(key) {
            return HandoverState::Absent;
        }
        let _ = tier.put_batch(&[TierChange::Release { key: key.clone(), left: waiting(None) }]);
        HandoverState::Done
    }

    fn keep(&self, _: &TierKey) {}

    fn lost(&self, keys: Vec<TierKey>) {
        self.lost.lock().extend(keys);
    }

    fn release_unused(&self, _: bool) {
        self.released.lock().push(std::thread::current().id());
    }
}

pub(super) struct OneServer {
    pub(super) store: SharedStore,
    pub(super) host: Arc<QuietHost>,
}

impl Drop for OneServer {
    fn drop(&mut self) {
        self.store.stop();
    }
}

pub(super) fn waiting(idle_left: Option<Duration>) -> Released {
    Released::Waiting { idle_left }
}

pub(super) fn key(id: u64) -> TierKey {
    TierKey::new("vad", &Id::from(id))
}

pub(super) fn put(id: u64, incarnation: u64, step: u64, idle: Option<Duration>) -> TierChange {
    put_mark(id, (incarnation, step), step, idle)
}

/// A write whose state is this mark.
pub(super) fn put_mark(id: u64, (incarnation, step): (u64, u64), mark: u64, idle: Option<Duration>) -> TierChange {
    let file = mark.to_le_bytes().to_vec();
    let time = IdleTime { idle, left: idle, running: Duration::ZERO };
    let head = StateHead::new((1, [7; 32]), (incarnation, step), time, false, &file);
    TierChange::Put { key: key(id), head: Arc::new(head), file: Bytes::from(file) }
}

impl OneServer {
    pub(super) fn claim(&self, id: u64, begins: bool) -> Result<ClaimOutcome, ClaimFailure> {
        let (sender, outcome) = sync_channel(1);
        let done = Box::new(move |outcome| sender.send(outcome).unwrap());
        self.store.claim(ClaimTask { key: key(id), begins, done });
        outcome.recv().unwrap()
    }

    /// The incarnation and the last stored step of a sequence that this server takes over.
    pub(super) fn held(&self, id: u64, begins: bool) -> (u64, u64) {
        match self.claim(id, begins).unwrap() {
            ClaimOutcome::Held { head, incarnation, .. } => (incarnation, head.map_or(0, |head| head.step)),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn write(&self, change: TierChange) -> Result<(), TierError> {
        let failed = self.store.tier().put_each(&[change])?;
        failed.into_values().next().map_or(Ok(()), Err)
    }
}

#[test]
fn a_server_without_a_heartbeat_loses_its_sequences_and_writes_nothing_more() {
    let redis = OwnRedis::start();
    let (one, other) = (redis.server("one", LONG), redis.server("other", LONG));
    let (first, step) = one.held(7, true);
    assert_eq!(step, 0);
    one.write(put(7, first, 1, None)).unwrap();
    // As if it had been stopped for longer than its lease.
    redis.ask(&format!("DEL {}", keys::beat(&one.store.tier().run)));
    let (second, step) = other.held(7, false);
    assert!(second > first && step == 1, "{second} {first} {step}");
    assert_eq!(one.write(put(7, first, 2, None)), Err(TierError::Fenced));
    assert_eq!(*one.host.lost.lock(), [key(7)]);
    assert!(!one.store.holds(&key(7)) && other.store.holds(&key(7)));
    assert_eq!(other.store.tier().get(&key(7)).unwrap().unwrap().1, 1_u64.to_le_bytes());
    other.write(put(7, second, 2, None)).unwrap();
    assert_eq!(redis.ask("KEYS sequor:blob:*").lines().next(), Some("*1"), "the fenced state is gone");
    assert_eq!(one.write(TierChange::Remove { key: key(7), incarnation: first }), Err(TierError::Fenced));
}

#[test]
fn a_write_from_before_a_sequence_came_back_is_fenced() {
    let redis = OwnRedis::start();
    let (one, other) = (redis.server("one", LONG), redis.server("other", LONG));
    let (first, _) = one.held(7, true);
    one.write(put(7, first, 1, None)).unwrap();
    let (second, _) = other.held(7, false);
    other.write(put(7, second, 2, None)).unwrap();
    let (third, step) = one.held(7, false);
    assert!(third > second && step == 2);
    assert_eq!(one.write(put(7, first, 3, None)), Err(TierError::Fenced), "a run from before the handover");
    assert_eq!(one.write(TierChange::Remove { key: key(7), incarnation: first }), Err(TierError::Fenced));
    one.write(put(7, third, 3, None)).unwrap();
    assert_eq!(one.store.tier().head(&key(7)).unwrap().step, 3);
}

#[test]
fn a_released_sequence_expires_and_an_ended_one_is_known_to_others() {
    let redis = OwnRedis::start();
    let (one, other) = (redis.server("one", LONG), redis.server("other", LONG));
    let (first, _) = one.held(7, true);
    one.write(put(7, first, 1, Some(LONG))).unwrap();
    one.write(TierChange::Release { key: key(7), left: waiting(Some(Duration::from_secs(30))) }).unwrap();
    let listed = other.store.unowned("vad", 10).unwrap();
    assert!(matches!(&listed[..], [(id, head, Some(_))] if (id, head.step) == (&Id::from(7), 1)), "{listed:?}");
    assert!(other.store.unowned("va", 10).unwrap().is_empty(), "another model");
    match other.claim(7, false).unwrap() {
        ClaimOutcome::Held { left: Some(left), .. } => assert!(left <= Duration::from_secs(30), "{left:?}"),
        outcome => panic!("{outcome:?}"),
    }
    assert!(other.store.unowned("vad", 10).unwrap().is_empty(), "it has an owner");
    other.write(TierChange::Release { key: key(7), left: waiting(Some(Duration::ZERO)) }).unwrap();
    // The record and its state expire one after the other, because each of them counts from the time of its own command.
    for pattern in ["sequor:*vad*", "sequor:blob:*"] {
        let since = Instant::now();
        while redis.ask(&format!("KEYS {pattern}")).lines().next() != Some("*0") {
            assert!(since.elapsed() < LONG, "{pattern} never expires");
            std::thread::yield_now();
        }
    }
    one.held(8, true);
    let ended = EndedState { why: EndReason::End, step: 3, idle: None, at: Duration::from_secs(5) };
    one.write(put(8, u64::MAX, 3, None)).unwrap();
    let left = Released::Nothing { ended: Some(ended.clone()) };
    one.write(TierChange::Release { key: key(8), left }).unwrap();
    assert_eq!(redis.ask("KEYS sequor:blob:*").lines().next(), Some("*0"), "an ended sequence leaves no state");
    assert_eq!(other.claim(8, false).unwrap(), ClaimOutcome::Unknown { ended: Some(ended) });
    other.held(8, true);
    other.write(TierChange::Release { key: key(8), left: Released::Nothing { ended: None } }).unwrap();
    assert_eq!(one.claim(8, false).unwrap(), ClaimOutcome::Unknown { ended: None }, "the START began another one");
}

#[test]
fn an_end_is_known_even_if_its_server_fails_before_it_releases_the_sequence() {
    let redis = OwnRedis::start();
    let (one, other) = (redis.server("one", LONG), redis.server("other", LONG));
    let (first, _) = one.held(7, true);
    one.write(put(7, first, 1, None)).unwrap();
    let ended = EndedState { why: EndReason::End, step: 2, idle: None, at: Duration::from_secs(5) };
    let end = [
        TierChange::Remove { key: key(7), incarnation: first },
        TierChange::Remember { key: key(7), ended: ended.clone() },
    ];
    assert!(one.store.tier().put_each(&end).unwrap().is_empty());
    redis.ask(&format!("DEL {}", keys::beat(&one.store.tier().run)));
    match other.claim(7, false).unwrap() {
        ClaimOutcome::Held { head: None, ended: message, .. } => assert_eq!(message, Some(ended)),
        outcome => panic!("{outcome:?}"),
    }
    match one.claim(7, true).unwrap() {
        ClaimOutcome::Held { ended, .. } => assert_eq!(ended, None, "a START begins another one"),
        outcome => panic!("{outcome:?}"),
    }
}

#[test]
fn the_sequences_of_a_server_that_is_gone_are_freed() {
    let redis = OwnRedis::start();
    let gone = redis.server("gone", LONG);
    let (first, _) = gone.held(7, true);
    gone.write(put(7, first, 1, Some(LONG))).unwrap();
    gone.held(8, true);
    gone.store.stop();
    assert!(redis.ask(&format!("EXISTS {}", keys::beat(&gone.store.tier().run))).contains(":0"));
    let sweeper = redis.server("sweeper", Duration::from_millis(200));
    let since = Instant::now();
    while sweeper.store.unowned("vad", 10).unwrap().is_empty() {
        assert!(since.elapsed() < LONG, "never freed");
        std::thread::yield_now();
    }
    while redis.ask(&format!("SISMEMBER {} {}", keys::RUNS, gone.store.tier().run)).contains(":1") {
        assert!(since.elapsed() < LONG, "never forgotten");
        std::thread::yield_now();
    }
    assert_eq!(redis.ask("KEYS sequor:seq:*").lines().next(), Some("*1"), "the one without a state is gone");
}

#[test]
fn a_right_that_is_missing_is_named_before_any_sequence_moves() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/deploy/several-servers.md");
    let page = std::fs::read_to_string(page).unwrap();
    let line = page.split("```text acl\n").nth(1).and_then(|block| block.lines().next()).unwrap();
    let rules = line.strip_prefix("user ").unwrap().replace("PASSWORD", "s3cret");
    let redis = OwnRedis::start();
    let url = format!("redis://sequor:s3cret@127.0.0.1:{}", redis.1);
    let open = |change: &str| {
        redis.ask("ACL DELUSER sequor");
        assert_eq!(redis.ask(&format!("ACL SETUSER {rules}")), "+OK\r\n");
        assert_eq!(redis.ask(&format!("ACL SETUSER sequor {change}")), "+OK\r\n", "{change}");
        let (url, shown, node) = (url.clone(), "there".to_owned(), "one".to_owned());
        SharedStore::open(SharedOptions { url, shown, node, lease: LONG }).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(open("on"), Ok(()));
    let rights: Vec<&str> = rules.split(' ').filter_map(|word| word.strip_prefix('+')).collect();
    for right in &rights {
        let outcome = open(&format!("-{right}"));
        if ["config|get", "unsubscribe", "punsubscribe"].contains(right) {
            assert_eq!(outcome, Ok(()), "{right}");
            continue;
        }
        let said = outcome.expect_err(right);
        assert!(said.to_lowercase().contains(right) && !said.contains("s3cret"), "{right}: {said}");
        let named = rights.iter().filter(|other| said.contains(&format!("{}, ", other.to_uppercase()))).count();
        assert_eq!(named, 0, "{right} alone: {said}");
    }
    for (change, missing) in [
        ("resetkeys ~sequor:seq:* ~sequor:blob:*", "rights: keys sequor:runs, keys sequor:epoch"),
        ("resetchannels", "rights: PUBLISH to sequor:yield:*, SUBSCRIBE."),
        ("-incr -time", "rights: INCR, TIME. docs/deploy/several-servers.md"),
    ] {
        let said = open(change).unwrap_err();
        assert!(said.contains(missing), "{change}: {said}");
    }
    assert!(redis.ask("KEYS sequor:blob:*").starts_with("*0"), "nothing is left of the trials");
}

/// A sequence as every server must see it: `None` if there is none, otherwise its last committed step.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Truth(Option<u64>);

#[test]
fn no_two_servers_commit_the_same_step() {
    let redis = OwnRedis::start();
    let servers: Vec<OneServer> = (0..3).map(|n| redis.server(&format!("node-{n}"), LONG)).collect();
    let (mut truth, mut random) = ([Truth::default(); 4], 0x9e37_79b9_7f4a_7c15_u64);
    let mut below = |n: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % n
    };
    // What each server believes it has: the incarnation and the last step that it knows.
    let mut believed: Vec<[Option<(u64, u64)>; 4]> = vec![[None; 4]; 3];
    let (mut fenced, mut committed) = (0, 0);
    for round in 0..1500 {
        let (at, id) = (below(3) as usize, below(4) as usize);
        let (server, key_of) = (&servers[at], 1 + id as u64);
        match below(10) {
            // A server that others do not hear of. It still believes that it owns its sequences.
            0 => _ = redis.ask(&format!("DEL {}", keys::beat(&server.store.tier().run))),
            1..=3 => {
                let begins = below(3) == 0;
                let outcome = server.claim(key_of, begins);
                let outcome = outcome.unwrap_or_else(|e| panic!("round {round}: {e}"));
                match outcome {
                    ClaimOutcome::Held { head, incarnation, .. } => {
                        let step = head.map_or(0, |head| head.step);
                        assert_eq!(step, truth[id].0.unwrap_or(0), "round {round}: an older state");
                        assert!(truth[id].0.is_some() || begins, "round {round}: nothing began it");
                        truth[id] = Truth(Some(step));
                        believed[at][id] = Some((incarnation, step));
                    }
                    ClaimOutcome::Unknown { .. } => {
                        // Nothing is stored of a sequence without a step, so its owner has no more to give than its end.
                        assert!(truth[id].0.is_none_or(|step| step == 0), "round {round}: {:?}", truth[id]);
                        truth[id] = Truth(None);
                    }
                }
                // A claim needs the heartbeat of its server, which the next one would send.
                let run = &server.store.tier().run;
                redis.ask(&format!("SET {} node PX 60000", keys::beat(run)));
            }
            4..=8 => {
                let Some((incarnation, step)) = believed[at][id] else { continue };
                match server.write(put(key_of, incarnation, step + 1, None)) {
                    Ok(()) => {
                        assert_eq!(truth[id].0, Some(step), "round {round}: step {} twice or with a gap", step + 1);
                        truth[id] = Truth(Some(step + 1));
                        believed[at][id] = Some((incarnation, step + 1));
                        committed += 1;
                    }
                    Err(TierError::Fenced) => {
                        believed[at][id] = None;
                        fenced += 1;
                    }
                    Err(other) => panic!("round {round}: {other}"),
                }
            }
            _ => {
                let Some((incarnation, _)) = believed[at][id].take() else { continue };
                match server.write(TierChange::Remove { key: key(key_of), incarnation }) {
                    Ok(()) => {
                        let left = Released::Nothing { ended: None };
                        server.write(TierChange::Release { key: key(key_of), left }).unwrap();
                        truth[id] = Truth(None);
                    }
                    Err(TierError::Fenced) => fenced += 1,
                    Err(other) => panic!("round {round}: {other}"),
                }
            }
        }
    }
    assert!(fenced > 20 && committed > 100, "{fenced} {committed}");
    let states = truth.iter().filter(|of| of.0.is_some_and(|step| step > 0)).count();
    let blobs = redis.ask("KEYS sequor:blob:*");
    assert_eq!(blobs.lines().next(), Some(format!("*{states}").as_str()), "a state that no record points to");
}
