//! Earliest deadline first, with shedding. A request that can no longer be answered in time is refused at once, so that it takes no place
//! in a batch from others. Requests without a deadline come last, in the order in which they became ready.

use sequor_plugin::scheduler::*;

/// The code of refused requests: too late.
pub const TOO_LATE: u32 = 1;

#[derive(Debug, Default)]
pub struct EarliestDeadline {
    margin_us: u64,
}

impl Scheduler for EarliestDeadline {
    fn configure(&mut self, config: &Config, _: &Model) -> Result<(), String> {
        self.margin_us = config.get_or("margin_us", 0)?;
        Ok(())
    }

    fn plan(&mut self, round: &Round, ready: &Ready<'_>) -> Plan {
        let needed = round.now_us.saturating_add(self.margin_us);
        let mut order = ready.sorted(|i| ready.deadline_us(i)).peekable();
        let mut late = Vec::new();
        while let Some(i) = order.next_if(|&i| ready.deadline_us(i) < needed) {
            late.push(i);
        }
        if !late.is_empty() {
            host::metric_add("shed", late.len() as f64);
        }
        Plan::fire(ready.batch(order, round)).reject_all(late, TOO_LATE)
    }
}

sequor_plugin::export!(EarliestDeadline);

#[cfg(test)]
mod tests {
    use sequor_plugin::testing::{Bench, Candidate};

    use super::*;

    fn due(at: u64) -> Candidate {
        Candidate::new().deadline_us(at)
    }

    #[test]
    fn the_earliest_deadlines_run_first_and_late_requests_are_rejected() {
        let mut bench = Bench::<EarliestDeadline>::new().config(r#"{"margin_us": 10}"#).max_batch(2);
        bench.round.now_us = 100;
        let said = bench.plan(&[Candidate::new(), due(500), due(109), due(110)]);
        assert_eq!(
            (said.fire, said.reject),
            (vec![3, 1], vec![Rejection { candidate: 2, code: TOO_LATE, ends: true }])
        );
    }

    #[test]
    fn a_batch_has_the_shape_of_the_most_urgent_request() {
        let mut bench = Bench::<EarliestDeadline>::new();
        assert_eq!(bench.plan(&[due(9).shape(1), due(5).shape(2), due(7).shape(2)]).fire, [1, 2]);
    }
}
