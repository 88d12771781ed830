//! Guests that have the host do what takes long or much room: what one may cost does not depend on who does the work.

use std::sync::Arc;
use std::time::Duration;

use sequor_core::Fault;

use super::wasm::{component, plan, start, struck};
use crate::plugin::guest::{Guest as _, Limits};
use crate::plugin::in_text::{Guest, Heard, LOG};

/// A memory with room for what is handed over: 4 MiB beyond the 8 pages that the guest starts with.
const ROOM: &str = "(drop (memory.grow (i32.const 64)))";

/// Logs so many zeros, from where its memory ended before it grew.
fn log(bytes: u32) -> String {
    format!("(call $log (i32.const 2) (i32.const 524288) (i32.const {bytes}))")
}

#[test]
fn a_guest_hands_over_so_much_at_once_and_no_more() {
    let told = |bytes| {
        plan(
            &mut start(&Guest {
                extra: LOG,
                plan: &format!("{ROOM} {} (i32.const 512)", log(bytes)),
                ..Guest::default()
            }),
            3,
        )
        .0
    };
    assert!(told(2 << 20).is_ok());
    let much = told((2 << 20) + 1).unwrap_err();
    assert_eq!((much.fault, much.what.as_str()), (Fault::Trap, "it handed over too much at once (in plan), in plan"));
    // So is an answer that says more than anybody was asked for.
    let long = "(i32.store8 (i32.const 1024) (i32.const 1)) (i32.store (i32.const 1032) (i32.const 2048))
        (i32.store (i32.const 1036) (i32.const 600000)) (i32.const 1024)";
    let much = struck(&Guest { plan: &format!("{ROOM} {long}"), ..Guest::default() });
    assert_eq!((much.fault, much.what.as_str()), (Fault::Trap, "it handed over too much at once, in plan"));
}

/// Nowhere does it look at the epoch: there is no loop in it, and no function is called but the host's.
#[test]
fn a_guest_that_has_the_host_work_is_out_of_time() {
    let logs = log(2 << 20).repeat(400);
    let told = struck(&Guest { extra: LOG, plan: &format!("{ROOM} {logs} (i32.const 512)"), ..Guest::default() });
    assert_eq!((told.fault, told.what.as_str()), (Fault::Time, "time limit 2ms in plan (3 candidates) (in plan)"));
}

#[test]
fn a_call_that_returned_beyond_its_limit_has_failed() {
    let grows = "(drop (memory.grow (i32.const 0)))".repeat(100_000);
    let guest = component(&Guest { plan: &format!("{grows} (i32.const 512)"), ..Guest::default() });
    let limits = Limits { time: Duration::from_micros(100), ..Limits::default() };
    let mut guest = guest.instance(Arc::new(Heard::default()), limits).unwrap();
    let told = plan(&mut guest, 3).0.unwrap_err();
    assert_eq!((told.fault, told.what.as_str()), (Fault::Time, "time limit 100us in plan (3 candidates)"));
    // The next is measured from its own beginning.
    assert_eq!(guest.save(), Ok(Vec::new()));
}
