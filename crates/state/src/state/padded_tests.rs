//! Padded states, compared with a plain table of values: rows of different lengths run together, and each gets the state that it would get
//! alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use sequor_core::{DataType, Dims, Padding, PaddingSide, Shape, Time};

use crate::device::{Device, Host, Owned};
use crate::tensor::padded_rows::PaddedRows;

use super::budget::Budget;
use super::{ChunkCache, Fresh, InitialValue, StateError, StateSpec, StateValue, StateValues, Store};

const SLOTS: u32 = 4;

fn spec(axis: usize, batch_axis: usize, side: PaddingSide, buckets: &[u64]) -> StateSpec {
    let dims = Dims::from_wire(if axis == 0 { &[-1, 2] } else { &[2, -1] });
    let initial = InitialValue { shape: Shape(dims.0.iter().map(|d| d.fixed().unwrap_or(0)).collect()), data: None };
    StateSpec {
        input: "CACHE".to_owned(),
        output: "CACHE_OUT".to_owned(),
        dtype: DataType::Int16,
        dims,
        batch_axis: Some(batch_axis),
        storage: DataType::Int16,
        initial,
        same_buffer: false,
        padding: Some(Padding { axis, side, value: vec![9, 9], multiple_of: 1, buckets: buckets.to_vec() }),
    }
}

fn store(spec: &StateSpec, sided: bool) -> Store {
    let device: Arc<dyn Device> = Arc::new(Host);
    let cache = ChunkCache::new(Budget::new(u64::MAX), || Time(0));
    let mut store = Store::new(&device, vec![spec.clone()], SLOTS, sided, cache).unwrap();
    (0..SLOTS).for_each(|slot| store.init(slot).unwrap());
    store
}

fn row(spec: &StateSpec, length: u64) -> Shape {
    Shape(spec.dims.0.iter().map(|dim| dim.fixed().unwrap_or(length)).collect())
}

/// A value of this length.
fn value(spec: &StateSpec, length: u64, salt: u8) -> Vec<u8> {
    let bytes = row(spec, length).elements().unwrap() * 2;
    (0..bytes).map(|n| salt.wrapping_add((n * 7) as u8)).collect()
}

fn tensor<'a>(spec: &StateSpec, row: &'a Shape) -> PaddedRows<'a> {
    let padding = spec.padding.as_ref().unwrap();
    let (axis, side, batch_axis) = (padding.axis, padding.side, spec.batch_axis.unwrap());
    PaddedRows { row, axis, batch_axis, side, element: 2 }
}

/// A model's output for rows of these lengths and values, in a tensor with this many places per row.
fn produced(spec: &StateSpec, places: u64, rows: &[(u64, Vec<u8>)], lengths: Option<Vec<i64>>) -> Fresh {
    let whole = row(spec, places);
    let parts: Vec<(u64, &[u8])> = rows.iter().map(|(length, data)| (*length, data.as_slice())).collect();
    let data = tensor(spec, &whole).join(&parts, &[250, 250]);
    Fresh { shape: whole.with(spec.batch_axis.unwrap(), rows.len() as u64), data: Owned::from_vec(data), lengths }
}

#[derive(Debug, Clone)]
struct PaddedRun {
    slots: Vec<u32>,
    salt: u8,
    /// New lengths that the model outputs. Otherwise all rows grow by the same length.
    message: Option<Vec<u64>>,
    fails: bool,
    padding_row: bool,
}

fn padded_run() -> impl Strategy<Value = PaddedRun> {
    let slots = proptest::collection::btree_set(0..SLOTS, 1..=SLOTS as usize);
    let message = proptest::option::of(proptest::collection::vec(0u64..6, SLOTS as usize + 1));
    let of = |(slots, salt, message, fails, padding_row): (std::collections::BTreeSet<u32>, u8, _, u8, bool)| {
        let slots = if salt % 2 == 0 { slots.into_iter().collect() } else { slots.into_iter().rev().collect() };
        PaddedRun { slots, salt, message, fails: fails == 0, padding_row }
    };
    (slots, any::<u8>(), message, 0u8..5, any::<bool>()).prop_map(of)
}

proptest! {
    #[test]
    fn rows_of_different_lengths_run_together_and_get_the_states_of_single_runs(
        axis in 0usize..2, batch_axis in 0usize..3, left in any::<bool>(), bucketed in any::<bool>(), sided in any::<bool>(),
        acts in proptest::collection::vec(padded_run(), 1..30),
    ) {
        let side = if left { PaddingSide::Left } else { PaddingSide::Right };
        let spec = spec(axis, batch_axis, side, if bucketed { &[4, 9] } else { &[] });
        let mut store = store(&spec, sided);
        let mut table: BTreeMap<u32, (u64, Vec<u8>)> = (0..SLOTS).map(|slot| (slot, (0, Vec::new()))).collect();
        for PaddedRun { slots, salt, message, fails, padding_row } in acts {
            prop_assert!((1..SLOTS).all(|slot| store.shape_class(slot) == store.shape_class(0)), "all share batches");
            let mut rows: Vec<Option<u32>> = slots.iter().copied().map(Some).collect();
            if padding_row {
                rows.insert(usize::from(salt) % rows.len(), None);
            }
            let bound = store.bind(rows.clone()).unwrap();
            store.ready(&bound).unwrap();
            // The input of the model.
            let old: Vec<(u64, Vec<u8>)> = rows.iter().map(|slot| slot.map_or((0, Vec::new()), |slot| table[&slot].clone())).collect();
            let lengths: Vec<u64> = old.iter().map(|(length, _)| *length).collect();
            prop_assert_eq!(store.lengths(0), &lengths);
            let whole = spec.padding.as_ref().unwrap().padded(*lengths.iter().max().unwrap());
            let whole_row = row(&spec, whole);
            let parts: Vec<(u64, &[u8])> = old.iter().map(|(length, data)| (*length, data.as_slice())).collect();
            // SAFETY: used before the store is changed.
            let (shape, span) = unsafe { store.input(&bound, 0) }.unwrap();
            prop_assert_eq!(shape, &whole_row.with(batch_axis, rows.len() as u64));
            prop_assert_eq!(span.as_host().unwrap(), &tensor(&spec, &whole_row).join(&parts, &[9, 9]));
            // The output of the model.
            let grown = u64::from(salt % 3);
            let new_length = |n: usize| message.as_ref().map_or(lengths[n] + grown, |message| message[n]);
            let new: Vec<(u64, Vec<u8>)> = (0..rows.len()).map(|n| (new_length(n), value(&spec, new_length(n), salt.wrapping_add(n as u8)))).collect();
            let places = if message.is_some() { new.iter().map(|(length, _)| *length).max().unwrap() } else { whole + grown };
            let numbers = message.as_ref().map(|_| new.iter().map(|(length, _)| *length as i64).collect());
            let fresh = vec![Some(produced(&spec, places, &new, numbers))];
            store.check(&bound, &fresh).unwrap();
            let bytes: Vec<u64> = new.iter().map(|(_, data)| data.len() as u64).collect();
            prop_assert_eq!(store.growing_bytes_after(&bound, &fresh).unwrap(), bytes);
            if !fails {
                let copies = store.commit_with_copies(&bound, fresh, &vec![true; rows.len()], &vec![true; rows.len()]).unwrap();
                for (n, slot) in rows.iter().enumerate() {
                    let Some(slot) = slot else { continue };
                    table.insert(*slot, new[n].clone());
                    let copied = copies[n].as_ref().unwrap().values().unwrap();
                    prop_assert_eq!(copied.each()[0].bytes.as_ref(), new[n].1.as_slice(), "what is copied is not padded");
                }
            }
            for (slot, (length, data)) in &table {
                let want = StateValue { shape: row(&spec, *length), bytes: data.clone().into() };
                prop_assert_eq!(store.read_values(*slot).unwrap(), StateValues::new(vec![want]));
                prop_assert_eq!(store.bytes(*slot), data.len() as u64, "what is kept is not padded");
            }
            if salt % 7 == 0 {
                let file = store.snapshot(slots[0], &BTreeMap::new()).unwrap();
                store.free(slots[0]).unwrap();
                store.restore(slots[0], &file).unwrap();
            }
        }
    }
}

#[test]
fn impossible_lengths_are_refused_and_nothing_is_committed() {
    let spec = spec(0, 0, PaddingSide::Right, &[]);
    let mut store = store(&spec, false);
    let values = |length: u64, salt: u8| {
        StateValues::new(vec![StateValue { shape: row(&spec, length), bytes: value(&spec, length, salt).into() }])
    };
    store.write_values(0, &values(3, 1)).unwrap();
    store.write_values(1, &values(1, 2)).unwrap();
    let bound = store.bind(vec![Some(0), Some(1)]).unwrap();
    let rows = [(4, value(&spec, 4, 5)), (2, value(&spec, 2, 6))];
    let wrong = |places: u64, lengths: Option<Vec<i64>>| {
        let error = store.check(&bound, &[Some(produced(&spec, places, &rows, lengths))]).unwrap_err();
        assert!(matches!(error, StateError::Lengths { .. }), "{error:?}");
        error.to_string()
    };
    insta::assert_snapshot!(
        [wrong(4, Some(vec![4])), wrong(4, Some(vec![5, 2])), wrong(4, Some(vec![4, -1])), wrong(2, None)].join("\n"),
        @r"
    state output 'CACHE_OUT' has 2 rows, and new_lengths of its pad gave 1 lengths
    state output 'CACHE_OUT' has 4 places a row, and new_lengths of its pad gave 5
    state output 'CACHE_OUT' has 4 places a row, and new_lengths of its pad gave -1
    state output 'CACHE_OUT' has 2 places a row and had 3 before the run: a state that shrinks needs new_lengths in its pad
    "
    );
    assert_eq!((store.read_values(0).unwrap(), store.read_values(1).unwrap()), (values(3, 1), values(1, 2)));
}

#[test]
fn a_row_that_needs_no_padding_is_bound_and_taken_without_a_copy() {
    let spec = spec(0, 0, PaddingSide::Left, &[]);
    let mut store = store(&spec, false);
    let bound = store.bind(vec![Some(0)]).unwrap();
    let fresh = produced(&spec, 3, &[(3, value(&spec, 3, 1))], None);
    let address = fresh.data.as_ref().as_ptr();
    store.commit(&bound, vec![Some(fresh)], &[true]).unwrap();
    let bound = store.bind(vec![Some(0)]).unwrap();
    // SAFETY: used before the store is changed.
    let (_, span) = unsafe { store.input(&bound, 0) }.unwrap();
    assert_eq!(span.as_host().unwrap().as_ptr(), address);
}

/// A reload may lower the limit below what live sequences hold. They continue.
#[test]
fn a_full_server_pads_a_row_alone_and_rows_of_similar_lengths() {
    let spec = spec(0, 0, PaddingSide::Right, &[4, 9]);
    let device: Arc<dyn Device> = Arc::new(Host);
    let budget = Budget::new(u64::MAX);
    let mut store =
        Store::new(&device, vec![spec.clone()], SLOTS, false, ChunkCache::new(budget.clone(), || Time(0))).unwrap();
    (0..SLOTS).for_each(|slot| store.init(slot).unwrap());
    for (slot, length) in [(0, 3), (1, 1), (2, 9), (3, 3)] {
        let state = StateValue { shape: row(&spec, length), bytes: value(&spec, length, 1).into() };
        store.write_values(slot, &StateValues::new(vec![state])).unwrap();
    }
    let _live = budget.count(100);
    budget.set_limit(50);
    for fits in [vec![Some(0)], vec![Some(0), Some(3)], vec![Some(1), Some(2)]] {
        assert!(store.bind(fits.clone()).is_ok(), "{fits:?}");
    }
    for too_long in [vec![Some(0), None], vec![Some(0), Some(1), Some(2)]] {
        assert!(matches!(store.bind(too_long.clone()), Err(StateError::TooLong { .. })), "{too_long:?}");
    }
}
