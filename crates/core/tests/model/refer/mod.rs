//! The reference model: the core's behaviour in the plainest form. Vectors and full scans; no keys except those that the core gives out.

mod admit;
mod finish;
mod leave;
mod moved_starts;
mod placements;
mod plan;
mod rounds;
mod time;

use std::time::Duration;

use sequor_core::*;

pub use plan::{RNext, RPlan, Shown};

pub const NEVER: u64 = u64::MAX;

pub fn ns(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// A sequence's number in the model, counted from 1 in the order of birth.
pub type N = u64;

#[derive(Debug, Clone)]
pub struct RSeq {
    pub n: N,
    pub key: Option<Seq>,
    pub id: Id,
    pub load: usize,
    pub placement: Option<(usize, u32)>,
    pub stage: Stage,
    /// Its place among the sequences in the same stage: later is larger.
    pub turn: u64,
    /// The turn at which it became idle.
    pub idled: u64,
    pub queue: Vec<Req>,
    pub current: Option<Req>,
    pub ending: Option<EndReason>,
    pub leaving: Option<EndReason>,
    /// Whether its id still leads to it.
    pub linked: bool,
    pub ran: bool,
    /// A run of this life has ended.
    pub holds_state: bool,
    /// A request of it has run or was answered without a run.
    pub begun: bool,
    /// The state that its slot gets before the next run.
    pub first_state: Option<ROp>,
    pub adopted: bool,
    /// An ensemble started it: it does not expire.
    pub held: bool,
    /// Its level in the backlog.
    pub level: u32,
    pub announced: bool,
    pub next_step: u64,
    /// The number of the last START that was admitted.
    pub first: u64,
    pub step: u64,
    /// The request that was the last committed step.
    pub last: Option<Req>,
    pub touched: u64,
    pub idle: Option<u64>,
    pub backlogged_at: u64,
    pub backlog_until: u64,
    pub state_shape: u64,
    pub state_bytes: u64,
}

impl RSeq {
    /// Whether it was found elsewhere and has no slot yet: its state is still where it was found.
    pub fn goes_back(&self) -> bool {
        self.adopted && !self.ran && self.placement.is_none()
    }
}

#[derive(Debug, Clone)]
pub struct RReq {
    pub key: Req,
    pub load: usize,
    pub seq: Option<N>,
    pub start: bool,
    pub end: bool,
    pub step: u64,
    pub counted: bool,
    pub names_version: bool,
    pub dialect: Dialect,
    pub arrival: u64,
    pub ready: u64,
    pub turn: u64,
    pub deadline: u64,
    pub priority: u32,
    pub level: u32,
    pub delays: bool,
    /// Whether it waited for too long and now waits behind the others.
    pub late: bool,
    pub meta: RequestMeta,
    pub at: At,
    /// `None` until it is prepared.
    pub plan: Option<Plan>,
    /// Shape class of the first state that was made for it.
    pub first_shape: Option<u64>,
    /// How often it has run.
    pub ran: u32,
    pub queue_until: u64,
    /// For the witness of starvation: how many were ready before it, whether all had one shape, and how many runs have passed it over.
    pub ahead: u64,
    pub alike: bool,
    pub passed: u64,
}

impl RReq {
    /// Runs that are left of it.
    pub fn runs(&self) -> Option<u32> {
        if let Some(Plan::Run(runs)) = self.plan { Some(runs) } else { None }
    }

    /// Whether none of it has run yet.
    pub fn waits(&self) -> bool {
        matches!(self.at, At::Queued | At::Preparing) && self.ran == 0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    Queued,
    Preparing,
    Running,
    Sealing,
    Posting,
    /// It is done without a run and waits until that is durable.
    Replying,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    Run(u32),
    Reply,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ROp {
    Init(u32, Req),
    Adopt(u32, Req),
    Free(u32),
}

#[derive(Debug, Clone)]
pub struct RInst {
    pub slots: Vec<Option<N>>,
    pub ops: Vec<ROp>,
    pub in_flight: u8,
    pub asked: bool,
    pub hold: Option<u64>,
    /// When its last batch ended.
    pub last_end: u64,
    pub gone: bool,
    /// Its accelerator has failed, and other instances are in service.
    pub lost: bool,
}

impl RInst {
    /// Free slots that sequences may get.
    pub fn free(&self) -> u32 {
        if self.lost { 0 } else { self.slots.iter().filter(|s| s.is_none()).count() as u32 }
    }
}

#[derive(Debug, Clone)]
pub struct RLoad {
    pub key: LoadId,
    pub born: u64,
    pub spec: LoadSpec,
    pub external: Option<Hooks>,
    pub retired: Option<u64>,
    /// Since when a slot has been free.
    pub room_since: Option<u64>,
    /// Whether its policy has an open admission question.
    pub consulted: bool,
    /// The limit of its retirement has come.
    pub ended: bool,
    /// It stays until that limit, for sequences that only it can continue.
    pub stays: bool,
    pub gone: bool,
    pub inst: Vec<RInst>,
    /// Taken requests whose answers leave in order, with the outcome of each.
    pub turns: Vec<(Req, Option<bool>)>,
    /// Rows of the largest batch that ran, and the average time of those.
    pub largest: (u32, u64),
}

impl RLoad {
    /// Whether answers leave in the order of their requests.
    pub fn is_in_order(&self) -> bool {
        matches!(
            self.spec.strategy,
            Strategy::Oldest { in_order: true, .. } | Strategy::Stateless { in_order: true, .. }
        )
    }

    /// How long a policy may pass a ready request over.
    pub fn max_wait(&self) -> u64 {
        ns(self.external.and_then(|h| h.max_wait).unwrap_or(self.spec.limits.max_wait))
    }

    /// The run time of a full batch: only the largest batches count. The first of them counts whole, each later one an eighth.
    pub fn run(&mut self, rows: u32, took: u64) {
        let (largest, average) = self.largest;
        self.largest = match rows.cmp(&largest) {
            std::cmp::Ordering::Greater => (rows, took),
            std::cmp::Ordering::Equal => (rows, (average as i64 + (took as i64 - average as i64) / 8) as u64),
            std::cmp::Ordering::Less => (largest, average),
        };
    }
}

#[derive(Debug, Clone)]
pub struct RBatch {
    pub key: Option<BatchId>,
    pub load: usize,
    pub inst: usize,
    pub reqs: Vec<Req>,
    pub rows: u32,
    pub taken: u64,
    pub sealing: bool,
}

#[derive(Debug, Clone)]
pub struct Stone {
    pub id: Id,
    pub n: N,
    pub stone: Tombstone,
}

/// The effects expected of the core. Sequences by their number.
#[derive(Debug, Clone, PartialEq)]
pub enum Out {
    /// With whether the sequence ends too.
    Refuse(Req, Refusal, bool),
    Release(Req),
    Replay(Req, N),
    Prepare(Req, Option<N>),
    Post(Req, Option<N>),
    Reply(Req, bool),
    Seal(usize),
    Started(N, Req),
    Slotted(N, usize, usize, u32, u64),
    Ended(N, EndReason),
    Fault(PolicyFault),
    Fallback,
    Stale(u32),
}

#[derive(Debug, Default, Clone)]
pub struct Refer {
    pub loads: Vec<RLoad>,
    pub seqs: Vec<RSeq>,
    pub reqs: Vec<Option<RReq>>,
    pub batches: Vec<RBatch>,
    pub stones: Vec<Stone>,
    pub out: Vec<Out>,
    /// Requests that ran where a policy observes: the load, the sequence, whether it succeeded, and the rows.
    pub ran: Vec<(usize, Option<N>, bool, Req, u32)>,
    /// Batches that ran where a policy observes: the load, and the run time.
    pub batches_ran: Vec<(usize, u64)>,
    /// The keys that the core gave, by number; kept for ever.
    pub keys: Vec<Option<Seq>>,
    pub seq_born: u64,
    pub load_born: u64,
    pub turn: u64,
}

impl Refer {
    pub fn apply(&mut self, now: u64, event: &Event) {
        self.expire(now);
        match event {
            Event::Loaded(load, spec) => self.loaded(*load, spec),
            Event::Retire { load, until } => {
                let ix = self.ix(*load);
                if !self.loads[ix].gone {
                    self.loads[ix].retired = Some(until.0);
                }
                // Without a load that takes STARTs, the model is out of service.
                if self.target(None).is_none() {
                    self.loads.iter_mut().for_each(|load| load.stays = false);
                }
                self.expire(now);
            }
            Event::Attach(load, hooks) => self.attach(now, self.ix(*load), *hooks),
            Event::Submit(submit) => self.submit(now, submit),
            Event::Cancel(req) => self.cancel(now, *req, Refusal::Cancelled, EndReason::Cancelled),
            Event::Prepared(req, prepared) => self.prepared(now, *req, *prepared),
            Event::FirstShape(req, shape) => {
                if let Some(r) = self.req_mut(*req).filter(|r| r.start && r.at == At::Preparing) {
                    r.first_shape = Some(*shape);
                }
            }
            Event::NextRun(req, meta) => {
                let has_more =
                    |r: &&mut RReq| r.seq.is_some() && r.at == At::Running && r.runs().is_some_and(|runs| runs > 1);
                if let Some(r) = self.req_mut(*req).filter(has_more) {
                    r.meta = *meta;
                }
            }
            Event::Ran { batch, rows } => self.ran(now, *batch, rows),
            Event::Sealed(batch, failed) => self.sealed(now, *batch, failed),
            Event::Posted(req) => self.posted(now, *req),
            Event::Replied(req, failed) => self.replied(now, *req, *failed),
            Event::InstanceLost(who) => {
                if let Some(load) = self.loads.iter().position(|l| l.key == who.load && !l.gone) {
                    self.instance_lost(now, load, usize::from(who.n));
                }
            }
            Event::End(seq, why) => {
                if let Some(n) = self.seqs.iter().find(|s| s.key == Some(*seq)).map(|s| s.n) {
                    let refusal = if *why == EndReason::Cancelled { Refusal::Cancelled } else { Refusal::Ended(*why) };
                    self.leave(now, n, *why, refusal);
                }
            }
            Event::Stay(load) => {
                let ix = self.ix(*load);
                self.loads[ix].stays = !self.loads[ix].gone;
            }
            Event::MoveStart(seq, to) => {
                let n = self.seqs.iter().find(|s| s.key == Some(*seq)).map(|s| s.n);
                if let Some(n) = n.filter(|n| self.may_move(now, *n, self.ix(*to))) {
                    self.move_start(now, n, self.ix(*to));
                }
            }
            Event::Tick => {}
        }
    }

    fn loaded(&mut self, key: LoadId, spec: &LoadSpec) {
        assert!(self.loads.iter().all(|l| l.key != key));
        self.load_born += 1;
        let inst = RInst {
            slots: vec![None; spec.slots() as usize],
            ops: Vec::new(),
            in_flight: 0,
            asked: false,
            hold: None,
            last_end: 0,
            gone: false,
            lost: false,
        };
        self.loads.push(RLoad {
            key,
            born: self.load_born,
            external: spec.external,
            spec: spec.clone(),
            retired: None,
            ended: false,
            stays: false,
            gone: false,
            inst: vec![inst; usize::from(spec.instances)],
            turns: Vec::new(),
            largest: (0, 0),
            consulted: false,
            room_since: None,
        });
    }

    fn attach(&mut self, now: u64, load: usize, hooks: Option<Hooks>) {
        if self.loads[load].gone {
            return;
        }
        self.loads[load].external = hooks;
        let mut given_up = usize::from(std::mem::take(&mut self.loads[load].consulted));
        for inst in &mut self.loads[load].inst {
            inst.hold = None;
            given_up += usize::from(std::mem::take(&mut inst.asked));
        }
        // The open rounds of the previous policy are void.
        if !hooks.is_some_and(|h| h.plan || h.admit) {
            self.out.extend(std::iter::repeat_n(Out::Fallback, given_up));
        }
        self.admit_waiting(now, load);
    }

    // === queries ===

    /// The number of a load, counted from 0 in the order of birth.
    pub fn ix(&self, key: LoadId) -> usize {
        self.loads.iter().position(|l| l.key == key).expect("a load")
    }

    pub fn seq(&self, n: N) -> &RSeq {
        self.seqs.iter().find(|s| s.n == n).expect("a live sequence")
    }

    pub fn alive(&self, n: N) -> bool {
        self.seqs.iter().any(|s| s.n == n)
    }

    pub fn seq_mut(&mut self, n: N) -> &mut RSeq {
        self.seqs.iter_mut().find(|s| s.n == n).expect("a live sequence")
    }

    pub fn req(&self, key: Req) -> Option<&RReq> {
        self.reqs.get(key.ix as usize)?.as_ref().filter(|r| r.key == key)
    }

    pub fn req_mut(&mut self, key: Req) -> Option<&mut RReq> {
        self.reqs.get_mut(key.ix as usize)?.as_mut().filter(|r| r.key == key)
    }

    pub fn open(&self, load: usize) -> usize {
        self.reqs.iter().flatten().filter(|r| r.load == load).count()
    }

    pub fn of_load(&self, load: usize) -> impl Iterator<Item = &RSeq> {
        self.seqs.iter().filter(move |s| s.load == load)
    }

    fn in_stage(&self, load: usize, stage: Stage) -> Vec<N> {
        let mut found: Vec<(u64, N)> = self.of_load(load).filter(|s| s.stage == stage).map(|s| (s.turn, s.n)).collect();
        found.sort_unstable();
        found.into_iter().map(|(_, n)| n).collect()
    }

    /// Sequences of the backlog, in order.
    pub fn backlog(&self, load: usize) -> Vec<N> {
        let mut found = self.in_stage(load, Stage::Backlogged);
        found.sort_by_key(|n| self.seq(*n).level);
        found
    }

    pub fn backlog_head(&self, load: usize) -> Option<&RSeq> {
        self.of_load(load).filter(|s| s.stage == Stage::Backlogged).min_by_key(|s| (s.level, s.turn))
    }

    /// The sequence that has been idle longest.
    pub fn idlest(&self, load: usize) -> Option<&RSeq> {
        self.of_load(load).filter(|s| s.stage == Stage::Idle).min_by_key(|s| s.turn)
    }

    pub fn idle(&self, load: usize) -> Vec<N> {
        self.in_stage(load, Stage::Idle)
    }

    pub fn bytes_of(&self, n: N) -> u64 {
        self.seq(n).queue.iter().filter_map(|r| self.req(*r)).map(|r| r.meta.bytes).sum()
    }

    pub fn backlog_bytes(&self, load: usize) -> u64 {
        self.backlog(load).into_iter().map(|n| self.bytes_of(n)).sum()
    }

    pub fn used(&self, load: usize) -> u32 {
        self.loads[load].inst.iter().flat_map(|i| &i.slots).filter(|s| s.is_some()).count() as u32
    }

    pub fn free(&self, load: usize) -> u32 {
        self.loads[load].inst.iter().map(RInst::free).sum()
    }

    pub fn live(&self, load: usize) -> u32 {
        self.of_load(load).count() as u32
    }

    /// Sequences, or stateless requests, that are prepared before they may wait for a slot.
    pub fn preparing(&self, load: usize) -> u32 {
        if !self.loads[load].spec.is_stateful() {
            let waits = |r: &&RReq| r.load == load && r.at == At::Preparing;
            return self.reqs.iter().flatten().filter(waits).count() as u32;
        }
        self.of_load(load).filter(|s| s.stage == Stage::Preparing && s.placement.is_none()).count() as u32
    }

    pub fn asks_admit(&self, load: usize) -> bool {
        self.loads[load].external.is_some_and(|h| h.admit)
    }

    /// The requests that can run on an instance now, in the order in which they became ready.
    pub fn ready(&self, load: usize, inst: usize) -> Vec<Req> {
        let mut found: Vec<((u32, bool, u64), Req)> = if self.loads[load].spec.is_stateful() {
            let here = |s: &&RSeq| s.stage == Stage::Ready && s.placement.is_some_and(|(i, _)| i == inst);
            self.of_load(load).filter(here).map(|s| ((0, false, s.turn), s.queue[0])).collect()
        } else {
            let here = |r: &&RReq| r.load == load && r.at == At::Queued && matches!(r.plan, Some(Plan::Run(_)));
            self.reqs.iter().flatten().filter(here).map(|r| ((r.level, r.late, r.turn), r.key)).collect()
        };
        found.sort_unstable_by_key(|(place, _)| *place);
        found.into_iter().map(|(_, r)| r).collect()
    }

    /// The class that must agree within a batch: the request's shapes and its state's.
    pub fn shape(&self, req: Req) -> (u64, u64) {
        let Some(r) = self.req(req) else { return (0, 0) };
        let first = r.first_shape.unwrap_or(self.loads[r.load].spec.initial_state_shape);
        let state = r.seq.map_or(0, |n| if r.start && r.ran == 0 { first } else { self.seq(n).state_shape });
        (r.meta.shape, state)
    }

    pub fn next_turn(&mut self) -> u64 {
        self.turn += 1;
        self.turn
    }

    pub fn usage(&self, load: usize) -> Usage {
        let l = &self.loads[load];
        if l.gone {
            return Usage::default();
        }
        let ready = match l.spec.is_stateful() {
            true => self.of_load(load).filter(|s| s.stage == Stage::Ready).count(),
            false => self.ready(load, 0).len(),
        };
        Usage {
            live: self.live(load),
            backlog: self.of_load(load).filter(|s| s.stage == Stage::Backlogged).count() as u32,
            slots_used: self.used(load),
            slots: l.spec.slots() * l.inst.iter().filter(|i| !i.lost).count() as u32,
            ready: ready as u32,
        }
    }
}
