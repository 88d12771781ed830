//! States in host memory whose size may change with every step, and texts. Each value has memory of its own.
//!
//! If a row runs alone, the store takes over the memory that the backend allocated, without a copy. Rows of different lengths run together if
//! the state is padded. A value is kept without its padding.

use sequor_core::{DataType, Padding, Shape};

use crate::device::Owned;
use crate::tensor::padded_rows::PaddedRows;
use crate::tensor::rows;

use super::bound::Fresh;
use super::budget::Budget;
use super::error::StateError;
use super::spec::StateSpec;

/// One such state, with the values of all slots.
#[derive(Debug)]
pub(super) struct HostVariables {
    slots: Vec<Option<HostVariable>>,
    /// The rows of a batch as one tensor, and its shape. `empty`: the tensor between two batches.
    given: Option<Owned>,
    empty: Owned,
    shape: Shape,
    /// The length of each row of the batch, 0 for a padding row, and the length that they are padded to. Empty for a state that is not padded.
    lengths: Vec<u64>,
    padded_length: u64,
}

/// One sequence's value of such a state.
#[derive(Debug, Clone)]
pub(super) struct HostVariable {
    /// Without the batch dimension.
    pub(super) shape: Shape,
    pub(super) data: Owned,
}

impl HostVariable {
    /// The state at START.
    pub(super) fn initial(spec: &StateSpec) -> HostVariable {
        let shape = spec.initial.shape.clone();
        let bytes = match &spec.initial.data {
            Some(data) => data.to_vec(),
            None => zeros(spec.dtype, &shape),
        };
        HostVariable { shape, data: Owned::from_vec(bytes) }
    }

    fn length(&self, padding: &Padding) -> u64 {
        length(&self.shape, padding)
    }
}

impl HostVariables {
    pub(super) fn new(slots: u32) -> HostVariables {
        let (slots, shape) = (vec![None; slots as usize], Shape::default());
        let empty = Owned::from_vec(Vec::new());
        HostVariables { slots, given: None, empty, shape, lengths: Vec::new(), padded_length: 0 }
    }

    pub(super) fn init(&mut self, slot: u32, spec: &StateSpec) {
        if let Some(place) = self.slots.get_mut(slot as usize) {
            *place = Some(HostVariable::initial(spec));
        }
    }

    pub(super) fn free(&mut self, slot: u32) {
        if let Some(place) = self.slots.get_mut(slot as usize) {
            *place = None;
        }
        self.given = None;
    }

    pub(super) fn get(&self, slot: u32) -> Option<&HostVariable> {
        self.slots.get(slot as usize)?.as_ref()
    }

    /// Bytes of a slot's value.
    pub(super) fn bytes(&self, slot: u32) -> usize {
        self.get(slot).map_or(0, |value| value.data.len())
    }

    pub(super) fn allocated(&self) -> usize {
        self.slots.iter().flatten().map(|value| value.data.len()).sum()
    }

    /// Joins the rows of a batch. A row that is alone is shared and not copied, unless it needs padding.
    pub(super) fn join(&mut self, spec: &StateSpec, rows: &[Option<u32>], budget: &Budget) -> Result<(), StateError> {
        let batch: Vec<Option<&HostVariable>> = rows.iter().map(|row| self.get((*row)?)).collect();
        let Some(first) = batch.iter().flatten().next() else { return Ok(()) };
        if let Some(padding) = &spec.padding {
            let lengths: Vec<u64> = batch.iter().map(|row| row.map_or(0, |value| value.length(padding))).collect();
            let padded_length = padding.padded(lengths.iter().copied().max().unwrap_or(0));
            let row = with_length(&first.shape, padding, padded_length);
            let given = match batch.as_slice() {
                [Some(only)] if only.shape == row => only.data.clone(),
                _ => {
                    check_room(spec, &row, &batch, budget)?;
                    Owned::from_vec(join_padded(spec, padding, &row, &batch))
                }
            };
            (self.given, self.shape) = (Some(given), spec.batched(&row, rows.len() as u64));
            (self.lengths, self.padded_length) = (lengths, padded_length);
            return Ok(());
        }
        let row = first.shape.clone();
        if batch.iter().flatten().any(|value| value.shape != row) {
            return Err(StateError::Mixed { state: spec.input.clone() });
        }
        let given = match batch.as_slice() {
            [Some(only)] => only.data.clone(),
            _ => Owned::from_vec(join(spec, &row, &batch)),
        };
        (self.given, self.shape) = (Some(given), spec.batched(&row, rows.len() as u64));
        Ok(())
    }

    /// The input of a run: the batch's shape and bytes.
    pub(super) fn joined(&self) -> (&Shape, &Owned) {
        (&self.shape, self.given.as_ref().unwrap_or(&self.empty))
    }

    /// The length of each row of the batch that was joined last, if the state is padded.
    pub(super) fn lengths(&self) -> &[u64] {
        &self.lengths
    }

    /// The length of each row after a run, whose rows have this shape. If the model gives no lengths, each row has grown by as many places as
    /// the tensor.
    pub(super) fn lengths_after(
        &self,
        spec: &StateSpec,
        padding: &Padding,
        row: &Shape,
        given_lengths: Option<&[i64]>,
    ) -> Result<Vec<u64>, StateError> {
        let wrong = |what: String| StateError::Lengths { state: spec.output.clone(), what };
        let (places, before) = (length(row, padding), self.padded_length);
        let Some(given_lengths) = given_lengths else {
            let grown = places.checked_sub(before).ok_or_else(|| {
                wrong(format!("has {places} places a row and had {before} before the run: a state that shrinks needs new_lengths in its pad"))
            })?;
            return Ok(self.lengths.iter().map(|length| length + grown).collect());
        };
        if given_lengths.len() != self.lengths.len() {
            let rows = self.lengths.len();
            return Err(wrong(format!(
                "has {rows} rows, and new_lengths of its pad gave {} lengths",
                given_lengths.len()
            )));
        }
        let fits = |length: &i64| {
            let own = u64::try_from(*length).ok().filter(|length| *length <= places);
            own.ok_or_else(|| wrong(format!("has {places} places a row, and new_lengths of its pad gave {length}")))
        };
        given_lengths.iter().map(fits).collect()
    }

    /// Splits the output of a run into its rows, without their padding.
    pub(super) fn split_padded(
        &self,
        spec: &StateSpec,
        padding: &Padding,
        row: Shape,
        Fresh { data, lengths, .. }: Fresh,
    ) -> Result<Vec<HostVariable>, StateError> {
        let lengths = self.lengths_after(spec, padding, &row, lengths.as_deref())?;
        if lengths.as_slice() == [length(&row, padding)] {
            return Ok(vec![HostVariable { shape: row, data }]);
        }
        let parts = padded_rows(spec, padding, &row).split(data.as_ref(), &lengths);
        let parts = parts.ok_or_else(|| StateError::Torn { state: spec.output.clone() })?;
        let value = |(bytes, length): (Vec<u8>, u64)| HostVariable {
            shape: with_length(&row, padding, length),
            data: Owned::from_vec(bytes),
        };
        Ok(parts.into_iter().zip(lengths).map(value).collect())
    }

    /// Stores the new values of the rows in `taken`, each in its slot. The run is over, so the rows that it read are released.
    pub(super) fn store_states(&mut self, rows: Vec<HostVariable>, taken: &[(usize, u32)]) {
        self.given = None;
        let mut rows: Vec<Option<HostVariable>> = rows.into_iter().map(Some).collect();
        for (n, slot) in taken {
            if let (Some(place), Some(row)) = (self.slots.get_mut(*slot as usize), rows.get_mut(*n)) {
                *place = row.take();
            }
        }
    }
}

/// A tensor of zeros, or of empty texts.
fn zeros(dtype: DataType, shape: &Shape) -> Vec<u8> {
    let elements = shape.elements().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    vec![0; elements.saturating_mul(dtype.zero_size())]
}

/// Joins the rows of a batch, all of this shape; `None` is padding.
fn join(spec: &StateSpec, shape: &Shape, batch: &[Option<&HostVariable>]) -> Vec<u8> {
    let pad = zeros(spec.dtype, shape);
    let parts: Vec<&[u8]> = batch.iter().map(|row| row.map_or(pad.as_slice(), |loose| loose.data.as_ref())).collect();
    rows::join(spec.dtype, shape, spec.batch_axis.unwrap_or(0), &parts)
}

/// The length along the padded dimension.
pub(super) fn length(row: &Shape, padding: &Padding) -> u64 {
    row.0.get(padding.axis).copied().unwrap_or(0)
}

/// This row with another length.
pub(super) fn with_length(row: &Shape, padding: &Padding, length: u64) -> Shape {
    row.without(padding.axis).with(padding.axis, length)
}

/// Checks that the padded rows of a batch fit into what is left of the server's limit. One long state among many short ones takes much
/// memory. Rows that do not fit together run alone.
///
/// The tensor exists only during the run. So a full server, or one whose limit is below its use, still runs a row alone, and rows whose
/// padding takes no more than their states.
fn check_room(
    spec: &StateSpec,
    row: &Shape,
    batch: &[Option<&HostVariable>],
    budget: &Budget,
) -> Result<(), StateError> {
    let rows = batch.len();
    if rows == 1 {
        return Ok(());
    }
    let size = spec.dtype.size().unwrap_or(1) as u64;
    let wanted = row.elements().and_then(|elements| elements.checked_mul(size)?.checked_mul(rows as u64));
    let own: u64 = batch.iter().flatten().map(|value| value.data.len() as u64).sum();
    let left = budget.limit().saturating_sub(budget.used()).max(own.saturating_mul(2));
    match wanted.filter(|wanted| *wanted <= left) {
        Some(_) => Ok(()),
        None => Err(StateError::TooLong { state: spec.input.clone(), row: row.clone(), rows, left }),
    }
}

/// The tensor of a batch of a padded state.
pub(super) fn padded_rows<'a>(spec: &StateSpec, padding: &Padding, row: &'a Shape) -> PaddedRows<'a> {
    let (batch_axis, element) = (spec.batch_axis.unwrap_or(0), spec.dtype.size().unwrap_or(1));
    PaddedRows { row, axis: padding.axis, batch_axis, side: padding.side, element }
}

/// Joins rows of different lengths, each padded to the length of `row`. `None` is padding.
fn join_padded(spec: &StateSpec, padding: &Padding, row: &Shape, batch: &[Option<&HostVariable>]) -> Vec<u8> {
    let mut parts: Vec<(u64, &[u8])> = Vec::with_capacity(batch.len());
    for row in batch {
        parts.push(row.map_or((0, &[]), |value| (value.length(padding), value.data.as_ref())));
    }
    padded_rows(spec, padding, row).join(&parts, &padding.value)
}

/// Splits a batch into its rows.
pub(super) fn split(
    spec: &StateSpec,
    row: &Shape,
    count: usize,
    data: &Owned,
) -> Result<Vec<HostVariable>, StateError> {
    let parts = rows::split(spec.dtype, row, spec.batch_axis.unwrap_or(0), count, data.as_ref());
    let parts = parts.ok_or_else(|| StateError::Torn { state: spec.output.clone() })?;
    Ok(parts.into_iter().map(|bytes| HostVariable { shape: row.clone(), data: Owned::from_vec(bytes) }).collect())
}
