//! A fake plug-in registry. Its plug-ins decide nothing; it loads, attaches, replaces and removes them, and records who requested it.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use sequor::scheduling::report::{Attach, Attached, BindingState, By, LastFault, PluginControl, PluginError, Summary};
use sequor_wasm::journal::LogLine;

#[derive(Debug, Default)]
pub(super) struct Fake(Mutex<BTreeMap<String, One>>);

#[derive(Debug, Default)]
struct One {
    /// Its versions; the last one is in service.
    versions: Vec<Vec<u8>>,
    attached: Vec<Attached>,
    log: Vec<LogLine>,
    /// The last request to attach it.
    asked: Option<Attach>,
}

impl One {
    fn summary(&self, name: &str) -> Summary {
        let component = self.versions.last().cloned().unwrap_or_default();
        Summary {
            name: name.to_owned(),
            version: format!("0.{}.0", self.versions.len()),
            sha256: component.iter().map(|byte| format!("{byte:02x}")).collect(),
            world: "scheduler".to_owned(),
            attached: self.attached.clone(),
        }
    }

    fn write(&mut self, message: String) {
        let serial = self.log.len() as u64 + 1;
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + serial);
        self.log.push(LogLine { serial, at, level: "info".to_owned(), message });
    }
}

impl Fake {
    fn with<T>(&self, name: &str, work: impl FnOnce(&mut One) -> Result<T, PluginError>) -> Result<T, PluginError> {
        let mut all = self.0.lock();
        let absent = || PluginError::Absent(format!("there is no plug-in {name}"));
        work(all.get_mut(name).ok_or_else(absent)?)
    }

    fn change(
        &self,
        name: &str,
        line: String,
        work: impl FnOnce(&mut One) -> Result<(), PluginError>,
    ) -> Result<Summary, PluginError> {
        self.with(name, |one| {
            work(one)?;
            one.write(line);
            Ok(one.summary(name))
        })
    }

    pub(super) fn asked(&self, name: &str) -> Option<Attach> {
        self.0.lock().get(name).and_then(|one| one.asked.clone())
    }

    /// Simulates three failures of the guest, which park it.
    pub(super) fn strike(&self, name: &str) {
        let struck = |one: &mut One| {
            for attached in &mut one.attached {
                attached.state = BindingState::Parked;
                attached.strikes = 3;
                let what = "index 83, lib.rs:71".to_owned();
                attached.last_fault = Some(LastFault { kind: "trap".to_owned(), what, at: SystemTime::UNIX_EPOCH });
            }
            Ok(())
        };
        self.change(name, "parked".to_owned(), struck).expect("there is such a plug-in");
    }
}

fn checked(component: &[u8]) -> Result<(), PluginError> {
    let is_one = component.starts_with(b"\0asm");
    is_one.then_some(()).ok_or_else(|| PluginError::Invalid("this is no component".to_owned()))
}

impl PluginControl for Fake {
    fn list(&self) -> Vec<Summary> {
        self.0.lock().iter().map(|(name, one)| one.summary(name)).collect()
    }

    fn show(&self, name: &str) -> Result<Summary, PluginError> {
        self.with(name, |one| Ok(one.summary(name)))
    }

    fn load(&self, name: &str, component: Vec<u8>, by: By<'_>) -> Result<Summary, PluginError> {
        checked(&component)?;
        let mut all = self.0.lock();
        if all.contains_key(name) {
            return Err(PluginError::Conflict(format!("{name} is there already: replace it")));
        }
        let mut one = One { versions: vec![component], ..One::default() };
        one.write(format!("loaded by {}", by.0));
        let summary = one.summary(name);
        all.insert(name.to_owned(), one);
        Ok(summary)
    }

    fn attach(&self, how: &Attach, by: By<'_>) -> Result<Summary, PluginError> {
        if how.model != "vad" {
            return Err(PluginError::Absent(format!("there is no model {}", how.model)));
        }
        self.change(&how.plugin, format!("attached by {}", by.0), |one| {
            one.asked = Some(how.clone());
            one.attached = vec![Attached {
                model: how.model.clone(),
                version: 1,
                state: if how.shadow { BindingState::Shadow } else { BindingState::Active },
                from_file: how.save,
                calls: 12_100,
                calls_per_second: 410.0,
                p50_us: 3.0,
                p99_us: 5.0,
                fallbacks: 2,
                stale: 1,
                strikes: 0,
                last_fault: None,
                differs: how.shadow.then_some((41, 1000)),
                memory: 1 << 20,
                memory_limit: how.time.map_or(16 << 20, |_| 8 << 20),
                time_us: how.time.map_or(2_000, |time| time.as_micros() as u64),
                config: how.config.clone(),
            }];
            Ok(())
        })
    }

    fn replace(&self, name: &str, component: Vec<u8>, by: By<'_>) -> Result<Summary, PluginError> {
        if checked(&component).is_err() {
            return Err(PluginError::Invalid("not replaced: this is no component. The old one goes on.".to_owned()));
        }
        self.change(name, format!("replaced by {}", by.0), |one| {
            one.versions.push(component);
            Ok(())
        })
    }

    fn rollback(&self, name: &str, by: By<'_>) -> Result<Summary, PluginError> {
        self.change(name, format!("rolled back by {}", by.0), |one| match one.versions.as_slice() {
            [_, _, ..] => {
                one.versions.pop();
                Ok(())
            }
            _ if name == "full" => Err(PluginError::Unavailable("there is no room".to_owned())),
            _ => Err(PluginError::Absent("there is no earlier version".to_owned())),
        })
    }

    fn detach(&self, name: &str, model: &str, by: By<'_>) -> Result<Summary, PluginError> {
        self.change(name, format!("detached by {}", by.0), |one| {
            one.attached.retain(|attached| attached.model != model);
            Ok(())
        })
    }

    fn park(&self, name: &str, by: By<'_>) -> Result<Summary, PluginError> {
        self.change(name, format!("parked by {}", by.0), |one| {
            one.attached.iter_mut().for_each(|attached| attached.state = BindingState::Parked);
            Ok(())
        })
    }

    fn unpark(&self, name: &str, by: By<'_>) -> Result<Summary, PluginError> {
        self.change(name, format!("unparked by {}", by.0), |one| {
            one.attached.iter_mut().for_each(|attached| attached.state = BindingState::Active);
            Ok(())
        })
    }

    fn unload(&self, name: &str, _: By<'_>) -> Result<(), PluginError> {
        self.with(name, |one| match one.attached.is_empty() {
            true => Ok(()),
            false => Err(PluginError::Conflict(format!("{name} is attached: detach it first"))),
        })?;
        self.0.lock().remove(name);
        Ok(())
    }

    fn logs(&self, name: &str, after: u64) -> Result<Vec<LogLine>, PluginError> {
        self.with(name, |one| Ok(one.log.iter().filter(|line| line.serial > after).cloned().collect()))
    }
}
