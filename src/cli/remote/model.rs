//! `sequor model list | load | unload`: the models of a running server.

use clap::{Arg, ArgMatches, Command};
use serde::Deserialize;

use super::client::{Client, RequestPayload, segment};
use super::{advice, args, print, text};
use crate::cli::Failed;
use crate::config::units::human;
use crate::text::numbers::rate;
use crate::text::table;

pub(in crate::cli) fn command() -> Command {
    let name = || Arg::new("name").value_name("MODEL").required(true).help("The model");
    Command::new("model")
        .about("The models of a running server: list, load, unload")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("list").about("List models with their state, slots, live sequences and load").args(args()),
        )
        .subcommand(Command::new("load").about("Load a model, or what has changed of it").arg(name()).args(args()))
        .subcommand(Command::new("unload").about("Take a model out of service").arg(name()).args(args()))
}

pub(in crate::cli) fn run(matches: &ArgMatches) -> Result<(), Failed> {
    match matches.subcommand() {
        Some(("list", matches)) => list(matches),
        Some((verb, matches)) => change(verb, matches),
        None => Ok(()),
    }
}

/// The columns of a version. The server's answer has more; a server of another version may send fewer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct VersionRow {
    model: String,
    version: Option<u64>,
    state: String,
    reason: String,
    strategy: String,
    instances: u16,
    slots: u32,
    slots_used: u32,
    live: u32,
    backlog: u32,
    state_bytes: u64,
    requests_per_second: f64,
}

fn list(matches: &ArgMatches) -> Result<(), Failed> {
    print(matches, &Client::from_matches(matches)?.get("/admin/models")?, |versions: Vec<VersionRow>| {
        versions_table(&versions)
    })
}

pub(super) fn versions_table(versions: &[VersionRow]) -> String {
    let heads =
        ["MODEL", "V", "STATE", "SCHEDULER", "INST", "LIVE", "SLOTS", "BACKLOG", "REQ/S", "STATE BYTES", "REASON"];
    table(&heads, &versions.iter().map(row).collect::<Vec<_>>())
}

fn row(v: &VersionRow) -> [String; 11] {
    let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    [
        v.model.clone(),
        or_dash(v.version.map(|n| n.to_string()).unwrap_or_default()),
        or_dash(v.state.to_lowercase()),
        or_dash(v.strategy.clone()),
        v.instances.to_string(),
        v.live.to_string(),
        if v.slots == 0 { "-".to_owned() } else { format!("{}/{}", v.slots_used, v.slots) },
        v.backlog.to_string(),
        rate(v.requests_per_second),
        human(v.state_bytes),
        v.reason.clone(),
    ]
}

fn change(verb: &str, matches: &ArgMatches) -> Result<(), Failed> {
    let name = text(matches, "name");
    let answer = Client::from_matches(matches)?
        .post(&format!("/admin/models/{}/{verb}", segment(name)), RequestPayload::Nothing)
        .map_err(advice::served)?;
    print(matches, &answer, |_: serde_json::Value| format!("{name} is {verb}ed\n"))
}
