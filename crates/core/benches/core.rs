//! Cost of the core, next to a hash map with a queue: one thread, sixteen threads on one model, time under the lock, bytes per sequence.
//! Run it with `cargo bench -p sequor-core`. Figures depend on the machine; ratios are comparable.
#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "a measurement may panic")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::{HashMap, VecDeque};
use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sequor_core::*;

// === memory ===

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static CALLS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call passes unchanged to the system's allocator. This type only counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Relaxed);
        CALLS.fetch_add(1, Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

// === a minimal driver ===

const BATCH: u32 = 32;
const ROUNDS: u32 = 15;

fn spec(slots: u32, instances: u16) -> LoadSpec {
    let strategy = Strategy::Oldest { slots, preferred: vec![], delay: Duration::ZERO, in_order: false };
    LoadSpec { instances, expiry: Expiry::Idle(Duration::from_secs(60)), ..LoadSpec::new(1, strategy, BATCH) }
}

fn submit(req: u32, id: u64, start: bool) -> Event {
    Event::Submit(Submit {
        req: Req::new(req, NonZeroU32::MIN),
        id: Id::Int(id),
        fresh_id: 0,
        start,
        end: false,
        adopt: None,
        adopt_on: None,
        prepare: false,
        step: None,
        version: None,
        dialect: Dialect::TRITON,
        deadline: None,
        backlog_until: None,
        queue_until: None,
        idle: None,
        priority: 0,
        meta: RequestMeta::default(),
        queue: QueueTerms::default(),
        origin: 0,
    })
}

/// Ids as clients choose them: spread out, and in no order.
fn id(n: u32) -> u64 {
    u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

struct Rig {
    core: Core,
    now: u64,
    out: Vec<Effect>,
}

impl Rig {
    fn new(live: u32, instances: u16) -> Rig {
        let mut rig = Rig { core: Core::new(), now: 0, out: Vec::new() };
        rig.apply(Event::Loaded(LoadId::FIRST, spec(live.div_ceil(u32::from(instances)), instances)));
        for n in 0..live {
            rig.apply(submit(n % 4096, id(n), true));
            if n % 4096 == 4095 || n + 1 == live {
                (0..instances).for_each(|i| while rig.turn(i) > 0 {});
            }
        }
        rig
    }

    fn apply(&mut self, event: Event) {
        self.now += 100;
        self.out.clear();
        self.core.apply(Time(self.now), event, &mut self.out);
    }

    fn next(&mut self, n: u16) -> Next {
        self.now += 100;
        self.out.clear();
        self.core.next(Time(self.now), Instance { load: LoadId::FIRST, n }, &mut self.out)
    }

    /// Runs one batch of an instance and returns its number of rows.
    fn turn(&mut self, n: u16) -> u32 {
        let Next::Run(batch) = self.next(n) else { return 0 };
        let rows = batch.real().count();
        self.apply(ran(&batch));
        rows as u32
    }
}

fn ran(batch: &Batch) -> Event {
    let rows = batch.real().map(|_| RowEnd::Done { state_shape: 0, state_bytes: 4 }).collect();
    Event::Ran { batch: batch.id, rows }
}

// === measurements ===

/// CPU time of this thread in nanoseconds, if the system reports it, so that other load on the machine does not count.
fn worked(began: Instant) -> f64 {
    let message = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let ns = message.and_then(|text| text.split(' ').next()?.parse().ok());
    ns.unwrap_or_else(|| began.elapsed().as_nanos() as f64)
}

/// Nanoseconds per request: submitted, batched, run, answered.
fn alone(live: u32, steps: u32) -> f64 {
    let mut rig = Rig::new(live, 1);
    let began = Instant::now();
    let before = worked(began);
    for n in 0..steps {
        rig.apply(submit(n % BATCH, id(n.wrapping_mul(7919) % live), false));
        if n % BATCH == BATCH - 1 {
            while rig.turn(0) > 0 {}
        }
    }
    (worked(began) - before) / f64::from(steps)
}

/// Nanoseconds per request to one model in a process with this many loads. The other loads must not slow it down.
fn of_models(models: usize, steps: u32) -> f64 {
    let mut all: Vec<Rig> = (0..models).map(|_| Rig::new(64, 1)).collect();
    let Some(rig) = all.last_mut() else { return f64::NAN };
    let began = Instant::now();
    let before = worked(began);
    for n in 0..steps {
        rig.apply(submit(n % BATCH, id(n.wrapping_mul(7919) % 64), false));
        if n % BATCH == BATCH - 1 {
            while rig.turn(0) > 0 {}
        }
    }
    (worked(began) - before) / f64::from(steps)
}

/// The same ids through a hash map of queues: look up and push, then look up and pop.
fn hash_map(live: u32, steps: u32) -> f64 {
    let mut map: HashMap<Id, VecDeque<Req>> = (0..live).map(|n| (Id::Int(id(n)), VecDeque::with_capacity(4))).collect();
    let began = Instant::now();
    let before = worked(began);
    for n in 0..steps {
        let key = Id::Int(id(n.wrapping_mul(7919) % live));
        if let Some(queue) = map.get_mut(&key) {
            queue.push_back(Req::new(n % BATCH, NonZeroU32::MIN));
            black_box(queue.pop_front());
        }
    }
    (worked(began) - before) / f64::from(steps)
}

/// Nanoseconds per request with this many threads on one model. Each thread submits, and now and then runs ready requests.
fn together(threads: u16, steps: u32) -> f64 {
    let live = 4096;
    let shared = Mutex::new(Rig::new(live, 1));
    let barrier = Barrier::new(usize::from(threads));
    let each = steps / u32::from(threads);
    let work = |thread: u16| {
        barrier.wait();
        let began = Instant::now();
        for n in 0..each {
            let which = (n * u32::from(threads) + u32::from(thread)).wrapping_mul(7919) % live;
            let req = (n % 64) * 16 + u32::from(thread);
            shared.lock().apply(submit(req, id(which), false));
            if n % BATCH == BATCH - 1 {
                while shared.lock().turn(0) > 0 {}
            }
        }
        (began, Instant::now())
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|t| scope.spawn(move || work(t))).collect();
        let spans: Vec<(Instant, Instant)> = all.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        let began = spans.iter().map(|(began, _)| *began).min().expect("a thread");
        let ended = spans.iter().map(|(_, ended)| *ended).max().expect("a thread");
        ended.duration_since(began).as_nanos() as f64 / f64::from(each * u32::from(threads))
    })
}

/// Nanoseconds of one `apply(Submit)`, and of one `apply(Ran)` with the `next` behind it: p50 and p99 of each.
fn under_the_lock(live: u32, steps: u32) -> [(u64, u64); 2] {
    let mut rig = Rig::new(live, 1);
    let (mut submits, mut turns) = (Vec::new(), Vec::new());
    let mut flying: Option<Batch> = None;
    for n in 0..steps {
        let event = submit(n % (2 * BATCH), id(n.wrapping_mul(7919) % live), false);
        let began = Instant::now();
        rig.apply(event);
        submits.push(began.elapsed().as_nanos() as u64);
        if n % BATCH == BATCH - 1 {
            let event = flying.take().map(|batch| ran(&batch));
            let began = Instant::now();
            if let Some(event) = event {
                rig.apply(event);
            }
            let next = rig.next(0);
            turns.push(began.elapsed().as_nanos() as u64);
            if let Next::Run(batch) = next {
                flying = Some(batch);
            }
        }
    }
    [&mut submits, &mut turns].map(|all| {
        all.sort_unstable();
        (all[all.len() / 2], all[all.len() * 99 / 100])
    })
}

fn clock() -> u64 {
    let mut all: Vec<u64> = (0..10_001).map(|_| Instant::now().elapsed().as_nanos() as u64).collect();
    all.sort_unstable();
    all[5000]
}

fn bytes_a_sequence() -> f64 {
    let before = LIVE.load(Relaxed);
    let live = 100_000;
    let rig = Rig::new(live, 1);
    let bytes = LIVE.load(Relaxed) - before;
    black_box(&rig.core);
    bytes as f64 / f64::from(live)
}

fn allocations_a_request() -> f64 {
    let mut rig = Rig::new(1024, 1);
    let before = CALLS.load(Relaxed);
    for n in 0..BATCH * 1000 {
        rig.apply(submit(n % BATCH, id(n.wrapping_mul(7919) % 1024), false));
        if n % BATCH == BATCH - 1 {
            while rig.turn(0) > 0 {}
        }
    }
    (CALLS.load(Relaxed) - before) as f64 / f64::from(BATCH * 1000)
}

/// The best of several rounds of each, run in turns, to reduce the effect of other load on the machine.
fn best(first: impl Fn() -> f64, second: impl Fn() -> f64) -> (f64, f64) {
    (0..ROUNDS).fold((f64::MAX, f64::MAX), |(a, b), _| (a.min(first()), b.min(second())))
}

fn main() {
    if std::env::args().any(|a| a == "--alone") {
        return println!("{:.0} ns", alone(10_000, 8_000_000));
    }
    println!("{:<44} {:>10} {:>10} {:>8}   aim", "", "core", "beside", "ratio");
    for live in [1_000, 10_000, 100_000] {
        let (core, map) = best(|| alone(live, 400_000), || hash_map(live, 1_600_000));
        println!(
            "{:<44} {core:>7.0} ns {map:>7.0} ns {:>7.1}x   <= 8",
            format!("a request, {live} live, beside a map"),
            core / map
        );
    }
    let (one, many) = best(|| of_models(1, 400_000), || of_models(500, 400_000));
    println!(
        "{:<44} {many:>7.0} ns {one:>7.0} ns {:>7.2}x   <= 1.2",
        "a request, one of 500 models, beside 1",
        many / one
    );
    let (one, sixteen) = best(|| together(1, 160_000), || together(16, 160_000));
    println!(
        "{:<44} {sixteen:>7.0} ns {one:>7.0} ns {:>6.0} %   >= 70 kept",
        "a request, 16 threads, beside 1",
        one / sixteen * 100.0
    );
    let clock = clock();
    let [submits, turns] = under_the_lock(10_000, 400_000);
    for (name, (p50, p99)) in [("apply(Submit)", submits), ("apply(Ran) + next, 32 rows", turns)] {
        let less = |n: u64| n.saturating_sub(clock);
        println!(
            "{:<44} {:>7} ns {:>7} ns            p99 < 2000",
            format!("under the lock, p50 and p99: {name}"),
            less(p50),
            less(p99)
        );
    }
    println!("{:<44} {:>10.0} {:>21}  <= 512", "bytes a live idle sequence, of 100,000", bytes_a_sequence(), "");
    println!("{:<44} {:>10.2}", "allocations a request", allocations_a_request());
}
