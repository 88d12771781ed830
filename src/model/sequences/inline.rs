//! Runs one short model step on a connection's thread instead of waking the instance's thread.
//!
//! Waking a thread and being woken by it takes longer than a short step. A step runs inline only if all of this holds:
//! - the instance is idle and its lock is free;
//! - its recent steps took less than 100 µs, and none took more than 1 ms lately ([`crate::telemetry::InlineGate`]);
//! - a scheduler plug-in, if there is one, has answered as quickly and is not busy.
//!
//! Every other step is left to the instance's thread.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

use sequor_core::Time;

use crate::model::load::Loaded;
use crate::model::runtime::sync;
use crate::scheduling::Decider;

/// What became of a wake-up that this thread was to give.
#[derive(Debug, Default)]
enum Deferred {
    /// It is given at once.
    #[default]
    Never,
    /// The next one is kept back.
    Next,
    /// It was kept back, for this instance of the load.
    WakeUp(Arc<Loaded>, u16),
}

sync::thread_local! {
    static DEFERRED: RefCell<Deferred> = RefCell::default();
}

/// As long as it lives, an instance that this thread is to wake may be left to [`InlineScope::run`].
#[derive(Debug)]
pub struct InlineScope(PhantomData<*const ()>);

impl InlineScope {
    pub fn begin() -> InlineScope {
        put(Deferred::Next);
        InlineScope(PhantomData)
    }

    /// Does the step that was left to this thread. Whether one was.
    pub fn run(&mut self) -> bool {
        // The step itself wakes instances at once.
        let left = put(Deferred::Never);
        if let Deferred::WakeUp(load, instance) = &left
            && !load.try_step(*instance)
        {
            load.wake(*instance);
        }
        put(Deferred::Next);
        matches!(left, Deferred::WakeUp(..))
    }
}

impl Drop for InlineScope {
    fn drop(&mut self) {
        if let Deferred::WakeUp(load, instance) = put(Deferred::Never) {
            load.wake(instance);
        }
    }
}

fn put(deferred: Deferred) -> Deferred {
    DEFERRED.with(|was| was.replace(deferred))
}

/// Wakes an instance, or leaves it to the scope that this thread is in. `decider` is the plug-in that decides for the load.
pub(in crate::model) fn wake(load: &Arc<Loaded>, instance: u16, decider: Option<&Decider>, now: Time) {
    let keep_back = |deferred: &RefCell<Deferred>| {
        let mut deferred = deferred.borrow_mut();
        let next = matches!(*deferred, Deferred::Next);
        if next {
            *deferred = Deferred::WakeUp(Arc::clone(load), instance);
        }
        next
    };
    let kept_back = load.inline_gate.is_open(now) && decider.is_none_or(Decider::is_quick) && DEFERRED.with(keep_back);
    if !kept_back {
        load.wake(instance);
    }
}
