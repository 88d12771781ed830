//! One thread that wakes every model's core when something is due, and does the server's upkeep of memory once a second.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Debug;
use std::sync::{Arc, Weak};

use parking_lot::{Condvar, Mutex};
use sequor_core::Time;

use super::clock::Clock;
use super::upkeep::Upkeep;

/// Does the work that has come due.
pub(in crate::model) trait Tick: Debug + Send + Sync {
    #[cfg_attr(feature = "shuttle", allow(dead_code, reason = "ticks come from the test"))]
    fn tick(self: Arc<Self>);
}

/// Clones share the thread. It ends when the last of them is dropped.
#[derive(Debug, Clone)]
pub(in crate::model) struct Timer(Arc<TimerState>);

#[derive(Debug, Default)]
struct TimerState {
    queue: Mutex<TimerQueue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct TimerQueue {
    due: BinaryHeap<Reverse<(Time, u64)>>,
    models: std::collections::BTreeMap<u64, Weak<dyn Tick>>,
    serial: u64,
}

impl Timer {
    #[cfg(feature = "shuttle")]
    pub(in crate::model) fn start(_: Clock, _: Upkeep) -> std::io::Result<Timer> {
        // Ticks come from the test.
        Ok(Timer(Arc::default()))
    }

    #[cfg(not(feature = "shuttle"))]
    pub(in crate::model) fn start(clock: Clock, upkeep: Upkeep) -> std::io::Result<Timer> {
        let shared = Arc::new(TimerState::default());
        let weak = Arc::downgrade(&shared);
        std::thread::Builder::new().name("sequor-timer".to_owned()).spawn(move || run(&clock, &weak, upkeep))?;
        Ok(Timer(shared))
    }

    /// Ticks the model at this time.
    pub(in crate::model) fn arm(&self, at: Time, model: Weak<dyn Tick>) {
        let mut queue = self.0.queue.lock();
        queue.serial += 1;
        let serial = queue.serial;
        queue.models.insert(serial, model);
        queue.due.push(Reverse((at, serial)));
        drop(queue);
        self.0.changed.notify_one();
    }
}

impl Drop for TimerState {
    fn drop(&mut self) {
        self.changed.notify_all();
    }
}

#[cfg(not(feature = "shuttle"))]
/// Waits no longer than this without looking whether it is still wanted.
const LOOK: std::time::Duration = std::time::Duration::from_secs(1);

#[cfg(not(feature = "shuttle"))]
fn run(clock: &Clock, shared: &Weak<TimerState>, mut upkeep: Upkeep) {
    while let Some(shared) = shared.upgrade() {
        upkeep.run(clock.now());
        let mut queue = shared.queue.lock();
        let now = clock.now();
        let mut ticks = Vec::new();
        while let Some(Reverse((at, serial))) = queue.due.peek().copied() {
            if at > now {
                break;
            }
            queue.due.pop();
            ticks.extend(queue.models.remove(&serial).and_then(|m| m.upgrade()));
        }
        if ticks.is_empty() {
            let next = queue.due.peek().and_then(|Reverse((at, _))| clock.instant(*at));
            let latest = std::time::Instant::now() + LOOK;
            shared.changed.wait_until(&mut queue, next.map_or(latest, |next| next.min(latest)));
            continue;
        }
        drop(queue);
        for model in ticks {
            model.tick();
        }
    }
}
