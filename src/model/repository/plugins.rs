//! What operators do with plug-ins. Each operation goes to the registry that knows the plug-in, or the world of the component.

use sequor_wasm::component::is_of_world;
use sequor_wasm::journal::LogLine;

use crate::processing::status::{LinkStatus, ProcessorStatus};
use crate::processing::{ProcessorRegistry, ProcessorWorld};
use crate::scheduling::Registry;
use crate::scheduling::report::{Attach, Attached, BindingState, By, LastFault, PluginControl, PluginError, Summary};

use super::facade::Repository;

impl Repository {
    /// The registry of processors, if it knows this one.
    fn processor(&self, name: &str) -> Option<&ProcessorRegistry> {
        self.processors().filter(|processors| processors.has(name))
    }

    fn schedulers(&self) -> Result<&Registry, PluginError> {
        self.0.deciders.equipped()
    }
}

impl PluginControl for Repository {
    fn list(&self) -> Vec<Summary> {
        let schedulers = self.0.deciders.registry().map(Registry::list).unwrap_or_default();
        let processors = self.processors().map(ProcessorRegistry::list).unwrap_or_default();
        let mut all: Vec<Summary> = schedulers.into_iter().chain(processors.into_iter().map(summary)).collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    fn show(&self, name: &str) -> Result<Summary, PluginError> {
        match self.processor(name) {
            Some(processors) => processors.show(name).map(summary),
            None => self.schedulers()?.show(name),
        }
    }

    fn load(&self, name: &str, component: Vec<u8>, by: By<'_>) -> Result<Summary, PluginError> {
        let taken = |world: &str| Err(PluginError::Conflict(format!("{name} is loaded already, as a {world}")));
        if !is_of_world::<ProcessorWorld>(&component) {
            return if self.processor(name).is_some() {
                taken("processor")
            } else {
                self.schedulers()?.load(name, component, by)
            };
        }
        if self.schedulers()?.show(name).is_ok() {
            return taken("scheduler");
        }
        let none = || PluginError::Denied("this server runs no plug-ins".to_owned());
        self.processors().ok_or_else(none)?.load(name, component, by.0).map(summary)
    }

    fn attach(&self, how: &Attach, by: By<'_>) -> Result<Summary, PluginError> {
        if self.processor(&how.plugin).is_some() {
            return Err(named_by_files(&how.plugin));
        }
        self.schedulers()?.change(|| self.0.deciders.attach(how, by))?;
        self.show(&how.plugin)
    }

    fn replace(&self, name: &str, component: Vec<u8>, by: By<'_>) -> Result<Summary, PluginError> {
        match self.processor(name) {
            Some(processors) => processors.replace(name, component, by.0).map(summary),
            None => self.schedulers()?.replace(name, component, by),
        }
    }

    fn rollback(&self, name: &str, by: By<'_>) -> Result<Summary, PluginError> {
        match self.processor(name) {
            Some(processors) => processors.rollback(name, by.0).map(summary),
            None => self.schedulers()?.rollback(name, by),
        }
    }

    fn detach(&self, name: &str, model: &str, by: By<'_>) -> Result<Summary, PluginError> {
        if self.processor(name).is_some() {
            return Err(named_by_files(name));
        }
        self.schedulers()?.change(|| self.0.deciders.detach(name, model, by))?;
        self.show(name)
    }

    fn park(&self, name: &str, by: By<'_>) -> Result<Summary, PluginError> {
        match self.processor(name) {
            Some(processors) => processors.park(name, by.0).map(summary),
            None => self.schedulers()?.park(name, by),
        }
    }

    fn unpark(&self, name: &str, by: By<'_>) -> Result<Summary, PluginError> {
        match self.processor(name) {
            Some(processors) => processors.unpark(name, by.0).map(summary),
            None => self.schedulers()?.unpark(name, by),
        }
    }

    fn unload(&self, name: &str, by: By<'_>) -> Result<(), PluginError> {
        match self.processor(name) {
            Some(processors) => processors.unload(name, by.0),
            None => self.schedulers()?.unload(name, by),
        }
    }

    fn logs(&self, name: &str, after: u64) -> Result<Vec<LogLine>, PluginError> {
        match self.processor(name) {
            Some(processors) => processors.logs(name, after),
            None => self.schedulers()?.logs(name, after),
        }
    }
}

fn named_by_files(name: &str) -> PluginError {
    let what =
        "is a processor: a model's sequor.toml names it in [[plugins.processor]], and loading the model attaches it";
    PluginError::Invalid(format!("{name} {what}"))
}

/// A processor in the words of all plug-ins.
fn summary(of: ProcessorStatus) -> Summary {
    let ProcessorStatus { name, version, sha256, attached } = of;
    let attached = attached.into_iter().map(at_model).collect();
    Summary { name, version, sha256, world: "processor".to_owned(), attached }
}

fn at_model(of: LinkStatus) -> Attached {
    let LinkStatus { model, version, parked, counts, memory, memory_limit, time_us, config, .. } = of;
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
