//! `sequor plugin dev`: every change of the sources is built and decides on a running server at once; when it is over, what decided before
//! decides again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use clap::{Arg, ArgMatches, Command, value_parser};
use serde_json::json;

use super::{Failed, failed, file, machine, remote};
use crate::author::{self, Project};
use crate::cli::remote::client::{Client, RequestPayload, segment};
use crate::cli::remote::component;
use crate::config::units::Span;
use crate::scheduling::report::Summary;

/// How often the sources are looked at.
const LOOK: Duration = Duration::from_millis(300);

pub(super) fn command() -> Command {
    let folder = Arg::new("folder").value_name("FOLDER").value_parser(value_parser!(PathBuf)).default_value(".");
    Command::new("dev")
        .about("Build on every change, and let the result decide for a model of a running server; Ctrl-C puts back what was")
        .arg(folder.help("The plug-in's folder"))
        .arg(Arg::new("model").long("model").value_name("MODEL").required(true).help("The model it decides for"))
        .arg(file::set())
        .args(remote::args())
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failed> {
    let folder = matches.get_one::<PathBuf>("folder").cloned().unwrap_or_default();
    let model = matches.get_one::<String>("model").cloned().unwrap_or_default();
    let stop = interrupted()?;
    let mut trying = Trying {
        client: Client::of(matches)?,
        name: format!("{}-dev", first_name(&folder)?),
        model,
        config: file::config(matches)?,
        before: None,
        is_there: false,
        serves: false,
        as_json: remote::wants_json(matches),
    };
    trying.before = trying.decider()?;
    let mut seen = None;
    let ended = loop {
        let now = sources(&folder);
        if seen.as_ref() != Some(&now) {
            seen = Some(now);
            // Its author reads what is wrong and goes on; only a server that is gone ends it.
            match round(&folder, &mut trying) {
                Err(gone @ Failed::Unreachable(_)) => break Err(gone),
                Err(wrong) => eprintln!("{wrong}"),
                Ok(said) => println!("{said}"),
            }
        }
        match stop.recv_timeout(LOOK) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => break Ok(()),
        }
    };
    ended.and_then(|()| trying.put_back())
}

/// Builds, and lets the result decide.
fn round(folder: &Path, trying: &mut Trying) -> Result<String, Failed> {
    let began = Instant::now();
    let project = Project::open(folder).map_err(failed)?;
    let scratch = tempfile::tempdir().map_err(|e| Failed::Failed(e.to_string()))?;
    let built = author::build(&project, scratch.path(), &machine()).map_err(failed)?;
    let built = built.first().ok_or_else(|| Failed::Failed("nothing was built".to_owned()))?;
    let took = began.elapsed();
    let serving = trying.hand_over(&built.path)?;
    let (name, model) = (&trying.name, &trying.model);
    if trying.as_json {
        let seconds = took.as_secs_f64();
        return Ok(json!({ "plugin": name, "sha256": serving, "model": model, "seconds": seconds }).to_string());
    }
    Ok(format!(
        "{name} {} decides for {model}: built in {:.1} s",
        serving.get(..7).unwrap_or(&serving),
        took.as_secs_f64()
    ))
}

fn first_name(folder: &Path) -> Result<String, Failed> {
    let project = Project::open(folder).map_err(failed)?;
    Ok(project.manifests.first().map(|manifest| manifest.name.clone()).unwrap_or_default())
}

/// The plug-in on the server while its author works on it. It has a name of its own, so that it replaces no other plug-in.
struct Trying {
    client: Client,
    name: String,
    model: String,
    config: String,
    before: Option<Before>,
    /// It was handed to the server, whether or not it came to decide.
    is_there: bool,
    serves: bool,
    as_json: bool,
}

/// Who decided before, or watched, and how it was attached.
struct Before {
    name: String,
    config: String,
    shadow: bool,
    /// What a call of it may take, of servers that say so.
    time: Option<Span>,
}

impl Trying {
    /// Which plug-in decides for the model now, or watches it.
    fn decider(&self) -> Result<Option<Before>, Failed> {
        let plugins = self.client.get("/admin/plugins")?;
        let plugins: Vec<Summary> = serde_json::from_value(plugins).map_err(|e| Failed::Failed(e.to_string()))?;
        let of = |plugin: &Summary| {
            let at = plugin.attached.iter().find(|at| at.model == self.model)?;
            // A shadow is compared in every state.
            let shadow = at.differs.is_some();
            let time = (at.time_us > 0).then(|| Span(Duration::from_micros(at.time_us)));
            Some(Before { name: plugin.name.clone(), config: at.config.clone(), shadow, time })
        };
        Ok(plugins.iter().filter(|plugin| plugin.name != self.name).find_map(of))
    }

    fn path(&self, verb: &str) -> String {
        format!("/admin/plugins/{}{verb}", segment(&self.name))
    }

    /// The hash of what decides from now on.
    fn hand_over(&mut self, file: &Path) -> Result<String, Failed> {
        let bring = |verb: &str| component::bring(&self.client, &self.path(verb), &self.name, Some(file));
        let answer = if self.serves {
            bring("/replace")?
        } else {
            // One of this name may have been left by an earlier run that was killed.
            let known = self.client.get(&self.path("")).is_ok();
            bring(if known { "/replace" } else { "" })?;
            self.is_there = true;
            let config = serde_json::from_str::<serde_json::Value>(&self.config).ok();
            let how = json!({ "model": self.model, "config": config });
            let attached = self.client.post(&self.path("/attach"), RequestPayload::Json(how))?;
            self.serves = true;
            attached
        };
        Ok(answer.get("sha256").and_then(|sha| sha.as_str()).unwrap_or_default().to_owned())
    }

    fn put_back(&self) -> Result<(), Failed> {
        if !self.serves {
            return if self.is_there { self.forget() } else { Ok(()) };
        }
        let who = match &self.before {
            Some(Before { name, config, shadow, time }) => {
                let config =
                    serde_json::from_str::<serde_json::Value>(if config.is_empty() { "{}" } else { config }).ok();
                let time = time.map(|time| time.to_string());
                let how = json!({ "model": self.model, "config": config, "shadow": shadow, "time": time });
                self.client.post(&format!("/admin/plugins/{}/attach", segment(name)), RequestPayload::Json(how))?;
                name.as_str()
            }
            None => {
                self.client.post(&self.path("/detach"), RequestPayload::Json(json!({ "model": self.model })))?;
                "the built-in policy"
            }
        };
        self.forget()?;
        let name = self.before.as_ref().map(|before| before.name.as_str());
        match (self.as_json, &self.before) {
            (true, _) => println!("{}", json!({ "plugin": name, "model": self.model })),
            (false, Some(Before { shadow: true, .. })) => println!("{who} watches {} again", self.model),
            (false, _) => println!("{who} decides for {} again", self.model),
        }
        Ok(())
    }

    fn forget(&self) -> Result<(), Failed> {
        self.client.delete(&self.path(""))?;
        component::sweep(&self.client, &self.name);
        Ok(())
    }
}

/// Something comes through once the author has had enough.
fn interrupted() -> Result<Receiver<()>, Failed> {
    let (sender, receiver) = sync_channel(1);
    let failed = |e: std::io::Error| Failed::Failed(format!("no signals: {e}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let signals = {
        let _inside = runtime.enter();
        use tokio::signal::unix::{SignalKind, signal};
        (signal(SignalKind::interrupt()).map_err(failed)?, signal(SignalKind::terminate()).map_err(failed)?)
    };
    std::thread::spawn(move || {
        let (mut interrupt, mut terminate) = signals;
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        });
        let _ = sender.send(());
    });
    Ok(receiver)
}

type SourceFiles = BTreeMap<PathBuf, (SystemTime, u64)>;

/// Every source, with when it was changed. What builds leave behind is none.
fn sources(folder: &Path) -> SourceFiles {
    let mut found = SourceFiles::new();
    let Ok(entries) = std::fs::read_dir(folder) else { return found };
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        let made = name.starts_with(['.', '_']) || ["target", "cases"].contains(&name.as_ref());
        let is_component = name.ends_with(".wasm") || name == "Cargo.lock";
        match entry.metadata() {
            Ok(data) if data.is_dir() && !made => found.extend(sources(&path)),
            Ok(data) if data.is_file() && !is_component => {
                found.insert(path, (data.modified().unwrap_or(SystemTime::UNIX_EPOCH), data.len()));
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_change_and_what_is_built_of_them_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("src/lib.rs", "one");
        let first = sources(folder.path());
        write("target/x.rs", "made");
        write("mine.wasm", "made");
        assert_eq!(sources(folder.path()), first);
        write("src/lib.rs", "another");
        assert_ne!(sources(folder.path()), first);
    }
}
