//! The dry run of a loaded model: samples of different numbers, each alone and then all at once. Rows of a batch must be independent, so both
//! ways must give the same answers. A model that cannot run them is given zeros. If inputs are padded, samples of unequal lengths are compared in the same way. If states are padded, sequences
//! with states of unequal lengths are.

use std::time::{Duration, Instant};

use sequor_core::DataType;
use serde::Serialize;

use super::rows::{self, RowCosts};
use super::sample::{Samples, answer, with_numbers, with_own_numbers};
use crate::api::triton;
use crate::model::repository::ReadyVersion;
use crate::model::{InferAnswer, InferRequest, ModelHandle, Repository, Tensor};
use crate::telemetry::ModelMetrics;

/// Until some of the samples share a batch, there are at least so many tries, and tries for at least so long. On a busy machine a fast model
/// has often answered one sample before the next one is sent.
const TRIES: u32 = 16;
const TRYING: Duration = Duration::from_secs(3);

/// Maximum difference that rounding explains. Only a larger one shows that rows depend on each other.
const NEAR: f64 = 1e-3;

/// The result of a dry run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Ran {
    pub(super) samples: u64,
    pub(super) compared: Compared,
    /// The comparison of samples with unequal lengths, if inputs are padded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) padding: Option<Compared>,
    /// The comparison of sequences with unequal state lengths, if states are padded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) state_padding: Option<Compared>,
    /// Only for `direct` models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rows: Option<RowCosts>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Compared {
    /// The model runs one request at a time.
    NoBatches,
    /// No two samples shared a batch in any try.
    NeverMet,
    /// A batch of several samples fails, so its rows run one by one.
    Fails,
    /// The same sample gave different answers.
    NotDeterministic,
    Same,
    /// The largest difference of two numbers.
    Near(f64),
    Different {
        output: String,
        by: Option<f64>,
    },
}

impl Ran {
    /// The finding for rows that depend on each other.
    pub(super) fn depends(&self) -> Option<String> {
        match &self.compared {
            Compared::Different { output, by } => {
                let by = by.map(|by| format!(" by {by:.3e}")).unwrap_or_default();
                Some(format!("output \"{output}\" of a sample differs{by} when another sample is in its batch"))
            }
            Compared::Fails => Some(
                "a batch of several samples fails, and each of its rows runs alone: the graph may be made for a batch of 1, or the \
                 batch may lie on another axis of a state"
                    .to_owned(),
            ),
            _ => None,
        }
    }

    /// The findings for a model whose answers depend on how far its inputs or its states are padded.
    pub(super) fn depends_on_padding(&self) -> impl Iterator<Item = String> {
        let longer = [(&self.padding, "a longer sample"), (&self.state_padding, "a sequence with a longer state")];
        longer.into_iter().filter_map(|(compared, longer)| {
            let Some(Compared::Different { output, by }) = compared else { return None };
            let by = by.map(|by| format!(" by {by:.3e}")).unwrap_or_default();
            Some(format!(
                "the model is not pad-invariant: output \"{output}\" of a sample differs{by} when {longer} is in its batch"
            ))
        })
    }
}

/// Runs the samples. The error is a sentence.
pub(super) async fn run(
    repository: &Repository,
    name: &str,
    version: &ReadyVersion,
    counts: &ModelMetrics,
) -> Result<Ran, String> {
    let served = repository.find(name, &version.version.to_string()).map_err(|e| triton::status(&e).message)?;
    let of = Samples { metadata: &served.metadata(), version, has_text_ids: served.needs_text_ids() };
    let most = served.config().max_batch_size;
    let samples = match u64::from(version.instances) {
        0 | 1 => 2,
        // Sequences are spread over the instances. With two per instance, two meet.
        n => (n * 2).min(64),
    };
    let samples = if version.slots == 0 { samples } else { samples.min(u64::from(version.slots)) };
    let zeros = |id: u64| of.zeros(id);
    // A sample of zeros is one of every model. Rows of zeros would hide that they mix.
    answer(served.submit(zeros(1)?)).await?;
    let takes_numbers = answer(served.submit(with_own_numbers(zeros(1)?, 1))).await.is_ok();
    let sample = |id: u64| zeros(id).map(|sample| if takes_numbers { with_own_numbers(sample, id) } else { sample });
    let mut alone = Vec::new();
    for id in 1..=samples {
        alone.push(answer(served.submit(sample(id)?)).await?);
    }
    let again = answer(served.submit(sample(1)?)).await?;
    let compared = if alone.first().is_some_and(|first| first.outputs != again.outputs) {
        Compared::NotDeterministic
    } else if most < 2 || version.strategy == "default" {
        Compared::NoBatches
    } else {
        together(&served, counts, &sample, &alone, |_| 0).await?
    };
    let rows = match most {
        2.. => rows::measure(&served, version, counts, &zeros).await?,
        _ => None,
    };
    let padded = served.padded_inputs();
    let meets = !matches!(compared, Compared::NotDeterministic | Compared::NoBatches);
    let unequal = |id: u64| of.unequal(id, &padded);
    let mut padding = None;
    if meets && !padded.is_empty() {
        let mut alone = Vec::new();
        for id in 1..=samples {
            alone.push(answer(served.submit(unequal(id)?)).await?);
        }
        padding = Some(together(&served, counts, &unequal, &alone, |_| 0).await?);
    }
    let mut state_padding = None;
    if meets && served.pads_states() {
        let step = |id: u64| unequal(id).map(with_numbers);
        let mut alone = Vec::new();
        for id in 1..=samples {
            let last = last_step(&served, &step, id, earlier(id)).await?;
            alone.push(answer(served.submit(last)).await?);
        }
        state_padding = Some(together(&served, counts, &step, &alone, earlier).await?);
    }
    Ok(Ran { samples, compared, padding, state_padding, rows })
}

/// Number of steps before the compared one: few for odd ids, more for even ones.
fn earlier(id: u64) -> u64 {
    if id.is_multiple_of(2) { 4 } else { 1 }
}

/// Runs the earlier steps of a sequence. Returns its last step, for the caller to send.
async fn last_step(
    served: &ModelHandle,
    sample: &impl Fn(u64) -> Result<InferRequest, String>,
    id: u64,
    earlier: u64,
) -> Result<InferRequest, String> {
    for nth in 0..earlier {
        let mut step = sample(id)?;
        (step.sequence.start, step.sequence.end) = (nth == 0, false);
        answer(served.submit(step)).await?;
    }
    let mut last = sample(id)?;
    if earlier > 0 {
        last.sequence.start = false;
    }
    Ok(last)
}

/// Sends the samples at once, until some of them share a batch. Sequences first run the number of steps that `earlier` gives.
async fn together(
    served: &ModelHandle,
    counts: &ModelMetrics,
    sample: &impl Fn(u64) -> Result<InferRequest, String>,
    alone: &[InferAnswer],
    earlier: impl Fn(u64) -> u64,
) -> Result<Compared, String> {
    let since = Instant::now();
    let mut tries = 0;
    while tries < TRIES || since.elapsed() < TRYING {
        tries += 1;
        let mut requests = Vec::with_capacity(alone.len());
        for (id, _) in (1..).zip(alone) {
            requests.push(last_step(served, sample, id, earlier(id)).await?);
        }
        let before = counts.statistics();
        let sent: Vec<_> = requests.into_iter().map(|request| served.submit(request)).collect();
        let mut answers = Vec::new();
        for pending in sent {
            answers.push(answer(pending).await?);
        }
        let after = counts.statistics();
        let (rows, runs) =
            (after.inference_count - before.inference_count, after.execution_count - before.execution_count);
        // The rows of a failed batch are counted once more when each runs alone.
        if rows > alone.len() as u64 {
            return Ok(Compared::Fails);
        }
        if runs < rows {
            return Ok(compare(alone, &answers));
        }
    }
    Ok(Compared::NeverMet)
}

// === comparing ===

fn compare(alone: &[InferAnswer], together: &[InferAnswer]) -> Compared {
    let mut farthest = 0.0_f64;
    for (one, other) in alone.iter().zip(together) {
        for (a, b) in one.outputs.iter().zip(&other.outputs) {
            match distance(&a.tensor, &b.tensor) {
                Some(by) if by <= NEAR => farthest = farthest.max(by),
                by => return Compared::Different { output: a.name.clone(), by },
            }
        }
    }
    if farthest > 0.0 { Compared::Near(farthest) } else { Compared::Same }
}

/// The largest difference between two numbers at the same position. It is relative if the number is above 1. `None` if the tensors cannot
/// be compared.
fn distance(a: &Tensor, b: &Tensor) -> Option<f64> {
    if a == b {
        return Some(0.0);
    }
    if a.shape != b.shape || a.dtype != b.dtype {
        return None;
    }
    let (a, b) = (numbers(a)?, numbers(b)?);
    let apart = |(a, b): (&f64, &f64)| if a.to_bits() == b.to_bits() { 0.0 } else { (a - b).abs() / a.abs().max(1.0) };
    let far = a.iter().zip(&b).map(apart).try_fold(0.0_f64, |far, by| by.is_finite().then(|| far.max(by)))?;
    // Different bits of equal numbers, such as the sign of zero, still count as a difference.
    Some(far.max(f64::MIN_POSITIVE))
}

fn numbers(tensor: &Tensor) -> Option<Vec<f64>> {
    let data = &tensor.data;
    Some(match tensor.dtype {
        DataType::Fp64 => data.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect(),
        DataType::Fp32 => data.as_chunks().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))).collect(),
        DataType::Fp16 => data.as_chunks().0.iter().map(|b| half::f16::from_le_bytes(*b).to_f64()).collect(),
        DataType::Bf16 => data.as_chunks().0.iter().map(|b| half::bf16::from_le_bytes(*b).to_f64()).collect(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use sequor_core::Shape;

    use super::*;
    use crate::model::{NamedTensor, Tensor};

    fn answer(values: &[f32]) -> InferAnswer {
        let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let tensor = Tensor { dtype: DataType::Fp32, shape: Shape::new(&[1, values.len() as u64]), data: data.into() };
        let outputs = vec![NamedTensor { name: "y".to_owned(), tensor }];
        let (model, id) = (String::new(), String::new());
        InferAnswer { model, version: 1, id, outputs, parameters: Vec::new(), held: None }
    }

    fn compared(alone: &[f32], together: &[f32]) -> Compared {
        compare(&[answer(&[0.5]), answer(alone)], &[answer(&[0.5]), answer(together)])
    }

    #[test]
    fn equal_bits_compare_as_same_and_small_differences_as_near() {
        assert_eq!(compared(&[1.0, f32::NAN], &[1.0, f32::NAN]), Compared::Same);
        assert!(matches!(compared(&[1000.0], &[1000.1]), Compared::Near(by) if by > 9e-5 && by < 1.1e-4));
        assert!(matches!(compared(&[0.0], &[-0.0]), Compared::Near(_)), "other bits are not the same");
    }

    #[test]
    fn outputs_that_depend_on_other_rows_are_reported() {
        assert!(matches!(compared(&[1.0], &[1.5]), Compared::Different { by: Some(by), .. } if by == 0.5));
        assert_eq!(compared(&[1.0], &[f32::NAN]), Compared::Different { output: "y".to_owned(), by: None });
        assert_eq!(compared(&[1.0], &[1.0, 2.0]), Compared::Different { output: "y".to_owned(), by: None });
        let ran =
            Ran { samples: 2, compared: compared(&[1.0], &[1.5]), padding: None, state_padding: None, rows: None };
        assert_eq!(
            ran.depends().as_deref(),
            Some("output \"y\" of a sample differs by 5.000e-1 when another sample is in its batch")
        );
        let padded = || Some(compared(&[1.0], &[1.5]));
        let same = Ran { samples: 2, compared: Compared::Same, padding: padded(), state_padding: padded(), rows: None };
        assert_eq!(same.depends(), None);
        let found: Vec<String> = same.depends_on_padding().collect();
        insta::assert_snapshot!(found.join("\n"), @r#"
        the model is not pad-invariant: output "y" of a sample differs by 5.000e-1 when a longer sample is in its batch
        the model is not pad-invariant: output "y" of a sample differs by 5.000e-1 when a sequence with a longer state is in its batch
        "#);
    }
}
