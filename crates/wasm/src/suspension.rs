//! Calls that may wait for a host function. The guest runs on its own stack, so a waiting call holds no thread and may resume on another
//! one.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use wasmtime::Store;

use super::call_clock::CallClock;
use super::engine::Engine;
use super::host::HostState;
use super::urgency;

/// A call that has begun, with the parts of its guest that it needs. [`super::guest::WasmGuest::end`] ends it.
pub struct BegunCall<'a, B> {
    pub bindings: &'a B,
    pub store: &'a mut Store<HostState>,
    pub meter: CallMeter,
}

impl<B> std::fmt::Debug for BegunCall<'_, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BegunCall").finish_non_exhaustive()
    }
}

/// Counts the CPU time of a call while it runs, and nothing while it is suspended.
#[derive(Debug)]
pub struct CallMeter {
    pub(crate) engine: Arc<Engine>,
    pub(crate) clock: CallClock,
}

impl CallMeter {
    /// Runs a call of this meter's guest.
    pub async fn run<T>(self, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        poll_fn(|cx| {
            let _running = self.engine.enter();
            self.clock.resume();
            let polled = call.as_mut().poll(cx);
            if polled.is_pending() {
                self.clock.suspend();
                urgency::call_over();
            }
            polled
        })
        .await
    }
}

/// The outcome of a future that need not wait. `None`: it waits.
pub fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}
