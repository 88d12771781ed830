//! Columns of the core as columns of the contract: the same numbers, times in microseconds.

use sequor_core::Columns;

use super::contract::scheduler;

/// Times of one table in microseconds, in memory that is used again.
#[derive(Debug, Default)]
pub(super) struct Micros {
    arrival: Vec<u64>,
    ready: Vec<u64>,
    deadline: Vec<u64>,
}

impl Micros {
    /// The table as the guest gets it. Nothing is copied but times.
    pub(super) fn lend<'a>(&'a mut self, see: &'a Columns) -> scheduler::Columns<'a> {
        for (micros, nanos) in
            [(&mut self.arrival, &see.arrival), (&mut self.ready, &see.ready), (&mut self.deadline, &see.deadline)]
        {
            micros.clear();
            micros.extend(nanos.iter().map(|t| in_micros(*t)));
        }
        scheduler::Columns {
            len: see.len,
            sequence: some(&see.seq),
            step: some(&see.step),
            slot: some(&see.slot),
            arrival_us: some(&self.arrival),
            ready_us: some(&self.ready),
            deadline_us: some(&self.deadline),
            priority: some(&see.priority),
            shape_key: some(&see.shape),
            start_end: some(&see.flags),
            rows: some(&see.rows),
            input_bytes: some(&see.bytes),
            state_bytes: some(&see.state_bytes),
            numbers: some(&see.numbers),
            keys: some(&see.keys),
        }
    }
}

/// A column that holds nothing is none: to hand that over costs nothing.
fn some<T>(column: &[T]) -> Option<&[T]> {
    (!column.is_empty()).then_some(column)
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
            (lent.arrival_us, lent.deadline_us, lent.ready_us),
            (Some(&[1, 2][..]), Some(&[9, u64::MAX][..]), None)
        );
        assert_eq!(lent.sequence.map(<[u64]>::as_ptr), Some(see.seq.as_ptr()));
        assert_eq!(round(1, &see).now_us, 5_000);
    }
}
