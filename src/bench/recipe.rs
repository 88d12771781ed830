//! Builds requests for a model. Reads the model's inputs from the server once.

use std::collections::BTreeMap;

use bytes::Bytes;
use half::{bf16, f16};
use sequor_core::DataType;
use sequor_proto::infer_parameter::ParameterChoice;
use sequor_proto::model_config::SchedulingChoice;
use sequor_proto::model_infer_request::InferInputTensor;
use sequor_proto::model_metadata_response::TensorMetadata;
use sequor_proto::model_sequence_batching::Control;
use sequor_proto::model_sequence_batching::control::Kind;
use sequor_proto::service::grpc_inference_service_client::GrpcInferenceServiceClient;
use sequor_proto::{
    self as proto, InferParameter, ModelConfig, ModelConfigRequest, ModelInferRequest, ModelMetadataRequest,
};
use tonic::transport::Channel;

use super::BenchError;
use super::plan::ClientKey;
use super::random::SplitMix64;

/// The data of inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    Zeros,
    Random,
    /// The same small integer in all elements of a request, so that sums can be checked.
    Whole,
}

/// Requirements on a model's requests.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub model: String,
    pub data: Data,
    /// Shapes on the wire, by input; required if the model leaves dimensions open.
    pub shapes: BTreeMap<String, Vec<i64>>,
    /// Requests of a sequence; 0 sends requests without a sequence.
    pub sequence_length: u32,
    /// Variation of sequence lengths in percent, in both directions.
    pub variation: u32,
    /// Whether the first output must be the sum of the sequence's inputs ([`Data::Whole`]).
    pub check_sums: bool,
    pub seed: u64,
}

/// Builds the requests of a run.
#[derive(Debug, Clone)]
pub struct Recipe {
    pub model: String,
    ids: SequenceIds,
    inputs: Vec<InferInputTensor>,
    pub(super) variants: Vec<Variant>,
    /// The shortest and the longest sequence; `None` for requests without a sequence.
    pub(super) lengths: Option<(u32, u32)>,
    pub(super) check_sums: bool,
}

/// The data of one request.
#[derive(Debug, Clone)]
pub(super) struct Variant {
    data: Vec<Bytes>,
    /// Its contribution to a sum.
    pub(super) adds: i64,
}

/// Number of different requests, which are sent in a random order.
const VARIANTS: usize = 16;

/// The position of a request in its sequence.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepOfSequence {
    pub(super) sequence: i64,
    pub(super) start: bool,
    pub(super) end: bool,
}

impl Recipe {
    /// Reads the model's metadata and configuration from a server.
    pub async fn ask(channel: Channel, wanted: &Wanted) -> Result<Recipe, BenchError> {
        Recipe::ask_with(channel, wanted, None).await
    }

    /// The same, and shows a key.
    pub async fn ask_with(channel: Channel, wanted: &Wanted, key: Option<&ClientKey>) -> Result<Recipe, BenchError> {
        let mut client = GrpcInferenceServiceClient::new(channel).max_decoding_message_size(usize::MAX);
        let (name, version) = (wanted.model.clone(), String::new());
        let refused = |status: tonic::Status| BenchError::Refused {
            address: format!("model '{}'", wanted.model),
            why: match status.message() {
                broken if broken.contains("h2 protocol error") => {
                    format!("{broken}: its port speaks TLS, or is no gRPC port; sequor bench speaks gRPC without TLS")
                }
                text => text.to_owned(),
            },
        };
        let metadata = ModelMetadataRequest { name: name.clone(), version: version.clone() };
        let metadata = client.model_metadata(ClientKey::shown(key, metadata));
        let metadata = metadata.await.map_err(refused)?.into_inner();
        // If a server does not report whether its model takes sequences, it gets sequences, as requested.
        let config = client.model_config(ClientKey::shown(key, ModelConfigRequest { name, version })).await.ok();
        let ids = config.and_then(|c| c.into_inner().config).map_or(SequenceIds::Numbers, |config| ids_of(&config));
        Recipe::new(&metadata.inputs, ids, wanted)
    }

    /// Builds a recipe for a model with these inputs.
    pub(super) fn new(inputs: &[TensorMetadata], ids: SequenceIds, wanted: &Wanted) -> Result<Recipe, BenchError> {
        if let Some(name) = wanted.shapes.keys().find(|name| !inputs.iter().any(|i| i.name == **name)) {
            return Err(BenchError::Unfit(format!("model '{}' has no input '{name}' to give a shape", wanted.model)));
        }
        let tensors = inputs.iter().map(|input| tensor(input, wanted)).collect::<Result<Vec<_>, _>>()?;
        let mut random = SplitMix64::new(wanted.seed, 0);
        let mut variants = Vec::with_capacity(VARIANTS);
        for _ in 0..VARIANTS {
            let adds = i64::from(random.between(0, 7));
            let data = tensors.iter().map(|t| fill(t, wanted.data, adds, &mut random)).collect::<Result<_, _>>()?;
            variants.push(Variant { data, adds });
        }
        let lengths = (ids != SequenceIds::None && wanted.sequence_length > 0).then(|| {
            let spread = wanted.sequence_length.saturating_mul(wanted.variation.min(100)) / 100;
            ((wanted.sequence_length - spread).max(1), wanted.sequence_length.saturating_add(spread))
        });
        let (model, check_sums) = (wanted.model.clone(), wanted.check_sums);
        Ok(Recipe { model, ids, inputs: tensors, variants, lengths, check_sums })
    }

    /// The same requests without the check of sums.
    pub fn unchecked(self) -> Recipe {
        Recipe { check_sums: false, ..self }
    }

    /// A request with this data. Its answer repeats the mark.
    pub(super) fn message(&self, variant: &Variant, place: Option<StepOfSequence>, mark: String) -> ModelInferRequest {
        ModelInferRequest {
            model_name: self.model.clone(),
            id: mark,
            parameters: place.map(|place| parameters(place, self.ids)).unwrap_or_default(),
            inputs: self.inputs.clone(),
            raw_input_contents: variant.data.clone(),
            ..ModelInferRequest::default()
        }
    }
}

/// How a model knows its sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SequenceIds {
    /// It has none.
    None,
    Numbers,
    Texts,
}

fn ids_of(config: &ModelConfig) -> SequenceIds {
    let Some(SchedulingChoice::SequenceBatching(sequence)) = &config.scheduling_choice else {
        return SequenceIds::None;
    };
    let is_text = |control: &Control| {
        control.kind() == Kind::ControlSequenceCorrid && control.data_type() == proto::DataType::TypeString
    };
    match sequence.control_input.iter().flat_map(|input| &input.control).any(is_text) {
        true => SequenceIds::Texts,
        false => SequenceIds::Numbers,
    }
}

fn parameters(place: StepOfSequence, ids: SequenceIds) -> BTreeMap<String, InferParameter> {
    let of = |choice| InferParameter { parameter_choice: Some(choice) };
    let id = match ids {
        SequenceIds::Texts => ParameterChoice::StringParam(place.sequence.to_string()),
        SequenceIds::Numbers | SequenceIds::None => ParameterChoice::Int64Param(place.sequence),
    };
    BTreeMap::from([
        ("sequence_id".to_owned(), of(id)),
        ("sequence_start".to_owned(), of(ParameterChoice::BoolParam(place.start))),
        ("sequence_end".to_owned(), of(ParameterChoice::BoolParam(place.end))),
    ])
}

fn tensor(input: &TensorMetadata, wanted: &Wanted) -> Result<InferInputTensor, BenchError> {
    let (name, datatype) = (input.name.clone(), input.datatype.clone());
    let shape = match wanted.shapes.get(&name) {
        Some(shape) => shape.clone(),
        // If the first dimension is open, it is the batch; a request of a sequence is one row.
        None => input.shape.iter().enumerate().map(|(n, d)| if n == 0 && *d == -1 { 1 } else { *d }).collect(),
    };
    if shape.iter().any(|d| *d < 0) {
        let dims = input.shape.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
        let what =
            format!("input '{name}' of model '{}' is [{dims}]: say how large, --shape {name}:1,...", wanted.model);
        return Err(BenchError::Unfit(what));
    }
    Ok(InferInputTensor { name, datatype, shape, ..InferInputTensor::default() })
}

fn fill(tensor: &InferInputTensor, data: Data, whole: i64, random: &mut SplitMix64) -> Result<Bytes, BenchError> {
    let unfit = |why: &str| BenchError::Unfit(format!("input '{}': {why}", tensor.name));
    let dtype = DataType::from_name(&tensor.datatype).ok_or_else(|| unfit("its type is not known here"))?;
    let count = tensor.shape.iter().try_fold(1usize, |n, d| n.checked_mul(usize::try_from(*d).ok()?));
    let count = count.filter(|n| *n <= 1 << 28).ok_or_else(|| unfit("it is too large"))?;
    let mut out = Vec::with_capacity(count * dtype.zero_size());
    for _ in 0..count {
        let value = match data {
            Data::Zeros => 0.0,
            Data::Whole => whole as f64,
            Data::Random if dtype.size().is_some() && is_float(dtype) => random.share() * 2.0 - 1.0,
            Data::Random => f64::from(random.between(0, if dtype == DataType::Bool { 1 } else { 7 })),
        };
        element(dtype, value, &mut out);
    }
    Ok(out.into())
}

fn is_float(dtype: DataType) -> bool {
    matches!(dtype, DataType::Fp16 | DataType::Bf16 | DataType::Fp32 | DataType::Fp64)
}

/// Appends one element. All values here are small, so no cast truncates.
fn element(dtype: DataType, value: f64, out: &mut Vec<u8>) {
    let whole = value as i64;
    match dtype {
        DataType::Bytes => {
            let text = whole.to_string();
            out.extend_from_slice(&u32::try_from(text.len()).unwrap_or(0).to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        }
        DataType::Fp16 => out.extend_from_slice(&f16::from_f64(value).to_le_bytes()),
        DataType::Bf16 => out.extend_from_slice(&bf16::from_f64(value).to_le_bytes()),
        DataType::Fp32 => out.extend_from_slice(&(value as f32).to_le_bytes()),
        DataType::Fp64 => out.extend_from_slice(&value.to_le_bytes()),
        other => out.extend(whole.to_le_bytes().into_iter().take(other.size().unwrap_or(0))),
    }
}

/// Whether an output holds this number in every element.
pub(super) fn holds(datatype: &str, data: &[u8], sum: i64) -> bool {
    let Some(dtype) = DataType::from_name(datatype).filter(|d| d.size().is_some()) else { return false };
    let mut want = Vec::new();
    element(dtype, sum as f64, &mut want);
    !data.is_empty() && data.len().is_multiple_of(want.len()) && data.chunks_exact(want.len()).all(|e| e == want)
}

#[cfg(test)]
mod tests {
    use sequor_proto::ModelSequenceBatching;
    use sequor_proto::model_sequence_batching::ControlInput;

    use super::*;

    fn wanted(data: Data) -> Wanted {
        let (model, shapes) = ("m".to_owned(), BTreeMap::new());
        Wanted { model, data, shapes, sequence_length: 20, variation: 20, check_sums: false, seed: 1 }
    }

    fn input(datatype: &str, shape: &[i64]) -> TensorMetadata {
        TensorMetadata { name: "x".to_owned(), datatype: datatype.to_owned(), shape: shape.to_vec() }
    }

    #[test]
    fn an_open_first_dimension_is_one_row_and_other_open_dimensions_must_be_set() {
        let recipe =
            Recipe::new(&[input("FP32", &[-1, 3])], SequenceIds::Numbers, &wanted(Data::Zeros)).expect("a recipe");
        let message = recipe.message(&recipe.variants[0], None, String::new());
        assert_eq!((&message.inputs[0].shape, message.raw_input_contents[0].len()), (&vec![1, 3], 12));
        assert_eq!(recipe.lengths, Some((16, 24)));
        let open = [input("FP32", &[-1, -1, 80])];
        let error = Recipe::new(&open, SequenceIds::Numbers, &wanted(Data::Zeros)).expect_err("open").to_string();
        assert!(error.contains("[-1,-1,80]") && error.contains("--shape x:1,"), "{error}");
        let shapes = BTreeMap::from([("x".to_owned(), vec![1, 4, 80])]);
        assert!(Recipe::new(&open, SequenceIds::Numbers, &Wanted { shapes, ..wanted(Data::Zeros) }).is_ok());
    }

    #[test]
    fn a_model_with_a_text_control_gets_text_ids() {
        let control = |data_type: proto::DataType| Control {
            kind: Kind::ControlSequenceCorrid.into(),
            data_type: data_type.into(),
            ..Control::default()
        };
        let config = |data_type| {
            let input = ControlInput { control: vec![control(data_type)], ..ControlInput::default() };
            let sequence = ModelSequenceBatching { control_input: vec![input], ..ModelSequenceBatching::default() };
            let scheduling_choice = Some(SchedulingChoice::SequenceBatching(sequence));
            ModelConfig { scheduling_choice, ..ModelConfig::default() }
        };
        assert_eq!(ids_of(&ModelConfig::default()), SequenceIds::None);
        assert_eq!(ids_of(&config(proto::DataType::TypeUint64)), SequenceIds::Numbers);
        assert_eq!(ids_of(&config(proto::DataType::TypeString)), SequenceIds::Texts);
        let place = StepOfSequence { sequence: 7, start: true, end: false };
        let id = parameters(place, SequenceIds::Texts).remove("sequence_id").and_then(|id| id.parameter_choice);
        assert_eq!(id, Some(ParameterChoice::StringParam("7".to_owned())));
    }

    #[test]
    fn every_type_has_data_of_its_size_and_sums_are_recognised() {
        for dtype in DataType::ALL {
            for data in [Data::Zeros, Data::Random, Data::Whole] {
                let recipe =
                    Recipe::new(&[input(dtype.name(), &[1, 5])], SequenceIds::None, &wanted(data)).expect("a recipe");
                let len = recipe.variants[3].data[0].len();
                assert_eq!(len, 5 * dtype.size().unwrap_or(5), "{dtype}");
            }
        }
        let mut sum = Vec::new();
        element(DataType::Fp32, 12.0, &mut sum);
        element(DataType::Fp32, 12.0, &mut sum);
        assert!(
            holds("FP32", &sum, 12) && !holds("FP32", &sum, 13) && !holds("INT32", &sum, 12) && !holds("FP32", &[], 0)
        );
    }
}
