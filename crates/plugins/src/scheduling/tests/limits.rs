//! Guests that make the host do work that takes long or needs much memory. The limits hold no matter which side does the work.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sequor_core::Picks;
use sequor_wasm::call_error::CallFault;
use sequor_wasm::grants::Grants;
use sequor_wasm::limits::Limits;

use super::wasm::{ROOMY, component, failure_by_default, plan, start};
use crate::config::model::LoadFacts;
use crate::scheduling::SchedulerComponent;
use crate::scheduling::SchedulerGuest;
use crate::scheduling::guest::Guest as _;
use crate::scheduling::wat_fixture::SERVING;
use crate::scheduling::wat_fixture::{LOG, SchedulerWat, ServiceLog};

/// A memory with room for the input: 4 MiB beyond the 8 pages that the guest starts with.
const ROOM: &str = "(drop (memory.grow (i32.const 64)))";

/// With a time limit that is enough for a build without optimisation.
fn patient(guest: &SchedulerWat<'_>) -> SchedulerGuest {
    let limits = Limits { time: Duration::from_secs(5), ..Limits::default() };
    component(guest).guest(Arc::new(ServiceLog::default()), limits).unwrap()
}

/// Logs this many zeros, from the end of its memory before it grew.
fn log(bytes: u32) -> String {
    format!("(call $log (i32.const 2) (i32.const 524288) (i32.const {bytes}))")
}

#[test]
fn a_guest_that_hands_over_too_much_at_once_traps() {
    let plan_after_log = |bytes| {
        plan(
            &mut patient(&SchedulerWat {
                extra: LOG,
                plan: &format!("{ROOM} {} (i32.const 512)", log(bytes)),
                ..SchedulerWat::default()
            }),
            3,
        )
        .0
    };
    assert!(plan_after_log(2 << 20).is_ok());
    let much = plan_after_log((2 << 20) + 1).unwrap_err();
    assert_eq!(
        (much.fault, much.what.as_str()),
        (CallFault::Trap, "it handed over too much at once (in plan), in plan")
    );
    // An answer that is far too long fails in the same way.
    let long = "(i32.store8 (i32.const 1024) (i32.const 1)) (i32.store (i32.const 1032) (i32.const 2048))
        (i32.store (i32.const 1036) (i32.const 600000)) (i32.const 1024)";
    let much = plan(&mut patient(&SchedulerWat { plan: &format!("{ROOM} {long}"), ..SchedulerWat::default() }), 3)
        .0
        .unwrap_err();
    assert_eq!((much.fault, much.what.as_str()), (CallFault::Trap, "it handed over too much at once, in plan"));
}

/// It never checks the epoch, because it has no loop and calls only the host's functions.
#[test]
fn a_guest_that_keeps_the_host_busy_reaches_the_time_limit() {
    let logs = log(2 << 20).repeat(400);
    let error = failure_by_default(&SchedulerWat {
        extra: LOG,
        plan: &format!("{ROOM} {logs} (i32.const 512)"),
        ..SchedulerWat::default()
    });
    assert_eq!(
        (error.fault, error.what.as_str()),
        (CallFault::Time, "time limit 2ms in plan (3 candidates) (in plan)")
    );
}

#[test]
fn a_call_that_returned_beyond_its_limit_has_failed() {
    let grows = "(drop (memory.grow (i32.const 0)))".repeat(100_000);
    let guest = component(&SchedulerWat { plan: &format!("{grows} (i32.const 512)"), ..SchedulerWat::default() });
    let limits = Limits { time: Duration::from_micros(100), ..Limits::default() };
    // A call is measured from the first tick within it. On a busy machine a call may end before a tick, or be stopped as it begins. A
    // stopped guest serves no more. If it was stopped before its first instruction, it looks like one that returned.
    let serves_on = || {
        let mut guest = guest.guest(Arc::new(ServiceLog::default()), limits).unwrap();
        let error = (0..10_000).find_map(|_| plan(&mut guest, 3).0.err()).unwrap();
        assert_eq!(error.fault, CallFault::Time);
        // The next call is measured from its own beginning.
        error.what == "time limit 100us in plan (3 candidates)" && guest.save() == Ok(Vec::new())
    };
    assert!((0..1000).any(|_| serves_on()));
}

/// As text in WebAssembly's text.
fn quoted(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("\\{byte:02x}")).collect()
}

/// Two thousand units, each of which refers to the whole of one table.
fn for_debuggers() -> String {
    let unit = [8, 0, 0, 0, 4, 0, 0, 0, 0, 0, 4, 1].repeat(2000);
    let mut table = Vec::new();
    for code in 1..20_000u32 {
        table.extend([(code & 0x7f) as u8 | 0x80, (code >> 7 & 0x7f) as u8 | 0x80, (code >> 14) as u8, 0x11, 0, 0, 0]);
    }
    table.push(0);
    format!("(@custom \".debug_info\" \"{}\") (@custom \".debug_abbrev\" \"{}\")", quoted(&unit), quoted(&table))
}

#[test]
fn debug_sections_do_not_slow_down_a_trap_report() {
    let bytes = SchedulerWat { extra: &for_debuggers(), plan: "(unreachable)", ..SchedulerWat::default() }.component();
    assert!(bytes.windows(13).any(|name| name == b".debug_abbrev"));
    let component = SchedulerComponent::new(&SERVING, "x.wasm", &bytes, Grants::default(), None).unwrap();
    let mut guest = component.guest(Arc::new(ServiceLog::default()), ROOMY).unwrap();
    let began = Instant::now();
    let error = plan(&mut guest, 3).0.unwrap_err();
    let took = began.elapsed();
    assert_eq!(error.what, "it gave up (unreachable) (in plan), in plan");
    // If the table were read for each unit, this would take minutes.
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[test]
fn a_too_long_plan_is_kept_only_up_to_its_fault() {
    let list = |at: u32, len: u32| {
        format!("(i32.store (i32.const {at}) (i32.const 4096)) (i32.store (i32.const {}) (i32.const {len}))", at + 4)
    };
    let answer = |fire, reject| {
        let plan = format!(
            "(i32.store8 (i32.const 1024) (i32.const 1)) {} {} (i32.const 1024)",
            list(1032, fire),
            list(1040, reject)
        );
        plan_of(&SchedulerWat { plan: &plan, ..SchedulerWat::default() })
    };
    let picks = answer(100_000, 20_000);
    assert_eq!((picks.fire.len(), picks.reject.len()), (4, 4));
    assert_eq!((picks.fire.capacity(), picks.reject.capacity()), (4, 4));
    assert_eq!(answer(3, 2).reject.len(), 2);
}

fn plan_of(guest: &SchedulerWat<'_>) -> Picks {
    let (message, picks) = plan(&mut patient(guest), 3);
    message.unwrap();
    picks
}

#[test]
fn a_long_refusal_of_a_guest_is_cut_like_a_log_line() {
    let refuses = "(i32.store8 (i32.const 1024) (i32.const 1)) (i32.store (i32.const 1028) (i32.const 16384))
        (i32.store (i32.const 1032) (i32.const 100000)) (i32.const 1024)";
    let mut guest = start(&SchedulerWat { configure: refuses, restore: refuses, ..SchedulerWat::default() });
    let facts = LoadFacts::default();
    assert_eq!(guest.configure("{}", &facts).unwrap().unwrap_err().len(), 4096);
    assert_eq!(guest.restore(b"saved").unwrap().unwrap_err().len(), 4096);
}
