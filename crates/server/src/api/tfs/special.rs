//! The special inputs of a stateful model: the sequence of a request, and whether it starts or ends it. They are checked before all other
//! inputs, so that an invalid request neither creates nor refreshes a sequence.

use std::collections::BTreeMap;

use sequor_core::Id;
use sequor_proto::tensorflow::TensorProto;

use crate::model::{InferAnswer, Parameter, SequenceStep};

/// The name of the input and output with the id of the sequence.
pub(crate) const SEQUENCE_ID: &str = "sequence_id";
/// The name of the input that starts or ends the sequence.
pub(crate) const CONTROL: &str = "sequence_control_input";

const NONE: u32 = 0;
const START: u32 = 1;
const END: u32 = 2;

/// Why the special inputs of a request are refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SpecialInputFault {
    NoShape,
    /// The rank of its shape is not 1.
    Rank(&'static str),
    /// Its size is not 1.
    Size(&'static str),
    /// The list of its type does not have exactly one value.
    Type(&'static str),
    /// The control is not one of the three valid values.
    Control,
    NoId,
    /// The header has another id.
    OtherHeader {
        id: u64,
        header: String,
    },
}

/// Takes the special inputs out of a message.
pub(super) fn take(
    inputs: &mut BTreeMap<String, TensorProto>,
    header: Option<&str>,
) -> Result<SequenceStep, SpecialInputFault> {
    let id = match inputs.remove(SEQUENCE_ID) {
        None => 0,
        Some(tensor) => single(SEQUENCE_ID, &tensor, &tensor.uint64_val)?,
    };
    let control = match inputs.remove(CONTROL) {
        None => NONE,
        Some(tensor) => single(CONTROL, &tensor, &tensor.uint32_val)?,
    };
    step(id, control, header)
}

/// The only value of a special input.
fn single<T: Copy>(input: &'static str, tensor: &TensorProto, values: &[T]) -> Result<T, SpecialInputFault> {
    match tensor.tensor_shape.as_ref().map_or(&[][..], |shape| shape.dim.as_slice()) {
        [] => return Err(SpecialInputFault::NoShape),
        [dim] if dim.size == 1 => {}
        [_] => return Err(SpecialInputFault::Size(input)),
        [..] => return Err(SpecialInputFault::Rank(input)),
    }
    match values {
        [value] => Ok(*value),
        _ => Err(SpecialInputFault::Type(input)),
    }
}

/// The step that the values describe. If there is no id, the header that proxies hash gives it.
pub(super) fn step(id: u64, control: u32, header: Option<&str>) -> Result<SequenceStep, SpecialInputFault> {
    let id = match header.map(|header| (header, header.parse::<u64>())) {
        None => id,
        Some((_, Ok(number))) if id == 0 || id == number => number,
        Some((header, _)) => return Err(SpecialInputFault::OtherHeader { id, header: header.to_owned() }),
    };
    let (start, end) = match control {
        NONE => (false, false),
        START => (true, false),
        END => (false, true),
        _ => return Err(SpecialInputFault::Control),
    };
    if id == 0 && !start {
        return Err(SpecialInputFault::NoId);
    }
    Ok(SequenceStep { id: Id::from(id), start, end, ..SequenceStep::default() })
}

/// The sequence id in an answer: that of the request, or the one that the server assigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerId {
    /// The model has no sequences.
    None,
    Given(u64),
    Made,
}

impl AnswerId {
    pub(super) fn new(is_stateful: bool, step: &SequenceStep) -> AnswerId {
        match step.id {
            _ if !is_stateful => AnswerId::None,
            Id::Int(id) => AnswerId::Given(id),
            Id::None | Id::Str(_) => AnswerId::Made,
        }
    }

    pub(super) fn find(self, answer: &InferAnswer) -> Option<u64> {
        match self {
            AnswerId::None => None,
            AnswerId::Given(id) => Some(id),
            AnswerId::Made => match answer.parameters.iter().find(|(key, _)| key == SEQUENCE_ID)? {
                (_, Parameter::Int(id)) => Some(id.cast_unsigned()),
                (_, Parameter::Uint(id)) => Some(*id),
                _ => None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use sequor_proto::tensorflow::TensorShapeProto;
    use sequor_proto::tensorflow::tensor_shape_proto::Dim;

    use super::*;

    fn shaped(dims: &[i64]) -> TensorProto {
        let dim = dims.iter().map(|size| Dim { size: *size, name: String::new() }).collect();
        TensorProto { tensor_shape: Some(TensorShapeProto { dim, unknown_rank: false }), ..TensorProto::default() }
    }

    fn id(dims: &[i64], values: &[u64]) -> Option<TensorProto> {
        Some(TensorProto { uint64_val: values.to_vec(), ..shaped(dims) })
    }

    fn control(dims: &[i64], values: &[u32]) -> Option<TensorProto> {
        Some(TensorProto { uint32_val: values.to_vec(), ..shaped(dims) })
    }

    fn taken(id: Option<TensorProto>, control: Option<TensorProto>) -> Result<(u64, bool, bool), SpecialInputFault> {
        let named = [(SEQUENCE_ID, id), (CONTROL, control)];
        let mut inputs = named.into_iter().filter_map(|(name, tensor)| Some((name.to_owned(), tensor?))).collect();
        let step = take(&mut inputs, None)?;
        assert!(inputs.is_empty(), "they are no inputs of the model");
        let id = match step.id {
            Id::Int(id) => id,
            _ => 0,
        };
        Ok((id, step.start, step.end))
    }

    #[test]
    fn all_forms_of_the_special_inputs_are_parsed_or_refused() {
        use SpecialInputFault::{Control, NoId, NoShape, Rank, Size, Type};
        let one = &[1];
        let cases = [
            (id(one, &[7]), control(one, &[0]), Ok((7, false, false))),
            (id(one, &[7]), None, Ok((7, false, false))),
            (id(one, &[7]), control(one, &[1]), Ok((7, true, false))),
            (None, control(one, &[1]), Ok((0, true, false))),
            (id(one, &[0]), control(one, &[1]), Ok((0, true, false))),
            (id(one, &[u64::MAX]), control(one, &[2]), Ok((u64::MAX, false, true))),
            (id(&[], &[7]), None, Err(NoShape)),
            (Some(TensorProto { uint64_val: vec![7], ..TensorProto::default() }), None, Err(NoShape)),
            (id(&[1, 1], &[7]), None, Err(Rank(SEQUENCE_ID))),
            (id(&[2], &[7, 8]), None, Err(Size(SEQUENCE_ID))),
            (id(&[0], &[]), None, Err(Size(SEQUENCE_ID))),
            (id(one, &[]), None, Err(Type(SEQUENCE_ID))),
            (id(one, &[7, 8]), None, Err(Type(SEQUENCE_ID))),
            // Bytes in `tensor_content` do not replace the list.
            (Some(TensorProto { tensor_content: vec![7; 8].into(), ..shaped(one) }), None, Err(Type(SEQUENCE_ID))),
            (control(one, &[7]), None, Err(Type(SEQUENCE_ID))),
            (id(one, &[7]), control(&[], &[1]), Err(NoShape)),
            (id(one, &[7]), control(&[1, 1], &[1]), Err(Rank(CONTROL))),
            (id(one, &[7]), control(&[3], &[1]), Err(Size(CONTROL))),
            (id(one, &[7]), id(one, &[1]), Err(Type(CONTROL))),
            (id(one, &[7]), control(one, &[3]), Err(Control)),
            (None, control(one, &[u32::MAX]), Err(Control)),
            (None, None, Err(NoId)),
            (id(one, &[0]), control(one, &[0]), Err(NoId)),
            (None, control(one, &[2]), Err(NoId)),
        ];
        for (n, (id, control, want)) in cases.into_iter().enumerate() {
            assert_eq!(taken(id, control), want, "case {n}");
        }
    }

    #[test]
    fn the_sequence_id_header_replaces_an_id_of_zero_and_must_match_others() {
        assert_eq!(step(0, NONE, Some("7")).map(|step| step.id), Ok(Id::Int(7)));
        assert_eq!(step(7, NONE, Some("7")).map(|step| step.id), Ok(Id::Int(7)));
        assert!(step(8, NONE, Some("7")).is_err());
        assert!(step(0, START, Some("call-77")).is_err(), "ids of this protocol are numbers");
    }
}
