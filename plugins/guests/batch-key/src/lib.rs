//! Batches only requests with the same key: the key of the request that has been ready longest.

use sequor_plugin::scheduler::*;

#[derive(Debug, Default)]
pub struct BatchKey;

impl Scheduler for BatchKey {
    fn plan(&mut self, round: &Round, ready: &Ready<'_>) -> Plan {
        let first = ready.key("batch-key", 0);
        let alike = ready.indices().filter(|&i| ready.key("batch-key", i) == first);
        Plan::fire(ready.batch(alike, round))
    }
}

sequor_plugin::export!(BatchKey);

#[test]
fn a_batch_has_the_key_of_the_oldest_request() {
    use sequor_plugin::testing::{Bench, Candidate};
    let of = |key: &str| Candidate::new().key("batch-key", key);
    let mut bench = Bench::<BatchKey>::new().keys(&["batch-key"]).max_batch(2);
    assert_eq!(bench.plan(&[of("a"), of("b"), of("a"), of("a")]).fire, [0, 2]);
}
