//! One request per batch, in the order in which they became ready: the first of the two batching strategies that Triton provides as
//! examples.

use sequor_plugin::scheduler::*;

#[derive(Debug, Default)]
pub struct Single;

impl Scheduler for Single {
    fn plan(&mut self, _: &Round, ready: &Ready<'_>) -> Plan {
        Plan::fire(ready.indices().next())
    }
}

sequor_plugin::export!(Single);

#[test]
fn the_oldest_runs_alone() {
    use sequor_plugin::testing::{Bench, Candidate};
    assert_eq!(Bench::<Single>::new().plan(&[Candidate::new(), Candidate::new()]).fire, [0]);
}
