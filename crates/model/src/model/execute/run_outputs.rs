//! The outputs of a run: states that the backend allocated, and outputs for clients.

use crate::batch::crop::numbers;
use crate::batch::outputs::OutputSplit;
use crate::batch::{BatchError, Wiring};
use crate::config::model::settings::{ModelSettings, Output};
use crate::state::{Bound, Fresh, Store};

use super::ports::{OutputMemory, RunMemory};
use super::reply_shapes::{cropped, flat_parts};
use super::row_work::RowWork;
use super::run_error::RunError;

/// The states that the backend allocated.
pub(super) fn fresh(settings: &ModelSettings, store: &Store, wiring: &Wiring, held: &RunMemory) -> Vec<Option<Fresh>> {
    let mut fresh: Vec<Option<Fresh>> = store.specs().map(|_| None).collect();
    for (sink, produced) in wiring.outputs.iter().zip(&held.produced) {
        if let (Some(place), Some(p)) = (sink.state.and_then(|n| fresh.get_mut(n)), produced) {
            *place = Some(Fresh { shape: p.shape.clone(), data: p.data.clone(), lengths: None });
        }
    }
    for (output, state) in &wiring.new_lengths {
        if let Some(Some(produced)) = fresh.get_mut(*state) {
            produced.lengths = Some(new_lengths(settings, wiring, held, *output).unwrap_or_default());
        }
    }
    fresh
}

/// The values of the output that contains the lengths of a state's rows. `output` is its place among the graph's outputs.
fn new_lengths(settings: &ModelSettings, wiring: &Wiring, held: &RunMemory, output: usize) -> Option<Vec<i64>> {
    if let Some(Some(produced)) = held.produced.get(output) {
        return numbers(produced.dtype, produced.data.as_ref());
    }
    let client = settings.outputs.get(wiring.outputs.get(output)?.client?)?;
    let (_, pooled) = held.pooled.get(output)?.as_ref()?;
    numbers(client.dtype, pooled.as_ref())
}

/// The outputs for clients, ready to be cut, in the order of the settings.
pub(super) fn splits(
    settings: &ModelSettings,
    outputs: &OutputMemory,
    store: &Store,
    (wiring, bound, fresh): (&Wiring, &Bound, &[Option<Fresh>]),
    batch: &[Option<RowWork>],
    held: &mut RunMemory,
) -> Result<Vec<OutputSplit>, RunError> {
    let parts: Vec<u64> = batch.iter().map(|row| row.as_ref().map_or(1, |r| r.rows)).collect();
    let mut splits: Vec<Option<OutputSplit>> = std::iter::repeat_with(|| None).take(settings.outputs.len()).collect();
    for ((sink, pooled), produced) in wiring.outputs.iter().zip(&mut held.pooled).zip(&held.produced) {
        let Some(n) = sink.client else { continue };
        let (Some(output), Some(place)) = (settings.outputs.get(n), splits.get_mut(n)) else { continue };
        let Some((shape, data)) = outputs.written(store, bound, *sink, (pooled.take(), produced))? else { continue };
        if let Some(source) = output.cut_like {
            let shapes = flat_parts(settings, output, source, batch);
            *place = Some(OutputSplit::shapes(&output.name, output.dtype, data, shapes)?);
            continue;
        }
        if let Some(axis) = output.batch_dim {
            let rows = (batch.len() as u64, axis);
            *place = Some(OutputSplit::on_axis(&output.name, output.dtype, &shape, data, rows)?);
            continue;
        }
        let padded = sink.state.map(|state| store.lengths_after(bound, state, fresh)).transpose()?.flatten();
        if let Some((padding, lengths)) = padded {
            let split = OutputSplit::rows(&output.name, output.dtype, &shape, data, &parts)?;
            *place = Some(split.cropped(padding.axis + 1, padding.side, lengths));
            continue;
        }
        *place = Some(match settings.max_batch_size {
            0 => OutputSplit::whole(output.dtype, shape, data),
            _ => cropped(OutputSplit::rows(&output.name, output.dtype, &shape, data, &parts)?, output, batch),
        });
    }
    let whole = |(output, cut): (&Output, Option<OutputSplit>)| {
        cut.ok_or_else(|| RunError::Batch(BatchError::Missing { output: output.name.clone() }))
    };
    settings.outputs.iter().zip(splits).map(whole).collect()
}
