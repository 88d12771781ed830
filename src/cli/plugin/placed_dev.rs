//! `sequor plugin dev` of a plug-in that a model's file names: every build takes the place of the version that a running server uses. When it is over, the
//! version from before serves again.

use std::path::Path;
use std::time::Instant;

use clap::ArgMatches;
use serde_json::json;

use super::{Failed, dev_loop, remote};
use crate::cli::remote::client::{Client, segment};
use crate::cli::remote::component;
use crate::scheduling::report::Summary;

/// What a plug-in of a world does, in the words of this command.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlacedWords {
    /// "processor".
    pub(super) kind: &'static str,
    /// "prepares requests of", before the model's name.
    pub(super) does: &'static str,
}

/// A plug-in of a running server while its author works on it.
struct PlacedDev {
    words: PlacedWords,
    client: Client,
    name: String,
    model: String,
    /// The component from before.
    before: Vec<u8>,
    as_json: bool,
}

pub(super) fn run(folder: &Path, matches: &ArgMatches, words: PlacedWords) -> Result<(), Failed> {
    let kind = words.kind;
    let (client, name) = (Client::of(matches)?, dev_loop::first_name(folder)?);
    let model = matches.get_one::<String>("model").cloned().unwrap_or_default();
    if matches.contains_id("set") {
        let what =
            format!("--set is for schedulers: the config of a plug-in of kind {kind} is in the model's sequor.toml");
        return Err(Failed::Configuration(what));
    }
    if !serves(&client, &name, &model)? {
        let what = format!(
            "{model} has no {kind} {name}: name it in the model's sequor.toml, build it into plugins.dir and load the model"
        );
        return Err(Failed::Failed(what));
    }
    let elsewhere = "the server has no plugins.dir on this machine, so the version from before could not be put back";
    let plugins = component::folder(&client).ok_or_else(|| Failed::Failed(elsewhere.to_owned()))?;
    let before = fs_err::read(plugins.join(format!("{name}.wasm"))).map_err(|e| Failed::Failed(e.to_string()))?;
    let dev = PlacedDev { words, client, name, model, before, as_json: remote::wants_json(matches) };
    let ended = dev_loop::on_every_change(folder, || dev.round(folder));
    ended.and_then(|()| dev.put_back())
}

/// Whether the model uses the plug-in.
fn serves(client: &Client, name: &str, model: &str) -> Result<bool, Failed> {
    let plugins = client.get("/admin/plugins")?;
    let plugins: Vec<Summary> = serde_json::from_value(plugins).map_err(|e| Failed::Failed(e.to_string()))?;
    let plugin = plugins.into_iter().find(|plugin| plugin.name == name);
    Ok(plugin.is_some_and(|plugin| plugin.attached.iter().any(|at| at.model == model)))
}

impl PlacedDev {
    /// Builds, and hands the result over. If the server refuses it, the version from before serves on.
    fn round(&self, folder: &Path) -> Result<String, Failed> {
        let began = Instant::now();
        let scratch = tempfile::tempdir().map_err(|e| Failed::Failed(e.to_string()))?;
        let built = dev_loop::build(folder, scratch.path())?;
        let seconds = began.elapsed().as_secs_f64();
        let sha256 = self.replace(&built)?;
        let PlacedDev { name, model, words, .. } = self;
        if self.as_json {
            let line = json!({ "plugin": name, "sha256": sha256, "model": model, "seconds": seconds });
            return Ok(line.to_string());
        }
        let short = sha256.get(..7).unwrap_or(&sha256);
        Ok(format!("{name} {short} {} {model}: built in {seconds:.1} s", words.does))
    }

    /// The hash of the version that serves from now on.
    fn replace(&self, file: &Path) -> Result<String, Failed> {
        let path = format!("/admin/plugins/{}/replace", segment(&self.name));
        let answer = component::bring(&self.client, &path, &self.name, Some(file))?;
        Ok(answer.get("sha256").and_then(|sha| sha.as_str()).unwrap_or_default().to_owned())
    }

    fn put_back(&self) -> Result<(), Failed> {
        let failed = |e: std::io::Error| Failed::Failed(e.to_string());
        let file = tempfile::NamedTempFile::new().map_err(failed)?;
        fs_err::write(file.path(), &self.before).map_err(failed)?;
        let sha256 = self.replace(file.path())?;
        let PlacedDev { name, model, words, .. } = self;
        if self.as_json {
            println!("{}", json!({ "plugin": name, "sha256": sha256, "model": model }));
        } else {
            println!("{name} {} {model} as before", words.does);
        }
        Ok(())
    }
}
