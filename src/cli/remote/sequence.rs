//! `sequor sequence list | show | drop | export | import | fork | capture`: the sequences of a running server.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde::Deserialize;
use serde_json::Value;

use super::client::{Client, RequestPayload, segment};
use super::{args, one_sequence, print, text};
use crate::cli::Failed;
use crate::config::units::{Span, human};
use crate::state::Capture;
use crate::text::numbers::span;
use crate::text::table;

pub(in crate::cli) fn command() -> Command {
    Command::new("sequence")
        .about("The sequences of a running server: list, show, drop, export, import, fork, capture")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(list_command())
        .subcommand(of_one("show", "One sequence, or what became of it"))
        .subcommand(of_one("drop", "End a sequence; what it has queued is refused").arg(option(
            "reason",
            "TEXT",
            "Why, for the audit line",
        )))
        .subcommand(
            of_one("export", "The state of a sequence as a file").arg(file("to", "The .safetensors file to write")),
        )
        .subcommand(
            of_one("import", "Give a state to a sequence that does not live there; its next step goes on from it")
                .arg(file("from", "The .safetensors file")),
        )
        .subcommand(
            of_one("fork", "Give a copy of a sequence's state to another one; its next step goes on from there")
                .arg(option("as", "NEW", "The id of the copy, which does not live there").required(true)),
        )
        .subcommand(capture_command())
}

fn list_command() -> Command {
    Command::new("list")
        .about("Sequences that live, or that have ended and are remembered")
        .arg(Arg::new("of").value_name("MODEL").help("The model; all models with such sequences if none is named"))
        .arg(option("model", "MODEL", "The same as MODEL").conflicts_with("of"))
        .arg(option("sort", "BY", "The largest first").value_parser(["age", "idle", "step", "queued", "bytes"]))
        .arg(option("limit", "N", "How many are printed").value_parser(value_parser!(u32)).default_value("20"))
        .arg(flag("ended", "Those that have ended").conflicts_with("sort"))
        .arg(
            flag("resumable", "Those that the store keeps over a restart, and whose next step has not come yet")
                .conflicts_with_all(["sort", "ended"]),
        )
        .arg(option("reason", "REASON", "Of the ended: those that ended so (expired, dropped, ...)").requires("ended"))
        .arg(
            option("since", "DURATION", "Of the ended: those of this time")
                .value_parser(value_parser!(Span))
                .requires("ended"),
        )
        .args(args())
}

fn capture_command() -> Command {
    of_one("capture", "Record a live sequence's state and next steps into a file for sequor replay")
        .arg(file("to", "The .safetensors file to write"))
        .arg(
            option("steps", "N", "Number of steps after which the capture ends, if no END comes before")
                .value_parser(value_parser!(u32).range(1..=10_000))
                .default_value("100"),
        )
        .arg(
            option("wait", "DURATION", "How long to wait for the steps, at most 100s")
                .value_parser(value_parser!(Span))
                .default_value("30s"),
        )
}

/// Builds a command for one sequence, which its arguments name.
fn of_one(name: &'static str, about: &'static str) -> Command {
    Command::new(name).about(about).args(one_sequence::args()).args(args())
}

fn option(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

fn file(name: &'static str, help: &'static str) -> Arg {
    option(name, "FILE", help).value_parser(value_parser!(PathBuf)).required(true)
}

pub(in crate::cli) fn run(matches: &ArgMatches) -> Result<(), Failed> {
    match matches.subcommand() {
        Some(("list", matches)) => list(matches),
        Some(("show", matches)) => show(matches),
        Some(("drop", matches)) => end(matches),
        Some(("export", matches)) => export(matches),
        Some(("import", matches)) => import(matches),
        Some(("fork", matches)) => fork(matches),
        Some(("capture", matches)) => capture(matches),
        _ => Ok(()),
    }
}

// === the server's answers ===

#[derive(Deserialize)]
struct Sequences {
    sequences: Vec<ListedSequence>,
    all: usize,
    in_slots: usize,
    in_backlog: usize,
}

impl Sequences {
    /// The line that explains hashes, if some id is shown as one.
    fn note_of_hashes(&self) -> &'static str {
        if self.sequences.iter().any(|row| row.id.is_none() && row.id_hash.is_some()) { OF_HASHES } else { "" }
    }
}

#[derive(Deserialize)]
struct ListedSequence {
    id: Option<Value>,
    id_hash: Option<String>,
    state: String,
    step: u64,
    live: Option<LiveColumns>,
    ended: Option<Ended>,
    kept: Option<KeptColumns>,
    node: Option<String>,
}

#[derive(Deserialize)]
struct KeptColumns {
    version: u64,
    bytes: u64,
    left_seconds: Option<f64>,
}

#[derive(Deserialize)]
struct LiveColumns {
    version: u64,
    instance: Option<u16>,
    slot: Option<u32>,
    queued: u32,
    state_bytes: u64,
    ending: bool,
    age_seconds: f64,
    idle_seconds: f64,
    left_seconds: Option<f64>,
}

#[derive(Deserialize)]
struct Ended {
    reason: String,
    plugin: Option<String>,
    world: Option<String>,
    ago_seconds: f64,
}

/// The line below a table with hashes.
pub(super) const OF_HASHES: &str = "#... is the hash of a text id, hidden by [admin] peek = false: sequor sequence show MODEL ID prints the hash of an id\n";

/// Formats an id: `7`, `"call-77"`, or `#9f…` with the hash of a hidden text.
fn id(row: &ListedSequence) -> String {
    row.id.as_ref().map(Value::to_string).or(row.id_hash.as_ref().map(|hash| format!("#{hash}"))).unwrap_or_default()
}

const HEADS: [&str; 9] = ["ID", "STEP", "STATE", "V", "INST/SLOT", "AGE", "IDLE / LEFT", "QUEUED", "BYTES"];

fn live(row: &ListedSequence, live: &LiveColumns) -> [String; 9] {
    let seat = live.instance.zip(live.slot).map_or("-".to_owned(), |(instance, slot)| format!("{instance}/{slot}"));
    let left = live.left_seconds.map_or("-".to_owned(), span);
    let state = if live.ending { format!("{}, ending", row.state) } else { row.state.clone() };
    [
        id(row),
        row.step.to_string(),
        state,
        live.version.to_string(),
        seat,
        span(live.age_seconds),
        format!("{} / {left}", span(live.idle_seconds)),
        live.queued.to_string(),
        human(live.state_bytes),
    ]
}

// === the commands ===

/// The model of `list`: its first argument, or `--model`.
fn listed_model(matches: &ArgMatches) -> Option<&str> {
    ["of", "model"].into_iter().find_map(|name| matches.get_one::<String>(name)).map(String::as_str)
}

fn list(matches: &ArgMatches) -> Result<(), Failed> {
    let client = Client::from_matches(matches)?;
    let show: fn(&Sequences) -> String = match (matches.get_flag("ended"), matches.get_flag("resumable")) {
        (true, _) => ends,
        (_, true) => kept,
        _ => lives,
    };
    match listed_model(matches) {
        Some(model) => {
            print(matches, &client.get(&list_path(matches, model))?, |all: Sequences| show(&all) + all.note_of_hashes())
        }
        None => list_all(matches, &client, show),
    }
}

/// The sequences of all models, each model with its own table. Models without such sequences are left out.
fn list_all(matches: &ArgMatches, client: &Client, show: fn(&Sequences) -> String) -> Result<(), Failed> {
    let models = client.get("/admin/models")?;
    let names = models.as_array().into_iter().flatten().filter_map(|row| row.get("model")?.as_str());
    let mut by_model = serde_json::Map::new();
    for name in names.collect::<BTreeSet<_>>() {
        by_model.insert(name.to_owned(), client.get(&list_path(matches, name))?);
    }
    print(matches, &Value::Object(by_model), |by_model: BTreeMap<String, Sequences>| {
        let some = by_model.iter().filter(|(_, all)| all.all > 0);
        let texts: Vec<String> = some.map(|(model, all)| format!("{model}\n{}", show(all))).collect();
        let note = by_model.values().map(Sequences::note_of_hashes).find(|note| !note.is_empty()).unwrap_or_default();
        if texts.is_empty() { "no model has such sequences\n".to_owned() } else { texts.join("\n") + note }
    })
}

fn list_path(matches: &ArgMatches, model: &str) -> String {
    let mut path = format!("/admin/models/{}/sequences?limit=", segment(model));
    path += &matches.get_one::<u32>("limit").copied().unwrap_or(20).to_string();
    for flag in ["ended", "resumable"] {
        if matches.get_flag(flag) {
            path += &format!("&{flag}=true");
        }
    }
    for name in ["sort", "reason"] {
        if let Some(value) = matches.get_one::<String>(name) {
            path += &format!("&{name}={}", segment(value));
        }
    }
    if let Some(since) = matches.get_one::<Span>("since") {
        path += &format!("&since={since}");
    }
    path
}

const KEPT_HEADS: [&str; 5] = ["ID", "STEP", "V", "BYTES", "LEFT"];

fn kept_row(row: &ListedSequence) -> Option<[String; 5]> {
    let kept = row.kept.as_ref()?;
    let left = kept.left_seconds.map_or("-".to_owned(), span);
    Some([id(row), row.step.to_string(), kept.version.to_string(), human(kept.bytes), left])
}

fn kept(all: &Sequences) -> String {
    let rows: Vec<_> = all.sequences.iter().filter_map(kept_row).collect();
    table(&KEPT_HEADS, &rows) + &format!("{} of {} to resume\n", rows.len(), all.all)
}

fn lives(all: &Sequences) -> String {
    let rows: Vec<_> = all.sequences.iter().filter_map(|row| Some(live(row, row.live.as_ref()?))).collect();
    let Sequences { all, in_slots, in_backlog, .. } = all;
    table(&HEADS, &rows) + &format!("{} of {all} ({in_slots} in slots, {in_backlog} in backlog)\n", rows.len())
}

fn ends(all: &Sequences) -> String {
    let row = |row: &ListedSequence| {
        let ended = row.ended.as_ref()?;
        Some([id(row), row.step.to_string(), why(ended), span(ended.ago_seconds)])
    };
    let rows: Vec<_> = all.sequences.iter().filter_map(row).collect();
    table(&["ID", "STEP", "ENDED", "AGO"], &rows) + &format!("{} of {}\n", rows.len(), all.all)
}

/// Formats a reason: `expired`, or `plugin_rejected (processor redact)`.
fn why(Ended { reason, plugin, world, .. }: &Ended) -> String {
    match (world, plugin) {
        (Some(world), Some(plugin)) => format!("{reason} ({world} {plugin})"),
        _ => reason.clone(),
    }
}

/// The last step of an ended sequence. A step whose state was not stored was refused, so it has not taken effect.
pub(super) fn last_step_of_ended(reason: &str, step: u64) -> String {
    if reason == "unsealed" { format!("the state of its step {step} was not stored") } else { last_step(step) }
}

pub(super) fn last_step(step: u64) -> String {
    if step == 0 { "no step has run yet".to_owned() } else { format!("its last step was {step}") }
}

fn path(matches: &ArgMatches, more: &str) -> String {
    let (model, id) = one_sequence::of(matches);
    let (model, id) = (segment(model), segment(id));
    format!("/admin/models/{model}/sequences/{id}{more}?text={}", matches.get_flag("text"))
}

fn show(matches: &ArgMatches) -> Result<(), Failed> {
    print(matches, &Client::from_matches(matches)?.get(&path(matches, ""))?, |row: ListedSequence| {
        match (&row.live, &row.ended) {
            (Some(alive), _) => table(&HEADS, &[live(&row, alive)]),
            (None, Some(ended)) => {
                let (step, ago) = (last_step_of_ended(&ended.reason, row.step), span(ended.ago_seconds));
                format!("{} ended {ago} ago: {}; {step}\n", id(&row), why(ended))
            }
            (None, None) if row.node.is_some() => {
                let node = row.node.as_deref().unwrap_or_default();
                format!("{} is on server {node}; its last stored step is {}\n", id(&row), row.step)
            }
            (None, None) => kept_row(&row).map_or_else(String::new, |row| table(&KEPT_HEADS, &[row])),
        }
    })
}

fn end(matches: &ArgMatches) -> Result<(), Failed> {
    let reason = matches.get_one::<String>("reason").map(|why| format!("&reason={}", segment(why)));
    let answer = Client::from_matches(matches)?.delete(&(path(matches, "") + &reason.unwrap_or_default()))?;
    print(matches, &answer, |_: Value| format!("{} is dropped\n", one_sequence::of(matches).1))
}

fn export(matches: &ArgMatches) -> Result<(), Failed> {
    let file = matches.get_one::<PathBuf>("to").cloned().unwrap_or_default();
    let state = Client::from_matches(matches)?.fetch(&path(matches, "/state"))?;
    fs_err::write(&file, &state).map_err(|e| Failed::Failed(e.to_string()))?;
    print(matches, &serde_json::json!({ "bytes": state.len() }), |_: Value| {
        format!("{} is {}\n", file.display(), human(state.len() as u64))
    })
}

fn import(matches: &ArgMatches) -> Result<(), Failed> {
    let file = matches.get_one::<PathBuf>("from").cloned().unwrap_or_default();
    let state = fs_err::read(&file).map_err(|e| Failed::Failed(e.to_string()))?;
    let answer = Client::from_matches(matches)?.put(&path(matches, "/state"), RequestPayload::Bytes(state))?;
    print(matches, &answer, |_: Value| format!("{} goes on from {}\n", one_sequence::of(matches).1, file.display()))
}

fn fork(matches: &ArgMatches) -> Result<(), Failed> {
    let to = text(matches, "as");
    let path = path(matches, "/fork") + &format!("&as={}", segment(to));
    let answer = Client::from_matches(matches)?.post(&path, RequestPayload::Nothing)?;
    print(matches, &answer, |_: Value| format!("{to} goes on from a copy of {}\n", one_sequence::of(matches).1))
}

fn capture(matches: &ArgMatches) -> Result<(), Failed> {
    let file = matches.get_one::<PathBuf>("to").cloned().unwrap_or_default();
    let mut path = path(matches, "/capture");
    if let (Some(steps), Some(wait)) = (matches.get_one::<u32>("steps"), matches.get_one::<Span>("wait")) {
        path += &format!("&steps={steps}&wait={wait}");
    }
    let captured = Client::from_matches(matches)?.fetch_by_post(&path)?;
    let failed = |e: &dyn std::fmt::Display| Failed::Failed(e.to_string());
    let Capture { steps, ended, .. } = Capture::parse(&captured).map_err(|e| failed(&e))?;
    fs_err::write(&file, &captured).map_err(|e| failed(&e))?;
    let row = serde_json::json!({ "bytes": captured.len(), "steps": steps.len(), "ended": ended });
    print(matches, &row, |_: Value| {
        let (steps, size) = (steps.len(), human(captured.len() as u64));
        format!("{} is {size}, {steps} steps; the capture ended by: {ended}\n", file.display())
    })
}
