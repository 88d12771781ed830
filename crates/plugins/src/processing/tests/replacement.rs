//! Tests the order of a replacement at stand-in places.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use sequor_wasm::changes::{NamingFiles, PinnedFile};
use sequor_wasm::grants::Grants;
use sequor_wasm::plugin_error::PluginError;

use crate::config::model::LoadFacts;
use crate::processing::health::{PlaceGauges, PlaceHealth};
use crate::processing::place::{Misfit, Replacement};
use crate::processing::status::PlaceStatus;
use crate::processing::wat_fixture::{COUNT, ProcessorWat, SERVING, StillClock};
use crate::processing::{
    PlaceModels, PlaceRegistry, PlaceRules, PluginOperations as _, PluginPlace, ProcessorComponent, ProcessorWorld,
};
use crate::telemetry::kinds::Gauge;
use crate::telemetry::{Metrics, PluginMetrics};

/// A place at a model. Another version takes over there at once, or needs a new load.
#[derive(Debug)]
struct StandInPlace {
    model: &'static str,
    reloads: bool,
    serves: Mutex<String>,
    health: PlaceHealth,
}

impl StandInPlace {
    fn new(model: &'static str, reloads: bool, serves: &str) -> Arc<StandInPlace> {
        let health = PlaceHealth::new(Arc::new(StillClock), 3, PlaceGauges::new(Gauge::default(), Gauge::default()));
        Arc::new(StandInPlace { model, reloads, serves: Mutex::new(serves.to_owned()), health })
    }
}

impl PluginPlace for StandInPlace {
    type World = ProcessorWorld;
    type Version = String;

    fn metrics(metrics: &Metrics, name: &str) -> Arc<PluginMetrics> {
        metrics.processor(name)
    }

    fn named_in() -> &'static str {
        "here"
    }

    fn name(&self) -> &str {
        "guest"
    }

    fn model(&self) -> &str {
        self.model
    }

    fn sha256(&self) -> String {
        self.serves.lock().clone()
    }

    fn is_retired(&self) -> bool {
        false
    }

    fn health(&self) -> &PlaceHealth {
        &self.health
    }

    fn status(&self) -> PlaceStatus {
        PlaceStatus::new(&LoadFacts::default(), &self.sha256(), &self.health, (0, 0), (Duration::ZERO, "{}"))
    }

    fn try_version(&self, component: &Arc<ProcessorComponent>) -> Result<Replacement<String>, Misfit> {
        if self.reloads {
            return Ok(Replacement::NewLoad);
        }
        Ok(Replacement::InPlace(Arc::new(component.sha256().to_owned())))
    }

    fn take_over(&self, version: Arc<String>) {
        *self.serves.lock() = version.to_string();
    }
}

/// Models whose loads fail. Before that, places that were listed meanwhile catch up with the current version.
#[derive(Debug, Default)]
struct FailingModels {
    registry: OnceLock<PlaceRegistry<StandInPlace>>,
    listed: Mutex<Vec<Arc<StandInPlace>>>,
}

#[derive(Debug)]
struct FailingModelsOf(Arc<FailingModels>);

impl NamingFiles for FailingModelsOf {
    fn pins(&self, _: &str) -> Vec<(std::path::PathBuf, String)> {
        Vec::new()
    }

    fn pin(&self, _: &str, _: &str) -> Result<Vec<PinnedFile>, String> {
        Ok(Vec::new())
    }

    fn restore_files(&self, _: &[PinnedFile]) {}
}

impl PlaceModels for FailingModelsOf {
    fn reload(&self, _: &str) -> Result<(), String> {
        let current = self.0.registry.get().unwrap().find("guest").unwrap().sha256().to_owned();
        self.0.listed.lock().iter().for_each(|place| *place.serves.lock() = current.clone());
        Err("no graph".to_owned())
    }
}

/// A load lists its places, and then updates them to the current version. A change may begin between the two.
#[test]
fn a_failed_version_is_taken_back_from_a_load_that_caught_up_with_it() {
    let make = Box::new(|_: &str, bytes: &[u8]| {
        let made = ProcessorComponent::new(&SERVING, "guest.wasm", bytes, Grants::default(), None);
        made.map(Arc::new).map_err(|e| PluginError::Invalid(e.to_string()))
    });
    let registry = PlaceRegistry::new(PlaceRules::default(), make, Arc::new(StillClock), Metrics::new(false));
    let models = Arc::new(FailingModels::default());
    registry.reach_models(Box::new(FailingModelsOf(Arc::clone(&models))));
    models.registry.set(registry.clone()).unwrap();
    let first = registry.load("guest", ProcessorWat::default().component(), "local").unwrap().sha256;
    let (m, n) = (StandInPlace::new("m", true, &first), StandInPlace::new("n", false, &first));
    registry.attach(&[Arc::clone(&m), Arc::clone(&n)]).unwrap();
    models.listed.lock().push(Arc::clone(&n));
    let other = ProcessorWat { post: COUNT, ..ProcessorWat::default() }.component();
    registry.replace("guest", other, "local").unwrap_err();
    assert_eq!((m.sha256(), n.sha256()), (first.clone(), first));
}
