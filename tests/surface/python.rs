//! Runs Triton's and OVMS's own Python clients against a server with ONNX Runtime. `cargo xtask test` creates their Python environment.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;

use sequor::api::ServerLimits;
use sequor::backend::onnx::OnnxBackend;
use sequor::backend::onnx::library::{self, System};
use sequor::config::server::file::ControlMode;
use sequor::model::RepositoryControl;

use crate::rig::Rig;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn python() -> PathBuf {
    std::env::var_os("SEQUOR_PYTHON").map_or_else(|| root().join(".sequor/venv/bin/python"), PathBuf::from)
}

/// A server with this repository's models and ONNX Runtime.
fn rig(folder: tempfile::TempDir) -> Rig {
    let library = library::find(None, &System).expect("an ONNX Runtime; `cargo xtask test` fetches one");
    Rig::over(Arc::new(OnnxBackend::new(&library.path).unwrap()), ServerLimits::default(), folder)
}

async fn run(rig: &Rig, script: &str, more: &[&str]) -> Output {
    let mut command = std::process::Command::new(python());
    command.arg(root().join("tests/python").join(script)).args(more).env("PYTHONDONTWRITEBYTECODE", "1");
    command.arg("--grpc").arg(rig.addresses.grpc.unwrap().to_string());
    command.arg("--http").arg(rig.addresses.http.unwrap().to_string());
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
    output.unwrap_or_else(|e| panic!("{}: {e}; `cargo xtask test` makes it", python().display()))
}

fn check(output: &Output) {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
}

async fn over_the_models(script: &str) {
    let rig = rig(tempfile::tempdir().unwrap());
    for model in ["accumulate", "accumulator_fp32", "accumulator_int32"] {
        rig.repository.load(&root().join("models").join(model));
    }
    assert!(rig.repository.ready(), "{:?}", rig.repository.statuses());
    check(&run(&rig, script, &[]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams() {
    over_the_models("streams.py").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shared_memory() {
    over_the_models("shm.py").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ovms_clients() {
    over_the_models("tfs.py").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_the_stateful_backend() {
    over_the_models("stateful.py").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn control() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (root().join("models/accumulator_fp32"), folder.path().join("accumulator_fp32"));
    fs_err::create_dir_all(to.join("1")).unwrap();
    for file in ["config.pbtxt", "1/model.onnx"] {
        fs_err::copy(from.join(file), to.join(file)).unwrap();
    }
    let text = fs_err::read_to_string(from.join("config.pbtxt")).unwrap();
    let mut config = sequor::config::model::text::parse(Path::new("config.pbtxt"), &text).unwrap();
    config.max_batch_size = 7;
    fs_err::write(folder.path().join("config.json"), sequor::config::model::json::to_json(&config).to_string())
        .unwrap();
    let rig = rig(folder);
    let directories = vec![rig.folder.path().to_owned()];
    rig.repository.govern(RepositoryControl { mode: ControlMode::Explicit, directories });
    rig.repository.take_uploads(64 << 20);
    let repository = rig.folder.path().display().to_string();
    check(&run(&rig, "control.py", &["--repository", &repository]).await);
}
