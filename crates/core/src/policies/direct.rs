//! `direct`: every sequence owns a batch row. The rows that are ready when the instance is free run.

use std::time::Duration;

use crate::policy::{Columns, Decision, Hooks, Picks, Policy, PolicyFault, columns};
use crate::time::Time;

/// Runs all ready requests of one shape. It may wait until enough slots are ready or the oldest request has waited for `delay`.
#[derive(Debug, Clone)]
pub struct Direct {
    slots: u32,
    delay: Duration,
    /// The share of slots that must be ready for a run without delay.
    min_use: f32,
}

impl Direct {
    /// The delay has an effect only with a `min_use` above 0, and `min_use` only with a delay.
    pub fn new(slots: u32, delay: Duration, min_use: f32) -> Direct {
        Direct { slots: slots.max(1), delay, min_use }
    }
}

impl Policy for Direct {
    fn hooks(&self) -> Hooks {
        let columns = columns::SHAPE | columns::ARRIVAL;
        Hooks { plan: true, columns, window: self.slots, ..Hooks::default() }
    }

    fn plan(&mut self, see: &Columns, picks: &mut Picks) -> Result<Decision, PolicyFault> {
        // The shape of the longest ready request is chosen, so that no shape can starve another.
        let Some(template) = see.shape.first() else { return Ok(Decision::Default) };
        let alike = (0u32..).zip(&see.shape).filter(|(_, shape)| *shape == template).map(|(i, _)| i);
        let patient = !self.delay.is_zero() && self.min_use > 0.0;
        #[allow(clippy::cast_precision_loss, reason = "counts of slots, far below 2^23")]
        let used = see.len as f32 / self.slots as f32;
        if patient && used < self.min_use {
            let oldest = see.arrival.iter().copied().min().unwrap_or(see.now);
            let enough = Time(oldest) + self.delay;
            if see.now <= enough.0 {
                return Ok(Decision::Wait(Time(enough.0.saturating_add(1))));
            }
        }
        picks.fire.extend(alike);
        Ok(Decision::Fire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(policy: &mut Direct, now: u64, shapes: &[u64]) -> (Decision, Vec<u32>) {
        let len = shapes.len();
        let see = Columns { now, len: len as u32, shape: shapes.to_vec(), arrival: vec![0; len], ..Columns::default() };
        let mut picks = Picks::default();
        (policy.plan(&see, &mut picks).unwrap(), picks.fire)
    }

    #[test]
    fn all_that_are_alike_run_at_once() {
        assert_eq!(plan(&mut Direct::new(4, Duration::ZERO, 0.5), 0, &[3, 4, 3]), (Decision::Fire, vec![0, 2]));
    }

    #[test]
    fn delay_and_utilisation_hold_a_batch_back_only_together() {
        let delay = Duration::from_nanos(50);
        assert_eq!(plan(&mut Direct::new(4, delay, 0.0), 0, &[0]).0, Decision::Fire);
        let mut both = Direct::new(4, delay, 0.5);
        assert_eq!(plan(&mut both, 10, &[0]).0, Decision::Wait(Time(51)));
        assert_eq!(plan(&mut both, 10, &[0, 0]).0, Decision::Fire);
        assert_eq!(plan(&mut both, 51, &[0]).0, Decision::Fire);
    }
}
