//! Measures the replacement of a plug-in's version while requests run and 10,000 sequences are live. Prints the time of a swap, and the
//! longest pause between two batches meanwhile. For comparison, it prints the longest pause in an equal time without a swap.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sequor::backend::mock::MockBackend;
use sequor::model::{Pending, Repository};
use sequor::scheduling::report::{By, PluginControl as _};
use sequor_wasm::grants::GrantTable;
use sequor_wasm::loader::Loader;
use sequor_wasm::room::GuestRoom;

use crate::in_process::{BoxResult, InProcess, guest, step};

const LIVE: u64 = 10_000;
const CLIENTS: u64 = 16;
const SWAPS: usize = 40;
const NAME: &str = "edf";

/// The senders of requests meanwhile.
#[derive(Clone, Copy)]
enum Clients {
    /// One thread that waits for all answers before it sends again. It and the instance's thread alternate, so a core stays free.
    InTurn,
    /// Independent clients: they and the instance's thread use two cores.
    Each,
}

pub(crate) fn figures() -> BoxResult<()> {
    println!("a swap with {LIVE} live sequences, {SWAPS} times: least, middle, nine in ten and longest, ms");
    println!("beside a load that takes one core");
    measure(Clients::InTurn)?;
    println!("beside a load that takes two cores");
    measure(Clients::Each)
}

fn measure(clients: Clients) -> BoxResult<()> {
    let began: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let hook = Arc::clone(&began);
    let backend = MockBackend::with_hook(Arc::new(move |_| hook.lock().push(Instant::now())));
    let folder = tempfile::tempdir()?;
    let loader = Loader::new(Some(folder.path()), GrantTable::default(), GuestRoom::default())?;
    let make = move |name: &str, bytes: &[u8]| sequor::scheduling::loader::load(&loader, name, bytes);
    let server = InProcess::new(Arc::new(backend), b"accumulate INT32", (20_000, 64), None, Box::new(make))?;
    server.load()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build()?;
    let pending: Result<Vec<_>, _> = (1..=LIVE).map(|id| server.repository.submit(step(id, 1, true, false))).collect();
    for pending in pending.map_err(|failure| format!("{failure:?}"))? {
        runtime.block_on(pending).map_err(|failure| format!("{failure:?}"))?;
    }
    server.attach(NAME, Duration::from_millis(2))?;
    let enough = Arc::new(AtomicBool::new(false));
    let ids = LIVE + 1..=LIVE + CLIENTS;
    match clients {
        Clients::InTurn => drop(runtime.spawn(all_in_turn(server.repository.clone(), ids, Arc::clone(&enough)))),
        Clients::Each => ids.for_each(|id| {
            runtime.spawn(all_in_turn(server.repository.clone(), id..=id, Arc::clone(&enough)));
        }),
    }
    let versions = [guest("fair-share")?, guest(NAME)?];
    let (mut took, mut pauses, mut without) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..SWAPS {
        std::thread::sleep(Duration::from_millis(20));
        let (from, version) = (Instant::now(), versions[n % 2].clone());
        server.repository.replace(NAME, version, By("bench"))?;
        took.push(from.elapsed());
        pauses.push(longest(&began, from, Instant::now()));
        let from = Instant::now();
        std::thread::sleep(took[n]);
        without.push(longest(&began, from, Instant::now()));
        began.lock().clear();
    }
    enough.store(true, Ordering::Relaxed);
    // The first two swaps compile the code that the later ones find in the cache.
    println!("  from order to done                            {}", spread(took[2..].to_vec()));
    println!("  longest pause between two batches meanwhile   {}", spread(pauses[2..].to_vec()));
    println!("  the same without a swap                       {}", spread(without[2..].to_vec()));
    Ok(())
}

/// Sends a request of each of these sequences, and the next ones once all are answered.
async fn all_in_turn(repository: Repository, ids: RangeInclusive<u64>, enough: Arc<AtomicBool>) {
    let mut start = true;
    while !enough.load(Ordering::Relaxed) {
        let Ok(pending) = ids.clone().map(|id| repository.submit(step(id, 1, start, false))).collect() else { return };
        let pending: Vec<Pending> = pending;
        for pending in pending {
            if pending.await.is_err() {
                return;
            }
        }
        start = false;
    }
}

/// The longest time between two batches of which at least one began in this span.
fn longest(began: &Mutex<Vec<Instant>>, from: Instant, to: Instant) -> Duration {
    // The batch after the span ends a pause at the end of the span.
    std::thread::sleep(Duration::from_millis(5));
    let began = began.lock();
    let pairs = began.windows(2).filter(|pair| pair[1] >= from && pair[0] <= to);
    pairs.map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
}

fn spread(mut of: Vec<Duration>) -> String {
    of.sort_unstable();
    let ms = |n: usize| of.get(n).copied().unwrap_or_default().as_secs_f64() * 1e3;
    let last = of.len().saturating_sub(1);
    format!("{:.2}  {:.2}  {:.2}  {:.2}", ms(0), ms(of.len() / 2), ms(last * 9 / 10), ms(last))
}
