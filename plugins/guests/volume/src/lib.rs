//! Batches with a maximum of input bytes: the second of the two batching strategies that Triton provides as examples. Requests join in the
//! order in which they became ready, until one would make the batch too large. A request that is too large by itself runs alone.

use sequor_plugin::scheduler::*;

#[derive(Debug, Default)]
pub struct Volume {
    limit: u64,
}

impl Scheduler for Volume {
    fn configure(&mut self, config: &Config, _: &Model) -> Result<(), String> {
        self.limit = config.get("MAX_BATCH_VOLUME_BYTES")?;
        Ok(())
    }

    fn plan(&mut self, round: &Round, ready: &Ready<'_>) -> Plan {
        let mut volume = 0u64;
        let fits = ready.indices().take_while(|&i| {
            volume = volume.saturating_add(ready.input_bytes(i));
            i == 0 || volume <= self.limit
        });
        Plan::fire(ready.batch(fits, round))
    }
}

sequor_plugin::export!(Volume);

#[test]
fn requests_join_until_one_would_make_the_batch_too_large() {
    use sequor_plugin::testing::{Bench, Candidate};
    let of = |bytes| Candidate::new().input_bytes(bytes);
    let mut bench = Bench::<Volume>::new().config(r#"{"MAX_BATCH_VOLUME_BYTES": 10}"#);
    assert_eq!(bench.plan(&[of(4), of(6), of(1)]).fire, [0, 1]);
    assert_eq!(bench.plan(&[of(11), of(1)]).fire, [0], "too large by itself");
}
