//! How urgent the kernel takes a thread that runs guests. A long call keeps a core busy, and a thread that is woken there waits until the slice is
//! over. A thread that asks for longer slices has no smaller share of the core, but gives it up at once for threads with shorter slices, as all others
//! have. That needs no privilege, unlike a change of priority that is to be taken back. Systems without it (Linux before 6.12) ignore the request.

use std::cell::Cell;
use std::time::Duration;

/// Measured on one core, a guest that thinks 1.6 ms at a time beside a thread that wakes every 1.7 ms: 99 of 100 wake-ups came within 1.7 ms, with
/// this within 0.2 to 0.6. With 3 ms now and then as without; with 100 ms a thread that had used up its share waited up to 18.
const SLICE: Duration = Duration::from_millis(20);
/// Calls that are all short until a thread is as urgent as the others again.
const SHORT: u32 = 64;

thread_local! {
    /// Short calls that are still to come until then; 0 is as urgent as any.
    static LEFT: Cell<u32> = const { Cell::new(0) };
}

/// The call that this thread is in takes long.
pub(crate) fn takes_long() {
    if LEFT.replace(SHORT) == 0 {
        ask_for(SLICE);
    }
}

/// A call of this thread is over.
pub(crate) fn call_over() {
    match LEFT.get() {
        0 => {}
        1 => as_any(),
        left => LEFT.set(left - 1),
    }
}

/// A call off the request path is over, and none like it comes soon. Threads that this one starts would inherit its slices.
pub fn as_any() {
    if LEFT.replace(0) > 0 {
        // The system's own.
        ask_for(Duration::ZERO);
    }
}

/// Whether this thread has asked for long slices.
#[cfg(test)]
pub(crate) fn is_long() -> bool {
    LEFT.get() > 0
}

/// Asks for such slices for this thread. If the kernel refuses, everything goes on.
#[cfg(target_os = "linux")]
fn ask_for(slice: Duration) {
    let Some(mut attr) = attributes() else { return };
    // Of other policies this would be something else.
    if ![libc::SCHED_OTHER, libc::SCHED_BATCH].contains(&(attr.sched_policy.cast_signed())) {
        return;
    }
    attr.sched_runtime = u64::try_from(slice.as_nanos()).unwrap_or(0);
    // SAFETY: this thread's attributes as the system gave them, but for one number; it reads them.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
}

#[cfg(not(target_os = "linux"))]
fn ask_for(_: Duration) {}

/// What the kernel knows of this thread.
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
    // SAFETY: it writes so many bytes at most.
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

    /// A thread of its own: what is tested stays with it.
    #[test]
    fn slices_are_long_after_a_long_call_until_enough_short_ones_came() {
        let test = || {
            let at_first = slice();
            ask_for(SLICE);
            // Zero where the system does not know of it.
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
