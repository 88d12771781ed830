//! The effect of a member's new load on ensembles in service.

use super::ensembles::{EnsembleRig, LONG, accumulator, both_ways, ensemble};
use crate::config::server::file::ControlMode;
use crate::error::{ControlFailure, Failure, NoVersionReason, NotServed};
use crate::model::*;

/// Lets clients load models of this rig.
pub(super) fn explicit(rig: EnsembleRig) -> EnsembleRig {
    let directories = vec![rig.folder.path().to_owned()];
    rig.repository.govern(RepositoryControl { directories, mode: ControlMode::Explicit });
    rig
}

/// Loads a model again, and returns the faults.
pub(super) fn load(rig: &EnsembleRig, model: &str) -> Vec<String> {
    match rig.repository.load_by_request(model, None) {
        Ok(()) => Vec::new(),
        Err(Failure::Control(ControlFailure::Failed { why, .. })) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_member_keeps_its_load_if_an_ensemble_cannot_use_the_new_load() {
    let rig = explicit(EnsembleRig::both_ways(4));
    assert_eq!(rig.value("ab", 1, 5, |s| s.start = true).unwrap(), 5);
    let wide = accumulator(4, LONG).replace("dims: 1", "dims: 2");
    rig.put("b", "accumulate INT32 dims=2", &wide);
    let faults = load(&rig, "b");
    for ensemble in ["ab", "ba"] {
        let message = format!("b: ensemble '{ensemble}' is in service and does not fit this load: ");
        let fault = faults.iter().find(|fault| fault.starts_with(&message)).unwrap_or_else(|| panic!("{faults:?}"));
        assert!(fault.contains("inconsistent shape"), "{fault}");
    }
    assert_eq!(rig.value("ab", 1, 1, |_| {}).unwrap(), 11, "live sequences go on");
    assert_eq!(rig.value("ba", 2, 5, |s| s.start = true).unwrap(), 5, "and new ones begin");
    // Without that conflict, it loads.
    rig.put("b", "accumulate INT32 poison=77", &accumulator(8, LONG));
    assert_eq!(load(&rig, "b"), [""; 0]);
    assert_eq!(rig.value("ab", 1, 1, |_| {}).unwrap(), 18);
}

#[test]
fn a_member_that_changes_with_its_ensembles_takes_them_along() {
    let rig = explicit(EnsembleRig::new(&[
        ("ab", "", ensemble("ab", &["a", "b"], "")),
        ("a", "accumulate INT32", accumulator(4, LONG)),
        ("b", "accumulate INT32", accumulator(4, LONG)),
    ]));
    assert_eq!(rig.value("ab", 1, 5, |s| s.start = true).unwrap(), 5);
    // The second member has no sequences from now on. The ensemble's configuration still fits it.
    rig.put("b", "identity INT32", PLAIN);
    assert_eq!(load(&rig, "b"), [""; 0]);
    assert_eq!(rig.value("ab", 1, 1, |_| {}).unwrap(), 11, "a live sequence goes on in the loads that it began in");
    assert_eq!(rig.value("ab", 2, 5, |s| s.start = true).unwrap(), 5);
    assert_eq!(rig.value("ab", 2, 5, |_| {}).unwrap(), 10, "the new plan knows that b is stateless");
    assert_eq!((rig.live("a"), rig.live("b")), (2, 1));
    // Both members' shapes change. With the ensemble's file changed too, all loads succeed, in any order.
    rig.put("ab", "", &ensemble("ab", &["b"], "").replace("dims: 1", "dims: 2"));
    rig.put("b", "identity INT32 dims=2", &PLAIN.replace("dims: 1", "dims: 2"));
    assert_eq!(load(&rig, "b"), [""; 0]);
    let metadata = rig.repository.find("ab", "").unwrap().metadata();
    assert_eq!(metadata.inputs[0].dims.to_string(), "[-1,2]");
}

#[test]
fn an_ensemble_that_was_unloaded_with_a_member_is_loaded_with_it() {
    let rig = explicit(EnsembleRig::both_ways(4));
    let ready = |model: &str| rig.repository.find(model, "").is_ok();
    let served = || ["ab", "ba", "a", "b"].map(ready);
    rig.repository.unload_by_request("a", false).unwrap();
    assert_eq!(served(), [false, false, false, true]);
    let why = NotServed::NoVersion { model: "ab".to_owned(), why: NoVersionReason::MemberUnloaded };
    assert!(
        matches!(rig.repository.find("ab", ""), Err(Failure::NotServed(of)) if of == why),
        "the index has the reason"
    );
    // An operator unloads one of them; it stays unloaded.
    rig.repository.unload_by_request("ba", false).unwrap();
    assert_eq!(load(&rig, "a"), [""; 0]);
    assert_eq!(served(), [true, false, true, true]);
    // A member that an operator has unloaded stays unloaded, too.
    rig.repository.unload_by_request("a", false).unwrap();
    rig.repository.unload_by_request("b", false).unwrap();
    assert_eq!(load(&rig, "a"), [""; 0]);
    assert_eq!(served(), [false, false, true, false]);
    assert_eq!(load(&rig, "b"), [""; 0]);
    assert_eq!(served(), [true, false, true, true]);
}

#[test]
fn an_unload_takes_the_members_along_if_it_is_asked_to() {
    let rig = explicit(EnsembleRig::both_ways(4));
    let ready = |model: &str| rig.repository.find(model, "").is_ok();
    let served = || ["ab", "ba", "a", "b"].map(ready);
    rig.repository.unload_by_request("ab", true).unwrap();
    assert_eq!(served(), [false, true, true, true], "another ensemble needs them");
    rig.repository.unload_by_request("ba", true).unwrap();
    assert_eq!(served(), [false; 4]);
    assert_eq!(load(&rig, "ab"), [""; 0]);
    rig.repository.unload_by_request("ab", false).unwrap();
    assert_eq!(served(), [false, false, true, true]);
}

const PLAIN: &str = "backend: 'onnxruntime' max_batch_size: 4 input { name: 'INPUT' data_type: TYPE_INT32 dims: 1 } \
                     output { name: 'OUTPUT' data_type: TYPE_INT32 dims: 1 } instance_group { kind: KIND_CPU count: 1 }";

#[test]
fn an_ensemble_is_planned_again_when_a_member_becomes_stateful() {
    let mut models = both_ways(4, LONG).to_vec();
    models[3] = ("b", "identity INT32", PLAIN.to_owned());
    let rig = explicit(EnsembleRig::new(&models));
    assert_eq!(rig.value("ab", 1, 5, |s| s.start = true).unwrap(), 5);
    rig.put("b", "accumulate INT32", &accumulator(4, LONG));
    assert_eq!(load(&rig, "b"), [""; 0]);
    assert_eq!(rig.value("ba", 2, 5, |s| s.start = true).unwrap(), 5);
    assert_eq!(rig.value("ba", 2, 1, |_| {}).unwrap(), 11, "both members remember");
}
