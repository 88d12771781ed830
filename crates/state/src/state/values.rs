//! The values of a sequence's states outside any slot: given to a slot in place of those of config.pbtxt, or read from one.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use sequor_core::Shape;

use super::snapshot::{SnapshotError, file};
use super::spec::StateSpec;

/// The values of all states of a sequence, in the order of the model's states. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateValues(Arc<[StateValue]>);

/// One row of a state in the graph's own type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateValue {
    /// Without the batch dimension.
    pub shape: Shape,
    pub bytes: Bytes,
}

impl StateValue {
    /// The value that a state has at START.
    pub fn initial(spec: &StateSpec) -> StateValue {
        let shape = spec.initial.shape.clone();
        let elements = shape.elements().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        let mut bytes = spec.initial.data.as_ref().map_or_else(Vec::new, |data| data.to_vec());
        bytes.resize(bytes.len().max(elements.saturating_mul(spec.dtype.zero_size())), 0);
        StateValue { shape, bytes: Bytes::from(bytes) }
    }
}

impl StateValues {
    /// One value for each state. The values must fit the states.
    pub fn new(values: Vec<StateValue>) -> StateValues {
        StateValues(values.into())
    }

    /// From the shape and bytes of each state.
    pub(super) fn of_pairs(values: Vec<(Shape, Vec<u8>)>) -> StateValues {
        let value = |(shape, bytes)| StateValue { shape, bytes: Bytes::from(bytes) };
        StateValues::new(values.into_iter().map(value).collect())
    }

    pub fn each(&self) -> &[StateValue] {
        &self.0
    }

    /// The values that sequences have at START.
    pub fn initial(specs: &[StateSpec]) -> StateValues {
        StateValues::new(specs.iter().map(StateValue::initial).collect())
    }

    /// The values as a `.safetensors` file, as [`super::Store::snapshot`] makes one.
    pub fn file(&self, specs: &[StateSpec], metadata: &BTreeMap<String, String>) -> Result<Vec<u8>, SnapshotError> {
        let pairs: Vec<(Shape, Vec<u8>)> =
            self.each().iter().map(|value| (value.shape.clone(), value.bytes.to_vec())).collect();
        file(specs.iter(), &pairs, metadata)
    }

    /// Bytes of all states together.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|value| value.bytes.len() as u64).sum()
    }

    /// The class of the shapes of the variable states, computed as by [`Store::shape_class`](super::Store::shape_class).
    pub fn shape_class(&self, specs: &[StateSpec]) -> u64 {
        let variable = specs.iter().zip(self.each()).filter(|(spec, _)| spec.grows());
        variable.fold(0, |class, (spec, value)| spec.class(&value.shape, class))
    }
}

#[cfg(test)]
mod tests {
    use sequor_core::{DataType, Dims, Time};

    use super::*;
    use crate::device::{Device, Host};
    use crate::state::budget::Budget;
    use crate::state::{ChunkCache, InitialValue, Store};

    fn spec(dtype: DataType, dims: &[i64], storage: DataType, data: Option<&[u8]>) -> StateSpec {
        let dims = Dims::from_wire(dims);
        let shape = dims.fixed().unwrap_or_else(|| Shape::new(&[1]));
        let initial = InitialValue { shape, data: data.map(Arc::from) };
        StateSpec {
            input: "S".to_owned(),
            output: "T".to_owned(),
            dtype,
            dims,
            batch_axis: Some(0),
            storage,
            initial,
            same_buffer: false,
            padding: None,
        }
    }

    fn bytes(values: &[f32]) -> Bytes {
        values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>().into()
    }

    #[test]
    fn written_state_values_are_read_back_from_a_slot() {
        let device: Arc<dyn Device> = Arc::new(Host);
        let specs = vec![
            spec(DataType::Fp32, &[2], DataType::Fp32, None),
            spec(DataType::Fp32, &[2], DataType::Fp16, None),
            spec(DataType::Int64, &[-1], DataType::Int64, None),
            spec(DataType::Bytes, &[2], DataType::Bytes, None),
        ];
        let value = |shape: &[u64], bytes: Bytes| StateValue { shape: Shape::new(shape), bytes };
        let values = StateValues::new(vec![
            value(&[2], bytes(&[1.1, -2.3])),
            value(&[2], bytes(&[0.5, 1024.0])),
            value(&[3], Bytes::from((1..4i64).flat_map(i64::to_le_bytes).collect::<Vec<u8>>())),
            value(&[2], Bytes::from_static(b"\x01\0\0\0a\0\0\0\0")),
        ]);
        for sided in [false, true] {
            let mut store =
                Store::new(&device, specs.clone(), 3, sided, ChunkCache::new(Budget::new(u64::MAX), || Time(0)))
                    .unwrap();
            store.init(0).unwrap();
            store.write_values(2, &values).unwrap();
            assert_eq!(store.read_values(2).unwrap(), values);
            assert_eq!(store.shape_class(2), values.shape_class(&specs));
            let first = StateValues::new(specs.iter().map(StateValue::initial).collect());
            assert_eq!(store.read_values(0).unwrap(), first, "the slot beside it is as it was");
            store.write_values(0, &values).unwrap();
            store.init(2).unwrap();
            assert_eq!((store.read_values(0).unwrap(), store.read_values(2).unwrap()), (values.clone(), first));
        }
    }

    #[test]
    fn the_initial_state_value_matches_the_model() {
        let given = StateValue::initial(&spec(DataType::Uint8, &[3], DataType::Uint8, Some(&[1, 2, 3])));
        assert_eq!(given, StateValue { shape: Shape::new(&[3]), bytes: Bytes::from_static(&[1, 2, 3]) });
        let texts = StateValue::initial(&spec(DataType::Bytes, &[2], DataType::Bytes, None));
        assert_eq!(texts.bytes.len(), 8);
    }
}
