//! Whose deadline is next goes first. Requests without one come last, in the order in which they became ready.

use sequor_plugin::scheduler::*;

#[derive(Default)]
struct Plugin {
    margin_us: u64,
}

impl Scheduler for Plugin {
    fn configure(&mut self, config: &Config, model: &Model) -> Result<(), String> {
        self.margin_us = config.get_or("margin_us", 0)?;
        host::info(&format!("deciding for {} {}", model.name, model.version));
        Ok(())
    }

    fn plan(&mut self, round: &Round, ready: &Ready<'_>) -> Plan {
        // Deadlines that cannot be kept any more count as none.
        let soonest = round.now_us + self.margin_us;
        let due = |i| Some(ready.deadline_us(i)).filter(|&due| due >= soonest).unwrap_or(u64::MAX);
        Plan::fire(ready.batch(ready.sorted(due), round))
    }
}

sequor_plugin::export!(Plugin);

#[cfg(test)]
mod tests {
    use sequor_plugin::testing::{Bench, Candidate};

    use super::*;

    #[test]
    fn the_next_deadline_goes_first() {
        let mut bench = Bench::<Plugin>::new().max_batch(2);
        let due = |at| Candidate::new().deadline_us(at);
        assert_eq!(bench.plan(&[due(900), Candidate::new(), due(500)]).fire, [2, 0]);
    }
}
