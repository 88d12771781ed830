//! Finds the cheaper `[sequence] rows` of a `direct` model: compares the cost of a padding row with that of moving a row's state.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::sample::answer;
use crate::model::repository::ReadyVersion;
use crate::model::{InferRequest, ModelHandle};
use crate::telemetry::{BatchCost, ModelMetrics};

/// Number of measurements. Their verdicts must agree: a busy machine disturbs one of them, seldom all in the same direction.
const MEASUREMENTS: usize = 3;

/// Maximum number of tries of a measurement for each batch size, and its maximum time. The fastest run counts.
const TRIES: u32 = 16;
const AT_MOST: Duration = Duration::from_millis(400);

/// A cost counts as lower only if the other one is at least so many times higher.
const CLEARLY: f64 = 1.5;

/// A measurement that takes longer is not repeated.
const SLOW: Duration = Duration::from_secs(1);

/// Maximum rows of the largest batch.
const ROWS: u64 = 8;

/// Costs of a row, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct RowCosts {
    /// Time that one more row adds to a run.
    pub(super) padding_us: f64,
    /// Time to gather and scatter the state of one row.
    pub(super) moving_us: f64,
    /// The model's setting.
    pub(super) set: &'static str,
    /// `None` if the costs are too close to tell.
    pub(super) cheaper: Option<&'static str>,
}

/// The result of one measurement, in microseconds.
#[derive(Debug, Clone, Copy)]
struct RowMeasurement {
    padding: f64,
    moving: f64,
}

impl RowMeasurement {
    fn cheaper(self) -> Option<&'static str> {
        let RowMeasurement { padding, moving } = self;
        match () {
            () if padding > moving * CLEARLY => Some("compact"),
            () if moving > padding * CLEARLY => Some("fixed"),
            () => None,
        }
    }
}

impl RowCosts {
    /// Costs from several measurements. `None` without one.
    fn new(measured: &[RowMeasurement], set: &'static str) -> Option<RowCosts> {
        let (first, rest) = measured.split_first()?;
        let least = |of: fn(&RowMeasurement) -> f64| rest.iter().map(of).fold(of(first), f64::min);
        let cheaper = first.cheaper().filter(|_| rest.iter().all(|other| other.cheaper() == first.cheaper()));
        Some(RowCosts { padding_us: least(|m| m.padding), moving_us: least(|m| m.moving), set, cheaper })
    }

    /// `None` for a model whose costs are too small to measure.
    pub(super) fn sentence(&self) -> Option<String> {
        let RowCosts { padding_us, moving_us, set, cheaper } = self;
        if padding_us.max(*moving_us) < 0.05 {
            return None;
        }
        let advice = match cheaper {
            None => "too close to advise a value for rows".to_owned(),
            Some(cheaper) if cheaper == set => format!("rows = \"{cheaper}\" is cheaper, as set"),
            Some(cheaper) => format!("rows = \"{cheaper}\" is cheaper"),
        };
        Some(format!("a padding row takes {padding_us:.1} us, moving a row's state {moving_us:.1} us: {advice}"))
    }
}

/// Measures a `direct` model with at least two slots per instance. `None` if no batch had several rows.
pub(super) async fn measure(
    served: &ModelHandle,
    version: &ReadyVersion,
    counts: &ModelMetrics,
    sample: &impl Fn(u64) -> Result<InferRequest, String>,
) -> Result<Option<RowCosts>, String> {
    let Some(set) = version.rows else { return Ok(None) };
    let most = (u64::from(version.slots) / u64::from(version.instances.max(1))).min(ROWS);
    let mut measured = Vec::with_capacity(MEASUREMENTS);
    for _ in 0..MEASUREMENTS {
        let began = Instant::now();
        let fastest = fastest_runs(served, most, counts, sample).await?;
        let moving = moving(version.stored_bytes);
        measured.extend(padding(&fastest).map(|padding| RowMeasurement { padding, moving }));
        // Runs that long outweigh the noise.
        if began.elapsed() > SLOW {
            break;
        }
    }
    Ok(RowCosts::new(&measured, set))
}

/// The fastest run for each number of rows, in nanoseconds.
async fn fastest_runs(
    served: &ModelHandle,
    most: u64,
    counts: &ModelMetrics,
    sample: &impl Fn(u64) -> Result<InferRequest, String>,
) -> Result<BTreeMap<u32, u64>, String> {
    let mut fastest: BTreeMap<u32, u64> = BTreeMap::new();
    let began = Instant::now();
    for _ in 0..TRIES {
        for rows in [1, most] {
            let before = counts.statistics().batches;
            let requests = (1..=rows).map(sample).collect::<Result<Vec<_>, _>>()?;
            let sent: Vec<_> = requests.into_iter().map(|request| served.submit(request)).collect();
            for pending in sent {
                answer(pending).await?;
            }
            note(&mut fastest, &before, &counts.statistics().batches);
        }
        if began.elapsed() > AT_MOST {
            break;
        }
    }
    Ok(fastest)
}

/// Records the runs between two readings, by their number of rows.
fn note(fastest: &mut BTreeMap<u32, u64>, before: &BTreeMap<u32, BatchCost>, after: &BTreeMap<u32, BatchCost>) {
    let total = |cost: &BatchCost| cost.state_in + cost.run + cost.state_out;
    for (rows, cost) in after {
        let was = before.get(rows).copied().unwrap_or_default();
        let Some(nanos) = (total(cost) - total(&was)).checked_div(cost.count - was.count) else { continue };
        let least = fastest.entry(*rows).or_insert(nanos);
        *least = nanos.min(*least);
    }
}

/// Microseconds that one more row adds.
fn padding(fastest: &BTreeMap<u32, u64>) -> Option<f64> {
    let one = fastest.get(&1)?;
    let (rows, nanos) = fastest.last_key_value().filter(|(rows, _)| **rows > 1)?;
    Some(nanos.saturating_sub(*one) as f64 / f64::from(rows - 1) / 1e3)
}

/// Microseconds to copy this many bytes twice.
fn moving(bytes: u64) -> f64 {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(64 << 20);
    let (from, mut to) = (vec![1u8; bytes], vec![0u8; bytes]);
    let copy = |_| {
        let began = Instant::now();
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
        began.elapsed()
    };
    let fastest = (0..TRIES).map(copy).min().unwrap_or_default();
    2.0 * fastest.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Measurements with these costs of padding and of moving.
    fn measurements(costs: &[(f64, f64)]) -> Vec<RowMeasurement> {
        costs.iter().map(|(padding, moving)| RowMeasurement { padding: *padding, moving: *moving }).collect()
    }

    #[test]
    fn the_cheaper_rows_setting_is_reported() {
        let of = |runs: &[(u32, u64)]| padding(&runs.iter().copied().collect());
        assert_eq!(of(&[(1, 10_000), (8, 80_000)]), Some(10.0));
        assert_eq!(of(&[(1, 10_000)]), None, "nothing to compare");
        let costs = |measured: &[(f64, f64)]| RowCosts::new(&measurements(measured), "fixed");
        assert_eq!(costs(&[]), None);
        assert_eq!(
            costs(&[(12.0, 2.5), (10.0, 2.75)]).unwrap().sentence().unwrap(),
            "a padding row takes 10.0 us, moving a row's state 2.5 us: rows = \"compact\" is cheaper"
        );
        let sentence = costs(&[(1.0, 2.5)]).unwrap().sentence().unwrap();
        assert!(sentence.ends_with("rows = \"fixed\" is cheaper, as set"));
        assert_eq!(costs(&[(0.04, 0.0)]).unwrap().sentence(), None);
    }

    #[test]
    fn rows_are_advised_only_if_all_measurements_clearly_agree() {
        let cheaper = |measured: &[(f64, f64)]| {
            let costs = RowCosts::new(&measurements(measured), "fixed").unwrap();
            (costs.cheaper, costs.sentence().unwrap().ends_with("too close to advise a value for rows"))
        };
        assert_eq!(cheaper(&[(4.0, 2.0), (4.1, 2.0)]), (Some("compact"), false));
        assert_eq!(cheaper(&[(2.2, 2.0), (4.1, 2.0)]), (None, true), "one measurement found no clear difference");
        assert_eq!(cheaper(&[(4.0, 2.0), (1.0, 2.0)]), (None, true), "they contradict each other");
        assert_eq!(cheaper(&[(2.0, 2.2)]), (None, true));
    }
}
