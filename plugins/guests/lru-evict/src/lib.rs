//! A new sequence that finds no free slot gets the slot of the sequence that has been idle longest. The server still decides which requests
//! run.

use sequor_plugin::scheduler::*;

#[derive(Debug, Default)]
pub struct LruEvict;

impl Scheduler for LruEvict {
    fn admit(&mut self, _: &Round, waiting: &Ready<'_>, room: &[u32], victims: &Ready<'_>) -> Vec<Admission> {
        let mut said = Admission::in_order(waiting.len(), room);
        let evicted = victims.sorted(|i| victims.ready_us(i)).take(waiting.len() - said.len());
        said.extend(evicted.map(Admission::Evict));
        said
    }
}

sequor_plugin::export!(LruEvict);

#[test]
fn free_slots_are_taken_before_the_longest_idle_sequences_are_evicted() {
    use sequor_plugin::testing::{Bench, Candidate};
    let idle_since = |at| Candidate::new().ready_us(at);
    let waiting = vec![Candidate::new(); 4];
    let said = Bench::<LruEvict>::new().admit(&waiting, &[0, 1], &[idle_since(9), idle_since(3)]);
    assert_eq!(said, [Admission::Take(1), Admission::Evict(1), Admission::Evict(0)]);
}
