//! Attaches schedulers to loads: those in the models' files, and those that operators attach at run time. Attachments hold across reloads.
//! Each change writes one audit line.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sequor_wasm::audit::PluginChange;
use sequor_wasm::limits::Limits;
use sequor_wasm::room::RoomPurpose;
use sequor_wasm::versions::FilePrint;

use crate::config::fault::code;
use crate::config::model::LoadFacts;
use crate::config::model::settings::SchedulerPlugin;
use crate::config::units::Span;
use crate::error::LoadError;
use crate::model::catalog::{Catalog, SchedulerChoice};
use crate::model::load::LoadedModel;
use crate::model::runtime::Clock;
use crate::model::sequences::ModelScheduler;
use crate::scheduling::report::{Attach, By, PluginError};
use crate::scheduling::{BindingOptions, MakeSource, PluginRules, Ready, Registry, SchedulerBinding, Unfit};
use crate::telemetry::Metrics;

use super::plugin_files::{ModelPluginFiles, serving};
use super::schedule_file::{self, SavedScheduler};

/// Attaches plug-ins to loads, and remembers whether the model's file or an operator chose them.
#[derive(Debug)]
pub(in crate::model) struct Deciders {
    catalog: Arc<Catalog>,
    clock: Clock,
    metrics: Metrics,
    /// The plug-ins, if the server has any.
    registry: OnceLock<Registry>,
}

impl Deciders {
    pub(in crate::model) fn new(catalog: &Arc<Catalog>, clock: Clock, metrics: Metrics) -> Deciders {
        Deciders { catalog: Arc::clone(catalog), clock, metrics, registry: OnceLock::new() }
    }

    /// Sets the source of plug-ins. Call it once, before any model is loaded.
    pub(in crate::model) fn start(&self, rules: PluginRules, loader: Box<MakeSource>) -> std::io::Result<()> {
        // Under `shuttle` only the test's own threads may exist.
        let keeps = cfg!(not(feature = "shuttle"));
        let registry = Registry::new(rules, loader, Arc::new(self.clock.clone()), self.metrics.clone(), keeps)?;
        registry.knows_files(Box::new(ModelPluginFiles(Arc::downgrade(&self.catalog))));
        self.registry.set(registry).map_err(|_| std::io::Error::other("plug-ins were settled before"))
    }

    /// The plug-ins, if the server has any.
    pub(in crate::model) fn registry(&self) -> Option<&Registry> {
        self.registry.get()
    }

    pub(in crate::model) fn equipped(&self) -> Result<&Registry, PluginError> {
        self.registry().ok_or_else(|| PluginError::Denied("this server runs no plug-ins".to_owned()))
    }

    // === loads ===

    /// The scheduler for a load that is about to serve, after a trial. If the plug-in in the model's file fails, the load fails. If an
    /// operator's plug-in fails, the built-in policy decides.
    pub(in crate::model) fn scheduler_for(
        &self,
        model: &Arc<ModelScheduler>,
        load: &Arc<LoadedModel>,
    ) -> Result<Option<Arc<SchedulerBinding>>, LoadError> {
        let decides = self.catalog.edit(&model.name, |entry| entry.decides.clone());
        match (decides, &load.settings.scheduler) {
            (SchedulerChoice::Runtime(None), _) | (SchedulerChoice::File, None) => Ok(None),
            (SchedulerChoice::Runtime(Some(how)), _) => Ok(self
                .attached(&how, model, load)
                .inspect_err(|error| tracing::error!(model = model.name, plugin = how.plugin, "not attached: {error}"))
                .ok()),
            (SchedulerChoice::File, Some(saved)) => {
                let fault = |what: String| LoadError::Config { at: saved.at.clone(), code: code::PLUGIN, what };
                self.by_file(saved, model, load).map(Some).map_err(|error| match error {
                    PluginError::Unavailable(what) => LoadError::Runtime(what),
                    other => fault(other.to_string()),
                })
            }
        }
    }

    /// The scheduler that an operator has attached to the model. If there is no room for its guest now, it decides once there is.
    fn attached(
        &self,
        how: &Attach,
        model: &Arc<ModelScheduler>,
        load: &Arc<LoadedModel>,
    ) -> Result<Arc<SchedulerBinding>, PluginError> {
        let registry = self.equipped()?;
        match self.tried(registry, &how.plugin, options(registry, how)?, model, load) {
            Err(PluginError::Unavailable(why)) => {
                tracing::error!(model = model.name, plugin = how.plugin, "the built-in policy decides for now: {why}");
                bound(registry, &how.plugin, options(registry, how)?, model, load)
            }
            tried => tried,
        }
    }

    fn by_file(
        &self,
        saved: &SchedulerPlugin,
        model: &Arc<ModelScheduler>,
        load: &Arc<LoadedModel>,
    ) -> Result<Arc<SchedulerBinding>, PluginError> {
        let registry = self.equipped()?;
        let source = registry.find(&saved.name)?;
        let is = source.sha256();
        match &saved.sha256 {
            Some(sha256) if sha256 != is => {
                let what = format!("{} has the hash {is}, and sha256 = \"{sha256}\" is wanted", saved.name);
                return Err(PluginError::Invalid(what));
            }
            None if registry.rules().require_sha256 => {
                let what = format!("plugins.require_sha256 is set: add  sha256 = \"{is}\"");
                return Err(PluginError::Denied(what));
            }
            _ => {}
        }
        let rules = registry.rules();
        check_wait(saved.max_wait, rules)?;
        let options = BindingOptions {
            config: saved.config.clone(),
            limits: Limits { time: saved.time.unwrap_or(rules.time), memory: saved.memory.or(rules.memory) },
            strikes: rules.strikes,
            shadow: false,
            max_wait: saved.max_wait,
            cpu_share: rules.cpu_share,
            from_file: true,
        };
        self.tried(registry, &saved.name, options, model, load)
    }

    /// Creates a binding and tries it.
    fn tried(
        &self,
        registry: &Registry,
        plugin: &str,
        options: BindingOptions,
        model: &Arc<ModelScheduler>,
        load: &Arc<LoadedModel>,
    ) -> Result<Arc<SchedulerBinding>, PluginError> {
        let source = registry.find(plugin)?;
        let binding = bound(registry, plugin, options, model, load)?;
        // The scheduler of a load that serves leaves its room later.
        let purpose = if model.decider().is_some() { RoomPurpose::Replacement } else { RoomPurpose::New };
        let tried = binding.claim(purpose).and_then(|()| binding.dry_run(source.as_ref()));
        tried.map_err(|unfit| cannot_decide(plugin, model, &unfit))?;
        Ok(binding)
    }

    /// Installs the binding on a load that the core knows and that has no scheduler yet.
    pub(in crate::model) fn let_decide(
        &self,
        load: &LoadedModel,
        binding: &Arc<SchedulerBinding>,
    ) -> Result<(), LoadError> {
        let Some(registry) = self.registry() else { return Ok(()) };
        match binding.prepare() {
            Ok(ready) => registry.install(Arc::clone(binding), ready),
            Err(Unfit::NoRoom(_)) => {
                registry.install_without_guest(Arc::clone(binding));
                return Ok(());
            }
            Err(unfit) => return Err(LoadError::Runtime(format!("{}: {unfit}", binding.plugin()))),
        }
        let plugin = binding.plugin();
        // Other versions may have replaced the plug-in while this guest was made, and while it is replaced.
        while let Ok(current) = registry.find(plugin)
            && !binding.is_of_version(&current)
        {
            if let Err(unfit) = binding.keep_to(&current) {
                tracing::error!(plugin, model = load.settings.name, "the version before goes on: {unfit}");
                break;
            }
        }
        Ok(())
    }

    // === requests of operators ===

    /// Attaches a plug-in while no version can be replaced. The audit line has two hashes: of the scheduler before, and of the new or rejected
    /// one.
    pub(in crate::model) fn attach(&self, how: &Attach, by: By<'_>) -> Result<(), PluginError> {
        let registry = self.equipped()?;
        let seen = registry.print(&how.plugin);
        // An unknown plug-in is compiled here: other changes do not wait for that.
        let found = check_how(how).and_then(|()| registry.find(&how.plugin)).map(drop);
        registry.change(|| {
            let before = self.decides_for(&how.model);
            let after = registry.show(&how.plugin).map(|shown| shown.sha256).unwrap_or_default();
            let attach = PluginChange::new("attach", &how.plugin, by.0).at(&how.model);
            found
                .and_then(|()| self.attach_found(registry, how, &after, seen))
                .inspect_err(|why| attach.refused(&before, &after, why))?;
            attach.record(&before, &after);
            if how.save {
                PluginChange::new("save", &how.plugin, by.0).at(&how.model).record(&before, &after);
            }
            Ok(())
        })
    }

    /// Opens all guests first, and changes nothing if that fails.
    fn attach_found(
        &self,
        registry: &Registry,
        how: &Attach,
        sha256: &str,
        seen: Option<FilePrint>,
    ) -> Result<(), PluginError> {
        let (model, gate) = serving(&self.catalog, &how.model)?;
        let _held = gate.lock();
        let all = self.opened(registry, how, &model)?;
        if how.save {
            self.save_both(registry, how, sha256, seen)?;
        }
        // From here on nothing can fail.
        for (binding, ready) in all {
            if how.save {
                binding.is_saved();
            }
            registry.install(binding, ready);
        }
        if !how.save {
            self.catalog.edit(&how.model, |entry| entry.decides = SchedulerChoice::Runtime(Some(how.clone())));
        }
        Ok(())
    }

    /// The hash of the model's scheduler. Empty if the built-in policy decides.
    fn decides_for(&self, name: &str) -> String {
        let of = |(model, _): (Arc<ModelScheduler>, _)| {
            model.decider().and_then(|at| self.equipped().ok()?.show(at.binding().plugin()).ok())
        };
        serving(&self.catalog, name).ok().and_then(of).map(|shown| shown.sha256).unwrap_or_default()
    }

    /// A binding and its first guest for every load that takes new sequences.
    fn opened(
        &self,
        registry: &Registry,
        how: &Attach,
        model: &Arc<ModelScheduler>,
    ) -> Result<Vec<OpenedBinding>, PluginError> {
        let decides = model.decider().map(|decider| Arc::clone(decider.binding()));
        if let Some(other) = decides.filter(|b| how.shadow && b.plugin() != how.plugin && !b.options().shadow) {
            let what = format!("{} decides for {}; detach it before another is its shadow", other.plugin(), how.model);
            return Err(PluginError::Conflict(what));
        }
        let open = |load: &Arc<LoadedModel>| {
            let binding = self.tried(registry, &how.plugin, options(registry, how)?, model, load)?;
            let ready = binding.prepare().map_err(|unfit| cannot_decide(&how.plugin, model, &unfit))?;
            Ok((binding, ready))
        };
        model.loads().iter().filter(|l| !l.is_retired()).map(open).collect()
    }

    /// Writes the plug-in's file and the model's file. If one cannot be written, both stay as they were.
    fn save_both(
        &self,
        registry: &Registry,
        how: &Attach,
        sha256: &str,
        seen: Option<FilePrint>,
    ) -> Result<(), PluginError> {
        let kept = registry.keep(&how.plugin, seen)?;
        let saved = self.save(how, sha256);
        if saved.is_err() {
            registry.unkeep(&how.plugin, kept);
        }
        saved
    }

    /// Writes the attachment to the model's file.
    fn save(&self, how: &Attach, sha256: &str) -> Result<(), PluginError> {
        let directory = self.catalog.edit(&how.model, |entry| entry.directory.clone());
        let config = if how.config.is_empty() { "{}" } else { &how.config };
        let saved = SavedScheduler { plugin: &how.plugin, sha256, time: how.time, max_wait: how.max_wait, config };
        let file = directory.join("sequor.toml");
        schedule_file::save(&file, saved)
            .map_err(|what| PluginError::Internal(format!("not attached, because it could not be saved: {what}")))?;
        self.catalog.edit(&how.model, |entry| entry.decides = SchedulerChoice::File);
        self.catalog.note_file(&how.model, &file);
        Ok(())
    }

    pub(in crate::model) fn detach(&self, name: &str, model: &str, by: By<'_>) -> Result<(), PluginError> {
        let registry = self.equipped()?;
        let (served, gate) = serving(&self.catalog, model)?;
        let _held = gate.lock();
        let before = registry.show(name)?.sha256;
        let mut any = false;
        for load in served.loads().iter() {
            let Some(decider) = served.decider_of(load.key) else { continue };
            if decider.binding().plugin() == name {
                registry.dismiss(decider.binding());
                any = true;
            }
        }
        if !any {
            return Err(PluginError::Absent(format!("{name} is not attached to {model}")));
        }
        self.catalog.edit(model, |entry| entry.decides = SchedulerChoice::Runtime(None));
        PluginChange::new("detach", name, by.0).at(model).record(&before, "");
        Ok(())
    }
}

/// A binding that will decide for a load, and its first guest.
type OpenedBinding = (Arc<SchedulerBinding>, Ready);

fn cannot_decide(plugin: &str, model: &ModelScheduler, unfit: &Unfit) -> PluginError {
    unfit.refusal(format!("{plugin} cannot decide for {}: {unfit}", model.name))
}

/// A binding that has no guest yet.
fn bound(
    registry: &Registry,
    plugin: &str,
    options: BindingOptions,
    model: &Arc<ModelScheduler>,
    load: &Arc<LoadedModel>,
) -> Result<Arc<SchedulerBinding>, PluginError> {
    registry.bind(plugin, LoadFacts::new(&load.settings, load.version), model.port(load), options)
}

/// The options of a plug-in that an operator attaches.
fn options(registry: &Registry, how: &Attach) -> Result<BindingOptions, PluginError> {
    let rules = registry.rules();
    check_wait(how.max_wait, rules)?;
    Ok(BindingOptions {
        config: if how.config.is_empty() { "{}".to_owned() } else { how.config.clone() },
        limits: Limits { time: how.time.unwrap_or(rules.time), memory: rules.memory },
        strikes: rules.strikes,
        shadow: how.shadow,
        max_wait: how.max_wait,
        cpu_share: rules.cpu_share,
        from_file: false,
    })
}

/// Checks that a plug-in may hold a request back for this long.
fn check_wait(wait: Option<Duration>, rules: &PluginRules) -> Result<(), PluginError> {
    let Some(wait) = wait.filter(|wait| *wait > rules.max_wait) else { return Ok(()) };
    let [wait, most] = [wait, rules.max_wait].map(Span);
    let what = format!("max_wait = \"{wait}\" is more than plugins.max_wait of the server ({most})");
    Err(PluginError::Denied(what))
}

/// Checks the parts of an attachment that depend on neither the model nor the server's limits.
fn check_how(how: &Attach) -> Result<(), PluginError> {
    if how.max_wait.is_some_and(|wait| wait.is_zero()) {
        return Err(PluginError::Invalid("max_wait must be more than nothing".to_owned()));
    }
    if how.save && how.shadow {
        let what = "a shadow cannot be saved: sequor.toml names who decides".to_owned();
        return Err(PluginError::Invalid(what));
    }
    // A configuration is a JSON table, or nothing.
    if how.config.is_empty() {
        return Ok(());
    }
    let parsed: Result<serde_json::Map<String, serde_json::Value>, _> = serde_json::from_str(&how.config);
    parsed.map(drop).map_err(|e| PluginError::Invalid(format!("config is no JSON table: {e}")))
}
