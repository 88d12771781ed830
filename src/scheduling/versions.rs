//! Replaces one version of a plug-in by another at all its bindings, or at none. Files that name the plug-in then name the new version.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sequor_wasm::audit::PluginChange;
use sequor_wasm::versions::FilePrint;

use super::binding::SchedulerBinding;
use super::guest::Source;
use super::registry::{Registry, SchedulerVersion, short};
use super::report::{BindingState, By, PluginError, Summary};
use super::startup::{Parked, Successor, Unfit};

/// The source of a change of versions.
#[derive(Debug, Clone, Copy)]
pub(super) enum ChangeOrigin<'a> {
    /// An operator, and the print of the plug-in's file when the change began.
    Operator(By<'a>, Option<FilePrint>),
    /// A changed file. The change never writes that file: a newer file may be there by now.
    Folder,
}

impl<'a> ChangeOrigin<'a> {
    fn by(self) -> By<'a> {
        match self {
            ChangeOrigin::Operator(by, _) => by,
            ChangeOrigin::Folder => By("plugins.dir"),
        }
    }

    /// After a changed file, a parked plug-in stays parked, because no operator has unparked it.
    fn parked(self) -> Parked {
        match self {
            ChangeOrigin::Operator(..) => Parked::Decides,
            ChangeOrigin::Folder => Parked::Stays,
        }
    }
}

impl Registry {
    /// Adds a component. Adding the same one again changes nothing.
    pub fn load(&self, name: &str, component: Vec<u8>, by: By<'_>) -> Result<Summary, PluginError> {
        // Taken before the compilation, so that a later write of the file counts as a change.
        let print = self.print(name);
        let version = self.0.versions.make(name, component)?;
        let _changing = self.0.changing.lock();
        let wanted = version.source.sha256().to_owned();
        let known = self.insert(name, version, print, by);
        if known.sha256() != wanted {
            let what = format!("{name} is loaded already ({}); sequor plugin replace {name}", short(known.sha256()));
            return Err(PluginError::Conflict(what));
        }
        self.show(name)
    }

    /// Replaces the current version by a new one at all its bindings, or at none.
    pub fn replace(&self, name: &str, component: Vec<u8>, by: By<'_>) -> Result<Summary, PluginError> {
        let sha256 = || self.with(name, |p| p.current.source.sha256().to_owned());
        let (before, seen) = (sha256()?, self.print(name));
        let new = self.made(name, component)?;
        let _changing = self.0.changing.lock();
        let now = sha256()?;
        if now != before {
            let (before, now) = (short(&before), short(&now));
            return Err(PluginError::Conflict(format!(
                "not replaced: meanwhile {now} has replaced {before} of {name}. If that one is not to serve, do this again"
            )));
        }
        self.replace_if(name, &new, ChangeOrigin::Operator(by, seen), |_| Ok(()))
    }

    /// A version of a known plug-in. Compilation can take seconds, so the caller holds no lock.
    pub(super) fn made(&self, name: &str, component: Vec<u8>) -> Result<SchedulerVersion, PluginError> {
        let metrics = self.with(name, |p| Arc::clone(&p.extra))?;
        self.0.versions.make(name, component).inspect_err(|_| metrics.replaced(false))
    }

    /// Replaces the current version by this one, if `fits` accepts it. The caller holds `changing`.
    pub(super) fn replace_if(
        &self,
        name: &str,
        new: &SchedulerVersion,
        origin: ChangeOrigin<'_>,
        fits: impl FnOnce(&SchedulerVersion) -> Result<(), PluginError>,
    ) -> Result<Summary, PluginError> {
        let (old, metrics) = self.with(name, |p| (Arc::clone(&p.current.source), Arc::clone(&p.extra)))?;
        if old.sha256() == new.source.sha256() {
            self.0.versions.set_awaits(name, None);
            return self.show(name);
        }
        fits(new).inspect_err(|_| metrics.replaced(false))?;
        self.deploy("replace", name, new, origin)?;
        self.show(name)
    }

    pub fn rollback(&self, name: &str, by: By<'_>) -> Result<Summary, PluginError> {
        let _changing = self.0.changing.lock();
        let (current, previous) = self.with(name, |p| (Arc::clone(&p.current.source), p.previous.clone()))?;
        let nothing = || PluginError::Absent(format!("{name} has no version before {}", short(current.sha256())));
        let origin = ChangeOrigin::Operator(by, self.print(name));
        self.deploy("rollback", name, &previous.ok_or_else(nothing)?, origin)?;
        self.show(name)
    }

    /// Lets a version decide everywhere, and writes it to the files that name the plug-in. If anything fails, the current one continues
    /// everywhere.
    fn deploy(
        &self,
        what: &str,
        name: &str,
        new: &SchedulerVersion,
        origin: ChangeOrigin<'_>,
    ) -> Result<(), PluginError> {
        let (by, parked) = (origin.by(), origin.parked());
        let (old, metrics) = self.with(name, |p| (p.current.clone(), Arc::clone(&p.extra)))?;
        let (before, after) = (old.source.sha256(), new.source.sha256());
        let bindings = self.bindings_of(name);
        let goes_on = if !bindings.is_empty() && bindings.iter().all(|at| at.state() == BindingState::Parked) {
            format!("{} stays parked", short(before))
        } else {
            format!("{} goes on serving", short(before))
        };
        let unfit = |(at, unfit): (Arc<SchedulerBinding>, Unfit)| {
            let failed = unfit.describe(&format!("{name} ({})", short(after)), at.model());
            unfit.refusal(format!("not replaced: {failed}. {goes_on}."))
        };
        let not_saved = |why| {
            let alone = "To let another decide until the server ends and no longer, attach it without --save first";
            PluginError::Denied(format!("not replaced: {why}. {goes_on}. {alone}"))
        };
        let ready = open_all(&bindings, &new.source, parked).map_err(unfit).and_then(|ready| {
            let is_named = bindings.iter().any(|at| at.from_file.load(Ordering::Acquire));
            let named = if is_named { self.set_down(origin, name, &old, new).map_err(not_saved)? } else { Vec::new() };
            Ok((ready, named))
        });
        metrics.replaced(ready.is_ok());
        let change = PluginChange::new(what, name, by.0);
        let (ready, named) = ready.inspect_err(|why| change.refused(before, after, why))?;
        // From here on nothing can fail.
        ready.into_iter().for_each(|(at, instance)| at.take_over(&new.source, instance));
        self.0.versions.promote(name, new);
        self.catch_up(name, &bindings, &new.source);
        change.record(before, after);
        named.iter().for_each(|model| PluginChange::new("save", name, by.0).at(model).record(before, after));
        Ok(())
    }

    /// Updates loads that began during the change with the previous version: they read the current version too early, and were listed too
    /// late. Later loads find the new one.
    fn catch_up(&self, name: &str, seen: &[Arc<SchedulerBinding>], new: &Arc<dyn Source>) {
        let came = self.bindings_of(name).into_iter().filter(|at| !seen.iter().any(|seen| Arc::ptr_eq(at, seen)));
        for at in came {
            if let Err(unfit) = at.keep_to(new) {
                tracing::error!(plugin = name, model = at.model(), "the version before goes on: {unfit}");
            }
        }
    }
}

type Opened = (Arc<SchedulerBinding>, Option<Successor>);

/// A tested instance of this version for each binding, or the first binding without one. Nothing has changed yet.
fn open_all(
    at: &[Arc<SchedulerBinding>],
    new: &Arc<dyn Source>,
    parked: Parked,
) -> Result<Vec<Opened>, (Arc<SchedulerBinding>, Unfit)> {
    let mut opened = Vec::new();
    for at in at {
        match at.dry_run(new.as_ref()).and_then(|()| at.ready_for(new, parked)) {
            Ok(instance) => opened.push((Arc::clone(at), instance)),
            // Its load was unloaded meanwhile.
            Err(Unfit::Gone) => {}
            Err(unfit) => return Err((Arc::clone(at), unfit)),
        }
    }
    Ok(opened)
}
