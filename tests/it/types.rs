//! Tests every data type, through Triton's own clients and as a state.

use std::fs;

use sequor_core::DataType;

use crate::python;
use crate::server::{Call, root};

#[test]
fn every_type_travels_through_clients_and_states() {
    let call = Call::serve("repository");
    let model = call.folder.path().join("repository/delay");
    fs::create_dir_all(model.join("1")).unwrap();
    fs::copy(root().join("tests/models/delay_all.onnx"), model.join("1/model.onnx")).unwrap();
    let mut config =
        "backend: \"onnxruntime\" max_batch_size: 2 instance_group { kind: KIND_CPU count: 1 }\n".to_owned();
    let mut states = String::new();
    for dtype in DataType::ALL {
        let (dtype, name) = (dtype.config_name(), dtype.config_name().trim_start_matches("TYPE_").to_lowercase());
        config += &format!("input {{ name: \"X_{name}\" data_type: {dtype} dims: [ 2 ] }}\n");
        config += &format!("output {{ name: \"OUT_{name}\" data_type: {dtype} dims: [ 2 ] }}\n");
        states += &format!(
            "state {{ input_name: \"IN_{name}\" output_name: \"NEW_{name}\" data_type: {dtype} dims: [ 2 ] }}\n"
        );
    }
    config += &format!("sequence_batching {{ max_sequence_idle_microseconds: 600000000 direct {{ }}\n{states} }}");
    fs::write(model.join("config.pbtxt"), config).unwrap();
    let server = call.start();
    python::check("datatypes.py", &server);
    assert_eq!(server.stop().code, Some(0));
}
