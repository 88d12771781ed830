//! `sequor plugin dev` for a plug-in that a model's file names: every build replaces the version that a running server uses. At the end the
//! previous version serves again.

use std::path::Path;
use std::time::Instant;

use clap::ArgMatches;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{Failed, dev_loop, remote};
use crate::cli::remote::client::{Client, segment};
use crate::cli::remote::component;
use crate::cli::stdout;
use crate::scheduling::report::Summary;

/// The words of this command for a plug-in of one world.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlacedWords {
    /// "processor".
    pub(super) kind: &'static str,
    /// "prepares requests of", before the model's name.
    pub(super) does: &'static str,
}

/// A plug-in of a running server during its author's session.
struct PlacedDev {
    words: PlacedWords,
    client: Client,
    name: String,
    model: String,
    /// The component before the session.
    before: Vec<u8>,
    as_json: bool,
}

pub(super) fn run(folder: &Path, matches: &ArgMatches, words: PlacedWords) -> Result<(), Failed> {
    let kind = words.kind;
    let (client, name) = (Client::from_matches(matches)?, dev_loop::first_name(folder)?);
    let model = matches.get_one::<String>("model").cloned().unwrap_or_default();
    if matches.contains_id("set") {
        let what =
            format!("--set is for schedulers: the config of a plug-in of kind {kind} is in the model's sequor.toml");
        return Err(Failed::Configuration(what));
    }
    let Some(serving) = serving(&client, &name, &model)? else {
        let what = format!(
            "{model} has no {kind} {name}: name it in the model's sequor.toml, build it into plugins.dir and load the model"
        );
        return Err(Failed::Failed(what));
    };
    let elsewhere = "the server has no plugins.dir on this machine, so the version from before could not be put back";
    let plugins = component::folder(&client).ok_or_else(|| Failed::Failed(elsewhere.to_owned()))?;
    let before = fs_err::read(plugins.join(format!("{name}.wasm"))).map_err(|e| Failed::Failed(e.to_string()))?;
    check_same(&before, &serving, &name)?;
    let dev = PlacedDev { words, client, name, model, before, as_json: remote::wants_json(matches) };
    let ended = dev_loop::on_every_change(folder, || dev.round(folder));
    dev.end(&plugins, ended)
}

/// The hash of the current version, if the model uses the plug-in.
fn serving(client: &Client, name: &str, model: &str) -> Result<Option<String>, Failed> {
    let plugins = client.get("/admin/plugins")?;
    let plugins: Vec<Summary> = serde_json::from_value(plugins).map_err(|e| Failed::Failed(e.to_string()))?;
    let plugin = plugins.into_iter().find(|plugin| plugin.name == name);
    Ok(plugin.filter(|plugin| plugin.attached.iter().any(|at| at.model == model)).map(|plugin| plugin.sha256))
}

/// Checks that the file in the server's folder is the current version, because it is restored at the end.
fn check_same(file: &[u8], serving: &str, name: &str) -> Result<(), Failed> {
    let digest = Sha256::digest(file);
    let sha256: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    if sha256 == serving {
        return Ok(());
    }
    let what = format!(
        "{name}.wasm in the server's plugins.dir is not the version that serves, so that version could not be put back: run \
         `sequor plugin replace {name} --from FILE` with the version that is to stay, and start again"
    );
    Err(Failed::Failed(what))
}

impl PlacedDev {
    /// Builds, and replaces the version on the server. If the server refuses it, the previous version stays.
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

    /// Replaces the version on the server, and returns the hash of the new one.
    fn replace(&self, file: &Path) -> Result<String, Failed> {
        let path = format!("/admin/plugins/{}/replace", segment(&self.name));
        let answer = component::send_component(&self.client, &path, &self.name, Some(file))?;
        Ok(answer.get("sha256").and_then(|sha| sha.as_str()).unwrap_or_default().to_owned())
    }

    /// Ends the session. If the server cannot be reached, the previous version is put into its folder for its next start.
    fn end(&self, plugins: &Path, ended: Result<(), Failed>) -> Result<(), Failed> {
        let ended = ended.and_then(|()| self.restore());
        if ended.is_err() {
            let (beside, kept) = (format!(".{}.{}.old", self.name, std::process::id()), format!("{}.wasm", self.name));
            let (beside, kept) = (plugins.join(beside), plugins.join(kept));
            let restored = fs_err::write(&beside, &self.before).and_then(|()| fs_err::rename(&beside, &kept));
            match restored {
                Ok(()) => eprintln!(
                    "sequor: {} is the version from before; it serves once the server starts again",
                    kept.display()
                ),
                Err(error) => eprintln!("sequor: the version from before is not in the server's folder: {error}"),
            }
        }
        ended
    }

    fn restore(&self) -> Result<(), Failed> {
        let failed = |e: std::io::Error| Failed::Failed(e.to_string());
        let file = tempfile::NamedTempFile::new().map_err(failed)?;
        fs_err::write(file.path(), &self.before).map_err(failed)?;
        let sha256 = self.replace(file.path())?;
        let PlacedDev { name, model, words, .. } = self;
        if self.as_json {
            stdout::line(format_args!("{}", json!({ "plugin": name, "sha256": sha256, "model": model })))
        } else {
            stdout::line(format_args!("{name} {} {model} as before", words.does))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dev_restores_the_previous_version_if_the_server_is_unreachable() {
        let plugins = tempfile::tempdir().unwrap();
        let kept = plugins.path().join("p.wasm");
        // Nothing listens on port 1.
        let command = clap::Command::new("dev").args(remote::args());
        let matches = command.try_get_matches_from(["dev", "--server", "127.0.0.1:1"]).unwrap();
        let words = PlacedWords { kind: "processor", does: "prepares requests of" };
        let dev = PlacedDev {
            words,
            client: Client::from_matches(&matches).unwrap(),
            name: "p".to_owned(),
            model: "m".to_owned(),
            before: b"before".to_vec(),
            as_json: false,
        };
        for ended in [Err(Failed::Unreachable("gone".to_owned())), Ok(())] {
            fs_err::write(&kept, "half done").unwrap();
            assert!(matches!(dev.end(plugins.path(), ended), Err(Failed::Unreachable(_))));
            assert_eq!(fs_err::read(&kept).unwrap(), b"before");
        }
        assert_eq!(fs_err::read_dir(plugins.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_restored_file_that_differs_from_the_serving_version_is_reported() {
        let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert!(check_same(b"abc", sha256, "p").is_ok());
        let refused = check_same(b"abd", sha256, "p").unwrap_err();
        assert!(refused.to_string().contains("sequor plugin replace p"), "{refused}");
    }
}
