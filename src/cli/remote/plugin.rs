//! The subcommands of `sequor plugin` for a running server.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::{Map, Value, json};

use super::advice::{known, replaceable, served};
use super::client::{Client, RequestPayload, segment};
use super::{args, component, print, text, wants_json};
use crate::cli::{CommandFn, Failed, stdout};
use crate::config::units::{Span, human};
use crate::scheduling::report::{Attached, BindingState, Summary, fault_text};
use crate::text::numbers::{pair, rate};
use crate::text::table;
use sequor_wasm::journal::LogLine;
use sequor_wasm::manifest;

/// The subcommands: the command line of each, and the function that runs it.
pub(in crate::cli) fn verbs() -> Vec<(Command, CommandFn)> {
    let from = || option("from", "FILE", "The component").value_parser(value_parser!(PathBuf));
    let model = || option("model", "MODEL", "The model").required(true);
    let flag = |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    let after = option("after", "N", "Only lines after this one").value_parser(value_parser!(u64)).default_value("0");
    let follow = flag("follow", "Go on with lines as they come").short('f');
    let set = option("set", "KEY=VALUE", "An entry of its configuration; KEY may be a path: weights.gold=4")
        .action(ArgAction::Append)
        .value_parser(entry);
    let time = option("time", "DURATION", "CPU time of a call, in place of the server's limit")
        .value_parser(value_parser!(Span));
    let max_wait =
        option("max-wait", "DURATION", "Time that it may hold a request back, up to plugins.max_wait of the server")
            .value_parser(value_parser!(Span));
    let attach = verb(
        "attach",
        "Let a scheduler decide for a model. The model's sequor.toml attaches processors and state initializers",
    )
    .arg(model())
    .arg(flag("shadow", "Only count where it would decide otherwise"))
    .arg(flag("save", "Write it to the model's sequor.toml"))
    .args([set, time, max_wait]);
    let load = verb("load", "Load a scheduler into a server; it decides nothing until it is attached")
        .arg(from().help("The component; without it, NAME.wasm of the server's plugins.dir"));
    let replace = verb("replace", "Replace the version that serves").arg(from().required(true));
    vec![
        (Command::new("list").about("List the plug-ins of a server").args(args()), list),
        (verb("show", "Show one plug-in: versions, calls, strikes, fallbacks"), show),
        (load, load_one),
        (attach, attach_one),
        (replace, replace_one),
        (verb("rollback", "Go back to the version before"), rollback),
        (verb("detach", "Let the built-in policy decide for a model again").arg(model()), detach),
        (
            verb(
                "park",
                "Stop asking a plug-in, at every model: the built-in policy decides; models with its processor or initializer refuse requests",
            ),
            park,
        ),
        (verb("unpark", "Ask a parked plug-in again"), unpark),
        (verb("unload", "Unload a plug-in that is attached nowhere"), unload),
        (verb("logs", "Print what a plug-in wrote, and what the server wrote about it").args([follow, after]), logs),
    ]
}

fn verb(name: &'static str, about: &'static str) -> Command {
    let plugin = Arg::new("name").value_name("NAME").required(true).help("Name of the plug-in");
    Command::new(name).about(about).arg(plugin).args(args())
}

fn option(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

fn path(matches: &ArgMatches, verb: &str) -> String {
    let name = segment(text(matches, "name"));
    if verb.is_empty() { format!("/admin/plugins/{name}") } else { format!("/admin/plugins/{name}/{verb}") }
}

/// Sends a request that needs only the name of an existing plug-in.
fn asked(matches: &ArgMatches, verb: &str) -> Result<Value, Failed> {
    let client = Client::from_matches(matches)?;
    client.post(&path(matches, verb), RequestPayload::Nothing).map_err(known(&client, text(matches, "name")))
}

/// One plug-in, as the server shows it.
fn one(matches: &ArgMatches) -> Result<Value, Failed> {
    let client = Client::from_matches(matches)?;
    client.get(&path(matches, "")).map_err(known(&client, text(matches, "name")))
}

fn s(n: u64) -> &'static str {
    if n == 1 { "" } else { "s" }
}

// === list and show ===

fn list(matches: &ArgMatches) -> Result<(), Failed> {
    print(matches, &Client::from_matches(matches)?.get("/admin/plugins")?, |plugins: Vec<Summary>| rows(&plugins))
}

fn show(matches: &ArgMatches) -> Result<(), Failed> {
    print(matches, &one(matches)?, |plugin: Summary| {
        let mut out = rows(std::slice::from_ref(&plugin));
        for attached in &plugin.attached {
            let Attached { model, version, calls, stale, strikes, .. } = attached;
            let [call, pick, strike] = [*calls, *stale, u64::from(*strikes)].map(s);
            out += &format!(
                "{model} {version}: {calls} call{call}, {stale} pick{pick} came too late, {strikes} strike{strike}\n"
            );
            if let Some(fault) = &attached.last_fault {
                let at = humantime::format_rfc3339_seconds(fault.at);
                out += &format!("  last fault at {at}: {}\n", fault_text(&fault.kind, &fault.what));
            }
        }
        out + &format!("sha256 {}\n", plugin.sha256)
    })
}

fn rows(plugins: &[Summary]) -> String {
    let heads = [
        "NAME",
        "VERSION",
        "SHA256",
        "WORLD",
        "ATTACHED",
        "STATE",
        "CALLS/S",
        "p50/p99",
        "FALLBACKS",
        "MEMORY",
        "ORIGIN",
    ];
    let of = |plugin: &Summary| {
        let rows: Vec<[String; 11]> = plugin.attached.iter().map(|attached| row(plugin, Some(attached))).collect();
        if rows.is_empty() { vec![row(plugin, None)] } else { rows }
    };
    table(&heads, &plugins.iter().flat_map(of).collect::<Vec<_>>())
}

fn row(plugin: &Summary, attached: Option<&Attached>) -> [String; 11] {
    let first = [plugin.name.clone(), plugin.version.clone(), head(&plugin.sha256), plugin.world.clone()];
    let last = match attached {
        None => ["-", "loaded", "0", "-", "0", "-", ""].map(str::to_owned),
        Some(a) => [
            place(plugin, a),
            match a.state {
                BindingState::Active => "active",
                BindingState::Shadow => "shadow",
                BindingState::Recovering => "recovering",
                BindingState::Parked => "PARKED",
            }
            .to_owned(),
            rate(a.calls_per_second),
            pair(a.p50_us, a.p99_us),
            a.fallbacks.to_string(),
            format!("{} / {}", human(a.memory), human(a.memory_limit)),
            origin(a),
        ],
    };
    let [name, version, sha, world] = first;
    let [at, state, calls, times, fallbacks, memory, origin] = last;
    [name, version, sha, world, at, state, calls, times, fallbacks, memory, origin]
}

/// The model, with its version if the plug-in is attached to several versions of it.
fn place(plugin: &Summary, attached: &Attached) -> String {
    let Attached { model, version, .. } = attached;
    let versions = plugin.attached.iter().filter(|other| other.model == *model).count();
    if versions > 1 { format!("{model}/{version}") } else { model.clone() }
}

fn origin(attached: &Attached) -> String {
    let mut text = if attached.from_file { "file" } else { "runtime (not in sequor.toml)" }.to_owned();
    if let Some((differing, all)) = attached.differs.filter(|(_, all)| *all > 0) {
        text += &format!("; differs in {:.1} % of rounds", differing as f64 * 100.0 / all as f64);
    }
    if attached.state == BindingState::Parked {
        // The strikes of a plug-in that was parked by hand, or long ago, are gone.
        match (attached.strikes, &attached.last_fault) {
            (0, None) => {}
            (0, Some(f)) => text += &format!("; {}", fault_text(&f.kind, &f.what)),
            (n, fault) => {
                let s = s(u64::from(n));
                let what =
                    fault.as_ref().map(|f| format!(", last: {}", fault_text(&f.kind, &f.what))).unwrap_or_default();
                text += &format!("; {n} strike{s}{what}");
            }
        }
    }
    text
}

fn head(sha256: &str) -> String {
    sha256.get(..7).unwrap_or(sha256).to_owned()
}

// === changes ===

/// Prints the plug-in, and what was done with it.
fn done(matches: &ArgMatches, answer: &Value, what: &str) -> Result<(), Failed> {
    print(matches, answer, |plugin: Summary| {
        format!("{} {} ({}) {what}\n", plugin.name, plugin.version, head(&plugin.sha256))
    })
}

/// The models whose file names this plug-in.
fn named(plugin: &Value) -> impl Iterator<Item = &str> {
    let attached = plugin.get("attached").and_then(Value::as_array).into_iter().flatten();
    let is_named = |at: &&Value| at.get("from_file").and_then(Value::as_bool).unwrap_or_default();
    attached.filter(is_named).filter_map(|at| at.get("model")?.as_str())
}

/// Whether the plug-in is attached to any model.
fn is_attached(plugin: &Value) -> bool {
    plugin.get("attached").and_then(Value::as_array).is_some_and(|attached| !attached.is_empty())
}

/// The result, unless the plug-in is attached nowhere.
fn where_attached(plugin: &Value, what: &str) -> String {
    if is_attached(plugin) { what.to_owned() } else { "is attached nowhere; it decides nothing".to_owned() }
}

/// A note about the models whose files name the plug-in: they use this version after the next start, too.
fn lasting(plugin: &Value) -> String {
    let mut models: Vec<&str> = named(plugin).collect();
    models.dedup();
    if models.is_empty() {
        String::new()
    } else {
        format!(", also after the next start: the sequor.toml of {} names it", models.join(", "))
    }
}

fn load_one(matches: &ArgMatches) -> Result<(), Failed> {
    let file = matches.get_one::<PathBuf>("from").map(PathBuf::as_path);
    let (client, name) = (Client::from_matches(matches)?, text(matches, "name"));
    let shown = file.map_or_else(|| "FILE".to_owned(), |file| file.display().to_string());
    let answer =
        component::send_component(&client, &path(matches, ""), name, file).map_err(replaceable(name, &shown))?;
    if let Some(own) = file.and_then(|file| fs_err::read(file).ok()).and_then(|bytes| other_name(&bytes, name)) {
        eprintln!("sequor: note: {shown} calls itself {own} (plugin.toml); here its name is {name}");
    }
    let is = if is_attached(&answer) {
        "is loaded already, and attached"
    } else {
        "is loaded; it decides nothing until it is attached"
    };
    done(matches, &answer, is)
}

/// The name in the `plugin.toml` of a component, if it is not this one.
fn other_name(component: &[u8], name: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Header {
        name: String,
    }
    let header: Header = toml::from_str(manifest::section(component).ok().flatten()?).ok()?;
    (header.name != name).then_some(header.name)
}

fn replace_one(matches: &ArgMatches) -> Result<(), Failed> {
    let file = matches.get_one::<PathBuf>("from").map(PathBuf::as_path);
    let (client, name) = (Client::from_matches(matches)?, text(matches, "name"));
    let answer =
        component::send_component(&client, &path(matches, "replace"), name, file).map_err(known(&client, name))?;
    let did =
        if is_attached(&answer) { "has taken over" } else { "is loaded; it decides nothing until it is attached" };
    done(matches, &answer, &format!("{did}{}", lasting(&answer)))
}

fn attach_one(matches: &ArgMatches) -> Result<(), Failed> {
    let (model, shadow, save) = (text(matches, "model"), matches.get_flag("shadow"), matches.get_flag("save"));
    let mut body = json!({ "model": model, "shadow": shadow, "save": save });
    let entries: Vec<&(String, Value)> = matches.get_many("set").into_iter().flatten().collect();
    if let Some(fields) = body.as_object_mut() {
        if !entries.is_empty() {
            fields.insert("config".to_owned(), config(&entries)?);
        }
        for (argument, field) in [("time", "time"), ("max-wait", "max_wait")] {
            if let Some(span) = matches.get_one::<Span>(argument) {
                fields.insert(field.to_owned(), span.to_string().into());
            }
        }
    }
    let answer =
        Client::from_matches(matches)?.post(&path(matches, "attach"), RequestPayload::Json(body)).map_err(served)?;
    let how = if shadow { "watches" } else { "decides for" };
    let saved = if save { ", and its sequor.toml says so" } else { "" };
    done(matches, &answer, &format!("{how} {model} now{saved}"))
}

fn detach(matches: &ArgMatches) -> Result<(), Failed> {
    let model = text(matches, "model");
    let client = Client::from_matches(matches)?;
    // Asked before the detach, because afterwards the answer no longer shows that the file names it.
    let before = client.get(&path(matches, "")).ok();
    let is_named = before.is_some_and(|before| named(&before).any(|name| name == model));
    let answer = client.post(&path(matches, "detach"), RequestPayload::Json(json!({ "model": model })));
    let answer = answer.map_err(served).map_err(known(&client, text(matches, "name")))?;
    let hint = if is_named { " until the next start: its sequor.toml names it" } else { "" };
    done(matches, &answer, &format!("is detached from {model}{hint}"))
}

fn rollback(matches: &ArgMatches) -> Result<(), Failed> {
    let client = Client::from_matches(matches)?;
    // Asked before, because the answer does not name the version that was replaced.
    let before = client.get(&path(matches, "")).ok().and_then(|before| serde_json::from_value::<Summary>(before).ok());
    let answer = asked(matches, "rollback")?;
    done(
        matches,
        &answer,
        &format!("is back{}{}", in_place_of(before.as_ref(), is_attached(&answer)), lasting(&answer)),
    )
}

/// The version that a rollback replaced, and that it is not lost.
fn in_place_of(before: Option<&Summary>, is_attached: bool) -> String {
    let idle = if is_attached { "" } else { "; it decides nothing until it is attached" };
    let version = before.map(|before| format!(", in place of {} ({})", before.version, head(&before.sha256)));
    format!("{}; another rollback returns to that one{idle}", version.unwrap_or_default())
}

fn park(matches: &ArgMatches) -> Result<(), Failed> {
    let answer = asked(matches, "park")?;
    done(matches, &answer, &where_attached(&answer, if_parked(&answer).0))
}

fn unpark(matches: &ArgMatches) -> Result<(), Failed> {
    let answer = asked(matches, "unpark")?;
    done(matches, &answer, &where_attached(&answer, if_parked(&answer).1))
}

/// What the models of a parked plug-in do, and what it does once it is not parked any more. Only schedulers have a stand-in.
fn if_parked(plugin: &Value) -> (&'static str, &'static str) {
    match plugin.get("world").and_then(Value::as_str) {
        Some("scheduler") => ("is parked: the built-in policy decides", "decides again"),
        _ => ("is parked: its models refuse requests until `sequor plugin unpark`", "is asked again"),
    }
}

fn unload(matches: &ArgMatches) -> Result<(), Failed> {
    let (client, name) = (Client::from_matches(matches)?, text(matches, "name"));
    let answer = client.delete(&path(matches, "")).map_err(known(&client, name))?;
    print(matches, &answer, |_: Value| format!("{name} is unloaded\n"))
}

/// Parses `weights.gold=4`: a path, and a value that is JSON or otherwise text.
pub(in crate::cli) fn entry(text: &str) -> Result<(String, Value), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("\"{text}\" is not KEY=VALUE"))?;
    if key.split('.').any(str::is_empty) {
        return Err(format!("\"{key}\" is no name of an entry"));
    }
    Ok((key.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| value.into())))
}

/// Merges the entries into one table.
pub(in crate::cli) fn config(entries: &[&(String, Value)]) -> Result<Value, Failed> {
    let mut config = Map::new();
    for (key, value) in entries {
        let (mut at, mut rest) = (&mut config, key.as_str());
        while let Some((first, more)) = rest.split_once('.') {
            let inner = at.entry(first).or_insert_with(|| Value::Object(Map::new()));
            let other = || Failed::Failed(format!("--set {key}: \"{first}\" is a value and cannot have entries"));
            (at, rest) = (inner.as_object_mut().ok_or_else(other)?, more);
        }
        at.insert(rest.to_owned(), value.clone());
    }
    Ok(Value::Object(config))
}

// === logs ===

fn logs(matches: &ArgMatches) -> Result<(), Failed> {
    let (client, follow) = (Client::from_matches(matches)?, matches.get_flag("follow"));
    let mut after = matches.get_one::<u64>("after").copied().unwrap_or(0);
    let mut wait = "0s";
    loop {
        let answer = client.get(&format!("{}?after={after}&wait={wait}", path(matches, "logs")));
        let answer = answer.map_err(known(&client, text(matches, "name")))?;
        let lines: Vec<LogLine> = serde_json::from_value(answer).map_err(|e| Failed::Failed(e.to_string()))?;
        for line in &lines {
            after = line.serial;
            print_line(line, wants_json(matches))?;
        }
        if !follow {
            return Ok(());
        }
        wait = "20s";
    }
}

/// Prints each line separately, so that programs can follow the log, too.
fn print_line(line: &LogLine, as_json: bool) -> Result<(), Failed> {
    if as_json {
        return stdout::line(format_args!("{}", serde_json::to_string(line).unwrap_or_default()));
    }
    let at = humantime::format_rfc3339_millis(line.at);
    stdout::line(format_args!("{at} {:<5} {}", line.level.to_uppercase(), shown(&line.message)))
}

/// A message of a plug-in for a terminal. It cannot control the terminal, and its further lines do not look like lines of the log.
fn shown(message: &str) -> String {
    let escaped = |c: char| if c.is_control() && c != '\t' { c.escape_default().collect() } else { String::from(c) };
    let lines: Vec<String> = message.lines().map(|line| line.chars().map(escaped).collect()).collect();
    lines.join(&format!("\n{:31}", ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_a_plugin_controls_no_terminal_and_forges_no_line() {
        let message = shown("first\tone\n2026-01-02T03:04:05.000Z INFO  \x1b[31mred\r");
        let second = "2026-01-02T03:04:05.000Z INFO  \\u{1b}[31mred\\r";
        assert_eq!(message, format!("first\tone\n{:31}{second}", ""));
    }

    #[test]
    fn only_schedulers_have_a_stand_in_while_they_are_parked() {
        let world = |world: &str| if_parked(&json!({ "world": world })).0;
        assert!(world("scheduler").contains("built-in policy") && !world("processor").contains("built-in policy"));
    }

    #[test]
    fn a_table_of_plugins_says_each_thing_once() {
        let at = |model: &str, version: u64, state: &str| {
            json!({
                "model": model, "version": version, "state": state, "from_file": true, "calls": 0, "calls_per_second": 0.0,
                "p50_us": 0.0, "p99_us": 0.0, "fallbacks": 0, "stale": 0, "strikes": if state == "parked" { 3 } else { 0 },
                "last_fault": { "kind": "time", "what": "time limit 1ms in plan", "at": "2026-01-02T03:04:05Z" },
                "differs": null, "memory": 1 << 20, "memory_limit": 16 << 20
            })
        };
        let attached = [at("vad", 1, "active"), at("vad", 2, "parked"), at("asr", 1, "shadow")];
        let plugin = json!({
            "name": "fair", "version": "0.1.0", "sha256": "0061736d31", "world": "scheduler", "attached": attached
        });
        insta::assert_snapshot!(rows(&[serde_json::from_value(plugin).unwrap()]));
    }

    #[test]
    fn config_entries_are_merged_into_one_table() {
        let entries: Vec<_> = ["burst=4", "weights.gold=4", "weights.free=1", "name=a b", "list=[1,2]"]
            .map(|text| entry(text).unwrap())
            .into();
        let made = config(&entries.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(made, json!({"burst": 4, "weights": {"gold": 4, "free": 1}, "name": "a b", "list": [1, 2]}));
        let clash: Vec<_> = ["a=1", "a.b=2"].map(|text| entry(text).unwrap()).into();
        assert!(config(&clash.iter().collect::<Vec<_>>()).is_err());
        assert!(entry("burst").is_err() && entry("=4").is_err() && entry("a..b=4").is_err());
    }

    #[test]
    fn a_component_with_another_name_than_the_given_one_is_noted() {
        let component = |name: &str| {
            let text = format!("name = \"{name}\"\nworld = \"scheduler\"\n");
            crate::author::component::with_manifest(b"\0asm\x0d\0\x01\0", &text)
        };
        assert_eq!(other_name(&component("fair-share"), "mine").as_deref(), Some("fair-share"));
        assert_eq!((other_name(&component("mine"), "mine"), other_name(b"nothing", "mine")), (None, None));
    }

    #[test]
    fn a_rollback_names_the_version_that_another_rollback_brings_back() {
        let before = Summary {
            name: "s-python".to_owned(),
            version: "0.2.0".to_owned(),
            sha256: "bbd72f5e".to_owned(),
            world: "scheduler".to_owned(),
            attached: Vec::new(),
        };
        let text = in_place_of(Some(&before), true);
        assert_eq!(text, ", in place of 0.2.0 (bbd72f5); another rollback returns to that one");
        assert!(in_place_of(None, false).ends_with("that one; it decides nothing until it is attached"));
    }
}
