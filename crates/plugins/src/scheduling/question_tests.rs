//! Compares this server's questions with the generated bindings: the same bytes at the same places of a guest's memory, over random rounds.

use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use sequor_core::{Columns, Picks};
use sequor_wasm::call_error::Call;
use sequor_wasm::grants::Grants;
use sequor_wasm::limits::Limits;

use super::contract::scheduler;
use super::guest::{Events, Guest as _};
use super::wat_fixture::{SchedulerWat, ServiceLog};
use super::world::{SchedulerComponent, SchedulerGuest};
use crate::scheduling::wat_fixture::SERVING;

/// A guest that leaves its input in place, and saves all of it.
static KEEPS: LazyLock<SchedulerComponent> = LazyLock::new(|| {
    let guest = SchedulerWat {
        plan: "(i32.const 512)",
        save: "(i32.store (i32.const 1024) (i32.const 8192))
            (i32.store offset=4 (i32.const 1024) (i32.sub (global.get $heap) (i32.const 8192)))
            (i32.const 1024)",
        ..SchedulerWat::default()
    };
    SchedulerComponent::new(&SERVING, "x.wasm", &guest.component(), Grants::default(), None).unwrap()
});

fn start() -> SchedulerGuest {
    KEEPS
        .guest(Arc::new(ServiceLog::default()), Limits { time: std::time::Duration::from_secs(1), memory: None })
        .unwrap()
}

/// A column of this length, or none.
fn column<T: std::fmt::Debug + 'static>(len: usize, of: impl Strategy<Value = T>) -> impl Strategy<Value = Vec<T>> {
    (any::<bool>(), prop::collection::vec(of, len))
        .prop_map(|(is_there, column)| if is_there { column } else { vec![] })
}

/// Nanoseconds, sometimes "never".
fn time() -> impl Strategy<Value = u64> {
    prop_oneof![3 => any::<u64>(), 1 => Just(u64::MAX), 1 => 0..10_000u64]
}

fn columns() -> impl Strategy<Value = Columns> {
    let len = 0..40usize;
    len.prop_flat_map(|len| {
        let head = (time(), any::<u64>(), prop::array::uniform5(any::<u32>()));
        let first = (column(len, any::<u64>()), column(len, any::<u64>()), column(len, any::<u32>()));
        let times = (column(len, time()), column(len, time()), column(len, time()));
        let middle = (column(len, any::<u32>()), column(len, any::<u64>()), column(len, any::<u8>()));
        let last = (column(len, any::<u32>()), column(len, any::<u64>()), column(len, any::<u64>()));
        let features = (column(2 * len, any::<f64>()), column(3 * len, any::<u64>()));
        (Just(len), head, first, times, middle, last, features)
    })
    .prop_map(|(len, head, first, times, middle, last, features)| {
        let (now, run_time, [max_batch, free_instances, live, backlog, not_shown]) = head;
        Columns {
            now,
            max_batch,
            free_instances,
            live,
            backlog,
            not_shown,
            run_time,
            len: u32::try_from(len).unwrap(),
            seq: first.0,
            step: first.1,
            slot: first.2,
            arrival: times.0,
            ready: times.1,
            deadline: times.2,
            priority: middle.0,
            shape: middle.1,
            flags: middle.2,
            rows: last.0,
            bytes: last.1,
            state_bytes: last.2,
            numbers: features.0,
            keys: features.1,
        }
    })
}

fn events() -> impl Strategy<Value = Events> {
    (0..9usize).prop_flat_map(|len| {
        let numbers = || prop::collection::vec(any::<u64>(), len);
        let kind = prop::collection::vec(any::<u32>(), len);
        (kind, numbers(), numbers(), numbers()).prop_map(|(kind, sequence, amount, keys)| Events {
            kind,
            sequence,
            amount,
            keys,
        })
    })
}

fn given(news: &Events) -> Option<scheduler::Events<'_>> {
    let Events { kind, sequence, amount, keys } = news;
    (!news.is_empty()).then_some(scheduler::Events { kind, sequence, amount, keys })
}

/// In the contract's unit.
fn micros(nanos: u64) -> u64 {
    if nanos == u64::MAX { u64::MAX } else { nanos / 1000 }
}

fn there<T>(column: &[T]) -> Option<&[T]> {
    (!column.is_empty()).then_some(column)
}

fn round(instance: u32, see: &Columns) -> scheduler::Round {
    scheduler::Round {
        now_us: micros(see.now),
        run_us: see.run_time / 1000,
        instance,
        max_batch: see.max_batch,
        free_instances: see.free_instances,
        live: see.live,
        backlog: see.backlog,
        not_shown: see.not_shown,
    }
}

/// Times of the three columns that have some.
struct Times([Vec<u64>; 3]);

impl Times {
    fn of(see: &Columns) -> Times {
        Times([&see.arrival, &see.ready, &see.deadline].map(|times| times.iter().copied().map(micros).collect()))
    }
}

fn generated<'a>(see: &'a Columns, Times([arrival, ready, deadline]): &'a Times) -> scheduler::Columns<'a> {
    scheduler::Columns {
        len: see.len,
        sequence: there(&see.seq),
        step: there(&see.step),
        slot: there(&see.slot),
        arrival_us: there(arrival),
        ready_us: there(ready),
        deadline_us: there(deadline),
        priority: there(&see.priority),
        shape_key: there(&see.shape),
        start_end: there(&see.flags),
        rows: there(&see.rows),
        input_bytes: there(&see.bytes),
        state_bytes: there(&see.state_bytes),
        numbers: there(&see.numbers),
        keys: there(&see.keys),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_column_of_a_plan_is_written_as_the_generated_bindings_write_it(
        see in columns(),
        instance in any::<u32>(),
        news in events(),
    ) {
        let (mut ours, mut theirs) = (start(), start());
        ours.plan(instance, &see, &news, &mut Picks::default()).unwrap();
        let (times, limit) = (Times::of(&see), theirs.limit());
        let call = Call { name: "plan", of: None };
        theirs
            .call(call, limit, |(plugin, _), store| {
                let (round, ready) = (round(instance, &see), generated(&see, &times));
                plugin.sequor_plugin_scheduler().call_plan(store, round, ready, given(&news))
            })
            .unwrap();
        prop_assert_eq!(ours.save().unwrap(), theirs.save().unwrap());
    }

    #[test]
    fn every_column_of_an_admission_is_written_as_the_generated_bindings_write_it(
        see in columns(),
        victims in columns(),
        room in prop::collection::vec(any::<u32>(), 0..8),
        news in events(),
    ) {
        let (mut ours, mut theirs) = (start(), start());
        ours.admit(&see, &room, &victims, &news).unwrap();
        let (times, times_of_victims, limit) = (Times::of(&see), Times::of(&victims), theirs.limit());
        let call = Call { name: "admit", of: None };
        theirs
            .call(call, limit, |(plugin, _), store| {
                let (waiting, victims) = (generated(&see, &times), generated(&victims, &times_of_victims));
                let plugin = plugin.sequor_plugin_scheduler();
                plugin.call_admit(store, round(0, &see), waiting, &room, victims, given(&news))
            })
            .unwrap();
        prop_assert_eq!(ours.save().unwrap(), theirs.save().unwrap());
    }
}
