//! Tests that the session options of a configuration reach ONNX Runtime.

use super::{backend, model};
use crate::backend::{Backend as _, LoadOptions};
use crate::config::model::settings::{GraphLevel, SessionTuning};

fn load(tuning: SessionTuning) -> Result<(), String> {
    let options = LoadOptions { tuning, ..LoadOptions::default() };
    backend().load(&model("sum_fp32"), &options).map(|_| ()).map_err(|e| e.0)
}

/// Number of threads of this process. Each test has its own process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

#[test]
fn a_session_has_the_threads_that_its_configuration_names() {
    backend();
    let before = threads();
    let options = |tuning| LoadOptions { tuning, ..LoadOptions::default() };
    let kept = backend().load(&model("sum_fp32"), &LoadOptions::default()).unwrap();
    assert_eq!(threads(), before, "one thread is the caller's");
    let tuning = SessionTuning { intra_threads: Some(4), ..SessionTuning::default() };
    let more = backend().load(&model("sum_fp32"), &options(tuning)).unwrap();
    assert_eq!(threads(), before + 3);
    let tuning = SessionTuning { parallel: Some(true), inter_threads: Some(3), ..SessionTuning::default() };
    let parallel = backend().load(&model("sum_fp32"), &options(tuning)).unwrap();
    assert!(threads() > before + 3);
    drop((kept, more, parallel));
}

#[test]
fn session_entries_are_passed_to_onnxruntime_and_validated_there() {
    let entry = |name: &str, value: &str| SessionTuning {
        entries: vec![(name.to_owned(), value.to_owned())],
        ..SessionTuning::default()
    };
    assert_eq!(load(entry("session.set_denormal_as_zero", "1")), Ok(()));
    let affinities = entry("session.intra_op_thread_affinities", "not a processor");
    assert!(load(SessionTuning { intra_threads: Some(2), ..affinities }).is_err());
}

#[test]
fn every_level_and_allocator_loads() {
    for level in [GraphLevel::None, GraphLevel::Basic, GraphLevel::Extended, GraphLevel::All] {
        for arena in [None, Some(true), Some(false)] {
            let memory_pattern = arena;
            assert_eq!(load(SessionTuning { level, arena, memory_pattern, ..SessionTuning::default() }), Ok(()));
        }
    }
}

#[test]
fn openvino_is_refused_if_its_provider_is_missing() {
    let Err(error) = backend().has_openvino() else { return };
    assert!(error.0.contains("has no OpenVINO provider"), "{error}");
    assert!(load(SessionTuning { openvino: Some(vec![]), ..SessionTuning::default() }).is_err());
}
