//! Periodic maintenance on the timer's thread: once a second it releases memory that was kept long enough, and memory of free slots that other
//! sequences need, and shows the room for plug-ins. Once a minute it ends unused instances and removes metrics of things that are gone.

use std::fmt::Debug;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use sequor_core::Time;
use sequor_wasm::room::{GuestRoom, RefusedRoom, RoomUsage};

use crate::backend::Backend;
use crate::device::trim_heaps;
use crate::state::ChunkCache;
use crate::telemetry::{Metrics, RoomFigures};

const INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which unused instances and metrics are removed.
const UNUSED: Duration = Duration::from_secs(60);

/// An owner of something that is kept for later use.
pub(in crate::model) trait KeepsUnused: Debug + Send + Sync {
    /// Ends the instances that have not been used since the last call.
    fn release_unused(&self) {}

    /// Ends all instances that are not in use, except one.
    fn release_free(&self) {}

    /// Gives back memory of free slots, because states exceed their limit with it.
    fn release_idle_slots(&self) {}
}

/// The owners that still exist. Clones share the list.
#[derive(Debug, Clone, Default)]
pub(in crate::model) struct UnusedOwners(Arc<Mutex<Vec<Weak<dyn KeepsUnused>>>>);

impl UnusedOwners {
    pub(in crate::model) fn add(&self, owner: Weak<dyn KeepsUnused>) {
        let mut owners = self.0.lock();
        owners.retain(|owner| owner.strong_count() > 0);
        owners.push(owner);
    }

    /// Makes room for other instances.
    pub(in crate::model) fn release_free(&self) {
        self.all().iter().for_each(|owner| owner.release_free());
    }

    fn all(&self) -> Vec<Arc<dyn KeepsUnused>> {
        self.0.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

#[derive(Debug)]
pub(in crate::model) struct Upkeep {
    chunk_cache: ChunkCache,
    backend: Arc<dyn Backend>,
    owners: UnusedOwners,
    plugin_room: GuestRoom,
    metrics: Metrics,
    next: Time,
    next_unused: Time,
    /// The bytes of free slots at the last call, if they exceeded the limit. Slots smaller than a page keep their memory, so no instance is
    /// woken again for these.
    idle: u64,
}

impl Upkeep {
    pub(in crate::model) fn new(
        chunk_cache: ChunkCache,
        backend: Arc<dyn Backend>,
        (owners, plugin_room): (UnusedOwners, GuestRoom),
        metrics: Metrics,
    ) -> Upkeep {
        Upkeep { chunk_cache, backend, owners, plugin_room, metrics, next: Time(0), next_unused: Time(0), idle: 0 }
    }

    /// Does the due maintenance, if a second has passed since the last call.
    pub(in crate::model) fn run(&mut self, now: Time) {
        if now < self.next {
            return;
        }
        self.next = now + INTERVAL;
        if now >= self.next_unused {
            self.next_unused = now + UNUSED;
            self.owners.all().iter().for_each(|owner| owner.release_unused());
            self.metrics.forget_unused(now);
        }
        let idle = self.chunk_cache.unwanted_idle();
        if idle > std::mem::replace(&mut self.idle, idle) {
            self.owners.all().iter().for_each(|owner| owner.release_idle_slots());
        }
        self.metrics.set_plugin_room(figures(self.plugin_room.usage()));
        let states = self.chunk_cache.release_due(now);
        let tensors = self.backend.release_memory(now);
        if states || tensors {
            trim_heaps();
        }
    }
}

fn figures(RoomUsage { own, further, free, refused }: RoomUsage) -> RoomFigures {
    let RefusedRoom { new, replacement, further: not_started } = refused;
    RoomFigures { own, further, free, refused: [new, replacement, not_started] }
}
