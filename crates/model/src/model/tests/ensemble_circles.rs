//! Circles of ensembles, and the protection of members by ensembles whose reload failed.

use std::sync::Arc;

use super::ensemble_reloads::{explicit, load};
use super::ensembles::{EnsembleRig, ensemble};
use crate::model::sequences::{EnsembleParts, Member, ModelScheduler};

const PLAIN: &str = "backend: 'onnxruntime' max_batch_size: 4 input { name: 'INPUT' data_type: TYPE_INT32 dims: 1 } \
                     output { name: 'OUTPUT' data_type: TYPE_INT32 dims: 1 } instance_group { kind: KIND_CPU count: 1 }";

/// An ensemble of one step, with the ports of a plain model.
fn over(name: &str, member: &str) -> String {
    ensemble(name, &[member], "").replace("'IN'", "'INPUT'").replace("'OUT'", "'OUTPUT'")
}

/// A rig that serves `a` over `b`.
fn a_over_b() -> EnsembleRig {
    explicit(EnsembleRig::new(&[("a", "", over("a", "b")), ("b", "identity INT32", PLAIN.to_owned())]))
}

fn is_served(rig: &EnsembleRig, model: &str) -> bool {
    rig.repository.find(model, "").is_ok()
}

fn platform(rig: &EnsembleRig, model: &str) -> String {
    rig.repository.find(model, "").unwrap().metadata().platform.clone()
}

fn scheduler(rig: &EnsembleRig, model: &str) -> Arc<ModelScheduler> {
    rig.repository.0.catalog.entries.read()[model].model.clone().unwrap()
}

#[test]
fn a_new_load_may_not_close_a_circle_of_ensembles_in_service() {
    let rig = a_over_b();
    rig.put("b", "identity INT32", &over("b", "a"));
    let faults = load(&rig, "b").join("\n");
    assert!(faults.contains("circular dependency between ensembles: a -> ... -> b -> a"), "{faults}");
    assert_ne!(platform(&rig, "b"), "ensemble", "the old load goes on");
    assert_eq!(platform(&rig, "a"), "ensemble");
    // Through another ensemble.
    rig.put("c", "", &over("c", "a"));
    assert_eq!(load(&rig, "c"), [""; 0]);
    rig.put("b", "identity INT32", &over("b", "c"));
    let faults = load(&rig, "b").join("\n");
    assert!(faults.contains("circular dependency between ensembles: c -> ... -> b -> c"), "{faults}");
    // Once the other ensembles are gone, it is none.
    rig.repository.unload_by_request("a", false).unwrap();
    rig.put("a", "identity INT32", PLAIN);
    assert_eq!(load(&rig, "a"), [""; 0]);
    rig.put("b", "identity INT32", &over("b", "a"));
    assert_eq!(load(&rig, "b"), [""; 0]);
}

#[test]
fn an_unload_ends_even_if_ensembles_form_a_circle() {
    for dependents in [false, true] {
        let rig = a_over_b();
        rig.put("other", "", &over("other", "a"));
        assert_eq!(load(&rig, "other"), [""; 0]);
        {
            // No load makes such a circle: `b` now names an ensemble over `a`, and `a` one over `b`.
            let mut entries = rig.repository.0.catalog.entries.write();
            let (other, b) = (entries.remove("other").unwrap(), entries.remove("b").unwrap());
            entries.insert("b".to_owned(), other);
            entries.insert("other".to_owned(), b);
        }
        rig.repository.unload_by_request("a", dependents).unwrap();
        assert_eq!(["a", "b"].map(|model| is_served(&rig, model)), [false; 2]);
        assert!(is_served(&rig, "other"), "it is no ensemble");
    }
}

#[test]
fn models_that_need_each_other_are_retired_all_the_same() {
    let rig = EnsembleRig::new(&[("a", "identity INT32", PLAIN.to_owned()), ("b", "identity INT32", PLAIN.to_owned())]);
    let [a, b] = ["a", "b"].map(|model| scheduler(&rig, model));
    for (one, other) in [(&a, &b), (&b, &a)] {
        one.bind_members(one.loads()[0].key, vec![Arc::clone(other) as Arc<dyn Member>], None);
    }
    // Waits until the threads of all loads have ended.
    rig.repository.stop();
    assert_eq!([a, b].map(|model| model.loads().len()), [0; 2]);
}

#[test]
fn an_ensemble_whose_reload_failed_still_protects_its_members() {
    let rig = a_over_b();
    rig.put("a", "", &over("a", "zzz"));
    let faults = load(&rig, "a").join("\n");
    assert!(faults.contains("contains models that are not available: zzz"), "{faults}");
    rig.put("b", "identity INT32 dims=2", &PLAIN.replace("dims: 1", "dims: 2"));
    let faults = load(&rig, "b").join("\n");
    assert!(faults.contains("ensemble 'a' is in service and does not fit this load"), "{faults}");
    assert_eq!(rig.repository.find("b", "").unwrap().metadata().inputs[0].dims.to_string(), "[-1,1]");
    rig.repository.unload_by_request("b", false).unwrap();
    assert_eq!(["a", "b"].map(|model| is_served(&rig, model)), [false; 2]);
}
