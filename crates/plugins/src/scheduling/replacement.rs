//! The bindings of a plug-in, as [`sequor_wasm::changes`] sees them: the places where one version replaces another.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sequor_wasm::changes::{NamingFiles, VersionChange, VersionPlaces, short};

use super::binding::SchedulerBinding;
use super::guest::Source;
use super::registry::Registry;
use super::report::{BindingState, PluginError};
use super::startup::{Parked, Successor, Unfit};

/// Bindings, each with its tested guest of the new version. `None` if the binding stays parked.
type Opened = Vec<(Arc<SchedulerBinding>, Option<Successor>)>;

impl VersionPlaces<dyn Source> for Registry {
    type Ready = Opened;

    const UNSAVED: &'static str =
        " To let another decide until the server ends and no longer, attach it without --save first";

    fn files(&self) -> Option<&dyn NamingFiles> {
        self.0.named.get().map(AsRef::as_ref)
    }

    fn is_named(&self, plugin: &str) -> bool {
        self.bindings_of(plugin).iter().any(|at| at.from_file.load(Ordering::Acquire))
    }

    fn is_parked(&self, plugin: &str) -> bool {
        let bindings = self.bindings_of(plugin);
        !bindings.is_empty() && bindings.iter().all(|at| at.state() == BindingState::Parked)
    }

    fn count(&self, plugin: &str, ok: bool) {
        self.metrics_of(plugin).replaced(ok);
    }

    fn prepare(&self, change: &VersionChange<'_, dyn Source>) -> Result<Opened, PluginError> {
        // After a changed file, a parked plug-in stays parked, because no operator has unparked it.
        let parked = if change.origin.is_operator() { Parked::Decides } else { Parked::Stays };
        let new = &change.new.source;
        let mut opened = Vec::new();
        for at in self.bindings_of(change.name) {
            match at.dry_run(new.as_ref()).and_then(|()| at.ready_for(new, parked)) {
                Ok(instance) => opened.push((at, instance)),
                // Its load was unloaded meanwhile.
                Err(Unfit::Gone) => {}
                Err(unfit) => {
                    let version = format!("{} ({})", change.name, short(new.sha256()));
                    return Err(unfit.refusal(unfit.describe(&version, at.model())));
                }
            }
        }
        Ok(opened)
    }

    fn take_over(&self, change: &VersionChange<'_, dyn Source>, ready: Opened) {
        let new = &change.new.source;
        ready.into_iter().for_each(|(at, instance)| at.take_over(new, instance));
        // Loads that began during the change read the current version too early, and were listed too late.
        for at in self.bindings_of(change.name) {
            match at.keep_to(new) {
                Ok(()) | Err(Unfit::Gone) => {}
                Err(unfit) => {
                    tracing::error!(plugin = change.name, model = at.model(), "the version before goes on: {unfit}");
                }
            }
        }
    }
}
