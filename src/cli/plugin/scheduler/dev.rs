//! `sequor plugin dev` for a scheduler: every build decides on a running server at once. At the end the previous policy decides again.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::ArgMatches;
use serde_json::json;

use crate::cli::Failed;
use crate::cli::plugin::dev_loop::{build, first_name, on_every_change};
use crate::cli::plugin::file;
use crate::cli::remote::client::{Client, RequestPayload, segment};
use crate::cli::remote::{self, component};
use crate::cli::stdout;
use crate::config::units::Span;
use crate::scheduling::report::Summary;

/// Runs the session of a scheduler that decides for a model.
pub(super) fn scheduler(folder: &Path, matches: &ArgMatches) -> Result<(), Failed> {
    let model = matches.get_one::<String>("model").cloned().unwrap_or_default();
    let mut trying = DevPlugin {
        client: Client::from_matches(matches)?,
        name: format!("{}-dev", first_name(folder)?),
        model,
        config: file::config(matches)?,
        before: None,
        is_there: false,
        serves: false,
        as_json: remote::wants_json(matches),
    };
    trying.before = trying.decider()?;
    let ended = on_every_change(folder, || round(folder, &mut trying));
    ended.and_then(|()| trying.restore())
}

/// Builds, and lets the result decide.
fn round(folder: &Path, trying: &mut DevPlugin) -> Result<String, Failed> {
    let began = Instant::now();
    let scratch = tempfile::tempdir().map_err(|e| Failed::Failed(e.to_string()))?;
    let built = build(folder, scratch.path())?;
    let took = began.elapsed();
    let serving = trying.hand_over(&built)?;
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

/// The plug-in on the server during its author's session. It has its own name, so that it replaces no other plug-in.
struct DevPlugin {
    client: Client,
    name: String,
    model: String,
    config: String,
    before: Option<PreviousScheduler>,
    /// Whether the server has the plug-in, even if it does not decide yet.
    is_there: bool,
    serves: bool,
    as_json: bool,
}

/// The plug-in that decided or was a shadow before, and its options.
struct PreviousScheduler {
    name: String,
    config: String,
    shadow: bool,
    /// The CPU time of its calls, if the server reports it.
    time: Option<Span>,
}

impl DevPlugin {
    /// The plug-in that decides for the model now, or is its shadow.
    fn decider(&self) -> Result<Option<PreviousScheduler>, Failed> {
        let plugins = self.client.get("/admin/plugins")?;
        let plugins: Vec<Summary> = serde_json::from_value(plugins).map_err(|e| Failed::Failed(e.to_string()))?;
        let of = |plugin: &Summary| {
            let at = plugin.attached.iter().find(|at| at.model == self.model)?;
            // Only a shadow has this comparison, in every state.
            let shadow = at.differs.is_some();
            let time = (at.time_us > 0).then(|| Span(Duration::from_micros(at.time_us)));
            Some(PreviousScheduler { name: plugin.name.clone(), config: at.config.clone(), shadow, time })
        };
        Ok(plugins.iter().filter(|plugin| plugin.name != self.name).find_map(of))
    }

    fn path(&self, verb: &str) -> String {
        format!("/admin/plugins/{}{verb}", segment(&self.name))
    }

    /// Makes the component decide, and returns its hash.
    fn hand_over(&mut self, file: &Path) -> Result<String, Failed> {
        let send = |verb: &str| component::send_component(&self.client, &self.path(verb), &self.name, Some(file));
        let answer = if self.serves {
            send("/replace")?
        } else {
            // An earlier session that was killed may have left a plug-in of this name.
            let known = self.client.get(&self.path("")).is_ok();
            send(if known { "/replace" } else { "" })?;
            self.is_there = true;
            let config = serde_json::from_str::<serde_json::Value>(&self.config).ok();
            let how = json!({ "model": self.model, "config": config });
            let attached = self.client.post(&self.path("/attach"), RequestPayload::Json(how))?;
            self.serves = true;
            attached
        };
        Ok(answer.get("sha256").and_then(|sha| sha.as_str()).unwrap_or_default().to_owned())
    }

    fn restore(&self) -> Result<(), Failed> {
        if !self.serves {
            return if self.is_there { self.forget() } else { Ok(()) };
        }
        let who = match &self.before {
            Some(PreviousScheduler { name, config, shadow, time }) => {
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
            (true, _) => stdout::line(format_args!("{}", json!({ "plugin": name, "model": self.model }))),
            (false, Some(PreviousScheduler { shadow: true, .. })) => {
                stdout::line(format_args!("{who} watches {} again", self.model))
            }
            (false, _) => stdout::line(format_args!("{who} decides for {} again", self.model)),
        }
    }

    fn forget(&self) -> Result<(), Failed> {
        self.client.delete(&self.path(""))?;
        component::sweep(&self.client, &self.name);
        Ok(())
    }
}
