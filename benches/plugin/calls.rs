//! Measures single calls into a guest: a plan with several numbers of candidates, an admission, and events. Each is measured in a tight
//! loop with warm caches, and *cold*: after reading as much memory as a server touches between two calls.

use std::hint::black_box;
use std::time::Instant;

use sequor::scheduling::SchedulerGuest;
use sequor::scheduling::guest::{Events, Guest};
use sequor_core::policy::columns;
use sequor_core::{Columns, Decision, Hooks, Picks, PolicyFault, Rejection};
use sequor_wasm::call_error::CallError;

use super::{CALLS, best};

const CANDIDATES: [u32; 5] = [1, 8, 64, 256, 1024];
/// Number of sequences that wait for three free slots, and of requests that ran.
const WAITING: u32 = 24;
const RAN: u32 = 3;
/// Bytes read between two cold calls; more than the caches of a core hold.
const WALKED: usize = 4 << 20;
const COLD_CALLS: usize = 801;

/// Two instances of a guest: one for time, and one that counts its instructions.
pub(crate) struct Pair<'a> {
    pub(crate) timed: &'a mut SchedulerGuest,
    pub(crate) counted: &'a mut SchedulerGuest,
    pub(crate) hooks: Hooks,
}

pub(crate) fn figures(mut pair: Pair<'_>) -> Result<(), CallError> {
    println!("  call              edf in Rust us   plug-in us   cold us   instructions");
    let none = Events::default();
    for len in CANDIDATES {
        let see = see(len, pair.hooks.columns);
        let mut picks = Picks::default();
        let native = best(CALLS, || {
            let _ = edf(&see, &mut picks);
        });
        let native = format!("{native:.2}");
        pair.measure(&format!("plan of {len}"), &native, |guest| guest.plan(0, &see, &none, &mut picks).map(drop))?;
        if pair.hooks.observe {
            let news = events();
            let what = format!("the same, {RAN} events");
            pair.measure(&what, "", |guest| guest.plan(0, &see, &news, &mut picks).map(drop))?;
        }
    }
    if pair.hooks.admit {
        let (waiting, victims) = (see(WAITING, pair.hooks.columns), Columns::default());
        pair.measure(&format!("admit of {WAITING}"), "", |guest| {
            guest.admit(&waiting, &[3], &victims, &none).map(drop)
        })?;
    }
    if pair.hooks.observe {
        let events = events();
        pair.measure(&format!("observe of {RAN}"), "", |guest| guest.observe(&events))?;
    }
    Ok(())
}

impl Pair<'_> {
    fn measure(
        &mut self,
        what: &str,
        native: &str,
        mut call: impl FnMut(&mut SchedulerGuest) -> Result<(), CallError>,
    ) -> Result<(), CallError> {
        call(self.timed)?;
        let warm = best(CALLS, || drop(call(self.timed)));
        let cold = cold(|| drop(call(self.timed)));
        call(self.counted)?;
        call(self.counted)?;
        println!("  {what:<14}{native:>18}{warm:>13.2}{cold:>10.2}{:>15}", self.counted.fuel());
        Ok(())
    }
}

/// Median of calls in microseconds, each after other memory was read.
fn cold(mut call: impl FnMut()) -> f64 {
    let memory = vec![1u8; WALKED];
    let mut took: Vec<_> = (0..COLD_CALLS)
        .map(|_| {
            black_box(memory.iter().step_by(64).map(|byte| u64::from(*byte)).sum::<u64>());
            let began = Instant::now();
            call();
            began.elapsed()
        })
        .collect();
    took.sort_unstable();
    took.get(took.len() / 2).copied().unwrap_or_default().as_secs_f64() * 1e6
}

fn events() -> Events {
    let many = RAN as usize;
    let sequence = (1..=u64::from(RAN)).collect();
    Events { kind: vec![3; many], sequence, amount: vec![1; many], keys: (0..u64::from(RAN)).collect() }
}

/// Candidates with random deadlines, with the requested columns.
pub(crate) fn see(len: u32, wanted: u32) -> Columns {
    let many = |column: u32| if wanted & column == 0 { 0 } else { len };
    let due = |i: u32| 2_000_000_000 + u64::from(i.wrapping_mul(2_654_435_761)) % 1_000_000_000;
    Columns {
        now: 1_000_000_000,
        max_batch: 32,
        free_instances: 1,
        len,
        arrival: (0..many(columns::ARRIVAL)).map(u64::from).collect(),
        deadline: (0..many(columns::DEADLINE)).map(due).collect(),
        shape: vec![0; many(columns::SHAPE) as usize],
        rows: vec![1; many(columns::ROWS) as usize],
        keys: (0..many(columns::KEYS)).map(|i| u64::from(i % 8)).collect(),
        ..Columns::default()
    }
}

/// The guest `edf` in Rust: rejects late requests, and fires the most urgent ones with the first one's shape.
fn edf(see: &Columns, picks: &mut Picks) -> Result<Decision, PolicyFault> {
    picks.clear();
    let due = |i: &u32| see.deadline.get(*i as usize).copied().unwrap_or(u64::MAX);
    let shape = |i: &u32| see.shape.get(*i as usize).copied();
    let (late, mut order): (Vec<u32>, Vec<u32>) = (0..see.len).partition(|i| due(i) < see.now);
    order.sort_by_key(due);
    let first = order.first().and_then(shape);
    picks.fire.extend(order.into_iter().filter(|i| shape(i) == first).take(see.max_batch as usize));
    picks.reject = late.into_iter().map(|candidate| Rejection { candidate, code: 1, ends: true }).collect();
    Ok(Decision::Fire)
}
