//! Checks the new states of a batch for NaN and infinity, row by row, before any of them is committed.

use sequor_core::Shape;

use crate::device::{DeviceError, DeviceId};
use crate::tensor::finite::{FiniteCheck, NonFinite};

use super::arena::Arena;
use super::bound::{Bound, Fresh};
use super::error::StateError;
use super::host_variable;
use super::store::Store;
use super::stored_state::StoredState;

/// A state of a row that is not finite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotFinite {
    /// The name of its input.
    pub state: String,
    pub is_nan: bool,
}

/// The first state with a NaN or an infinity, for each row of the batch. The states must be in host memory.
pub fn not_finite(store: &Store, bound: &Bound, fresh: &[Option<Fresh>]) -> Result<Vec<Option<NotFinite>>, StateError> {
    let mut found = vec![None; bound.rows.len()];
    for (state, produced) in store.states.iter().zip(fresh) {
        let Some(check) = FiniteCheck::new(state.spec.dtype, state.spec.storage) else { continue };
        let mut worst = vec![None; bound.rows.len()];
        each_piece((state, &store.arena), bound, produced.as_ref(), &mut |row, piece| {
            if let Some(worst) = worst.get_mut(row) {
                *worst = check.find(piece).max(*worst);
            }
        })?;
        for ((found, worst), slot) in found.iter_mut().zip(worst).zip(&bound.rows) {
            if found.is_none()
                && slot.is_some()
                && let Some(what) = worst
            {
                *found = Some(NotFinite { state: state.spec.input.clone(), is_nan: what == NonFinite::Nan });
            }
        }
    }
    Ok(found)
}

/// Visits the new values of a state, each piece with its row. Padding within a row is left out.
fn each_piece(
    (state, arena): (&StoredState, &Arena),
    bound: &Bound,
    produced: Option<&Fresh>,
    visit: &mut dyn FnMut(usize, &[u8]),
) -> Result<(), StateError> {
    let (spec, count) = (&state.spec, bound.rows.len());
    if let Some(fixed) = state.fixed() {
        let (buffer, at, size) = fixed.target(spec, bound, arena)?;
        // SAFETY: the run has written it, and nothing is moved before the commit.
        let span = unsafe { buffer.read(at..at + size) }?;
        let place = span.place();
        let not_here = || StateError::Device(DeviceError::WrongPlace { got: place, want: DeviceId::Host });
        visit_rows(span.as_host().ok_or_else(not_here)?, fixed.layout().inner, count, visit);
        return Ok(());
    }
    let torn = || StateError::Torn { state: spec.output.clone() };
    let Some(produced) = produced else { return Ok(()) };
    let row = spec.row_of(&produced.shape, count as u64).ok_or_else(torn)?;
    let data = produced.data.as_ref();
    if let Some((padding, lengths)) = state.lengths_after(produced, &row)? {
        let rows = host_variable::padded_rows(spec, padding, &row);
        return rows.pieces(data, &lengths, visit).ok_or_else(torn);
    }
    let (_, behind) = row.0.split_at(spec.batch_axis.unwrap_or(0).min(row.0.len()));
    let elements = Shape::new(behind).elements().and_then(|n| usize::try_from(n).ok()).ok_or_else(torn)?;
    visit_rows(data, elements * spec.dtype.size().unwrap_or(1), count, visit);
    Ok(())
}

/// Visits the pieces of a tensor whose batch axis may be behind other dimensions. Each row in turn has one piece, again and again.
fn visit_rows(data: &[u8], piece: usize, count: usize, visit: &mut dyn FnMut(usize, &[u8])) {
    if piece == 0 || count == 0 {
        return;
    }
    for (n, part) in data.chunks_exact(piece).enumerate() {
        visit(n % count, part);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sequor_core::{DataType, Dims, Time};

    use super::*;
    use crate::device::{Device, Host, Owned};
    use crate::state::budget::Budget;
    use crate::state::{ChunkCache, InitialValue, StateOut, StateSpec};

    fn spec(dtype: DataType, dims: &[i64], axis: usize) -> StateSpec {
        let dims = Dims::from_wire(dims);
        StateSpec {
            input: "S".to_owned(),
            output: "T".to_owned(),
            dtype,
            initial: InitialValue { shape: Shape(dims.0.iter().map(|d| d.fixed().unwrap_or(2)).collect()), data: None },
            dims,
            batch_axis: Some(axis),
            storage: dtype,
            same_buffer: false,
            padding: None,
        }
    }

    /// The rows that are found in a batch of slot 0, padding, and slot 2, in which one number is NaN.
    fn found(spec: &StateSpec, fixed_rows: bool, at: usize) -> Vec<bool> {
        let device: Arc<dyn Device> = Arc::new(Host);
        let cache = ChunkCache::new(Budget::new(u64::MAX), || Time(0));
        let mut store = Store::new(&device, vec![spec.clone()], 4, fixed_rows, cache).unwrap();
        store.init(0).unwrap();
        store.init(2).unwrap();
        let bound = store.bind(vec![Some(0), None, Some(2)]).unwrap();
        store.ready(&bound).unwrap();
        let mut data = vec![0; 2 * 3 * 3 * 4];
        data[at * 4..at * 4 + 4].copy_from_slice(&f32::NAN.to_le_bytes());
        // SAFETY: the store does not change while the span is in use.
        let fresh = match unsafe { store.output(&bound, 0) }.unwrap() {
            StateOut::Into { data: mut to, .. } => {
                to.as_host_mut().unwrap().copy_from_slice(&data);
                None
            }
            StateOut::New => {
                let shape = spec.batched(&spec.initial.shape, 3);
                Some(Fresh { shape, data: Owned::from_vec(data), lengths: None })
            }
        };
        let found = not_finite(&store, &bound, &[fresh]).unwrap();
        found.into_iter().map(|found| found.is_some_and(|found| found.is_nan && found.state == "S")).collect()
    }

    #[test]
    fn the_check_names_the_row_with_a_non_finite_state_and_skips_padding() {
        for dims in [[2, 3], [-1, 3]] {
            for (axis, fixed_rows) in [(0, true), (0, false), (1, false), (2, false)] {
                for at in 0..18 {
                    let row = [at / 6, at / 3 % 3, at % 3][axis];
                    let want: Vec<bool> = (0..3).map(|n| n == row && n != 1).collect();
                    let spec = spec(DataType::Fp32, &dims, axis);
                    assert_eq!(found(&spec, fixed_rows, at), want, "{dims:?} {axis} {fixed_rows} {at}");
                }
            }
        }
        assert_eq!(found(&spec(DataType::Int32, &[2, 3], 0), true, 0), [false; 3], "bits of integers are any");
    }
}
