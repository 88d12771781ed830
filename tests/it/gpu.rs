//! Tests GPU settings on machines with or without GPUs. A model that needs a GPU is refused with everything that is missing; a model that
//! only prefers one runs on the CPU. A server without models on a GPU loads nothing of CUDA.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use sequor::device::Accelerators;
use sequor::device::cuda::CudaDriver;

use crate::server::{Call, copy, get, models, runtime, sequor};

const PROVIDER: &str = "libonnxruntime_providers_cuda.so";

/// A repository of one model with this kind of instances.
fn repository(folder: &Path, kind: &str) -> PathBuf {
    let target = folder.join("models/accumulator_int32");
    copy(&models().join("accumulator_int32"), &target);
    let file = target.join("config.pbtxt");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("kind: KIND_CPU"));
    fs::write(file, text.replace("kind: KIND_CPU", kind)).unwrap();
    folder.join("models")
}

/// The library in a separate folder, with an invalid file under the provider's name next to it.
fn library(folder: &Path, provider: bool) -> PathBuf {
    let lib = folder.join("lib");
    fs::create_dir(&lib).unwrap();
    symlink(fs::canonicalize(runtime()).unwrap(), lib.join("libonnxruntime.so")).unwrap();
    if provider {
        fs::write(lib.join(PROVIDER), "no library").unwrap();
    }
    lib.join("libonnxruntime.so")
}

fn serve(kind: &str, provider: bool) -> (String, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let library = library(folder.path(), provider);
    let call = Call::serve(repository(folder.path(), kind)).environment("ORT_DYLIB_PATH", &library);
    let ended = call.start().stop();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    (ended.stdout, library)
}

fn line<'a>(stdout: &'a str, model: &str) -> &'a str {
    stdout.lines().find(|line| line.trim_start().starts_with(model)).unwrap_or_else(|| panic!("{stdout}"))
}

#[test]
fn kind_gpu_is_refused_with_all_that_is_missing() {
    let (stdout, library) = serve("kind: KIND_GPU", false);
    let provider = format!(
        "ONNX Runtime {} has no provider for NVIDIA GPUs ({PROVIDER} is not beside it); to get one: sequor runtime install --gpu",
        library.display()
    );
    let missing = match CudaDriver.usable() {
        Ok(_) => provider,
        Err(driver) => format!("{driver}; {provider}"),
    };
    let message = line(&stdout, "accumulator_int32");
    let end =
        format!("KIND_GPU cannot be served: {missing}; use KIND_CPU or KIND_AUTO, or start the server with --cpu-only");
    assert!(message.contains("REFUSED") && message.ends_with(&end), "{message}\n{end}");
    assert!(message.contains("config.pbtxt:") && stdout.contains("serving 0 of 1 models"), "{stdout}");
}

/// With a driver, the error is ONNX Runtime's, which cannot load the invalid provider.
#[test]
fn kind_gpu_is_refused_with_a_provider_that_cannot_be_used() {
    let (stdout, _) = serve("kind: KIND_GPU", true);
    let message = line(&stdout, "accumulator_int32");
    let missing = match CudaDriver.usable() {
        Ok(_) => "ONNX Runtime's provider for NVIDIA GPUs does not load: ".to_owned(),
        Err(driver) => format!(
            "KIND_GPU cannot be served: {driver}; use KIND_CPU or KIND_AUTO, or start the server with --cpu-only"
        ),
    };
    assert!(message.contains("REFUSED") && message.contains(&missing), "{message}");
    assert!(stdout.contains(" and GPUs for models that ask\n"), "{stdout}");
}

#[test]
fn kind_auto_serves_on_the_cpu_and_reports_why() {
    let (stdout, _) = serve("kind: KIND_AUTO", true);
    let why = match CudaDriver.usable() {
        Ok(_) => "ONNX Runtime's provider for NVIDIA GPUs does not load: ".to_owned(),
        Err(driver) => driver.to_string(),
    };
    let message = line(&stdout, "accumulator_int32");
    assert!(message.contains("ready") && message.contains(&format!(" on CPU: {why}")), "{message}");
    let (stdout, _) = serve("kind: KIND_AUTO", false);
    let message = line(&stdout, "accumulator_int32");
    assert!(message.contains("ready") && !message.contains(" on CPU"), "no model asks for a GPU: {message}");
    assert!(stdout.lines().next().unwrap().ends_with(", CPU only"), "{stdout}");
}

#[test]
fn check_refuses_kind_gpu_without_a_gpu_provider() {
    let folder = tempfile::tempdir().unwrap();
    let library = library(folder.path(), false);
    let repository = repository(folder.path(), "kind: KIND_GPU");
    let call = Call::new(sequor()).environment("ORT_DYLIB_PATH", library).arguments(["check"]).arguments([repository]);
    let ended = call.end();
    assert_eq!(ended.code, Some(3), "{ended:?}");
    let all = format!("{}{}", ended.stdout, ended.stderr);
    assert!(all.contains("E-INSTANCES") && all.contains("sequor runtime install --gpu"), "{all}");
}

/// This holds on machines with GPUs too, because no model asks for one.
#[test]
fn a_server_on_the_cpu_has_nothing_of_cuda_in_it() {
    let server = Call::serve(models()).start();
    for model in ["accumulator_fp32", "accumulator_int32", "gru", "vad"] {
        assert_eq!(server.get(&format!("/v2/models/{model}/ready")).0, 200, "{model}");
    }
    assert_eq!(get(server.metrics, "/metrics").0, 200);
    let maps = fs::read_to_string(format!("/proc/{}/maps", server.process.pid())).unwrap();
    assert!(maps.contains("libonnxruntime.so"), "{maps}");
    for library in ["libcuda", "libcudart", "libcublas", "libcudnn", "libnvidia", "onnxruntime_providers"] {
        assert!(!maps.contains(library), "{library} is in it:\n{maps}");
    }
}
