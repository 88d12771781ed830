//! Faults planted in the core, one at a time: the properties must find every one (`cargo nextest run -p sequor-core --features planted`).

mod model;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use model::world::World;
use sequor_core::faults::{Planted, plant};

const SEEDS: u64 = 3_000;
const CALLS: u64 = 4_000;

/// The first seed that finds a fault, and the property that did not hold.
fn found(fault: Planted) -> Option<(u64, &'static str)> {
    plant(Some(fault));
    let first = (1..=SEEDS).find_map(|seed| {
        let run = || World::new(seed).run(CALLS);
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(())) => None,
            Ok(Err(broken)) => Some((seed, broken.property)),
            Err(_) => Some((seed, "(the model has lost its way)")),
        }
    });
    plant(None);
    first
}

#[test]
fn every_planted_fault_is_found() {
    std::panic::set_hook(Box::new(|_| {}));
    let next = AtomicUsize::new(0);
    let work = || {
        let mut mine = Vec::new();
        while let Some(fault) = Planted::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
            mine.push((*fault, found(*fault)));
        }
        mine
    };
    let mut all: Vec<(Planted, Option<(u64, &str)>)> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..std::thread::available_parallelism().map_or(2, usize::from)).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    let _ = std::panic::take_hook();
    all.sort_by_key(|(fault, _)| Planted::ALL.iter().position(|x| x == fault));
    for (fault, found) in &all {
        match found {
            Some((seed, property)) => println!("{:<24} seed {seed:>3}  {property}", format!("{fault:?}")),
            None => println!("{:<24} NOT FOUND in {SEEDS} seeds", format!("{fault:?}")),
        }
    }
    let missed: Vec<Planted> = all.iter().filter(|(_, found)| found.is_none()).map(|(fault, _)| *fault).collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}
