//! The checked-in Rust of `proto/` is what its generator makes of it: this test is that generator. With `UPDATE_GENERATED=1` it writes the
//! files, else it compares. So building the server needs no build script and no protoc.

#![allow(clippy::expect_used)]

use std::path::{Path, PathBuf};

use prost::Message as _;

/// What every generated file says first.
const HEADER: &str =
    "//! Made from `proto/` by `UPDATE_GENERATED=1 cargo test -p sequor-proto`. Not to be edited.\n// @generated\n\n";
/// Maps whose order a user sees.
const ORDERED: [&str; 2] = [".inference", ".tensorflow"];
/// Tensor bytes stay slices of the buffer they came in.
const SLICES: [&str; 4] = [
    ".inference.ModelInferRequest.raw_input_contents",
    ".inference.ModelInferResponse.raw_output_contents",
    ".tensorflow.TensorProto.tensor_content",
    ".tensorflow.TensorProto.string_val",
];

#[test]
fn checked_in_files_match_the_output_of_the_generator() {
    let kserve = compile(&["model_config.proto", "grpc_service.proto"]);
    settle("proto/descriptors.bin", &without_source_info(kserve.clone()).encode_to_vec());
    settle("crates/proto/src/messages.rs", format!("{HEADER}{}", messages(kserve.clone(), "inference.rs")).as_bytes());
    let service = service(kserve, (".inference", "crate"), "inference.rs");
    settle("crates/proto/src/service.rs", format!("{HEADER}{service}").as_bytes());
}

#[test]
fn the_tensorflow_serving_files_match_the_output_of_the_generator() {
    let serving = compile(&["tensorflow/serving.proto"]);
    settle("proto/tensorflow/descriptors.bin", &without_source_info(serving.clone()).encode_to_vec());
    let package = |file| messages(serving.clone(), file);
    let (tensors, errors, calls) =
        (package("tensorflow.rs"), package("tensorflow.error.rs"), package("tensorflow.serving.rs"));
    let nested = format!("{HEADER}{tensors}\npub mod error {{\n{errors}}}\n\npub mod serving {{\n{calls}}}\n");
    settle("crates/proto/src/tensorflow.rs", nested.as_bytes());
    let services = service(serving, (".tensorflow", "crate::tensorflow"), "tensorflow.serving.rs");
    settle("crates/proto/src/tensorflow_service.rs", format!("{HEADER}{services}").as_bytes());
}

/// The messages of a collector of traces. The modules are nested like the packages, because the generated code names the types so.
#[test]
fn the_opentelemetry_files_match_the_output_of_the_generator() {
    let from = "third_party/opentelemetry-proto";
    let traces = compile_in(from, &["opentelemetry/proto/collector/trace/v1/trace_service.proto"]);
    let package = |name: &str| {
        let text = messages(traces.clone(), &format!("opentelemetry.proto.{name}.v1.rs"));
        format!("pub mod {} {{\npub mod v1 {{\n{text}}}\n}}\n", name.rsplit('.').next().unwrap_or(name))
    };
    let (common, resource, trace) = (package("common"), package("resource"), package("trace"));
    let collector = format!("pub mod collector {{\n{}}}\n", package("collector.trace"));
    let nested = format!("{}{common}\n{resource}\n{trace}\n{collector}", HEADER.replace("proto/", from));
    settle("crates/proto/src/opentelemetry.rs", nested.as_bytes());
    let path = (".opentelemetry.proto", "crate::opentelemetry");
    let services = service(traces, path, "opentelemetry.proto.collector.trace.v1.rs");
    let services = format!("{}{services}", HEADER.replace("proto/", from));
    settle("crates/proto/src/opentelemetry_service.rs", services.as_bytes());
}

fn compile(files: &[&str]) -> prost_types::FileDescriptorSet {
    compile_in("proto", files)
}

fn compile_in(folder: &str, files: &[&str]) -> prost_types::FileDescriptorSet {
    protox::Compiler::new([root(folder)])
        .expect("a folder")
        .include_imports(true)
        .include_source_info(true)
        .open_files(files.iter().map(|file| root(folder).join(file)))
        .expect("the protos compile")
        .file_descriptor_set()
}

/// The messages of a package.
fn messages(descriptors: prost_types::FileDescriptorSet, file: &str) -> String {
    let out = tempfile::tempdir().expect("a temporary folder");
    prost_build::Config::new()
        .out_dir(out.path())
        .btree_map(ORDERED)
        .bytes(SLICES)
        .compile_fds(descriptors)
        .expect("messages are generated");
    read(out.path(), file)
}

/// The services of a package and their clients, over the messages of this crate.
fn service(descriptors: prost_types::FileDescriptorSet, (package, path): (&str, &str), file: &str) -> String {
    let out = tempfile::tempdir().expect("a temporary folder");
    tonic_prost_build::configure()
        .out_dir(out.path())
        .extern_path(package, path)
        .emit_rerun_if_changed(false)
        .compile_fds(descriptors)
        .expect("the service is generated");
    read(out.path(), file)
}

fn read(out: &Path, file: &str) -> String {
    let text = std::fs::read_to_string(out.join(file)).expect("one file for the package");
    text.strip_prefix("// This file is @generated by prost-build.\n").unwrap_or(&text).to_owned()
}

/// Comments of the protos, and where things stand in them: of no use at run time.
fn without_source_info(mut descriptors: prost_types::FileDescriptorSet) -> prost_types::FileDescriptorSet {
    for file in &mut descriptors.file {
        file.source_code_info = None;
    }
    descriptors
}

fn settle(path: &str, made: &[u8]) {
    let file = root(path);
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(&file, made).expect("the file can be written");
    }
    let there = std::fs::read(&file).unwrap_or_default();
    assert!(there == made, "{path} is not what proto/ makes: run `UPDATE_GENERATED=1 cargo test -p sequor-proto`");
}

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}
