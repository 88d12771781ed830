//! Turns and resources, without threads.

use proptest::prelude::*;

use super::*;

fn rate(needs: &[(&str, Option<u16>, u32)], priority: u32) -> Option<InstanceRate> {
    let need = |(name, device, count): &(&str, Option<u16>, u32)| ResourceNeed {
        name: (*name).to_owned(),
        device: *device,
        count: *count,
    };
    Some(InstanceRate { resources: needs.iter().map(need).collect(), priority })
}

fn add(ledger: &mut RateLedger, rate: Option<InstanceRate>) -> InstanceKey {
    ledger.add(&[rate]).unwrap()[0].unwrap()
}

fn limits(all: &[&str]) -> Vec<ResourceLimit> {
    all.iter().map(|text| ResourceLimit::parse(text).unwrap()).collect()
}

#[test]
fn instances_that_share_a_resource_run_in_turn_and_others_do_not_wait() {
    let mut ledger = RateLedger::default();
    let [a, b] = [0, 1].map(|_| add(&mut ledger, rate(&[("R", None, 1)], 1)));
    let c = add(&mut ledger, rate(&[("S", None, 1)], 1));
    ledger.wait(a);
    ledger.wait(b);
    ledger.wait(c);
    assert_eq!([a, b, c].map(|key| ledger.take_grant(key)), [true, false, true]);
    assert!(ledger.release(a) && ledger.take_grant(b));
    assert!(!ledger.release(b) && !ledger.release(c));
}

#[test]
fn a_grant_without_a_run_does_not_count_as_a_turn() {
    let mut ledger = RateLedger::default();
    let [a, b] = [0, 1].map(|_| add(&mut ledger, rate(&[("R", None, 1)], 1)));
    for _ in 0..3 {
        ledger.wait(a);
        assert!(ledger.take_grant(a));
        assert!(!ledger.release_unused(a));
    }
    ledger.wait(b);
    assert!(ledger.take_grant(b));
    ledger.wait(a);
    // Each had only this one turn, and `a` asked first.
    assert!(ledger.release_and_wait(b) && ledger.take_grant(a) && !ledger.take_grant(b));
}

#[test]
fn a_resource_has_the_largest_needed_count_unless_the_server_sets_it() {
    let runs = |limits: Vec<ResourceLimit>| {
        let mut ledger = RateLedger::new(limits);
        let keys = [4, 2, 2].map(|count| add(&mut ledger, rate(&[("R", Some(0), count)], 1)));
        keys.iter().for_each(|key| ledger.wait(*key));
        keys.map(|key| ledger.take_grant(key))
    };
    assert_eq!(runs(limits(&[])), [true, false, false]);
    assert_eq!(runs(limits(&["R:6"])), [true, true, false]);
    assert_eq!(runs(limits(&["R:4", "R:8:0", "R:4:1"])), [true, true, true]);
}

#[test]
fn a_waiting_instance_may_run_once_its_resource_grows() {
    let mut ledger = RateLedger::default();
    let [a, b] = [0, 1].map(|_| add(&mut ledger, rate(&[("R", None, 1)], 1)));
    ledger.wait(a);
    ledger.wait(b);
    assert!(ledger.take_grant(a) && !ledger.take_grant(b));
    let wide = add(&mut ledger, rate(&[("R", None, 2)], 1));
    assert!(ledger.grant() && ledger.take_grant(b), "the caller learns that one may run");
    ledger.wait(wide);
    assert!(!ledger.take_grant(wide) && !ledger.release(a) && ledger.release(b) && ledger.take_grant(wide));
}

#[test]
fn an_instance_that_could_never_run_is_refused() {
    let refused =
        |limit: &[&str], rates: &[Option<InstanceRate>]| RateLedger::new(limits(limit)).add(rates).unwrap_err();
    assert_eq!(
        refused(&["resource1:1"], &[None, rate(&[("resource1", None, 4)], 1)]),
        "Resource count for \"resource1\" is limited to 1 which will prevent scheduling of one or more model instances, \
         the minimum required count is 4"
    );
    let both = [rate(&[("R", None, 1)], 1), rate(&[("R", Some(0), 1)], 1)];
    let text = "Resource \"R\" is present as both global and device-specific resource in the model configuration.";
    assert_eq!(refused(&[], &both), text);
    let mut ledger = RateLedger::default();
    add(&mut ledger, both[0].clone());
    assert_eq!(ledger.add(&both[1..]).unwrap_err(), text, "also of two models");
}

#[test]
fn a_priority_of_2_gets_half_the_turns_of_1() {
    let mut ledger = RateLedger::default();
    let keys = [1, 2, 4].map(|priority| add(&mut ledger, rate(&[("R", None, 1)], priority)));
    keys.iter().for_each(|key| ledger.wait(*key));
    let mut turns = [0; 3];
    for _ in 0..700 {
        let next = keys.iter().position(|key| ledger.take_grant(*key)).unwrap();
        turns[next] += 1;
        ledger.release_and_wait(keys[next]);
    }
    assert!(turns.iter().zip([400, 200, 100]).all(|(had, due): (&i32, i32)| (had - due).abs() <= 2), "{turns:?}");
}

#[test]
fn a_late_instance_has_no_saved_up_turns() {
    let mut ledger = RateLedger::default();
    let first = add(&mut ledger, rate(&[("R", None, 1)], 1));
    for _ in 0..1000 {
        ledger.wait(first);
        assert!(ledger.take_grant(first));
        ledger.release(first);
    }
    let late = add(&mut ledger, rate(&[("R", None, 1)], 1));
    ledger.wait(first);
    ledger.wait(late);
    let next = |ledger: &mut RateLedger| [first, late].into_iter().find(|key| ledger.take_grant(*key)).unwrap();
    let (mut last, mut had) = (next(&mut ledger), 0);
    for _ in 0..10 {
        ledger.release_and_wait(last);
        last = next(&mut ledger);
        had += u32::from(last == late);
    }
    assert!((4..=7).contains(&had), "{had} of 10 turns");
}

#[test]
fn small_needs_do_not_starve_a_large_need() {
    let mut ledger = RateLedger::new(limits(&["R:2"]));
    let [a, b] = [0, 1].map(|_| add(&mut ledger, rate(&[("R", None, 1)], 1)));
    let large = add(&mut ledger, rate(&[("R", None, 2)], 1));
    ledger.wait(a);
    ledger.wait(b);
    ledger.wait(large);
    assert!(ledger.take_grant(a) && ledger.take_grant(b));
    ledger.release_and_wait(a);
    assert!(!ledger.take_grant(a), "what is free is kept for the one in front");
    ledger.release(b);
    assert!(ledger.take_grant(large) && !ledger.take_grant(a));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// At most the count of a resource is in use, and every waiting instance gets its turn.
    #[test]
    fn nothing_is_used_beyond_its_count_and_every_instance_gets_its_turn(
        needs in prop::collection::vec((prop::collection::vec((0usize..3, 1u32..4), 1..3), 1u32..4), 1..8),
        steps in prop::collection::vec(0usize..8, 1..200),
    ) {
        let names = ["A", "B", "C"];
        let mut ledger = RateLedger::new(limits(&["A:6", "B:7", "C:8"]));
        let rates: Vec<_> = needs
            .iter()
            .map(|(of, priority)| {
                let of: Vec<_> = of.iter().map(|(name, count)| (names[*name], None, *count)).collect();
                rate(&of, *priority)
            })
            .collect();
        let keys: Vec<_> = ledger.add(&rates).unwrap().into_iter().flatten().collect();
        let (mut waiting, mut running) = (Vec::new(), Vec::new());
        for step in steps {
            let key = keys[step % keys.len()];
            match running.iter().position(|of| *of == key) {
                Some(at) => {
                    running.swap_remove(at);
                    ledger.release(key);
                }
                None if waiting.contains(&key) => {}
                None => {
                    waiting.push(key);
                    ledger.wait(key);
                }
            }
            waiting.retain(|key| {
                let granted = ledger.take_grant(*key);
                running.extend(granted.then_some(*key));
                !granted
            });
            for (name, most) in names.iter().zip([6, 7, 8]) {
                prop_assert!(ledger.in_use.get(&((*name).to_owned(), None)).copied().unwrap_or(0) <= most);
            }
        }
        // End every run: then every waiting instance runs.
        while !(waiting.is_empty() && running.is_empty()) {
            prop_assert!(!running.is_empty(), "{waiting:?} wait for nothing");
            ledger.release(running.remove(0));
            waiting.retain(|key| {
                let granted = ledger.take_grant(*key);
                running.extend(granted.then_some(*key));
                !granted
            });
        }
        prop_assert!(ledger.in_use.values().all(|used| *used == 0));
    }
}
