//! `oldest`: the requests that have been ready longest run together. Stateless requests use the same order.

use std::time::Duration;

use crate::faults::{Planted, fault};
use crate::policy::{Columns, Decision, Hooks, Picks, Policy, PolicyFault, columns};
use crate::time::Time;

/// First ready, first run. It waits for at most `delay` for a batch of a preferred size.
#[derive(Debug, Clone)]
pub struct Oldest {
    /// Sizes to prefer, largest first.
    preferred: Vec<u32>,
    delay: Duration,
    /// Maximum number of candidates: twice a batch, so that other shapes in between do not leave the batch half empty.
    window: u32,
}

impl Oldest {
    /// Without preferred sizes, the maximum batch size is preferred.
    pub fn new(max_batch: u32, preferred: &[u32], delay: Duration) -> Oldest {
        let mut preferred = if preferred.is_empty() { vec![max_batch.max(1)] } else { preferred.to_vec() };
        preferred.sort_unstable_by(|a, b| b.cmp(a));
        Oldest { preferred, delay, window: max_batch.max(1).saturating_mul(2) }
    }

    /// Runs one request at a time.
    pub fn one_by_one() -> Oldest {
        Oldest { preferred: vec![1], delay: Duration::ZERO, window: 1 }
    }
}

impl Policy for Oldest {
    fn hooks(&self) -> Hooks {
        let columns = columns::SHAPE | columns::ROWS | columns::READY;
        Hooks { plan: true, columns, window: self.window, ..Hooks::default() }
    }

    fn plan(&mut self, see: &Columns, picks: &mut Picks) -> Result<Decision, PolicyFault> {
        let Some(shape) = see.shape.first() else { return Ok(Decision::Default) };
        let mut rows = 0u32;
        // The number of picks in the largest prefix whose rows are a preferred size.
        let mut best = 0usize;
        let mut odd = false;
        for (i, (candidate, size)) in (0u32..).zip(see.shape.iter().zip(&see.rows)) {
            let size = (*size).max(1);
            let most = see.max_batch + u32::from(fault(Planted::BatchOneTooLarge));
            if candidate != shape || (rows > 0 && rows.saturating_add(size) > most) {
                odd = true;
                continue;
            }
            rows = rows.saturating_add(size);
            picks.fire.push(i);
            if self.preferred.contains(&rows) {
                best = picks.fire.len();
            }
            if rows >= most {
                break;
            }
        }
        // With levels, the first candidate need not be the one that has waited longest.
        let ready = picks.fire.iter().filter_map(|i| see.ready.get(*i as usize));
        let Some(oldest) = ready.min().copied() else { return Ok(Decision::Default) };
        let waited_enough = Time(oldest) + self.delay;
        let expired = !self.delay.is_zero() && see.now >= waited_enough.0;
        if best > 0 && !expired {
            picks.fire.truncate(best);
            return Ok(Decision::Fire);
        }
        let full =
            rows >= self.preferred.first().copied().unwrap_or(1) || rows >= see.max_batch || odd || see.not_shown > 0;
        if self.delay.is_zero() || expired || full {
            return Ok(Decision::Fire);
        }
        picks.clear();
        Ok(Decision::Wait(waited_enough))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(policy: &mut Oldest, now: u64, max_batch: u32, rows: &[u32], shapes: &[u64]) -> (Decision, Vec<u32>) {
        let see = Columns {
            now,
            max_batch,
            len: rows.len() as u32,
            rows: rows.to_vec(),
            shape: shapes.to_vec(),
            ready: vec![0; rows.len()],
            ..Columns::default()
        };
        let mut picks = Picks::default();
        (policy.plan(&see, &mut picks).unwrap(), picks.fire)
    }

    #[test]
    fn a_preferred_prefix_runs_first_and_the_rest_after_it_without_a_delay() {
        let mut policy = Oldest::new(8, &[4, 2], Duration::ZERO);
        assert_eq!(plan(&mut policy, 0, 8, &[1; 7], &[0; 7]), (Decision::Fire, vec![0, 1, 2, 3]));
        assert_eq!(plan(&mut policy, 0, 8, &[1], &[0]), (Decision::Fire, vec![0]));
    }

    #[test]
    fn oldest_waits_for_a_preferred_size_until_its_delay_ends() {
        let mut policy = Oldest::new(8, &[4], Duration::from_nanos(100));
        assert_eq!(plan(&mut policy, 10, 8, &[1; 3], &[0; 3]), (Decision::Wait(Time(100)), vec![]));
        assert_eq!(plan(&mut policy, 10, 8, &[1; 4], &[0; 4]).1.len(), 4);
        assert_eq!(plan(&mut policy, 100, 8, &[1; 3], &[0; 3]), (Decision::Fire, vec![0, 1, 2]));
        assert_eq!(plan(&mut policy, 100, 8, &[1; 5], &[0; 5]).1.len(), 5);
    }

    #[test]
    fn other_shapes_are_passed_over_and_end_the_wait() {
        let mut policy = Oldest::new(4, &[], Duration::from_nanos(100));
        assert_eq!(plan(&mut policy, 0, 4, &[1; 4], &[7, 8, 7, 8]), (Decision::Fire, vec![0, 2]));
    }

    #[test]
    fn rows_of_client_batches_count_and_a_request_is_never_split() {
        let mut policy = Oldest::new(8, &[], Duration::ZERO);
        assert_eq!(plan(&mut policy, 0, 8, &[5, 4, 3], &[0; 3]), (Decision::Fire, vec![0, 2]));
    }
}
