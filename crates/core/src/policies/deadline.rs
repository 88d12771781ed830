//! Earliest deadline first. Requests without a deadline come last, in the order in which they became ready.

use crate::policy::{Columns, Decision, Hooks, Picks, Policy, PolicyFault, columns};

/// Runs the most urgent request together with those of the same shape, by urgency.
#[derive(Debug, Clone, Copy)]
pub struct EarliestDeadline;

impl Policy for EarliestDeadline {
    fn hooks(&self) -> Hooks {
        let columns = columns::SHAPE | columns::ROWS | columns::DEADLINE;
        Hooks { plan: true, columns, ..Hooks::default() }
    }

    fn plan(&mut self, see: &Columns, picks: &mut Picks) -> Result<Decision, PolicyFault> {
        let mut order: Vec<(u64, u32)> = see.deadline.iter().copied().zip(0u32..).collect();
        order.sort_unstable();
        let of = |i: u32| see.shape.get(i as usize).zip(see.rows.get(i as usize));
        let Some((shape, _)) = order.first().and_then(|(_, i)| of(*i)) else { return Ok(Decision::Default) };
        let mut rows = 0u32;
        for (_, i) in order {
            let Some((candidate, size)) = of(i) else { continue };
            if candidate == shape && (rows == 0 || rows.saturating_add(*size) <= see.max_batch) {
                rows = rows.saturating_add(*size);
                picks.fire.push(i);
            }
        }
        Ok(Decision::Fire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_urgent_lead_and_others_of_their_shape_follow() {
        let see = Columns {
            max_batch: 2,
            len: 4,
            shape: vec![1, 2, 1, 1],
            rows: vec![1; 4],
            deadline: vec![u64::MAX, 5, 9, 3],
            ..Columns::default()
        };
        let mut picks = Picks::default();
        assert_eq!(EarliestDeadline.plan(&see, &mut picks), Ok(Decision::Fire));
        assert_eq!(picks.fire, [3, 2]);
    }
}
