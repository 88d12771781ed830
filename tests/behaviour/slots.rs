//! Strategies, slots and instances: which sequence has which slot, and for how long.

use std::collections::{BTreeMap, BTreeSet};

use sequor_core::Id;

use crate::support::{Seq, Server, both, model, sum};

/// A running sum that gets the id of each row.
pub fn with_id(strategy: &str) -> String {
    let control =
        r#"control_input { name: "CORRID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } }"#;
    sum("TYPE_INT32", &format!("{strategy} {control}"), "").replace("dims: [ -1 ]", "dims: [ 1 ]")
}

pub fn sum_with_id(config: &str) -> Server {
    model("sum").config(config).onnx("sees_id_uint64").serve()
}

#[test]
fn direct_is_the_default_strategy() {
    let strategy = |message: &str| {
        let ready = sum_with_id(&with_id(message)).ready();
        (ready.strategy, ready.slots)
    };
    assert_eq!(strategy(""), ("direct", 4));
    assert_eq!(strategy("direct { }"), ("direct", 4));
    assert_eq!(strategy("oldest { max_candidate_sequences: 9 }"), ("oldest", 9));
    assert_eq!(strategy("oldest { }"), ("oldest", 4));
}

#[test]
fn an_instance_has_as_many_slots_as_a_batch_has_rows() {
    for (instances, rows) in [(1, 2), (2, 3), (3, 1)] {
        let config = with_id("direct { }")
            .replace("count: 1", &format!("count: {instances}"))
            .replace("max_batch_size: 4", &format!("max_batch_size: {rows}"));
        let server = sum_with_id(&config);
        let ready = server.ready();
        assert_eq!((ready.instances, ready.slots), (instances, u32::from(instances) * rows));
        let slots = u64::from(ready.slots);
        for id in 1..=slots {
            server.seq(id).start().input(&[1]).gives(&[1]);
        }
        // The next sequence waits until another one ends.
        let waiting = server.seq(99).start().input(&[7]).send();
        server.seq(slots).step().input(&[1]).gives(&[2]);
        assert!(server.runs().iter().all(|run| !run.fed::<u64>("CORRID").contains(&99)));
        server.seq(1).end().input(&[1]).gives(&[2]);
        waiting.gives(&[7]);
    }
}

#[test]
fn a_sequence_owns_its_row() {
    let server = sum_with_id(&with_id("direct { }"));
    let all = [11u64, 12, 13, 14].map(|id| server.seq(id));
    for seq in &all {
        seq.start().input(&[0]).answer();
    }
    // For any set of ready sequences in any order: row n is the sequence of slot n, or padding.
    for order in [vec![3, 1], vec![2, 3, 0], vec![1], vec![0, 1, 2, 3], vec![2, 0]] {
        let held = server.hold(all[0].step().input(&[0]));
        let waiting: Vec<_> = order.iter().map(|n| all[*n].step().input(&[1]).send()).collect();
        held.release();
        waiting.into_iter().for_each(|w| drop(w.answer()));
        let ids = server.last_run().fed::<u64>("CORRID");
        let highest = *order.iter().max().unwrap();
        let want: Vec<u64> = (0..=highest).map(|n| if order.contains(&n) { 11 + n as u64 } else { 0 }).collect();
        assert_eq!(ids, want, "{order:?}");
    }
}

/// The instances on which each sequence's rows ran.
fn instances(server: &Server) -> BTreeMap<u64, BTreeSet<String>> {
    let mut seen: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    for run in server.runs() {
        for id in run.fed::<u64>("CORRID").into_iter().filter(|id| *id > 0) {
            seen.entry(id).or_default().insert(run.instance.clone());
        }
    }
    seen
}

#[test]
fn instances_share_the_sequences_and_each_sequence_stays_on_one_instance() {
    for strategy in both() {
        let server = sum_with_id(&with_id(strategy).replace("count: 1", "count: 2"));
        assert_eq!(server.ready().instances, 2);
        let all: Vec<Seq<'_>> = (1..=6).map(|id| server.seq(id)).collect();
        for step in 0..20 {
            let waiting: Vec<_> = all.iter().map(|seq| seq.nth(step).input(&[1]).send()).collect();
            waiting.into_iter().for_each(|w| w.gives(&[step as i32 + 1]));
        }
        let seen = instances(&server);
        assert!(seen.len() == 6 && seen.values().all(|on| on.len() == 1), "{strategy}: {seen:?}");
        // The lowest slot number over all instances comes first, so instances fill evenly.
        let on = |name: &str| seen.values().filter(|on| on.contains(name)).count();
        assert_eq!((on("sum.0"), on("sum.1")), (3, 3), "{strategy}");
    }
}

#[test]
fn instances_run_at_the_same_time() {
    for strategy in both() {
        let server = sum_with_id(&with_id(strategy).replace("count: 1", "count: 2"));
        let held = server.hold(server.seq(1).start().input(&[1]));
        let other = server.seq(2).start().input(&[2]).send();
        // The second run has begun while the first still runs.
        server.watch.wait_for(2);
        let names: BTreeSet<String> = server.runs().into_iter().map(|run| run.instance).collect();
        assert_eq!(names.len(), 2);
        held.release();
        other.gives(&[2]);
    }
}

#[test]
fn every_instance_thread_ends_when_the_server_stops() {
    for round in 0..40u64 {
        let server = sum_with_id(&with_id("direct { }").replace("count: 1", "count: 4"));
        for id in 1..=(round % 5) {
            server.seq(id).start().input(&[1]).gives(&[1]);
        }
        // Joins the instances' threads, which end in any order.
        server.repository.stop();
    }
}

#[test]
fn start_allots_a_slot_and_end_gives_it_back() {
    for strategy in both() {
        let server = sum_with_id(&with_id(strategy));
        for id in 1..=40 {
            server.seq(id).start().input(&[1]).gives(&[1]);
            assert_eq!(server.repository.live(), 1);
            server.seq(id).end().input(&[1]).gives(&[2]);
            assert_eq!(server.repository.live(), 0);
            let failure = server.seq(id).step().input(&[1]).fails();
            assert!(format!("{failure:?}").contains("Unknown(Some(Tombstone { why: End"), "{failure:?}");
        }
        server.seq(1).only().input(&[5]).gives(&[5]);
        assert_eq!(server.repository.live(), 0);
    }
}

#[test]
fn a_request_for_an_unknown_id_is_refused_unless_it_is_a_start() {
    let server = sum_with_id(&with_id(""));
    for ask in [server.seq(5).step(), server.seq(5).end()] {
        let failure = ask.input(&[1]).fails();
        assert!(format!("{failure:?}").contains("Unknown(None)"), "{failure:?}");
    }
    let unnamed = Seq { id: Id::None, ..server.seq(1) };
    for ask in [unnamed.start(), unnamed.only()] {
        let failure = ask.input(&[1]).fails();
        assert!(format!("{failure:?}").contains("refusal: NoId"), "{failure:?}");
    }
    assert_eq!(server.runs().len(), 0);
}

#[test]
fn an_iterative_models_request_without_an_id_is_its_own_sequence() {
    for strategy in both() {
        let config = sum("TYPE_INT32", &format!("iterative_sequence: true {strategy}"), "");
        let server = model("sum").config(&config).onnx("sum_int32").serve();
        let named = server.seq(1);
        named.start().input(&[5]).gives(&[5]);
        let unnamed = Seq { id: Id::None, ..server.seq(1) };
        for ask in [unnamed.step(), unnamed.start(), unnamed.only()] {
            ask.input(&[7]).gives(&[7]);
        }
        named.step().input(&[6]).gives(&[11]);
        assert_eq!(server.repository.live(), 1, "{strategy}");
    }
}
