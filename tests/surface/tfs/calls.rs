//! A server with models for these tests, and calls of its services.

use sequor::api::ServerLimits;
use sequor_proto::tensorflow::serving::model_spec::VersionChoice;
use sequor_proto::tensorflow::serving::{ModelSpec, PredictRequest, PredictResponse};
use sequor_proto::tensorflow::tensor_shape_proto::Dim;
use sequor_proto::tensorflow::{DataType, TensorProto, TensorShapeProto};
use sequor_proto::tensorflow_service::model_service_client::ModelServiceClient;
use sequor_proto::tensorflow_service::prediction_service_client::PredictionServiceClient;
use tonic::transport::Channel;

use crate::rig::{Rig, SUM};

pub(super) const START: u32 = 1;
pub(super) const END: u32 = 2;

/// A server whose model `made` is a running sum, with at most three live sequences. It has two instances.
pub(super) fn server() -> Rig {
    let config = SUM.replace("count: 1", "count: 2");
    let server = Rig::with(ServerLimits::default(), &[("made", &config, "accumulate INT32 poison=-13")]);
    limit(&server, "max_live = 3");
    server
}

/// Sets a key of `[sequence]` of the model `made`, and reloads it.
pub(super) fn limit(server: &Rig, key: &str) {
    let file = server.folder.path().join("made/sequor.toml");
    fs_err::write(file, format!("schema = 1\n[sequence]\n{key}\n")).unwrap();
    server.repository.load(&server.folder.path().join("made"));
    assert!(server.repository.ready(), "{:?}", server.repository.statuses());
}

pub(super) async fn channel(server: &Rig) -> Channel {
    let address = format!("http://{}", server.addresses.grpc.unwrap());
    Channel::from_shared(address).unwrap().connect().await.unwrap()
}

pub(crate) async fn client(server: &Rig) -> PredictionServiceClient<Channel> {
    PredictionServiceClient::new(channel(server).await)
}

pub(super) async fn models(server: &Rig) -> ModelServiceClient<Channel> {
    ModelServiceClient::new(channel(server).await)
}

pub(super) fn shape(dims: &[i64]) -> Option<TensorShapeProto> {
    let dim = dims.iter().map(|size| Dim { size: *size, name: String::new() }).collect();
    Some(TensorShapeProto { dim, unknown_rank: false })
}

/// A tensor of one number, as bytes.
pub(crate) fn number(value: i32) -> TensorProto {
    TensorProto {
        dtype: DataType::DtInt32.into(),
        tensor_shape: shape(&[1, 1]),
        tensor_content: value.to_le_bytes().to_vec().into(),
        ..TensorProto::default()
    }
}

pub(super) fn id(id: u64) -> TensorProto {
    let dtype = DataType::DtUint64.into();
    TensorProto { dtype, tensor_shape: shape(&[1]), uint64_val: vec![id], ..TensorProto::default() }
}

pub(super) fn control(value: u32) -> TensorProto {
    let dtype = DataType::DtUint32.into();
    TensorProto { dtype, tensor_shape: shape(&[1]), uint32_val: vec![value], ..TensorProto::default() }
}

pub(super) fn spec(model: &str) -> Option<ModelSpec> {
    Some(ModelSpec { name: model.to_owned(), ..ModelSpec::default() })
}

pub(super) fn spec_of(model: &str, version: i64) -> Option<ModelSpec> {
    let version_choice = Some(VersionChoice::Version(version));
    Some(ModelSpec { name: model.to_owned(), version_choice, ..ModelSpec::default() })
}

pub(crate) fn request(model: &str, inputs: &[(&str, TensorProto)]) -> PredictRequest {
    let inputs = inputs.iter().map(|(name, tensor)| ((*name).to_owned(), tensor.clone())).collect();
    PredictRequest { model_spec: spec(model), inputs, ..PredictRequest::default() }
}

/// A step of a sequence of `made`; 0 means no id.
pub(super) fn step(sequence: u64, flag: u32, value: i32) -> PredictRequest {
    let mut inputs = vec![("INPUT", number(value)), ("sequence_control_input", control(flag))];
    if sequence > 0 {
        inputs.push(("sequence_id", id(sequence)));
    }
    request("made", &inputs)
}

/// The first number of the output, and the id of the sequence.
pub(super) fn answer(response: &PredictResponse) -> (i32, Option<u64>) {
    let output = &response.outputs["OUTPUT"];
    let number = i32::from_le_bytes(output.tensor_content[..4].try_into().unwrap());
    let id = response.outputs.get("sequence_id").map(|id| {
        assert_eq!((id.dtype, &id.tensor_shape), (DataType::DtUint64.into(), &shape(&[1])));
        id.uint64_val[0]
    });
    (number, id)
}
