//! The shapes of tensors for clients: parts of flat outputs, outputs without padding, reshaped outputs.

use std::borrow::Cow;

use sequor_core::{Dim, PaddingSide, Shape};

use crate::batch::crop::{crop, longest};
use crate::batch::outputs::OutputSplit;
use crate::batch::staging::source_shapes;
use crate::config::model::settings::{Crop, ModelSettings, Output, reshaped};
use crate::tensor::Tensor;

use super::row_work::{RowOutcome, RowWork};

/// Removes the padding of an output whose length follows that of an input.
pub(super) fn cropped(split: OutputSplit, output: &Output, batch: &[Option<RowWork>]) -> OutputSplit {
    let Some(Crop::Like { axis, source: (source, source_axis), ratio: (up, down) }) = output.crop else { return split };
    let length = |row: &Option<RowWork>| {
        let tensor = row.as_ref().and_then(|row| row.inputs.get(source)?.as_ref());
        let length = tensor.and_then(|tensor| tensor.shape.0.get(source_axis + 1).copied()).unwrap_or(0);
        length.saturating_mul(up).div_ceil(down)
    };
    split.cropped(axis + 1, PaddingSide::Right, batch.iter().map(length).collect())
}

/// Removes the padding of outputs whose lengths are in other outputs.
pub(super) fn crop_by_lengths(settings: &ModelSettings, row: &mut RowOutcome) {
    for (n, output) in settings.outputs.iter().enumerate() {
        let Some(Crop::Lengths { axis, output: lengths }) = output.crop else { continue };
        let length = row.outputs.get(lengths).and_then(longest);
        if let (Some(length), Some(tensor)) = (length, row.outputs.get_mut(n)) {
            *tensor = crop(tensor.clone(), axis + 1, length, PaddingSide::Right);
        }
    }
}

/// The shapes of the parts of a flat output. Each open dimension is that of the request's source input.
pub(super) fn flat_parts(
    settings: &ModelSettings,
    output: &Output,
    source: usize,
    batch: &[Option<RowWork>],
) -> Vec<Shape> {
    let batching = settings.max_batch_size > 0;
    let dims = output.reshape.as_ref().unwrap_or(&output.dims);
    let dims = if batching { dims.with(0, Dim::Any) } else { dims.clone() };
    let rows: Vec<_> = batch.iter().map(|row| row.as_ref().map(RowWork::row)).collect();
    let part = |source: Cow<'_, Shape>| {
        let dim = |(k, dim): (usize, &Dim)| dim.fixed().or_else(|| source.0.get(k).copied()).unwrap_or(1);
        Shape(dims.0.iter().enumerate().map(dim).collect())
    };
    source_shapes(&rows, source, batching).into_iter().map(part).collect()
}

/// Gives a tensor the shape that the client expects, if the graph's shape differs.
pub(super) fn reshape_output(
    settings: &ModelSettings,
    reshape: Option<&sequor_core::Dims>,
    dims: &sequor_core::Dims,
    tensor: &mut Tensor,
) {
    let Some(from) = reshape else { return };
    let batching = settings.max_batch_size > 0;
    let row = if batching { tensor.shape.without(0) } else { tensor.shape.clone() };
    if let Some(shape) = reshaped(from, dims, &row) {
        tensor.shape = match tensor.shape.0.first() {
            Some(rows) if batching => shape.with(0, *rows),
            _ => shape,
        };
    }
}
