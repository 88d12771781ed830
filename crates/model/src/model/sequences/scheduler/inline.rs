//! Runs one short model step on a connection's thread instead of waking the instance's thread.
//!
//! Waking a thread and being woken by it takes longer than a short step. A step runs inline only if all of this holds:
//! - the instance is idle and its lock is free;
//! - its recent steps took less than 100 µs, and none took more than 1 ms lately ([`crate::executor::InlineGate`]);
//! - a scheduler plug-in, if there is one, has answered as quickly and is not busy.
//!
//! Every other step is left to the instance's thread. A plug-in thread first collects steps, so that the calls of many guests are batched.
//! Once it has no more tasks, it runs each step by the same rules, or wakes the instance.

use std::sync::Arc;

use sequor_core::Time;

use crate::executor::{ExecutorHandle, ModelStep};
use crate::model::load::LoadedModel;
use crate::scheduling::Decider;

/// Wakes an instance, or leaves its step to the connection whose request is being submitted. `decider` is the load's plug-in.
pub(in crate::model::sequences) fn wake(
    load: &Arc<LoadedModel>,
    instance: u16,
    connection: Option<&ExecutorHandle>,
    decider: Option<&Decider>,
    now: Time,
) {
    let is_short = || load.inline_gate.is_open(now) && decider.is_none_or(Decider::is_quick);
    let is_left = |to: &ExecutorHandle| (to.gathers() || is_short()) && to.defer(load, instance);
    if !connection.is_some_and(is_left) {
        load.wake(instance);
    }
}
