//! The core under millions of random events, beside a reference model and witnesses (see `model/`).
//! `SEQUOR_SEED=n` reruns one seed and prints its last events (`SEQUOR_LINES=n`: so many);
//! `SEQUOR_SEEDS=n` runs more of them.

// With faults planted the suite runs in `planted.rs`.
#![cfg(not(feature = "planted"))]

mod model;

use std::hash::{DefaultHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use model::outcome::Outcome;
use model::world::World;
use model::{Broken, Checked};

const CALLS: u64 = 10_000;
const SEEDS: u64 = 1_300;

fn run(seed: u64) -> Result<Outcome, Broken> {
    let mut world = World::new(seed);
    world.run(CALLS)?;
    Ok(world.counts)
}

/// Runs a seed once more and tells its last events.
fn story(seed: u64) -> String {
    let mut world = World::new(seed);
    world.log = Some(Vec::new());
    let told = world.run(CALLS);
    let log = world.log.unwrap_or_default();
    let lines = std::env::var("SEQUOR_LINES").ok().and_then(|n| n.parse().ok()).unwrap_or(60);
    let last: Vec<String> = log.iter().skip(log.len().saturating_sub(lines)).cloned().collect();
    let end = told.map_or_else(|b| format!("{}: {}", b.property, b.what), |()| "holds".to_owned());
    format!("{}\n=> seed {seed}: {end}", last.join("\n"))
}

fn one_seed() -> Option<u64> {
    std::env::var("SEQUOR_SEED").ok()?.parse().ok()
}

#[test]
fn the_core_keeps_its_promises() {
    if let Some(seed) = one_seed() {
        let text = story(seed);
        println!("{text}");
        assert!(text.ends_with("holds"), "seed {seed} fails");
        return;
    }
    let began = Instant::now();
    let seeds = std::env::var("SEQUOR_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(SEEDS);
    let next = AtomicU64::new(1);
    let total = std::thread::scope(|scope| {
        let work = || {
            let mut mine = Outcome::default();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed > seeds {
                    return Ok(mine);
                }
                match run(seed) {
                    Ok(outcome) => mine.add(&outcome),
                    Err(_) => {
                        next.store(seeds, Ordering::Relaxed);
                        return Err(seed);
                    }
                }
            }
        };
        let threads: Vec<_> =
            (0..std::thread::available_parallelism().map_or(2, usize::from)).map(|_| scope.spawn(work)).collect();
        let mut total = Outcome::default();
        for thread in threads {
            match thread.join().expect("no panic") {
                Ok(outcome) => total.add(&outcome),
                Err(seed) => {
                    panic!("{}\nrerun with SEQUOR_SEED={seed}", story(seed));
                }
            }
        }
        total
    });
    println!("{}\n{:.1?}", total.table(), began.elapsed());
    let (rare, foreign) = total.arrows(100);
    assert!(foreign.is_empty(), "arrows that are not in the table: {foreign:?}");
    assert!(total.rare(100).is_empty(), "met too seldom: {:?}", total.rare(100));
    assert!(rare.is_empty(), "arrows taken too seldom: {rare:?}");
}

/// The same seed gives the same effects: no clock, no address, no order of a hash map shows.
#[test]
fn the_same_events_give_the_same_effects() -> Checked {
    let digest = |seed| {
        let mut world = World::new(seed);
        world.digest = Some(DefaultHasher::new());
        world.run(2_000).map(|()| world.digest.unwrap_or_default().finish())
    };
    for seed in 1..=100 {
        let (once, again) = (digest(seed)?, digest(seed)?);
        if once != again {
            return model::broken("determinism", format!("seed {seed}"));
        }
    }
    Ok(())
}
