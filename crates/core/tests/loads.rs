//! Many loads under one model name, one after the other. The core keeps nothing of a load that has gone, and its key never matches again.

mod rig;

use rig::{Rig, oldest, spec};
use sequor_core::*;

const LOADS: u32 = 70_000;

/// Retires a load and lets its one instance go.
fn retire(rig: &mut Rig, load: LoadId) {
    rig.apply(Event::Retire { load, until: rig.now });
    while !matches!(rig.next_of(load), Next::Gone) {}
}

#[test]
fn the_load_table_does_not_grow_over_seventy_thousand_reloads() {
    let mut rig = Rig::new(spec(oldest(1), 1));
    let mut keys: Slab<LoadId, ()> = Slab::new();
    let mut serving = keys.insert(());
    let first = serving;
    for n in 1..LOADS {
        // As at a reload: the new load serves before the old one retires.
        let next = keys.insert(());
        rig.apply(Event::Loaded(next, LoadSpec { version: u64::from(n), ..spec(oldest(1), 1) }));
        retire(&mut rig, serving);
        keys.remove(serving);
        serving = next;
        rig.seen.clear();
    }
    assert_eq!(rig.core.load_capacity(), 2);

    rig.serves = serving;
    rig.apply(Event::Loaded(keys.insert(()), LoadSpec { version: 3, ..spec(oldest(1), 1) }));
    let (start, end) = (rig.submit(7, true, false), rig.submit(7, false, true));
    assert_eq!((rig.core.usage(serving).live, rig.core.usage(first)), (1, Usage::default()));
    assert_eq!(rig.drain(), [1, 1]);
    assert_eq!((rig.answers[&start], rig.answers[&end]), (Ok(()), Ok(())));
}

#[test]
fn a_stale_key_finds_nothing_of_the_load_that_has_its_place() {
    let mut rig = Rig::new(spec(oldest(1), 1));
    let old = rig.serves;
    retire(&mut rig, old);
    rig.serves = LoadId::new(old.ix, old.generation.checked_add(1).expect("a generation"));
    rig.apply(Event::Loaded(rig.serves, spec(oldest(1), 1)));
    rig.submit(1, true, false);
    rig.apply(Event::Retire { load: old, until: Time::ZERO });
    rig.apply(Event::Attach(old, Some(Hooks { plan: true, ..Hooks::default() })));
    assert!(matches!(rig.next_of(old), Next::Gone));
    assert_eq!((rig.drain(), rig.usage().live), (vec![1], 1));
}

/// A START that names no version moves on from a retired load to a version that has a live sequence of the id, too.
#[test]
fn a_version_has_one_live_sequence_of_an_id() {
    let mut rig = Rig::new(spec(oldest(4), 1));
    let newer = LoadId::new(1, std::num::NonZeroU32::MIN);
    rig.apply(Event::Loaded(newer, LoadSpec { version: 2, ..spec(oldest(4), 1) }));
    rig.submit_with(7, true, false, |s| s.version = Some(2));
    rig.submit_with(7, true, false, |s| s.version = Some(1));
    rig.apply(Event::Retire { load: LoadId::FIRST, until: Time::NEVER });
    assert_eq!(rig.drain(), [1]);
    rig.serves = newer;
    assert_eq!(rig.drain(), [1]);
    let moved = rig.submit(7, true, true);
    assert_eq!(rig.ended, [EndReason::Restarted, EndReason::Restarted], "both were idle");
    assert_eq!((rig.drain(), rig.answers[&moved], rig.usage().live), (vec![1], Ok(()), 0));
    assert_eq!(rig.core.find(&Id::Int(7), None), None);
}

/// A step may name a version on which its id does not live, and bring a state that another load continues.
#[test]
fn a_state_is_not_adopted_on_a_version_with_a_live_sequence_of_its_id() {
    let mut rig = Rig::new(spec(oldest(4), 1));
    let newer = LoadId::new(1, std::num::NonZeroU32::MIN);
    rig.apply(Event::Loaded(newer, LoadSpec { version: 2, ..spec(oldest(4), 1) }));
    rig.submit_with(7, true, false, |s| s.version = Some(1));
    let first = rig.core.find(&Id::Int(7), None);
    rig.submit_with(7, false, true, |s| {
        (s.version, s.adopt, s.adopt_on) = (Some(2), Some(4), Some(LoadId::FIRST));
    });
    let live = |load: LoadId| rig.core.usage(load).live;
    assert_eq!((live(LoadId::FIRST), live(newer)), (1, 1));
    assert!(first.is_some() && rig.core.find(&Id::Int(7), Some(1)) == first);
}

/// A load may have more slots than a `u32` counts.
#[test]
fn the_slots_of_all_instances_may_exceed_what_is_counted() {
    let slots = i32::MAX.unsigned_abs();
    let mut rig = Rig::new(LoadSpec { instances: 3, ..spec(oldest(slots), 4) });
    assert_eq!((rig.usage().slots, rig.usage().slots_used), (u32::MAX, 0));
    let started = rig.submit(1, true, false);
    assert_eq!((rig.drain(), rig.answers[&started]), (vec![1], Ok(())));
    let dialect = Dialect { full: WhenFull::Refuse, ..Dialect::TRITON };
    let started = rig.submit_with(2, true, false, |s| s.dialect = dialect);
    assert_eq!((rig.answers.get(&started), rig.usage().slots_used), (None, 2));
}
