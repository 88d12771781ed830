//! The core under millions of random events, compared with a reference model and witnesses (see `model/`). `SEQUOR_SEED=n` reruns one seed
//! and prints its last events (`SEQUOR_LINES=n`: how many). `SEQUOR_SEEDS=n` runs more seeds.

// With faults planted the suite runs in `planted.rs`.
#![cfg(not(feature = "planted"))]

mod model;

use std::hash::{DefaultHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use model::Checked;
use model::outcome::Outcome;
use model::world::World;

const CALLS: u64 = 10_000;
const SEEDS: u64 = 1_300;
/// Number of histories with crashes, and of crashes in each.
const MORTAL_SEEDS: u64 = 2_000;
const CRASHES: u64 = 8;

/// Runs the history of a seed, and keeps its last events if that is wanted.
type Play = fn(seed: u64, log: Option<Vec<String>>) -> (World, Checked);

fn play(seed: u64, log: Option<Vec<String>>) -> (World, Checked) {
    let mut world = World::new(seed);
    world.log = log;
    let held = world.run(CALLS);
    (world, held)
}

fn play_with_crashes(seed: u64, log: Option<Vec<String>>) -> (World, Checked) {
    let mut world = World::mortal(seed);
    world.log = log;
    let held = world.run_with_crashes(CRASHES);
    (world, held)
}

/// Reruns a seed and prints its last events.
fn story(play: Play, seed: u64) -> String {
    let (world, held) = play(seed, Some(Vec::new()));
    let log = world.log.unwrap_or_default();
    let lines = std::env::var("SEQUOR_LINES").ok().and_then(|n| n.parse().ok()).unwrap_or(60);
    let last: Vec<String> = log.iter().skip(log.len().saturating_sub(lines)).cloned().collect();
    let end = held.map_or_else(|b| format!("{}: {}", b.property, b.what), |()| "holds".to_owned());
    format!("{}\n=> seed {seed}: {end}", last.join("\n"))
}

fn one_seed() -> Option<u64> {
    std::env::var("SEQUOR_SEED").ok()?.parse().ok()
}

/// Runs this many seeds on all threads. Returns `None` if `SEQUOR_SEED` asks for one seed and that seed holds.
#[allow(clippy::expect_used, clippy::panic, reason = "a test may panic")]
fn play_all(play: Play, seeds: u64) -> Option<Outcome> {
    if let Some(seed) = one_seed() {
        let text = story(play, seed);
        println!("{text}");
        assert!(text.ends_with("holds"), "seed {seed} fails");
        return None;
    }
    let began = Instant::now();
    let seeds = std::env::var("SEQUOR_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(seeds);
    let next = AtomicU64::new(1);
    let total = std::thread::scope(|scope| {
        let work = || {
            let mut mine = Outcome::default();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed > seeds {
                    return Ok(mine);
                }
                match play(seed, None) {
                    (world, Ok(())) => mine.add(&world.counts),
                    (_, Err(_)) => {
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
                    panic!("{}\nrerun with SEQUOR_SEED={seed}", story(play, seed));
                }
            }
        }
        total
    });
    println!("{}\n{:.1?}", total.table(), began.elapsed());
    Some(total)
}

#[test]
fn the_core_keeps_its_invariants_over_random_events() {
    let Some(total) = play_all(play, SEEDS) else { return };
    let (rare, foreign) = total.arrows(100);
    assert!(foreign.is_empty(), "arrows that are not in the table: {foreign:?}");
    assert!(total.rare(100).is_empty(), "met too seldom: {:?}", total.rare(100));
    assert!(rare.is_empty(), "arrows taken too seldom: {rare:?}");
}

/// The same seed gives the same effects: no clock, address or map order has an effect.
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

/// The process crashes at random points, and the next one resumes from the store.
#[test]
fn over_crashes_no_answered_step_is_lost_and_none_is_applied_twice() {
    let Some(total) = play_all(play_with_crashes, MORTAL_SEEDS) else { return };
    let rare = total.rare_over_crashes(100);
    assert!(rare.is_empty(), "met too seldom: {rare:?}");
}
