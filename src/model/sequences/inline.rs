//! Runs one short model step on a connection's thread instead of waking the instance's thread.
//!
//! Waking a thread and being woken by it takes longer than a short step. A step runs inline only if all of this holds:
//! - the instance is idle and its lock is free;
//! - its recent steps took less than 100 µs, and none took more than 1 ms lately ([`crate::telemetry::InlineGate`]);
//! - a scheduler plug-in, if there is one, has answered as quickly and is not busy.
//!
//! Every other step is left to the instance's thread.

use std::sync::Arc;

use sequor_core::Time;

use crate::executor::{ExecutorHandle, ModelStep};
use crate::model::load::LoadedModel;
use crate::scheduling::Decider;

/// Wakes an instance, or leaves its step to the connection whose request is being submitted. `decider` is the plug-in that decides for the
/// load.
pub(super) fn wake(
    load: &Arc<LoadedModel>,
    instance: u16,
    connection: Option<&ExecutorHandle>,
    decider: Option<&Decider>,
    now: Time,
) {
    let is_short = || load.inline_gate.is_open(now) && decider.is_none_or(Decider::is_quick);
    if !connection.is_some_and(|connection| is_short() && connection.defer(load, instance)) {
        load.wake(instance);
    }
}
