//! The state store as an instance thread keeps it: one value a slot, changed only by slot operations and runs. The expected state of each
//! sequence is kept apart, by sequence, so that a mix-up of slots shows.

use std::collections::HashMap;

use sequor_core::*;

use super::{Checked, broken};
use crate::hold;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Value {
    pub owner: Seq,
    /// All committed steps since the START, in order, as one number.
    pub hash: u64,
    pub shape: u64,
}

#[derive(Debug, Default, Clone)]
struct Cell {
    value: Option<Value>,
    /// A snapshot of a value that was dropped; it is restored before it is needed.
    spilled: Option<[u64; 4]>,
    generation: u32,
    flies: bool,
}

#[derive(Debug, Default)]
pub struct Store {
    cells: HashMap<(Instance, u32), Cell>,
    /// The expected state of each sequence.
    truth: HashMap<Seq, Value>,
    /// States that outlived their sequences, by id.
    pub tier: HashMap<Id, u64>,
    /// States found in the tier for a request that is not taken yet.
    pub found: HashMap<Req, u64>,
    /// Shapes of first states that were made for a START.
    pub made: HashMap<Req, u64>,
}

pub fn mix(hash: u64, step: u64) -> u64 {
    (hash ^ step).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

impl Store {
    pub fn op(&mut self, who: Instance, op: SlotOp, seq_of: impl Fn(Slot) -> Option<Seq>, initial: u64) -> Checked {
        let initial = match op {
            SlotOp::Init(_, req) => self.made.remove(&req).unwrap_or(initial),
            _ => initial,
        };
        let (slot, first) = match op {
            SlotOp::Init(slot, req) => (slot, Some(mix(1, u64::from(req.ix) << 32 | u64::from(req.generation.get())))),
            SlotOp::Adopt(slot, req) => {
                let Some(hash) = self.found.remove(&req) else {
                    return broken("a slot's life", format!("{op:?}, but nothing was found for it"));
                };
                (slot, Some(hash))
            }
            SlotOp::Free(slot) => (slot, None),
        };
        let cell = self.cells.entry((who, slot.ix)).or_default();
        hold!(!cell.flies, "a slot's life", "{op:?} on {who:?} while a batch with it is in flight");
        cell.restore();
        let Some(hash) = first else {
            hold!(cell.value.is_some(), "a slot's life", "{op:?} on {who:?} frees a slot that was given no state");
            hold!(
                cell.generation == slot.generation.get(),
                "a slot's life",
                "{op:?} on {who:?} frees a slot that was given on already: {cell:?}"
            );
            cell.value = None;
            return Ok(());
        };
        let Some(owner) = seq_of(slot) else {
            return broken("a slot's life", format!("{op:?} for a row not in the batch"));
        };
        let fits = cell.value.is_none_or(|v| v.owner == owner && matches!(op, SlotOp::Init(..)));
        hold!(fits, "no state leaks between sequences", "{op:?} for {owner:?} on {who:?}, but the slot holds {cell:?}");
        let value = Value { owner, hash, shape: initial };
        (cell.value, cell.generation) = (Some(value), slot.generation.get());
        self.truth.insert(owner, value);
        Ok(())
    }

    /// A batch departs with this row: the state it sees must be that of the sequence's last committed step.
    pub fn fly(&mut self, who: Instance, seq: Seq, slot: Slot) -> Result<u64, super::Broken> {
        let truth = self.truth.get(&seq).copied();
        let cell = self.cells.entry((who, slot.ix)).or_default();
        hold!(!cell.flies, "one in flight a sequence", "{slot:?} of {who:?} is in two batches");
        cell.restore();
        let fresh = cell.generation == slot.generation.get();
        hold!(
            cell.value.is_some() && fresh,
            "a slot's life",
            "{seq:?} runs on {slot:?} of {who:?}, never initialised: {cell:?}"
        );
        hold!(
            cell.value == truth,
            "the state seen is that of the last committed step",
            "{seq:?} sees {:?}, should {truth:?}",
            cell.value
        );
        cell.flies = true;
        Ok(truth.map_or(0, |t| t.shape))
    }

    pub fn land(&mut self, who: Instance, seq: Seq, slot: Slot, done: Option<(Req, u64)>) {
        let Some(cell) = self.cells.get_mut(&(who, slot.ix)) else { return };
        cell.flies = false;
        let Some((req, shape)) = done else { return };
        let step = u64::from(req.ix) << 32 | u64::from(req.generation.get());
        for value in [cell.value.as_mut(), self.truth.get_mut(&seq)].into_iter().flatten() {
            (value.hash, value.shape) = (mix(value.hash, step), shape);
        }
    }

    /// All committed steps of a sequence.
    pub fn hash_of(&self, seq: Seq) -> Option<u64> {
        self.truth.get(&seq).map(|value| value.hash)
    }

    /// Takes the snapshot of some slot's state and drops the state.
    pub fn spill(&mut self, who: Instance, slot: u32) {
        let Some(cell) = self.cells.get_mut(&(who, slot)).filter(|c| !c.flies) else { return };
        if let Some(v) = cell.value.take() {
            cell.spilled = Some([u64::from(v.owner.ix), u64::from(v.owner.generation.get()), v.hash, v.shape]);
        }
    }

    pub fn ended(&mut self, seq: Seq, id: &Id, why: EndReason, initial: u64) {
        let Some(value) = self.truth.remove(&seq) else { return };
        // The core has no shapes of an adopted state, so only states with the shapes of a first one are resumed.
        if matches!(why, EndReason::Idle | EndReason::Evicted | EndReason::Drained | EndReason::Admin)
            && value.shape == initial
        {
            self.tier.insert(id.clone(), value.hash);
        } else {
            self.tier.remove(id);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.cells.values().all(|c| c.value.is_none() && c.spilled.is_none())
    }
}

impl Cell {
    fn restore(&mut self) {
        if let Some([ix, generation, hash, shape]) = self.spilled.take() {
            let generation = u32::try_from(generation).ok().and_then(std::num::NonZeroU32::new);
            let owner = Seq::new(ix as u32, generation.expect("a generation"));
            self.value = Some(Value { owner, hash, shape });
        }
    }
}
