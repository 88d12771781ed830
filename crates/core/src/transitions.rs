//! Counts of the transitions between stages: evidence that a test or a workload took each of them.

use crate::sequence::Stage;

const STAGES: usize = Stage::ALL.len();

/// Counts of transitions between stages. `None` stands for before the START and after the end.
#[derive(Debug, Clone, Default)]
pub struct Transitions([[u64; STAGES + 1]; STAGES + 1]);

impl Transitions {
    pub(crate) fn count(&mut self, from: Option<Stage>, to: Option<Stage>) {
        if let Some(n) = self.0.get_mut(index(from)).and_then(|row| row.get_mut(index(to))) {
            *n += 1;
        }
    }

    pub fn get(&self, from: Option<Stage>, to: Option<Stage>) -> u64 {
        self.0.get(index(from)).and_then(|row| row.get(index(to))).copied().unwrap_or(0)
    }

    pub fn add(&mut self, other: &Transitions) {
        for (row, more) in self.0.iter_mut().zip(&other.0) {
            for (n, m) in row.iter_mut().zip(more) {
                *n += m;
            }
        }
    }

    /// The transitions that exist, as listed in `sequence.rs`.
    pub fn arrows() -> Vec<(Option<Stage>, Option<Stage>)> {
        use Stage::{Backlogged, Idle, Posting, Preparing, Ready, Running, Sealing};
        let table: [(Option<Stage>, &[Option<Stage>]); 8] = [
            (None, &[Some(Preparing), Some(Backlogged), Some(Ready)]),
            (Some(Preparing), &[Some(Preparing), Some(Backlogged), Some(Ready), Some(Idle), None]),
            (Some(Backlogged), &[Some(Preparing), Some(Ready), Some(Idle), None]),
            (Some(Idle), &[Some(Preparing), Some(Ready), None]),
            (Some(Ready), &[Some(Running), Some(Preparing), Some(Ready), Some(Idle), None]),
            (Some(Running), &[Some(Sealing), Some(Posting), Some(Preparing), Some(Ready), Some(Idle), None]),
            (Some(Sealing), &[Some(Posting), Some(Preparing), Some(Ready), Some(Idle), None]),
            (Some(Posting), &[Some(Preparing), Some(Ready), Some(Idle), None]),
        ];
        table.into_iter().flat_map(|(from, to)| to.iter().map(move |to| (from, *to))).collect()
    }
}

fn index(stage: Option<Stage>) -> usize {
    // `Stage::ALL` lists the stages in the order of their declaration.
    stage.map_or(STAGES, |s| s as usize)
}
