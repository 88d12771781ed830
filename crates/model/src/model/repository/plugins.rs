//! Operators' operations on plug-ins. Each operation is passed to the registry that has the plug-in, or to the one for the component's
//! world.

use sequor_wasm::component::is_of_world;
use sequor_wasm::journal::LogLine;

use crate::initializing::InitializerWorld;
use crate::processing::status::{PlaceStatus, PlacedPlugin};
use crate::processing::{PluginOperations, ProcessorWorld};
use crate::scheduling::Registry;
use crate::scheduling::report::{Attach, Attached, BindingState, By, LastFault, PluginControl, PluginError, Summary};

use super::facade::Repository;

impl Repository {
    /// The registries of plug-ins that models' files name.
    fn placed(&self) -> impl Iterator<Item = &dyn PluginOperations> {
        let processors = self.processors().map(|all| all as &dyn PluginOperations);
        let initializers = self.initializers().map(|all| all as &dyn PluginOperations);
        processors.into_iter().chain(initializers)
    }

    /// The registry, of these, that has this plug-in.
    fn placed_with(&self, name: &str) -> Option<&dyn PluginOperations> {
        self.placed().find(|all| all.has(name))
    }

    fn schedulers(&self) -> Result<&Registry, PluginError> {
        self.0.deciders.equipped()
    }
}

impl PluginControl for Repository {
    fn list(&self) -> Vec<Summary> {
        let schedulers = self.0.deciders.registry().map(Registry::list).unwrap_or_default();
        let placed = self.placed().flat_map(PluginOperations::list).map(summary);
        let mut all: Vec<Summary> = schedulers.into_iter().chain(placed).collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    fn show(&self, name: &str) -> Result<Summary, PluginError> {
        match self.placed_with(name) {
            Some(placed) => placed.show(name).map(summary),
            None => self.schedulers()?.show(name),
        }
    }

    fn load(&self, name: &str, component: Vec<u8>, by: By<'_>) -> Result<Summary, PluginError> {
        let taken = |world: &str| Err(PluginError::Conflict(format!("{name} is loaded already, as a {world}")));
        let world = if is_of_world::<ProcessorWorld>(&component) {
            self.processors().map(|all| all as &dyn PluginOperations)
        } else if is_of_world::<InitializerWorld>(&component) {
            self.initializers().map(|all| all as &dyn PluginOperations)
        } else {
            return match self.placed_with(name) {
                Some(other) => taken(other.world()),
                None => self.schedulers()?.load(name, component, by),
            };
        };
        let world = world.ok_or_else(|| PluginError::Denied("this server runs no plug-ins".to_owned()))?;
        match self.placed_with(name) {
            Some(other) if other.world() != world.world() => taken(other.world()),
            None if self.schedulers()?.show(name).is_ok() => taken("scheduler"),
            _ => world.load(name, component, by.0).map(summary),
        }
    }

    fn attach(&self, how: &Attach, by: By<'_>) -> Result<Summary, PluginError> {
        if let Some(placed) = self.placed_with(&how.plugin) {
            return Err(named_by_files(&how.plugin, placed));
        }
        self.0.deciders.attach(how, by)?;
        self.show(&how.plugin)
    }

    fn replace(&self, name: &str, component: Vec<u8>, by: By<'_>) -> Result<Summary, PluginError> {
        match self.placed_with(name) {
            Some(placed) => placed.replace(name, component, by.0).map(summary),
            None => self.schedulers()?.replace(name, component, by),
        }
    }

    fn rollback(&self, name: &str, by: By<'_>) -> Result<Summary, PluginError> {
        match self.placed_with(name) {
            Some(placed) => placed.rollback(name, by.0).map(summary),
            None => self.schedulers()?.rollback(name, by),
        }
    }

    fn detach(&self, name: &str, model: &str, by: By<'_>) -> Result<Summary, PluginError> {
        if let Some(placed) = self.placed_with(name) {
            return Err(named_by_files(name, placed));
        }
        self.schedulers()?.change(|| self.0.deciders.detach(name, model, by))?;
        self.show(name)
    }

    fn park(&self, name: &str, by: By<'_>) -> Result<Summary, PluginError> {
        match self.placed_with(name) {
            Some(placed) => placed.park(name, by.0).map(summary),
            None => self.schedulers()?.park(name, by),
        }
    }

    fn unpark(&self, name: &str, by: By<'_>) -> Result<Summary, PluginError> {
        match self.placed_with(name) {
            Some(placed) => placed.unpark(name, by.0).map(summary),
            None => self.schedulers()?.unpark(name, by),
        }
    }

    fn unload(&self, name: &str, by: By<'_>) -> Result<(), PluginError> {
        match self.placed_with(name) {
            Some(placed) => placed.unload(name, by.0),
            None => self.schedulers()?.unload(name, by),
        }
    }

    fn logs(&self, name: &str, after: u64) -> Result<Vec<LogLine>, PluginError> {
        match self.placed_with(name) {
            Some(placed) => placed.logs(name, after),
            None => self.schedulers()?.logs(name, after),
        }
    }
}

fn named_by_files(name: &str, placed: &dyn PluginOperations) -> PluginError {
    let (world, at) = (placed.world(), placed.named_in());
    let what =
        format!("{name} is a {world}: a model's sequor.toml names it in {at}, and loading the model attaches it");
    PluginError::Invalid(what)
}

/// The summary of a plug-in that models' files name, in the form used for all plug-ins.
fn summary(of: PlacedPlugin) -> Summary {
    let PlacedPlugin { name, world, version, sha256, attached } = of;
    let attached = attached.into_iter().map(at_model).collect();
    Summary { name, version, sha256, world: world.to_owned(), attached }
}

fn at_model(of: PlaceStatus) -> Attached {
    let PlaceStatus { model, version, parked, counts, memory, memory_limit, time_us, config, .. } = of;
    let last_fault =
        counts.last_fault.map(|fault| LastFault { kind: fault.kind.to_owned(), what: fault.what, at: fault.at });
    Attached {
        model,
        version,
        state: if parked.is_some() { BindingState::Parked } else { BindingState::Active },
        from_file: true,
        calls: counts.calls,
        calls_per_second: counts.calls_per_second,
        p50_us: counts.p50_us,
        p99_us: counts.p99_us,
        fallbacks: counts.bypassed,
        stale: 0,
        strikes: counts.strikes,
        last_fault,
        differs: None,
        memory,
        memory_limit,
        time_us,
        config,
    }
}
