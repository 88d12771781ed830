//! Measures the cost of a plug-in next to the same policy in Rust: plans with several numbers of candidates, starting an instance, loading
//! a component; then a whole server, and swaps. The guests are those of `plugins/guests`, built by `cargo xtask test` or
//! `sequor plugin build`. Their folder is `SEQUOR_GUESTS` or `.sequor/guests`. Times of plans are the best of many runs, in the thread's
//! CPU time.
//!
//! ```text
//! cargo bench --bench plugin                       everything
//! cargo bench --bench plugin -- --only plan        plan, load, swap, throughput or served
//! cargo bench --bench plugin -- --guest single     plans of a guest other than edf
//! cargo bench --bench plugin -- --only served --guest fair-share      throughput with this guest and without; `none` is only without
//! ```

#![allow(clippy::indexing_slicing, clippy::panic)]

mod calls;
mod fair_share;
#[path = "../common/in_process.rs"]
mod in_process;
mod served;
mod swap;
mod throughput;

use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::time::ClockId;
use sequor::config::model::LoadFacts;
use sequor::scheduling::SchedulerComponent;
use sequor::scheduling::SchedulerGuest;
use sequor::scheduling::guest::{Events, Guest as _, Source as _};
use sequor_core::Picks;
use sequor_wasm::cache::Cache;
use sequor_wasm::counter::CounterName;
use sequor_wasm::engine::{Engine, Mode};
use sequor_wasm::grants::Grants;
use sequor_wasm::limits::Limits;
use sequor_wasm::services::Services;

use calls::{Pair, see};
use in_process::{BoxResult, guest};

// The server's allocator.
#[global_allocator]
static ALLOCATOR: sequor::device::ProgramAllocator = sequor::device::ProgramAllocator;

/// Time for which each measurement is repeated; the best run counts.
const LONG: Duration = Duration::from_millis(400);
/// Calls of one run, because the clock is not read for each call.
const CALLS: u32 = 64;

fn main() -> BoxResult<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo nextest --benches` and similar tools list tests.
    if arguments.iter().any(|a| a == "--list") {
        return Ok(());
    }
    let behind = |flag: &str| arguments.iter().position(|a| a == flag).and_then(|at| arguments.get(at + 1));
    let wants = |figure: &str| behind("--only").is_none_or(|only| only == figure);
    let name = behind("--guest").map_or("edf", String::as_str);
    let serving = Arc::new(Engine::new(Mode::Serving)?);
    if wants("plan") {
        plans(&serving, name, &guest(name)?)?;
        python(&serving)?;
    }
    if wants("load") {
        loads(&serving, &guest(name)?)?;
    }
    if wants("swap") {
        swap::figures()?;
    }
    if wants("throughput") {
        throughput::figures(behind("--guest").map(String::as_str))?;
    }
    if wants("served") {
        served::figures(behind("--guest").map(String::as_str))?;
    }
    Ok(())
}

/// Measures calls of a guest.
fn plans(serving: &Arc<Engine>, name: &str, bytes: &[u8]) -> BoxResult<()> {
    let counting = Arc::new(Engine::new(Mode::Simulation)?);
    let component = SchedulerComponent::new(serving, "x.wasm", bytes, Grants::default(), None)?;
    let hooks = component.manifest().hooks;
    let mut timed = start(&component)?;
    let mut counted = start(&SchedulerComponent::new(&counting, "x.wasm", bytes, Grants::default(), None)?)?;
    println!("{name}, {} KiB of memory", timed.memory() / 1024);
    Ok(calls::figures(Pair { timed: &mut timed, counted: &mut counted, hooks })?)
}

/// Measures a plan in Python, if the guest was built.
fn python(engine: &Arc<Engine>) -> BoxResult<()> {
    const NAME: &str = "fair-share-python";
    let Ok(bytes) = guest(NAME) else {
        println!("{NAME} was not built: left out");
        return Ok(());
    };
    let component = SchedulerComponent::new(engine, "fair-share.wasm", &bytes, in_process::GRANTS, None)?;
    let mut guest = start(&component)?;
    let see = see(64, component.manifest().hooks.columns);
    let mut picks = Picks::default();
    // A failing guest would show a wrong time.
    if let Err(struck) = guest.plan(0, &see, &Events::default(), &mut picks) {
        println!("{NAME} fails, and is left out: {struck}");
        return Ok(());
    }
    let took = best(1, || drop(guest.plan(0, &see, &Events::default(), &mut picks)));
    println!("{NAME}, {} MiB of memory: a plan of 64 in {took:.0} us", guest.memory() >> 20);
    Ok(())
}

/// Measures loading a component and starting an instance.
fn loads(engine: &Arc<Engine>, bytes: &[u8]) -> BoxResult<()> {
    let folder = tempfile::tempdir()?;
    let cache = Cache::new(&folder.path().join("code"))?;
    let load = |cache: Option<&Cache>| SchedulerComponent::new(engine, "x.wasm", bytes, Grants::default(), cache);
    let cold = best(1, || drop(load(None)));
    load(Some(&cache))?;
    let cached = best(1, || drop(load(Some(&cache))));
    let component = load(None)?;
    let started = best(1, || drop(start(&component)));
    println!(
        "a component of {} KB: compiled in {:.1} ms, from the cache in {:.2} ms",
        bytes.len() / 1000,
        cold / 1e3,
        cached / 1e3
    );
    println!("an instance: started and configured in {started:.0} us");
    Ok(())
}

#[derive(Debug)]
struct NoServices;

impl Services for NoServices {
    fn log(&self, _: u32, _: &str) {}
    fn metric_add(&self, _: &CounterName, _: f64) {}
    fn key_text(&self, _: u64) -> Option<String> {
        None
    }
    fn sequence_text(&self, _: u64) -> Option<String> {
        None
    }
}

fn start(component: &SchedulerComponent) -> BoxResult<SchedulerGuest> {
    let mut guest = component.guest(Arc::new(NoServices), Limits::default())?;
    let keys = component.manifest().features.clone();
    guest.configure("{}", &LoadFacts { max_batch: 32, instances: 1, slots: 1024, keys, ..LoadFacts::default() })??;
    Ok(guest)
}

/// Microseconds of a call in the fastest run.
fn best(calls: u32, mut call: impl FnMut()) -> f64 {
    let (began, mut best) = (Instant::now(), f64::MAX);
    while began.elapsed() < LONG {
        let (start, wall) = (own_time(), Instant::now());
        (0..calls).for_each(|_| call());
        let took = start.zip(own_time()).map_or_else(|| wall.elapsed(), |(from, to)| to.saturating_sub(from));
        best = best.min(took.as_secs_f64() * 1e6 / f64::from(calls));
    }
    best
}

/// CPU time of this thread, so that busy neighbours do not count.
fn own_time() -> Option<Duration> {
    ClockId::CLOCK_THREAD_CPUTIME_ID.now().ok().map(Duration::from)
}
