//! The priority of a thread that runs guests. A long call keeps a core busy, and a thread that is woken there waits until the
//! slice ends. A thread that asks for longer slices keeps its share of the core. But it yields at once to threads with shorter slices,
//! which all others have. That needs no privilege, unlike a change of priority that is taken back later. Systems without it (Linux before
//! 6.12) ignore the request.

use std::cell::Cell;
use std::time::Duration;

/// Length of the slices. Measured on one core: a guest that computes for 1.6 ms at a time, and a thread that wakes every 1.7 ms. Without
/// this, 99 of 100 wake-ups came within 1.7 ms; with it, within 0.2 to 0.6 ms. With 3 ms, some were as late as without it. With 100 ms, a
/// thread that had used up its share waited up to 18 ms.
const SLICE: Duration = Duration::from_millis(20);
/// Number of consecutive short calls after which a thread is as urgent as the others again.
const SHORT: u32 = 64;

thread_local! {
    /// Short calls left until then. 0: the thread is as urgent as the others.
    static LEFT: Cell<u32> = const { Cell::new(0) };
}

/// Records that this thread's call takes long.
pub(crate) fn takes_long() {
    if LEFT.replace(SHORT) == 0 {
        ask_for(SLICE);
    }
}

/// Records that a call of this thread has ended.
pub(crate) fn call_over() {
    match LEFT.get() {
        0 => {}
        1 => as_any(),
        left => LEFT.set(left - 1),
    }
}

/// Makes this thread as urgent as the others, after a call off the request path, because none like it follows soon. Threads that it starts
/// would inherit its slices.
pub fn as_any() {
    if LEFT.replace(0) > 0 {
        // Zero asks for the system's default.
        ask_for(Duration::ZERO);
    }
}

/// Whether this thread has asked for long slices.
#[cfg(test)]
pub(crate) fn is_long() -> bool {
    LEFT.get() > 0
}

/// Asks for slices of this length for this thread. If the kernel refuses, nothing changes.
#[cfg(target_os = "linux")]
fn ask_for(slice: Duration) {
    let Some(mut attr) = attributes() else { return };
    // For other policies this field has another meaning.
    if ![libc::SCHED_OTHER, libc::SCHED_BATCH].contains(&(attr.sched_policy.cast_signed())) {
        return;
    }
    attr.sched_runtime = u64::try_from(slice.as_nanos()).unwrap_or(0);
    // SAFETY: the call only reads this thread's attributes, as the system returned them except for one number.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
}

#[cfg(not(target_os = "linux"))]
fn ask_for(_: Duration) {}

/// The kernel's priority attributes of this thread.
#[cfg(target_os = "linux")]
fn attributes() -> Option<libc::sched_attr> {
    let size = u32::try_from(size_of::<libc::sched_attr>()).ok()?;
    let mut attr = libc::sched_attr {
        size,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the call writes at most `size` bytes.
    let done = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) };
    (done == 0).then_some(attr)
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    fn slice() -> Duration {
        Duration::from_nanos(attributes().unwrap().sched_runtime)
    }

    /// Runs on its own thread, because the tested state belongs to the thread.
    #[test]
    fn time_slices_stay_long_after_a_long_call_until_enough_short_calls() {
        let test = || {
            let at_first = slice();
            ask_for(SLICE);
            // Zero if the system does not know the attribute.
            let known = slice() == SLICE;
            assert!(known || slice() == at_first, "{:?}", slice());
            ask_for(Duration::ZERO);
            let long = if known { SLICE } else { at_first };
            call_over();
            assert_eq!(slice(), at_first);
            takes_long();
            for _ in 1..SHORT {
                call_over();
                assert_eq!(slice(), long);
            }
            takes_long();
            (0..SHORT).for_each(|_| call_over());
            assert_eq!((slice(), LEFT.get()), (at_first, 0));
            takes_long();
            as_any();
            assert_eq!((slice(), LEFT.get()), (at_first, 0));
        };
        std::thread::spawn(test).join().unwrap();
    }
}
