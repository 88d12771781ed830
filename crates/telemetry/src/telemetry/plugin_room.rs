//! The metrics of the room for plug-in instances. `names` names them.

use super::kinds::{Counter, Gauge};

/// How much of the room is used, in instances.
#[derive(Debug, Clone, Copy, Default)]
pub struct RoomFigures {
    /// Promised to places, used or not.
    pub own: u32,
    /// Used beyond that.
    pub further: u32,
    pub free: u32,
    /// How often there was none: for a plug-in at a place that had none, for a replacement, for a further instance.
    pub refused: [u64; 3],
}

#[derive(Debug)]
pub(super) struct PluginRoomMetrics {
    pub(super) own: Gauge,
    pub(super) further: Gauge,
    pub(super) free: Gauge,
    /// In the order of [`RoomFigures::refused`].
    pub(super) refused: [Counter; 3],
}

impl PluginRoomMetrics {
    pub(super) fn set(&self, figures: RoomFigures) {
        let RoomFigures { own, further, free, refused } = figures;
        for (gauge, value) in [(&self.own, own), (&self.further, further), (&self.free, free)] {
            gauge.set(i64::from(value));
        }
        for (counter, value) in self.refused.iter().zip(refused) {
            counter.raise_to(value);
        }
    }
}
