//! A socket's thread does a short step itself: what came in on its connection in one go is in the queues, the instance that is to be woken
//! sleeps, and to wake its thread for a step of some microseconds, and to be woken by it, costs more than the step.
//!
//! Only for models whose steps are short; one step a turn; and never in place of an instance's thread that is at work. Whatever is not done
//! here is left to that thread.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sequor_core::Instance;

use super::driver::Model;
use super::instance;
use super::loaded::Loaded;
use super::sync;

/// Steps that a socket's thread may be held up for.
const SHORT: Duration = Duration::from_micros(100);

/// An instance that was to be woken.
#[derive(Debug)]
struct Errand {
    model: Arc<Model>,
    load: Arc<Loaded>,
    who: Instance,
}

/// What this thread was given to do.
#[derive(Debug, Default)]
enum Desk {
    #[default]
    Closed,
    Open,
    Taken(Errand),
}

sync::thread_local! {
    static DESK: RefCell<Desk> = RefCell::default();
}

/// As long as it lives, an instance that this thread is to wake may be left to [`Turn::run`].
#[derive(Debug)]
pub struct Turn(PhantomData<*const ()>);

impl Turn {
    pub fn begin() -> Turn {
        put(Desk::Open);
        Turn(PhantomData)
    }

    /// Does the step that was left to this thread. Whether one was.
    pub fn run(&mut self) -> bool {
        // What is to be woken by the step itself has its own thread for that.
        let left = put(Desk::Closed);
        if let Desk::Taken(Errand { model, load, who }) = &left {
            instance::visit(model, load, *who);
        }
        put(Desk::Open);
        matches!(left, Desk::Taken(_))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Desk::Taken(Errand { load, who, .. }) = put(Desk::Closed) {
            load.wake(who.n);
        }
    }
}

fn put(desk: Desk) -> Desk {
    DESK.with(|was| was.replace(desk))
}

/// Wakes an instance, or leaves it to the turn that this thread is in.
pub(super) fn wake(model: &Arc<Model>, load: &Arc<Loaded>, who: Instance) {
    let take = |desk: &RefCell<Desk>| {
        let mut desk = desk.borrow_mut();
        let open = matches!(*desk, Desk::Open);
        if open {
            *desk = Desk::Taken(Errand { model: Arc::clone(model), load: Arc::clone(load), who });
        }
        open
    };
    // No plug-in is asked on a socket's thread.
    let taken = load.pace.is_short() && load.attachment.load().is_none() && DESK.with(take);
    if !taken {
        load.wake(who.n);
    }
}

/// How long the steps of a load take, lately.
#[derive(Debug, Default)]
pub(super) struct Pace(AtomicU64);

impl Pace {
    /// Notes a step. One that was held up by something else does not outweigh many that were not.
    pub(super) fn note(&self, step: Duration) {
        let step = u64::try_from(step.min(4 * SHORT).as_nanos()).unwrap_or(u64::MAX);
        let was = self.0.load(Ordering::Relaxed);
        let is = if was == 0 { step } else { was - was / 8 + step / 8 };
        self.0.store(is.max(1), Ordering::Relaxed);
    }

    /// Whether steps are known to be short.
    fn is_short(&self) -> bool {
        let pace = self.0.load(Ordering::Relaxed);
        // Where every interleaving is tried, time is not asked.
        cfg!(feature = "shuttle") || (pace > 0 && u128::from(pace) <= SHORT.as_nanos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_short_once_they_were_and_one_long_one_is_forgiven() {
        let pace = Pace::default();
        assert!(!pace.is_short(), "nothing is known");
        (0..2).for_each(|_| pace.note(Duration::from_micros(20)));
        assert!(pace.is_short());
        pace.note(Duration::from_secs(1));
        assert!(pace.is_short());
        (0..3).for_each(|_| pace.note(Duration::from_secs(1)));
        assert!(!pace.is_short());
        (0..20).for_each(|_| pace.note(Duration::from_micros(20)));
        assert!(pace.is_short());
    }
}
