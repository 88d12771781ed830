//! Tests tensors in system shared memory, over both protocols.

use std::path::PathBuf;

use sequor_proto::infer_parameter::ParameterChoice;
use sequor_proto::model_infer_request::InferRequestedOutputTensor;
use sequor_proto::{
    CudaSharedMemoryRegisterRequest, CudaSharedMemoryStatusRequest, CudaSharedMemoryUnregisterRequest, InferParameter,
    ModelInferRequest, SystemSharedMemoryRegisterRequest, SystemSharedMemoryStatusRequest,
    SystemSharedMemoryUnregisterRequest,
};
use serde_json::json;
use tonic::Code;

use crate::rig::{Rig, parameter, request};

/// A shared memory object, deleted with the test.
struct Shared {
    key: String,
    path: PathBuf,
}

impl Shared {
    fn new(name: &str, bytes: &[u8]) -> Shared {
        let name = format!("sequor-test-{}-{name}", std::process::id());
        let path = PathBuf::from("/dev/shm").join(&name);
        fs_err::write(&path, bytes).unwrap();
        Shared { key: format!("/{name}"), path }
    }

    fn bytes(&self) -> Vec<u8> {
        fs_err::read(&self.path).unwrap()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = fs_err::remove_file(&self.path);
    }
}

async fn register(rig: &Rig, shared: &Shared, name: &str, offset: u64, byte_size: u64) -> Result<(), tonic::Status> {
    let (name, key) = (name.to_owned(), shared.key.clone());
    let request = SystemSharedMemoryRegisterRequest { name, key, offset, byte_size };
    rig.client().await.system_shared_memory_register(request).await.map(|_| ())
}

fn place(region: &str, size: i64, offset: i64) -> std::collections::BTreeMap<String, InferParameter> {
    let int = |n| parameter(ParameterChoice::Int64Param(n));
    let mut place = std::collections::BTreeMap::from([
        ("shared_memory_region".to_owned(), parameter(ParameterChoice::StringParam(region.to_owned()))),
        ("shared_memory_byte_size".to_owned(), int(size)),
    ]);
    if offset > 0 {
        place.insert("shared_memory_offset".to_owned(), int(offset));
    }
    place
}

/// A request with two numbers from `in` (at byte 4), whose answer goes to `out` (at byte 8).
fn through() -> ModelInferRequest {
    let mut request = request("same", "", &[0, 0]);
    request.raw_input_contents.clear();
    request.inputs[0].parameters = place("in", 8, 4);
    let (name, parameters) = ("OUTPUT".to_owned(), place("out", 8, 8));
    request.outputs = vec![InferRequestedOutputTensor { name, parameters }];
    request
}

#[tokio::test]
async fn inputs_and_outputs_may_be_in_shared_memory_regions() {
    let rig = Rig::new();
    let (from, to) = (Shared::new("a", &(0..32).collect::<Vec<u8>>()), Shared::new("b", &[0; 32]));
    register(&rig, &from, "in", 4, 20).await.unwrap();
    register(&rig, &to, "out", 0, 32).await.unwrap();
    let answer = rig.client().await.model_infer(through()).await.unwrap().into_inner();
    assert_eq!(to.bytes()[8..16], [8, 9, 10, 11, 12, 13, 14, 15]);
    assert_eq!((to.bytes()[..8].to_vec(), to.bytes()[16..].to_vec()), (vec![0; 8], vec![0; 16]));
    assert_eq!((answer.raw_output_contents.len(), answer.raw_output_contents[0].len()), (1, 0));
    assert_eq!(answer.outputs[0].parameters, place("out", 8, 8));
    assert_eq!(answer.outputs[0].shape, [1, 2]);

    let body = json!({
        "inputs": [{ "name": "INPUT", "shape": [1, 1], "datatype": "INT32",
            "parameters": { "shared_memory_region": "in", "shared_memory_byte_size": 4 } }],
        "outputs": [{ "name": "OUTPUT",
            "parameters": { "shared_memory_region": "out", "shared_memory_byte_size": 32 } }],
    });
    let answer = rig.post("/v2/models/same/infer", body).await.json();
    // As in Triton. Its C++ client takes any parameter of an output as the size of binary data.
    assert_eq!(answer["outputs"][0], json!({ "name": "OUTPUT", "datatype": "INT32", "shape": [1, 1] }));
    assert_eq!(to.bytes()[..4], [4, 5, 6, 7]);
}

#[tokio::test]
async fn a_request_for_bytes_outside_a_shared_memory_region_is_refused() {
    let rig = Rig::new();
    let (from, to) = (Shared::new("c", &[0; 32]), Shared::new("d", &[0; 32]));
    register(&rig, &from, "in", 0, 8).await.unwrap();
    register(&rig, &to, "out", 0, 12).await.unwrap();
    let shown = async |change: &dyn Fn(&mut ModelInferRequest)| {
        let mut request = through();
        change(&mut request);
        let status = rig.client().await.model_infer(request).await.unwrap_err();
        (status.code(), status.message().to_owned())
    };
    let (code, text) = shown(&|_| {}).await;
    assert_eq!(
        (code, text.as_str()),
        (Code::InvalidArgument, "Invalid offset + byte size for shared memory region: 'in'")
    );
    let (_, text) = shown(&|r| r.inputs[0].parameters = place("in", 8, 0)).await;
    assert_eq!(text, "Invalid offset + byte size for shared memory region: 'out'");
    let small = |r: &mut ModelInferRequest| {
        r.inputs[0].parameters = place("in", 8, 0);
        r.outputs[0].parameters = place("out", 4, 0);
    };
    let (_, text) = shown(&small).await;
    assert!(text.contains("(4 bytes) should be at least 8 bytes to hold the results"), "{text}");
    let (code, _) = shown(&|r| r.inputs[0].parameters = place("nope", 8, 0)).await;
    assert_eq!(code, Code::NotFound);
    let typed = |r: &mut ModelInferRequest| {
        r.inputs[0].parameters = place("in", 8, 0);
        r.inputs[0].contents = Some(Default::default());
    };
    assert!(shown(&typed).await.1.starts_with("unexpected 'content' provided when using shared memory"));
}

#[tokio::test]
async fn regions_are_listed_and_forgotten_over_both_protocols() {
    let rig = Rig::new();
    let shared = Shared::new("e", &[0; 64]);
    register(&rig, &shared, "a", 8, 16).await.unwrap();
    assert_eq!(register(&rig, &shared, "a", 0, 1).await.unwrap_err().code(), Code::AlreadyExists);
    assert_eq!(register(&rig, &shared, "b", 60, 5).await.unwrap_err().code(), Code::InvalidArgument);
    let body = json!({ "key": shared.key, "offset": 0, "byte_size": 64 });
    assert_eq!(rig.post("/v2/systemsharedmemory/region/b/register", body).await.status, 200);
    let row = |name: &str, offset: u64, size: u64| json!({ "name": name, "key": shared.key, "offset": offset, "byte_size": size });
    assert_eq!(rig.get("/v2/systemsharedmemory/status").await, json!([row("a", 8, 16), row("b", 0, 64)]));
    let status = async |name: &str| {
        let request = SystemSharedMemoryStatusRequest { name: name.to_owned() };
        rig.client().await.system_shared_memory_status(request).await.map(|r| r.into_inner().regions)
    };
    assert_eq!(status("a").await.unwrap()["a"].byte_size, 16);
    assert_eq!(status("").await.unwrap().len(), 2);
    let unregister = SystemSharedMemoryUnregisterRequest { name: "a".to_owned() };
    rig.client().await.system_shared_memory_unregister(unregister).await.unwrap();
    let gone = status("a").await.unwrap_err();
    assert_eq!((gone.code(), gone.message()), (Code::NotFound, "Unable to find system shared memory region: 'a'"));
    assert_eq!(rig.http("GET /v2/systemsharedmemory/region/a/status", &[], b"").await.status, 404);
    assert_eq!(rig.http("POST /v2/systemsharedmemory/unregister", &[], b"").await.status, 200);
    assert_eq!(rig.get("/v2/systemsharedmemory/status").await, json!([]));
}

#[tokio::test]
async fn cuda_regions_are_refused_and_there_are_none() {
    let rig = Rig::new();
    let mut client = rig.client().await;
    client.cuda_shared_memory_unregister(CudaSharedMemoryUnregisterRequest::default()).await.unwrap();
    let status = client.cuda_shared_memory_status(CudaSharedMemoryStatusRequest::default()).await.unwrap();
    assert!(status.into_inner().regions.is_empty());
    let request = CudaSharedMemoryRegisterRequest { name: "r".to_owned(), ..Default::default() };
    let refused = client.cuda_shared_memory_register(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
    assert!(refused.message().contains("CUDA shared memory is not served here"), "{}", refused.message());
    assert_eq!(rig.get("/v2/cudasharedmemory/status").await, json!([]));
    assert_eq!(rig.http("POST /v2/cudasharedmemory/unregister", &[], b"").await.status, 200);
    assert_eq!(rig.http("POST /v2/cudasharedmemory/region/r/register", &[], b"{}").await.status, 501);
}
