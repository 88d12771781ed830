//! The slots of an instance: which hold a sequence's states, on which side, and which still contain an earlier sequence's data.

use std::ops::Range;

use super::bind_plan::SlotView;
use super::error::StateError;

/// The slots of one instance.
#[derive(Debug)]
pub(super) struct Slots {
    views: Vec<SlotView>,
    /// By slot, the sides that still contain an earlier sequence's data; bit 0 is side 0.
    stale: Vec<u8>,
    live: u32,
}

impl Slots {
    pub(super) fn new(count: u32) -> Slots {
        let count = count as usize;
        Slots { views: vec![SlotView::default(); count], stale: vec![0; count], live: 0 }
    }

    pub(super) fn views(&self) -> &[SlotView] {
        &self.views
    }

    /// The view of a slot. A slot that does not exist is empty.
    pub(super) fn view(&self, slot: u32) -> SlotView {
        self.views.get(slot as usize).copied().unwrap_or_default()
    }

    /// Refuses rows whose slot does not exist.
    pub(super) fn check(&self, rows: &[Option<u32>]) -> Result<(), StateError> {
        match rows.iter().flatten().find(|slot| **slot as usize >= self.views.len()) {
            Some(slot) => Err(StateError::NoSlot(*slot)),
            None => Ok(()),
        }
    }

    /// Whether no slot holds a sequence's state.
    pub(super) fn are_free(&self) -> bool {
        self.live == 0
    }

    /// Gives the slot to a sequence. Its first state is not written yet.
    pub(super) fn begin(&mut self, slot: u32) {
        let Some(view) = self.views.get_mut(slot as usize) else { return };
        self.live += u32::from(!view.live);
        *view = SlotView { live: true, fresh: true, side: view.side };
    }

    /// Takes the slot from its sequence.
    pub(super) fn end(&mut self, slot: u32) -> Result<(), StateError> {
        let view = self.views.get_mut(slot as usize).ok_or(StateError::NoSlot(slot))?;
        if !std::mem::take(view).live {
            return Err(StateError::NotHeld(slot));
        }
        self.live = self.live.saturating_sub(1);
        self.mark(slot..slot.saturating_add(1), true);
        Ok(())
    }

    /// Records for both sides of these slots whether they contain an earlier sequence's data.
    pub(super) fn mark(&mut self, slots: Range<u32>, is_stale: bool) {
        for slot in slots {
            if let Some(sides) = self.stale.get_mut(slot as usize) {
                *sides = if is_stale { u8::MAX } else { 0 };
            }
        }
    }

    /// The padding rows whose slot has no written state, but contains an earlier sequence's data on this side.
    pub(super) fn stale_padding(&self, rows: &[Option<u32>], first: u32, side: u8) -> Vec<u32> {
        let padding = (first..).zip(rows).filter(|(_, row)| row.is_none()).map(|(slot, _)| slot);
        let is_stale = |slot: &u32| {
            let view = self.view(*slot);
            let holds = self.stale.get(*slot as usize).is_some_and(|sides| sides & (1 << side) != 0);
            (!view.live || view.fresh) && holds
        };
        padding.filter(is_stale).collect()
    }

    /// Records that this side of the slot contains zeros.
    pub(super) fn clear(&mut self, slot: u32, side: u8) {
        if let Some(sides) = self.stale.get_mut(slot as usize) {
            *sides &= !(1 << side);
        }
    }

    /// Records that the slot's state is on this side.
    pub(super) fn set_side(&mut self, slot: u32, side: u8) {
        self.change(slot, |view| view.side = side);
    }

    pub(super) fn flip(&mut self, slot: u32) {
        self.change(slot, |view| view.side = 1 - view.side);
    }

    /// Records that the slot's first state was written, to this side.
    pub(super) fn write_first(&mut self, slot: u32, side: u8) {
        self.change(slot, |view| {
            if view.fresh {
                *view = SlotView { live: true, fresh: false, side };
            }
        });
    }

    /// Records that a run has written the slot's state.
    pub(super) fn set_written(&mut self, slot: u32) {
        self.change(slot, |view| view.fresh = false);
    }

    fn change(&mut self, slot: u32, change: impl FnOnce(&mut SlotView)) {
        if let Some(view) = self.views.get_mut(slot as usize) {
            change(view);
        }
    }
}
