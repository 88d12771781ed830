//! Servers whose link to Redis loses answers and delivers commands late: no step is stored twice, none is lost, and no server uses a sequence
//! that another one has.

use std::time::{Duration, Instant};

use sequor_core::EndReason;

use super::lossy_link::{LinkFault, LossyLink};
use super::scripts::RecordScript;
use super::tests::{LONG, OneServer, key, put, put_mark, waiting};
use super::*;
use crate::state::tier::contract::{Released, Tier as _, TierChange};
use crate::state::tier::error::TierError;
use crate::state::tier::record::EndedState;
use crate::state::tier::succession::{Successions, VersionDigest};

impl LossyLink {
    fn meet(&self, fault: LinkFault, script: RecordScript) {
        self.arm(fault, script.digest().as_bytes());
    }
}

/// One server behind a link that fails, and another one.
fn two(retry: Duration) -> (OwnRedis, LossyLink, OneServer, OneServer) {
    let redis = OwnRedis::start();
    let link = LossyLink::start(redis.1);
    let one = OneServer::start(link.port(), "one", LONG, retry);
    let other = redis.server("other", LONG);
    (redis, link, one, other)
}

fn forget_heartbeat(redis: &OwnRedis, of: &OneServer) {
    redis.ask(&format!("DEL {}", keys::beat(&of.store.tier().run)));
}

/// As if a server had been stopped for longer than its lease.
fn expire(redis: &OwnRedis, of: &OneServer) {
    of.store.lease().advance(LONG);
    forget_heartbeat(redis, of);
}

/// A key of Redis, in quotes.
fn quoted(name: &[u8]) -> String {
    let bytes: String = name.iter().map(|byte| format!("\\x{byte:02x}")).collect();
    format!("\"{bytes}\"")
}

/// Whether Redis says that this server owns the sequence.
fn owns(redis: &OwnRedis, server: &OneServer, id: u64) -> bool {
    redis.ask(&format!("HGET {} owner", quoted(&keys::record(&key(id))))).contains(&server.store.tier().run)
}

fn release(id: u64) -> TierChange {
    TierChange::Release { key: key(id), left: waiting(None) }
}

fn is_unanswered(outcome: &Result<(), TierError>) -> bool {
    matches!(outcome, Err(TierError::Unanswered { .. }))
}

/// The mark of the stored state of a sequence, as this server reads it.
fn mark_of(server: &OneServer, id: u64) -> Option<u64> {
    let found = server.store.tier().get(&key(id)).unwrap();
    found.map(|(_, file)| u64::from_le_bytes(file.try_into().unwrap()))
}

#[test]
fn a_write_repeated_after_a_takeover_leaves_the_state_to_the_other_server() {
    let (redis, link, one, other) = two(LONG);
    let (first, _) = one.held(7, true);
    link.meet(LinkFault::DropReply, RecordScript::Commit);
    assert_eq!(one.write(put(7, first, 1, None)), Ok(()), "the repeat of a write that Redis has");
    link.meet(LinkFault::Cut, RecordScript::Commit);
    std::thread::scope(|scope| {
        let write = scope.spawn(|| one.write(put(7, first, 2, None)));
        link.wait();
        forget_heartbeat(&redis, &one);
        assert_eq!(other.held(7, false).1, 2);
        link.open();
        assert_eq!(write.join().unwrap(), Err(TierError::Fenced));
    });
    assert_eq!(other.store.tier().get(&key(7)).unwrap().unwrap().1, 2_u64.to_le_bytes());
    let blobs = redis.ask("KEYS sequor:blob:*");
    let blob = blobs.lines().nth(2).unwrap();
    assert!(redis.ask(&format!("PTTL {blob}")).contains(":-1"), "the state expires");
    assert!(blobs.starts_with("*1\r\n"), "{blobs}");
}

#[test]
fn a_heartbeat_answered_after_the_lease_asks_what_is_left() {
    let (redis, link, one, other) = two(Duration::ZERO);
    let (lease, mut heartbeat) = (one.store.lease(), one.store.heartbeat());
    one.held(7, true);
    heartbeat.renew().unwrap();
    assert!(lease.holds() && one.store.holds(&key(7)), "nothing has happened to it");
    lease.advance(LONG * 9 / 10);
    link.meet(LinkFault::StallCommand, RecordScript::Beat);
    std::thread::scope(|scope| {
        let renewal = scope.spawn(|| heartbeat.renew());
        link.wait();
        lease.advance(LONG / 5);
        forget_heartbeat(&redis, &one);
        other.held(7, true);
        link.open();
        _ = renewal.join().unwrap();
    });
    assert!(!lease.holds() || !one.store.holds(&key(7)), "two servers answer for one sequence");
    while heartbeat.renew().is_err() {}
    assert!(lease.holds() && !one.store.holds(&key(7)));
    assert_eq!(*one.host.lost.lock(), [key(7)]);
}

#[test]
fn a_heartbeat_that_redis_lost_is_noticed_even_if_a_late_one_brought_it_back() {
    let (redis, link, one, other) = two(Duration::ZERO);
    let mut heartbeat = one.store.heartbeat();
    one.held(7, true);
    link.meet(LinkFault::Hold, RecordScript::Beat);
    assert!(heartbeat.renew().is_err());
    forget_heartbeat(&redis, &one);
    other.held(7, true);
    assert!(link.deliver(0));
    assert!(one.store.lease().holds(), "its own clock knows nothing of it");
    heartbeat.renew().unwrap();
    assert!(one.store.lease().holds() && !one.store.holds(&key(7)));
    assert_eq!((*one.host.lost.lock()).as_slice(), [key(7)]);
}

#[test]
fn a_lease_that_is_back_frees_at_once_what_was_dropped_without_it() {
    let redis = OwnRedis::start();
    let one = redis.server("one", LONG);
    let mut heartbeat = one.store.heartbeat();
    let released = || one.host.released.lock().iter().filter(|of| **of == std::thread::current().id()).count();
    heartbeat.renew().unwrap();
    assert_eq!(released(), 0, "the lease has held all the time");
    expire(&redis, &one);
    heartbeat.renew().unwrap();
    assert_eq!(released(), 1, "by this thread, so that it waits for no other one");
}

#[test]
fn a_claim_answered_after_the_lease_is_sent_again() {
    let (redis, link, one, other) = two(LONG);
    link.meet(LinkFault::StallReply, RecordScript::Claim);
    std::thread::scope(|scope| {
        let claim = scope.spawn(|| one.held(7, true));
        link.wait();
        expire(&redis, &one);
        let (first, _) = other.held(7, true);
        other.write(put(7, first, 1, None)).unwrap();
        one.store.heartbeat().renew().unwrap();
        link.open();
        assert_eq!(claim.join().unwrap().1, 1, "the step of the other server");
    });
    assert!(one.store.holds(&key(7)) && owns(&redis, &one, 7) && !other.store.holds(&key(7)));
}

#[test]
fn a_claim_without_an_answer_does_not_keep_the_sequence() {
    let (redis, link, one, other) = two(Duration::ZERO);
    let (first, _) = other.held(7, true);
    other.write(put(7, first, 1, None)).unwrap();
    for fault in [LinkFault::DropReply, LinkFault::Hold] {
        other.write(release(7)).unwrap();
        link.meet(fault, RecordScript::Claim);
        assert!(one.claim(7, false).is_err());
        link.deliver(0);
        assert_eq!(other.held(7, false).1, 1, "{fault:?}");
    }
    // A claim whose answer this server cannot use.
    other.write(release(7)).unwrap();
    redis.ask(&format!("HSET {} head unreadable", quoted(&keys::record(&key(7)))));
    assert!(one.claim(7, false).is_err());
    while owns(&redis, &one, 7) {
        std::thread::yield_now();
    }
    // Nothing asks for this one.
    link.meet(LinkFault::Hold, RecordScript::Claim);
    assert!(one.claim(8, true).is_err());
    // The claim after it is decided once the other one is freed, which had no effect.
    one.held(9, true);
    assert!(link.deliver(0) && owns(&redis, &one, 8) && !one.store.holds(&key(8)));
    one.store.heartbeat().find_astray().unwrap();
    while owns(&redis, &one, 8) {
        std::thread::yield_now();
    }
    assert!(one.store.holds(&key(9)) && owns(&redis, &one, 9));
}

#[test]
fn a_lost_answer_leaves_what_is_known_of_other_changes() {
    let (_redis, link, one, _other) = two(Duration::ZERO);
    let (seven, eight) = (one.held(7, true).0, one.held(8, true).0);
    let mark = 0x1122_3344_5566_7788;
    let changes = [
        put(7, seven, 1, None),
        put(8, eight, 1, None),
        // In the second bundle, of which Redis carries everything out.
        put_mark(7, (seven, 2), mark, None),
        put(8, eight, 2, None),
        // In the third one, which is not sent.
        put(7, seven, 3, None),
    ];
    link.arm(LinkFault::DropReply, &mark.to_le_bytes());
    let failed = one.store.tier().put_each(&changes).unwrap();
    let mut places: Vec<_> = failed.iter().map(|(place, error)| (*place, is_unanswered(&Err(error.clone())))).collect();
    places.sort_unstable();
    assert_eq!(places, [(2, true), (3, true), (4, false)]);
    assert!(matches!(failed[&4], TierError::Unreachable { .. }), "{failed:?}");
    assert_eq!((mark_of(&one, 7), mark_of(&one, 8)), (Some(mark), Some(2)), "it asks Redis again");
    one.write(TierChange::Remove { key: key(8), incarnation: eight }).unwrap();
    assert_eq!((mark_of(&one, 7), mark_of(&one, 8)), (Some(mark), None));

    // Nothing is sent while there is no connection.
    link.meet(LinkFault::Cut, RecordScript::Commit);
    assert!(is_unanswered(&one.write(put(7, seven, 4, None))));
    assert!(matches!(one.write(put(8, eight, 9, None)), Err(TierError::Unreachable { .. })));
    link.open();
    assert_eq!((mark_of(&one, 7), mark_of(&one, 8)), (Some(4), None));
}

#[test]
fn a_write_that_arrives_after_its_state_was_read_again_does_nothing() {
    let (redis, link, one, other) = two(Duration::ZERO);
    let (first, _) = one.held(7, true);
    one.write(put(7, first, 1, None)).unwrap();
    link.meet(LinkFault::Hold, RecordScript::Commit);
    assert!(is_unanswered(&one.write(put(7, first, 2, None))));
    assert_eq!(mark_of(&one, 7), Some(1));
    assert!(link.deliver(0));
    assert_eq!(mark_of(&one, 7), Some(1));
    one.write(release(7)).unwrap();
    assert_eq!(other.held(7, false).1, 1);
    assert!(redis.ask("KEYS sequor:blob:*").starts_with("*1\r\n"), "the late state is gone");

    // A sequence whose first write got no answer is released as Redis has it.
    let (second, _) = one.held(8, true);
    link.meet(LinkFault::DropReply, RecordScript::Commit);
    assert!(is_unanswered(&one.write(put(8, second, 1, None))));
    one.write(TierChange::Release { key: key(8), left: Released::AsStored { ended: None } }).unwrap();
    assert_eq!(other.held(8, false).1, 1);

    // Another server has taken the sequence over meanwhile.
    other.write(release(8)).unwrap();
    let (third, _) = one.held(8, false);
    link.meet(LinkFault::DropReply, RecordScript::Commit);
    assert!(is_unanswered(&one.write(put(8, third, 2, None))));
    forget_heartbeat(&redis, &one);
    assert_eq!(other.held(8, false).1, 2);
    assert_eq!(mark_of(&one, 8), None);
    assert_eq!((*one.host.lost.lock()).as_slice(), [key(8)]);
}

#[test]
fn what_a_write_without_an_answer_has_done_is_known_after_a_look() {
    let (redis, link, one, other) = two(Duration::ZERO);
    let tier = one.store.tier();
    let (first, _) = one.held(7, true);
    assert_eq!(tier.known(&key(7)), Some(None), "nothing is stored");
    one.write(put(7, first, 1, None)).unwrap();
    for (fault, stored) in [(LinkFault::Hold, 1), (LinkFault::DropReply, 2)] {
        link.meet(fault, RecordScript::Commit);
        assert!(is_unanswered(&one.write(put(7, first, 2, None))));
        assert_eq!(tier.known(&key(7)), None);
        assert_eq!(tier.look(&key(7)).unwrap().map(|head| head.step), Some(stored));
        assert_eq!(tier.known(&key(7)).flatten().map(|head| head.step), Some(stored));
    }
    assert!(link.deliver(0));
    assert_eq!(mark_of(&one, 7), Some(2), "the late write does nothing");
    // Another server has taken the sequence over meanwhile.
    link.meet(LinkFault::DropReply, RecordScript::Commit);
    assert!(is_unanswered(&one.write(put(7, first, 3, None))));
    forget_heartbeat(&redis, &one);
    assert_eq!(other.held(7, false).1, 3);
    assert_eq!(tier.look(&key(7)), Err(TierError::Fenced));
    assert_eq!(tier.known(&key(7)), None);
    assert_eq!((*one.host.lost.lock()).as_slice(), [key(7)]);
}

#[test]
fn a_late_command_changes_nothing_that_came_after_it() {
    let (redis, link, one, other) = two(Duration::ZERO);
    let (first, _) = one.held(7, true);
    link.meet(LinkFault::Hold, RecordScript::Commit);
    assert!(is_unanswered(&one.write(put(7, first, 1, None))));
    one.write(put(7, first, 2, None)).unwrap();
    assert!(link.deliver(0));
    one.write(release(7)).unwrap();
    assert_eq!(other.held(7, false).1, 2, "the late write put an earlier state back");
    assert!(redis.ask("KEYS sequor:blob:*").starts_with("*1\r\n"), "and left nothing");

    // A release from before this server took the sequence over again.
    one.held(7, false);
    link.meet(LinkFault::Hold, RecordScript::Release);
    assert!(is_unanswered(&one.write(release(7))));
    assert!(!one.store.holds(&key(7)), "another server may have it");
    let (again, step) = one.held(7, false);
    assert_eq!(step, 2);
    assert!(link.deliver(0) && owns(&redis, &one, 7), "the late release gave it up");
    one.write(put(7, again, 3, None)).unwrap();

    // A write of a sequence that has ended, whose id has begun again.
    link.meet(LinkFault::Hold, RecordScript::Commit);
    assert!(is_unanswered(&one.write(put(7, again, 4, None))));
    one.write(TierChange::Remove { key: key(7), incarnation: again }).unwrap();
    one.write(TierChange::Release { key: key(7), left: Released::Nothing { ended: None } }).unwrap();
    one.held(7, true);
    assert!(link.deliver(0));
    assert_eq!(redis.ask(&format!("HEXISTS {} head", quoted(&keys::record(&key(7))))), ":0\r\n");
}

#[test]
fn a_state_that_is_written_ends_what_is_known_of_the_sequence_before() {
    let redis = OwnRedis::start();
    let one = redis.server("one", LONG);
    let (first, _) = one.held(7, true);
    let ended = EndedState { why: EndReason::End, step: 2, idle: None, at: Duration::from_secs(5) };
    one.write(TierChange::Remember { key: key(7), ended }).unwrap();
    assert!(redis.ask("KEYS sequor:end:*").starts_with("*1\r\n"));
    one.write(put(7, first + 1, 1, None)).unwrap();
    assert!(redis.ask("KEYS sequor:end:*").starts_with("*0\r\n"), "another sequence of the id has a state");
}

fn files(version: u64) -> VersionDigest {
    VersionDigest { version, digest: [u8::try_from(version).unwrap(); 32] }
}

fn succeeds(server: &OneServer, pairs: &[(u64, u64)]) {
    let mut successions = Successions::default();
    for (from, to) in pairs {
        successions.add(files(*from), files(*to));
    }
    server.write(TierChange::Succeed { model: "vad".to_owned(), successions }).unwrap();
}

#[test]
fn servers_that_carry_at_once_keep_the_successions_of_each_other() {
    let (redis, link, one, other) = two(Duration::ZERO);
    assert_eq!(one.store.tier().successions("vad"), other.store.tier().successions("vad"));
    succeeds(&one, &[(1, 2)]);
    succeeds(&other, &[(3, 4)]);
    succeeds(&one, &[(1, 2), (2, 5)]);
    let seen = |server: &OneServer| {
        let all = server.store.tier().successions("vad");
        [1, 2, 3].map(|version| all.successor_of(files(version)).version)
    };
    assert_eq!(seen(&redis.server("third", LONG)), [5, 5, 4]);
    let late = OneServer::start(link.port(), "late", LONG, Duration::ZERO);
    link.arm(LinkFault::DropReply, b"HGET");
    assert_eq!(seen(&late), [1, 2, 3], "there is no answer");
    assert_eq!(seen(&late), [5, 5, 4], "and the next time there is one");
    succeeds(&late, &[(6, 7)]);
    assert_eq!(seen(&redis.server("fourth", LONG)), [5, 5, 4], "it did not know them, so it did not remove them");
}

/// A step that was answered, and the mark of its write. Step 0: there is no state.
type MarkedStep = (u64, u64);

/// What may be in Redis of a sequence.
#[derive(Debug, Default, Clone)]
struct LossyTruth {
    answered: MarkedStep,
    /// Writes after that without an answer. One of them may be there.
    possible: Vec<MarkedStep>,
    /// Whether the removal of its state got no answer.
    may_be_gone: bool,
    /// The server that must still own it.
    owner: Option<usize>,
}

struct LossyWorld {
    redis: OwnRedis,
    links: Vec<LossyLink>,
    servers: Vec<OneServer>,
    beats: Vec<heartbeat::Heartbeat>,
    truth: Vec<LossyTruth>,
    /// What each server believes to have: the incarnation and the last step.
    believed: Vec<Vec<Option<(u64, u64)>>>,
    random: u64,
    round: u64,
    /// Faults that happened, late deliveries, answered writes, states that were read after a write without an answer.
    counts: [u32; 4],
}

const SERVERS: usize = 3;
const IDS: usize = 3;
/// Time in which a thread handles the answer to a release, even on a busy machine.
const MOMENT: Duration = Duration::from_secs(2);

impl LossyWorld {
    fn new(seed: u64) -> LossyWorld {
        let redis = OwnRedis::start();
        let links: Vec<LossyLink> = (0..SERVERS).map(|_| LossyLink::start(redis.1)).collect();
        let server =
            |(n, link): (usize, &LossyLink)| OneServer::start(link.port(), &format!("node-{n}"), LONG, Duration::ZERO);
        let servers: Vec<OneServer> = links.iter().enumerate().map(server).collect();
        let beats = servers.iter().map(|server| server.store.heartbeat()).collect();
        let (truth, believed) = (vec![LossyTruth::default(); IDS], vec![vec![None; IDS]; SERVERS]);
        let random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed | 1);
        LossyWorld { redis, links, servers, beats, truth, believed, random, round: 0, counts: [0; 4] }
    }

    fn below(&mut self, n: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random % n as u64).unwrap()
    }

    /// Does this with a fault of the link at times.
    fn with_fault<T>(&mut self, at: usize, script: RecordScript, act: impl FnOnce(&mut Self) -> T) -> T {
        match self.below(5) {
            0 => self.links[at].meet(LinkFault::DropReply, script),
            1 => self.links[at].meet(LinkFault::Hold, script),
            _ => {}
        }
        let done = act(self);
        self.counts[0] += u32::from(self.links[at].disarm());
        done
    }

    fn claim(&mut self, at: usize, n: usize) {
        let (id, round) = (1 + n as u64, self.round);
        if self.servers[at].store.holds(&key(id)) {
            return;
        }
        if !self.servers[at].store.lease().holds() {
            self.beats[at].renew().unwrap();
        }
        // Until it is decided, it may belong to either.
        self.truth[n].owner = None;
        self.believed[at][n] = None;
        match self.with_fault(at, RecordScript::Claim, |world| world.servers[at].claim(id, true)) {
            Ok(ClaimOutcome::Held { head, incarnation, .. }) => {
                let step = head.as_ref().map_or(0, |head| head.step);
                let file = self.servers[at].store.tier().get(&key(id));
                let file = file.unwrap_or_else(|error| panic!("round {round}: step {step} is lost: {error}"));
                let mark = file.map_or(0, |(_, file)| u64::from_le_bytes(file.try_into().unwrap()));
                let (truth, found) = (&mut self.truth[n], (step, mark));
                let is_gone = step == 0 && (truth.answered.0 == 0 || truth.may_be_gone);
                assert!(
                    found == truth.answered || truth.possible.contains(&found) || is_gone,
                    "round {round}: {found:?} is not of {truth:?}"
                );
                *truth = LossyTruth { answered: found, owner: Some(at), ..LossyTruth::default() };
                self.believed[at][n] = Some((incarnation, step));
            }
            Ok(other) => panic!("round {round}: {other:?}"),
            Err(ClaimFailure::Store(TierError::Unanswered { .. })) => {}
            Err(other) => panic!("round {round}: {other}"),
        }
    }

    /// A write was fenced. That is wrong if no other server can have the sequence.
    fn fenced(&mut self, at: usize, n: usize) {
        assert_ne!(self.truth[n].owner, Some(at), "round {}: fenced without a takeover", self.round);
        self.believed[at][n] = None;
    }

    fn write(&mut self, at: usize, n: usize) {
        // Rather a server that has it, or believes so.
        let at = if self.believed[at][n].is_some() { at } else { (at + 1) % SERVERS };
        let (Some((incarnation, step)), mark) = (self.believed[at][n], self.round) else { return };
        let change = put_mark(1 + n as u64, (incarnation, step + 1), mark, None);
        match self.with_fault(at, RecordScript::Commit, |world| world.servers[at].write(change)) {
            Ok(()) => {
                let answered = self.truth[n].answered.0;
                assert!(answered <= step, "round {mark}: step {} twice, after {answered}", step + 1);
                let owner = self.truth[n].owner;
                self.truth[n] = LossyTruth { answered: (step + 1, mark), owner, ..LossyTruth::default() };
                self.believed[at][n] = Some((incarnation, step + 1));
                self.counts[2] += 1;
            }
            Err(TierError::Fenced) => self.fenced(at, n),
            Err(TierError::Unanswered { .. }) => self.truth[n].possible.push((step + 1, mark)),
            Err(other) => panic!("round {mark}: {other}"),
        }
    }

    /// Reads the state that the owner of a sequence has stored. After that it is known which write was the last.
    fn read(&mut self, n: usize) {
        let Some(at) = self.truth[n].owner.filter(|at| self.servers[*at].store.lease().holds()) else { return };
        let id = 1 + n as u64;
        let file = self.with_fault(at, RecordScript::Recall, |world| world.servers[at].store.tier().get(&key(id)));
        let round = self.round;
        let found = match file {
            Ok(file) => file.map_or((0, 0), |(head, file)| (head.step, u64::from_le_bytes(file.try_into().unwrap()))),
            Err(TierError::Unanswered { .. }) => return,
            Err(other) => panic!("round {round}: {other}"),
        };
        let truth = &mut self.truth[n];
        let is_gone = found.0 == 0 && truth.may_be_gone;
        assert!(
            found == truth.answered || truth.possible.contains(&found) || is_gone,
            "round {round}: {found:?} is read, not of {truth:?}"
        );
        self.counts[3] += u32::from(!truth.possible.is_empty());
        *truth = LossyTruth { answered: found, owner: Some(at), ..LossyTruth::default() };
        // Its next step is the one after that.
        self.believed[at][n] = self.believed[at][n].map(|(incarnation, _)| (incarnation, found.0));
    }

    fn release(&mut self, at: usize, n: usize) {
        if self.believed[at][n].take().is_none() {
            return;
        }
        let id = 1 + n as u64;
        let outcome = self.with_fault(at, RecordScript::Release, |world| world.servers[at].write(release(id)));
        if self.truth[n].owner == Some(at) {
            self.truth[n].owner = None;
        }
        if outcome.is_err() && self.below(2) == 0 {
            self.servers[at].store.disown(key(id));
        }
    }

    fn end(&mut self, at: usize, n: usize) {
        let Some((incarnation, _)) = self.believed[at][n] else { return };
        let id = 1 + n as u64;
        let removal = TierChange::Remove { key: key(id), incarnation };
        match self.with_fault(at, RecordScript::Clear, |world| world.servers[at].write(removal)) {
            Ok(()) => {
                let owner = self.truth[n].owner;
                self.truth[n] = LossyTruth { owner, ..LossyTruth::default() };
                self.release(at, n);
            }
            Err(TierError::Fenced) => self.fenced(at, n),
            Err(_) => self.truth[n].may_be_gone = true,
        }
    }

    fn step(&mut self) {
        let (at, n) = (self.below(SERVERS), self.below(IDS));
        match self.below(20) {
            0 => {
                expire(&self.redis, &self.servers[at]);
                self.truth.iter_mut().filter(|of| of.owner == Some(at)).for_each(|of| of.owner = None);
            }
            1 | 2 => _ = self.with_fault(at, RecordScript::Beat, |world| world.beats[at].renew()),
            3 | 4 => {
                // A late claim may take a sequence from a server without a heartbeat.
                let which = self.below(8);
                self.counts[1] += u32::from(self.links[at].deliver(which));
            }
            5..=8 => self.claim(at, n),
            9 => self.release(at, n),
            10 => self.end(at, n),
            11 => self.read(n),
            _ => self.write(at, n),
        }
        self.check();
    }

    /// No server with a lease has a sequence that is not its own, except for the moment in which it gives it up.
    fn check(&self) {
        for server in self.servers.iter().filter(|server| server.store.lease().holds()) {
            for id in 1..=IDS as u64 {
                let since = Instant::now();
                while server.store.holds(&key(id)) && !owns(&self.redis, server, id) {
                    assert!(since.elapsed() < MOMENT, "round {}: sequence {id} is of two servers", self.round);
                    std::thread::yield_now();
                }
            }
        }
    }
}

#[test]
fn no_step_is_lost_or_stored_twice_over_links_that_lose_and_delay() {
    let seeds = std::env::var("SEQUOR_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(10);
    let mut counts = [0; 4];
    for seed in 1..=seeds {
        let mut world = LossyWorld::new(seed);
        let all = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for round in 1..=400 {
                world.round = round;
                world.step();
            }
        }));
        assert!(all.is_ok(), "seed {seed}");
        (0..4).for_each(|n| counts[n] += world.counts[n]);
    }
    let [faults, late, answered, read] = counts;
    assert!(faults > 100 && late > 50 && answered > 100 && read > 0, "{counts:?}");
}
