//! Models as OVMS names them, laid out as directories of a repository: they accept the same requests as in OVMS.

use std::path::Path;

use sequor::config::ovms::layout::{VersionFiles, write};
use sequor::config::ovms::model::OvmsSequences;
use sequor::config::ovms::{DEFAULT_SCAN_MINUTES, OvmsModel};
use sequor::error::Failure;

use crate::support::values::tensor;
use crate::support::{Server, model};

/// Serves a model with this graph as its only version.
fn served(graph: &str, stateful: Option<OvmsSequences>, config: Option<&str>) -> Server {
    let (base, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let graph = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models").join(graph);
    fs_err::create_dir(base.path().join("1")).unwrap();
    fs_err::copy(graph, base.path().join("1/net.onnx")).unwrap();
    if let Some(config) = config {
        fs_err::write(base.path().join("config.pbtxt"), config).unwrap();
    }
    let (name, base_path) = ("m".to_owned(), base.path().to_owned());
    let ovms = OvmsModel { name, base_path, nireq: None, version_policy: None, stateful, unsupported: None };
    write(folder.path(), &[ovms], DEFAULT_SCAN_MINUTES, VersionFiles::Copy).unwrap();
    let read = |name: &str| fs_err::read(folder.path().join("m").join(name)).unwrap();
    let graph = if read("config.pbtxt").windows(8).any(|part| part == b"net.onnx") { "net.onnx" } else { "model.onnx" };
    let spec = model("m").config(&String::from_utf8(read("config.pbtxt")).unwrap());
    spec.file("sequor.toml", &read("sequor.toml")).file(&format!("1/{graph}"), &read(&format!("1/{graph}"))).serve()
}

#[test]
fn a_model_with_an_open_batch_takes_any_number_of_rows() {
    let server = served("echo_int32.onnx", None, None);
    for rows in [1_u64, 4, 5, 64] {
        let values: Vec<i32> = (0..rows as i32).collect();
        let answer = server.stateless().with("INPUT", tensor(&[rows, 1], &values)).answer();
        assert_eq!((answer.shape("OUTPUT"), answer.output::<i32>("OUTPUT")), (&[rows, 1][..], values));
    }
}

#[test]
fn a_models_own_config_pbtxt_limits_its_batch_size() {
    let server = served("echo_int32.onnx", None, Some("backend: \"onnxruntime\" default_model_filename: \"net.onnx\""));
    let five = server.stateless().with("INPUT", tensor(&[5, 1], &[1, 2, 3, 4, 5])).fails();
    assert!(format!("{five:?}").contains("BatchTooLarge"), "{five:?}");
}

#[test]
fn a_sequence_of_a_transformed_graph_has_one_row() {
    let stateful =
        OvmsSequences { idle_sequence_cleanup: true, max_sequence_number: 500, low_latency_transformation: true };
    let server = served("recurrent_open.onnx", Some(stateful), None);
    let sequence =
        |rows: u64| server.seq(7).start().with("x", tensor(&[2, rows, 3], &vec![0.5_f32; 6 * rows as usize]));
    let two = sequence(2).fails();
    assert!(matches!(two, Failure::Invalid { .. }), "a fault of the client: {two:?}");
    assert_eq!(sequence(1).answer().shape("y"), [2, 1, 1, 2]);
}
