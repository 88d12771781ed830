//! Random loads and requests. Limits are small, so that they are reached. Times are small, so that everything expires now and then.

use std::time::Duration;

use sequor_core::*;

use super::rng::Rng;

/// A deadline so far off that it never passes.
const FAR: u64 = 1_000_000_000;

/// The choices for a whole seed.
#[derive(Debug, Clone)]
pub struct Taste {
    pub ids: u64,
    pub stateless: u64,
    pub ovms: u64,
    pub counting: u64,
    pub external: u64,
    pub shapes: u64,
    /// Share of calls that submit.
    pub pressure: u64,
    pub fails: u64,
    /// Whether ticks come when they are due, or at any time.
    pub timely: bool,
    pub deadlines: u64,
    /// Share of requests with a deadline that is far off.
    pub patience: u64,
    /// Levels of the queues.
    pub levels: u64,
}

impl Taste {
    pub fn of(rng: &mut Rng) -> Taste {
        Taste {
            ids: rng.range(2, 20),
            stateless: *rng.pick(&[0, 0, 0, 0, 0, 10, 100]),
            ovms: *rng.pick(&[0, 0, 20, 50, 100]),
            counting: *rng.pick(&[0, 0, 30, 90, 100]),
            external: *rng.pick(&[0, 0, 0, 50, 90]),
            shapes: *rng.pick(&[1, 1, 2, 3]),
            pressure: rng.range(15, 40),
            fails: *rng.pick(&[0, 3, 15]),
            timely: rng.percent(80),
            deadlines: *rng.pick(&[0, 0, 5, 20]),
            patience: *rng.pick(&[0, 0, 80]),
            levels: *rng.pick(&[1, 1, 2, 4]),
        }
    }
}

fn span(rng: &mut Rng, low: u64, high: u64) -> Duration {
    Duration::from_nanos(rng.range(low, high))
}

fn some(rng: &mut Rng, share: u64, low: u64, high: u64) -> Option<Duration> {
    rng.percent(share).then(|| span(rng, low, high))
}

pub fn load(rng: &mut Rng, taste: &Taste, version: u64) -> LoadSpec {
    let max_batch = rng.range(1, 6) as u32;
    let strategy = strategy(rng, taste, max_batch);
    let stages = Stages {
        activate: rng.percent(25),
        initialize: rng.percent(25),
        pre: rng.percent(25),
        post: rng.percent(25),
        seal: rng.percent(25),
    };
    let stages = if rng.percent(40) { Stages::default() } else { stages };
    let mut limits = limits(rng);
    if matches!(strategy, Strategy::Stateless { .. }) {
        limits.backlog = limits.backlog.min(30);
    }
    LoadSpec {
        version,
        strategy,
        max_batch,
        instances: rng.range(1, 3) as u16,
        depth: rng.range(1, 2) as u8,
        limits,
        expiry: match rng.below(8) {
            0 => Expiry::Never,
            1 | 2 => Expiry::TwoScans { every: span(rng, 20, 200) },
            _ => Expiry::Idle(span(rng, 30, 400)),
        },
        idle_longest: some(rng, 50, 50, 600),
        idle_soft: some(rng, 40, 0, 80),
        cancel_ends: rng.percent(60),
        stages,
        initial_state_shape: *rng.pick(&[0, 0, 77]),
        external: hooks(rng, taste.external),
        hold: None,
    }
}

fn strategy(rng: &mut Rng, taste: &Taste, max_batch: u32) -> Strategy {
    let preferred = |rng: &mut Rng| match rng.below(3) {
        0 => vec![rng.range(1, u64::from(max_batch)) as u32],
        1 => vec![rng.range(1, u64::from(max_batch)) as u32, max_batch],
        _ => vec![],
    };
    let delay = |rng: &mut Rng| if rng.percent(60) { Duration::ZERO } else { span(rng, 1, 60) };
    let slots = rng.range(1, 8) as u32;
    if rng.percent(taste.stateless) {
        let batching = rng.percent(75);
        return Strategy::Stateless {
            batching,
            preferred: preferred(rng),
            delay: delay(rng),
            in_order: rng.percent(50),
        };
    }
    match rng.below(5) {
        0 | 1 => Strategy::Direct {
            rows: if rng.percent(50) { RowLayout::Fixed } else { RowLayout::Compact },
            delay: delay(rng),
            min_use: *rng.pick(&[0.0, 0.5, 0.75, 1.0]),
        },
        4 => Strategy::Deadline { slots },
        _ => Strategy::Oldest { slots, preferred: preferred(rng), delay: delay(rng), in_order: rng.percent(30) },
    }
}

fn limits(rng: &mut Rng) -> LoadLimits {
    LoadLimits {
        live: if rng.percent(75) { 0 } else { rng.range(1, 10) as u32 },
        store: if rng.percent(85) { 0 } else { rng.range(1, 8) as u32 },
        backlog: if rng.percent(70) { 1000 } else { rng.below(5) as u32 },
        backlog_bytes: if rng.percent(60) { 1 << 30 } else { rng.range(5, 120) },
        per_sequence: rng.range(1, 9) as u32,
        max_wait: span(rng, 1, 250),
        tombstones: if rng.percent(30) { 1000 } else { rng.below(8) as u32 },
        tomb_age: span(rng, 5, 2000),
        candidates: rng.range(1, 12) as u32,
    }
}

pub fn hooks(rng: &mut Rng, share: u64) -> Option<Hooks> {
    if !rng.percent(share) {
        return None;
    }
    Some(Hooks {
        plan: rng.percent(75),
        admit: rng.percent(60),
        observe: rng.percent(50),
        columns: policy::columns::ALL,
        window: rng.below(8) as u32,
        numbers: rng.below(5) as u8,
        keys: rng.below(5) as u8,
        max_wait: if rng.percent(30) { Some(span(rng, 1, 400)) } else { None },
    })
}

pub fn id(rng: &mut Rng, taste: &Taste) -> Id {
    let n = rng.range(1, taste.ids);
    match rng.below(80) {
        0 => Id::None,
        1..=12 => Id::from(format!("{n}").as_str()),
        _ => Id::Int(n),
    }
}

/// A request of a client that mostly knows the live sequences.
pub fn submit(rng: &mut Rng, taste: &Taste, now: Time, req: Req, fresh: u64, core: &Core, last: &[LoadSpec]) -> Submit {
    let mut id = id(rng, taste);
    let version = match rng.below(25) {
        0 => last.last().map(|spec| spec.version),
        1 => last.first().map(|spec| spec.version),
        2 if rng.percent(5) => Some(99),
        _ => None,
    };
    let live = core.find(&id, version).is_some();
    let start = if live { rng.percent(7) } else { rng.percent(85) };
    let end = rng.percent(if live { 10 } else { 5 });
    if start && rng.percent(1) {
        id = Id::None;
    }
    let soon = |rng: &mut Rng, share: u64, high: u64| {
        rng.percent(share).then(|| Time((now.0 + rng.below(high)).saturating_sub(if rng.percent(5) { 20 } else { 0 })))
    };
    let far = rng.percent(taste.patience).then_some(Time(now.0 + FAR));
    let dialect = if rng.percent(taste.ovms) { Dialect::OVMS } else { Dialect::TRITON };
    let dialect = match rng.below(20) {
        0 => Dialect { keep_failed_start: !dialect.keep_failed_start, ..dialect },
        1 => Dialect { full: WhenFull::Refuse, ..dialect },
        _ => dialect,
    };
    Submit {
        req,
        id,
        fresh_id: if rng.percent(95) { fresh } else { 0 },
        start,
        end,
        adopt: None,
        adopt_on: None,
        prepare: rng.percent(3),
        step: None,
        version,
        dialect,
        deadline: soon(rng, 50, 200),
        backlog_until: soon(rng, taste.deadlines, 100),
        queue_until: soon(rng, taste.deadlines / 2, 100).or(far),
        idle: some(rng, 20, 1, 500),
        priority: rng.below(3) as u32,
        meta: meta(rng, taste),
        queue: queue(rng, taste),
        origin: u32::from(start && rng.percent(15)),
    }
}

/// Levels, their maxima, and whether late requests wait on.
fn queue(rng: &mut Rng, taste: &Taste) -> QueueTerms {
    if taste.levels == 1 {
        return QueueTerms::default();
    }
    let level = rng.below(taste.levels) as u32;
    QueueTerms { level, most: if rng.percent(80) { 0 } else { rng.range(1, 6) as u32 }, delays: rng.percent(50) }
}

pub fn meta(rng: &mut Rng, taste: &Taste) -> RequestMeta {
    RequestMeta {
        rows: 1,
        bytes: rng.below(20),
        shape: rng.below(taste.shapes),
        numbers: [0.0, 1.0, 2.0, 3.0],
        keys: [rng.below(3), 0, 0, 0],
    }
}
