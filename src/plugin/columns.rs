//! Columns of the core as columns of the contract: the same numbers, times in microseconds.

use sequor_core::Columns;

use super::contract::scheduler;
use super::lower::{self, Column};

/// Times of one table in microseconds, in memory that is used again.
#[derive(Debug, Default)]
pub(super) struct Micros {
    arrival: Vec<u64>,
    ready: Vec<u64>,
    deadline: Vec<u64>,
    /// As [`Column`] has it.
    pub(super) terse: bool,
}

impl Micros {
    pub(super) fn new(terse: bool) -> Micros {
        Micros { terse, ..Micros::default() }
    }

    /// The table as the guest gets it. Nothing is copied but times.
    pub(super) fn lend<'a>(&'a mut self, see: &'a Columns) -> lower::Columns<'a> {
        for (micros, nanos) in
            [(&mut self.arrival, &see.arrival), (&mut self.ready, &see.ready), (&mut self.deadline, &see.deadline)]
        {
            micros.clear();
            micros.extend(nanos.iter().map(|t| in_micros(*t)));
        }
        let terse = self.terse;
        lower::Columns {
            len: see.len,
            sequence: Column(&see.seq, terse),
            step: Column(&see.step, terse),
            slot: Column(&see.slot, terse),
            arrival_us: Column(&self.arrival, terse),
            ready_us: Column(&self.ready, terse),
            deadline_us: Column(&self.deadline, terse),
            priority: Column(&see.priority, terse),
            shape_key: Column(&see.shape, terse),
            start_end: Column(&see.flags, terse),
            rows: Column(&see.rows, terse),
            input_bytes: Column(&see.bytes, terse),
            state_bytes: Column(&see.state_bytes, terse),
            numbers: Column(&see.numbers, terse),
            keys: Column(&see.keys, terse),
        }
    }
}

pub(super) fn round(instance: u32, see: &Columns) -> scheduler::Round {
    scheduler::Round {
        now_us: in_micros(see.now),
        instance,
        max_batch: see.max_batch,
        free_instances: see.free_instances,
        live: see.live,
        backlog: see.backlog,
        not_shown: see.not_shown,
    }
}

/// "Never" stays never.
fn in_micros(nanos: u64) -> u64 {
    if nanos == u64::MAX { u64::MAX } else { nanos / 1000 }
}

pub(super) fn in_nanos(micros: u64) -> u64 {
    micros.saturating_mul(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_is_never_in_every_unit() {
        assert_eq!([in_micros(u64::MAX), in_micros(1_999), in_nanos(in_micros(u64::MAX))], [u64::MAX, 1, u64::MAX]);
        assert_eq!(in_nanos(7), 7_000);
    }

    #[test]
    fn times_are_converted_and_the_rest_is_lent() {
        let see = Columns {
            now: 5_000_000,
            len: 2,
            seq: vec![3, 4],
            arrival: vec![1_000, 2_500],
            deadline: vec![9_000, u64::MAX],
            ..Columns::default()
        };
        let mut micros = Micros::default();
        let lent = micros.lend(&see);
        assert_eq!(
            (lent.arrival_us.0, lent.deadline_us.0, lent.ready_us.0),
            (&[1, 2][..], &[9, u64::MAX][..], &[][..])
        );
        assert_eq!(lent.sequence.0.as_ptr(), see.seq.as_ptr());
        assert_eq!(round(1, &see).now_us, 5_000);
    }
}
