//! Plans how a batch reads and writes the states of its slots: in place, or gathered and scattered.
//!
//! [`choose`] is a pure function. It picks the plan that copies the fewest rows.

use super::chunk_plan::ChunkSizes;

/// The facts of a slot that a plan depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlotView {
    /// Whether the slot holds a sequence's state.
    pub live: bool,
    /// Whether its first state was not written yet. Then neither side holds it.
    pub fresh: bool,
    /// The side (0 or 1) that holds the state.
    pub side: u8,
}

/// The chosen plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BindPlan {
    /// The range of slots from `first` is the batch. States are read on `side`; those of `carry` are copied to it first.
    InPlace { first: u32, side: u8, carry: Vec<u32> },
    /// Rows are gathered before the run and scattered after it.
    Moved,
}

/// The facts that the choice depends on, besides the slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BindConstraints {
    /// With 2, a run writes to the other side than it reads, and a commit is a flip. With 1, results are scattered.
    pub sides: u8,
    /// Which slots are in one piece of memory.
    pub chunks: ChunkSizes,
    /// Whether the batch dimension comes first, so that rows of neighbouring slots form one tensor. A single row always does.
    pub leading: bool,
    /// Whether states are kept in the graph's own type.
    pub as_kept: bool,
}

/// Picks the plan that copies the fewest rows. `rows` are the batch's slots. `None` is padding, which uses a slot of the same range.
pub fn choose(rows: &[Option<u32>], slots: &[SlotView], constraints: BindConstraints) -> BindPlan {
    let Some(first) = run_of(rows, slots, constraints) else { return BindPlan::Moved };
    let real = rows.iter().flatten().count();
    let moved = rows.len() + real;
    let run = || (first..).zip(rows);
    // A row without a request is written too, so its state must be on the side that is read.
    let carry = |side: u8| -> Vec<u32> {
        let away = |slot: &u32| {
            let view = slots.get(*slot as usize).copied().unwrap_or_default();
            view.live && !view.fresh && view.side != side
        };
        run().map(|(slot, _)| slot).filter(away).collect()
    };
    if constraints.sides < 2 {
        return if real < moved { BindPlan::InPlace { first, side: 0, carry: Vec::new() } } else { BindPlan::Moved };
    }
    let (zero, one) = (carry(0), carry(1));
    let (side, carry) = if one.len() < zero.len() { (1, one) } else { (0, zero) };
    if carry.len() < moved { BindPlan::InPlace { first, side, carry } } else { BindPlan::Moved }
}

/// The first slot, if the rows are a range of slots within a chunk that can be bound as one tensor.
fn run_of(rows: &[Option<u32>], slots: &[SlotView], constraints: BindConstraints) -> Option<u32> {
    if !constraints.as_kept || (rows.len() > 1 && !constraints.leading) {
        return None;
    }
    let (at, slot) = rows.iter().enumerate().find_map(|(at, row)| row.map(|slot| (at, slot)))?;
    let first = slot.checked_sub(u32::try_from(at).ok()?)?;
    let fits = (first..).zip(rows).all(|(slot, row)| row.is_none_or(|real| real == slot));
    let last = first.checked_add(u32::try_from(rows.len()).ok()?)?.checked_sub(1)?;
    let within = (last as usize) < slots.len() && constraints.chunks.place(first).0 == constraints.chunks.place(last).0;
    // With one side, padding would overwrite another sequence's state.
    let padded = rows.iter().any(Option::is_none);
    (fits && within && !(padded && constraints.sides < 2)).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECT: BindConstraints =
        BindConstraints { sides: 2, chunks: ChunkSizes::even(8), leading: true, as_kept: true };

    fn live(sides: &[u8]) -> Vec<SlotView> {
        sides.iter().map(|side| SlotView { live: true, fresh: false, side: *side }).collect()
    }

    #[test]
    fn the_side_with_the_most_live_rows_is_read_and_the_few_others_are_carried() {
        let slots = live(&[1, 1, 0, 1]);
        let plan = choose(&[Some(0), None, Some(2), Some(3)], &slots, DIRECT);
        assert_eq!(plan, BindPlan::InPlace { first: 0, side: 1, carry: vec![2] });
    }

    #[test]
    fn fresh_and_dead_rows_are_not_carried() {
        let mut slots = live(&[0, 1, 1]);
        slots[1].fresh = true;
        slots[2].live = false;
        assert_eq!(
            choose(&[Some(0), Some(1), None], &slots, DIRECT),
            BindPlan::InPlace { first: 0, side: 0, carry: vec![] }
        );
    }

    #[test]
    fn a_single_row_is_bound_in_place_on_any_batch_axis() {
        let slots = live(&[0, 0, 1]);
        let constraints = BindConstraints { leading: false, ..DIRECT };
        assert_eq!(choose(&[Some(2)], &slots, constraints), BindPlan::InPlace { first: 2, side: 1, carry: vec![] });
        assert_eq!(choose(&[Some(1), Some(2)], &slots, constraints), BindPlan::Moved);
    }

    #[test]
    fn only_consecutive_slots_are_bound_in_place_with_a_single_side() {
        let slots = live(&[0; 8]);
        let constraints = BindConstraints { sides: 1, chunks: ChunkSizes::even(4), ..DIRECT };
        assert_eq!(
            choose(&[Some(1), Some(2)], &slots, constraints),
            BindPlan::InPlace { first: 1, side: 0, carry: vec![] }
        );
        assert_eq!(choose(&[Some(2), Some(1)], &slots, constraints), BindPlan::Moved);
        assert_eq!(choose(&[Some(3), Some(4)], &slots, constraints), BindPlan::Moved, "over the edge of a chunk");
        assert_eq!(choose(&[Some(1), None, Some(3)], &slots, constraints), BindPlan::Moved, "padding");
        assert_eq!(choose(&[Some(1)], &slots, BindConstraints { as_kept: false, ..constraints }), BindPlan::Moved);
    }
}
