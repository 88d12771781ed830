//! Tests that a live sequence stays on its load after a reload: each surface reads and answers its steps by that load's configuration.

use std::sync::Arc;

use sequor::api::ServerLimits;
use sequor::backend::mock::MockBackend;
use sequor::config::server::file::ControlMode;
use sequor::config::units::Size;
use sequor::model::RepositoryControl;
use serde_json::{Value, json};

use crate::control::rig;
use crate::rig::{END, Rig, START, step, values};

fn config(dtype: &str, labels: &str) -> String {
    format!(
        r#"backend: "onnxruntime" max_batch_size: 8
        input {{ name: "INPUT" data_type: {dtype} dims: 1 }}
        output {{ name: "OUTPUT" data_type: {dtype} dims: 1 label_filename: "{labels}" }}
        sequence_batching {{ max_sequence_idle_microseconds: 600000000 state {{ input_name: "INPUT_STATE"
            output_name: "OUTPUT_STATE" data_type: {dtype} dims: 1 }} }}"#
    )
}

#[tokio::test]
async fn a_live_sequence_uses_the_types_and_labels_of_its_own_load() {
    let rig = rig(ControlMode::Explicit);
    let labels = |file: &str, text: &str| fs_err::write(rig.folder.path().join("sum").join(file), text).unwrap();
    rig.write("sum", &config("TYPE_INT32", "old.txt"), 1, "accumulate INT32");
    labels("old.txt", "old0\n");
    rig.load("sum").await.unwrap();
    for id in [1, 2] {
        let started = rig.client().await.model_infer(step(id, "", 1, &[START])).await.unwrap().into_inner();
        assert_eq!(started.model_version, "1");
    }
    rig.write("sum", &config("TYPE_FP32", "new.txt"), 2, "accumulate FP32");
    labels("new.txt", "new0\n");
    rig.load("sum").await.unwrap();

    // The newest version has FP32. An INT32 request fits only the sequence on the old version.
    let answer = rig.client().await.model_infer(step(1, "", 1, &[])).await.unwrap().into_inner();
    assert_eq!((answer.model_version.as_str(), values(&answer)), ("1", vec![2]));
    let refused = rig.client().await.model_infer(step(3, "", 1, &[START])).await.unwrap_err();
    assert!(refused.message().contains("'INT32', but model 'sum' expects 'FP32'"), "{refused:?}");

    // Surfaces whose requests have no type take the type from the load.
    let generated =
        rig.post("/v2/models/sum/generate", json!({ "INPUT": 1, "parameters": { "sequence_id": 1 } })).await;
    assert_eq!((generated.status, generated.json()["OUTPUT"].clone()), (200, json!(3)), "{:?}", generated.json());
    let body = json!({ "inputs": { "INPUT": [[1]], "sequence_id": [1], "sequence_control_input": [0] } });
    let predicted = rig.post("/v1/models/sum:predict", body).await;
    assert_eq!(predicted.json()["outputs"]["OUTPUT"], json!([[4]]), "{:?}", predicted.json());

    // So do names of classes.
    let class = |id: u64| {
        let input = json!({ "name": "INPUT", "datatype": "INT32", "shape": [1, 1], "data": [1] });
        json!({ "inputs": [input], "parameters": { "sequence_id": id },
            "outputs": [{ "name": "OUTPUT", "parameters": { "classification": 1 } }] })
    };
    let named = rig.post("/v2/models/sum/infer", class(1)).await;
    assert_eq!(named.json()["outputs"][0]["data"][0], json!("5:0:old0"), "{:?}", named.json());

    // An END frees its slot. Afterwards the id belongs to the newest version.
    let end = step(1, "", 1, &[END]);
    assert_eq!(rig.client().await.model_infer(end).await.unwrap().into_inner().model_version, "1");
    let unknown: Value = rig.post("/v2/models/sum/infer", class(1)).await.json();
    assert!(unknown["error"].as_str().unwrap().contains("'INT32', but model 'sum' expects 'FP32'"), "{unknown}");
}

#[tokio::test]
async fn a_body_that_is_decoded_for_two_loads_counts_its_bytes_once() {
    // The numbers take 16 KiB, and twice that does not fit.
    let limits = ServerLimits { queued: Size(28 << 10), ..ServerLimits::default() };
    let rig = Rig::over(Arc::new(MockBackend::new()), limits, tempfile::tempdir().unwrap());
    let directories = vec![rig.folder.path().to_owned()];
    rig.repository.govern(RepositoryControl { mode: ControlMode::Explicit, directories });
    let config = config("TYPE_INT32", "labels.txt").replace("dims: 1", "dims: 4096");
    let step = |start: bool| {
        let input = json!({ "name": "INPUT", "datatype": "INT32", "shape": [1, 4096], "data": vec![1; 4096] });
        json!({ "inputs": [input], "parameters": { "sequence_id": 1, "sequence_start": start } })
    };
    for version in [1, 2] {
        rig.write("sum", &config, version, "accumulate INT32 dims=4096");
        fs_err::write(rig.folder.path().join("sum/labels.txt"), "").unwrap();
        rig.load("sum").await.unwrap();
        let answer = rig.post("/v2/models/sum/infer", step(version == 1)).await;
        let body = answer.json();
        assert_eq!((answer.status, &body["model_version"]), (200, &json!("1")), "{version}: {}", body["error"]);
        assert_eq!(body["outputs"][0]["data"][4095], json!(version));
    }
    assert_eq!(rig.metrics.queued().get(), 0);
}
