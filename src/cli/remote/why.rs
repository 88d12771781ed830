//! `sequor why MODEL ID`: one screen about one sequence of a running server. It shows where the sequence is, what its last steps did, why it
//! ended, and which setting keeps such a sequence.

use std::fmt::Write as _;

use clap::{ArgMatches, Command};
use serde::Deserialize;
use serde_json::Value;

use super::client::{Client, segment};
use super::sequence::{OF_HASHES, last_step, last_step_of_ended};
use super::{advice, args, one_sequence, print};
use crate::cli::Failed;
use crate::config::units::human;
use crate::text::numbers::span;
use crate::text::table;

/// What to do about a sequence of another server.
const ASK_THERE: &str = "ask that server for its steps";
/// Ids of other sequences that are printed for a batch.
const MATES: usize = 3;

pub(in crate::cli) fn command() -> Command {
    Command::new("why")
        .about("Explain one sequence: where it is, its last steps, why it ended, and which setting would have kept it")
        .after_help(
            "Exit: 0 the server knows the sequence, 1 it does not, 4 no answer.\n\n\
             The server keeps the last 8 steps of each live sequence, and of the last 1024 that ended. It keeps the last 256 refused \
             requests of a model. A restart forgets them.",
        )
        .args(one_sequence::args())
        .args(args())
}

pub(in crate::cli) fn run(matches: &ArgMatches) -> Result<(), Failed> {
    let (model, id) = one_sequence::of(matches);
    let path =
        format!("/admin/models/{}/sequences/{}/why?text={}", segment(model), segment(id), matches.get_flag("text"));
    let answer = Client::from_matches(matches)?.get(&path).map_err(advice::served)?;
    print(matches, &answer, |of: Explained| of.render(id))?;
    match answer.get("place").and_then(Value::as_str) {
        Some("unknown") => Err(Failed::Failed(format!("the server knows no sequence {id} of model {model}"))),
        _ => Ok(()),
    }
}

/// The server's answer. A server of another version may omit some fields.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Explained {
    model: String,
    sequence: ExplainedSequence,
    place: String,
    ahead: Option<usize>,
    policy: String,
    scheduler: Option<String>,
    steps: Vec<ExplainedStep>,
    refused: Vec<ExplainedRefusal>,
    members: Vec<ExplainedMember>,
    remedy: Option<ExplainedRemedy>,
}

/// The same sequence in a member of an ensemble.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ExplainedMember {
    model: String,
    place: String,
    sequence: ExplainedSequence,
    refused: Vec<ExplainedRefusal>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ExplainedSequence {
    state: String,
    step: u64,
    live: Option<ExplainedLive>,
    ended: Option<ExplainedEnd>,
    kept: Option<ExplainedKept>,
    node: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ExplainedLive {
    version: u64,
    instance: Option<u16>,
    slot: Option<u32>,
    queued: u32,
    state_bytes: u64,
    ending: bool,
    age_seconds: f64,
    waited_seconds: Option<f64>,
    idle_seconds: f64,
    left_seconds: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ExplainedEnd {
    reason: String,
    plugin: Option<String>,
    world: Option<String>,
    member: Option<String>,
    idle_seconds: Option<f64>,
    ago_seconds: f64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ExplainedKept {
    version: u64,
    origin: String,
    bytes: u64,
    left_seconds: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ExplainedStep {
    step: u64,
    ago_seconds: f64,
    waited_seconds: f64,
    ran_seconds: f64,
    batch: usize,
    mates: Vec<Value>,
    chosen_by: String,
    failed: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ExplainedRefusal {
    ago_seconds: f64,
    reason: String,
    member: Option<String>,
    text: Option<String>,
    hidden: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ExplainedRemedy {
    advice: String,
    settings: Vec<ExplainedSetting>,
    page: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ExplainedSetting {
    key: String,
    file: String,
}

impl Explained {
    fn render(&self, id: &str) -> String {
        let mut out = format!("{} {id}: {}\n", self.model, self.sequence.place(&self.place, self.ahead));
        for line in self.facts() {
            let _ = writeln!(out, "  {line}");
        }
        if !self.steps.is_empty() {
            let heads = ["STEP", "ANSWERED", "WAITED", "RAN", "BATCH", "CHOSEN BY", "WITH"];
            let rows: Vec<_> = self.steps.iter().map(|step| self.step(step)).collect();
            let _ = write!(out, "\n{}", table(&heads, &rows));
            let has_hash = |id: &Value| id.as_str().is_some_and(|id| id.starts_with('#'));
            if self.steps.iter().any(|step| step.mates.iter().take(MATES).any(has_hash)) {
                out += OF_HASHES;
            }
        }
        if !self.refused.is_empty() {
            let rows: Vec<_> = self.refused.iter().map(refusal).collect();
            let _ = write!(out, "\n{}", table(&["REFUSED", "REASON", "WHAT THE CLIENT GOT"], &rows));
        }
        if !self.members.is_empty() {
            let rows: Vec<_> = self.members.iter().map(ExplainedMember::row).collect();
            let _ = write!(out, "\n{}", table(&["MEMBER", "LAST STEP", "STATE", "LAST REFUSAL"], &rows));
        }
        if let Some(remedy) = &self.remedy {
            let _ = write!(out, "\n{}", remedy.render());
        }
        out
    }

    /// The lines below the first.
    fn facts(&self) -> Vec<String> {
        let ExplainedSequence { step, live, ended, kept, node, .. } = &self.sequence;
        let idle = || format!("[sequence] idle in {}/sequor.toml", self.model);
        let expires = |left: Option<f64>| Some(format!("expires in {} if no request comes ({})", span(left?), idle()));
        if let Some(live) = live {
            let ExplainedLive { queued, state_bytes, age_seconds, idle_seconds, .. } = live;
            let (age, quiet, state) = (span(*age_seconds), span(*idle_seconds), human(*state_bytes));
            let first =
                format!("{}; age {age}, quiet for {quiet}, requests queued {queued}, state {state}", last_step(*step));
            let leaves = match self.place.as_str() {
                "waiting" => live.left_seconds.map(|left| format!("is refused in {} if no slot is free", span(left))),
                _ => expires(live.left_seconds),
            };
            let ends = live.ending.then(|| "ends after its queued requests".to_owned());
            return [Some(first), ends, leaves].into_iter().flatten().collect();
        }
        if node.is_some() {
            let stored =
                kept.as_ref().map(|kept| format!("its last stored step is {step}; state {}", human(kept.bytes)));
            return vec![stored.unwrap_or_else(|| "it has no stored state".to_owned()), ASK_THERE.to_owned()];
        }
        if let Some(ExplainedEnd { reason, idle_seconds, .. }) = ended {
            let limit = idle_seconds.filter(|_| reason == "expired");
            let limit = limit.map(|idle| format!("no request came for {}, its idle time", span(idle)));
            return limit.into_iter().chain([last_step_of_ended(reason, *step)]).collect();
        }
        if let Some(ExplainedKept { bytes, left_seconds, .. }) = kept {
            let first = format!("{}; state {}", last_step(*step), human(*bytes));
            return [Some(first), expires(*left_seconds)].into_iter().flatten().collect();
        }
        let what = "it did not start here, or its end is no longer remembered ([sequence] tombstones), or the server was restarted since";
        vec![what.to_owned()]
    }

    fn step(&self, of: &ExplainedStep) -> [String; 7] {
        let is_run = of.batch > 0;
        let failed = if of.failed { ", failed" } else { "" };
        [
            if of.step == 0 { format!("-{failed}") } else { format!("{}{failed}", of.step) },
            format!("{} ago", span(of.ago_seconds)),
            span(of.waited_seconds),
            span(of.ran_seconds),
            if is_run { of.batch.to_string() } else { "-".to_owned() },
            if is_run { self.chooser(&of.chosen_by) } else { "no run".to_owned() },
            mates(of),
        ]
    }

    /// Who chose a batch. The plug-in's name is that of the one that decides now.
    fn chooser(&self, by: &str) -> String {
        let plugin = self.scheduler.as_deref().unwrap_or("a plug-in");
        match by {
            "plugin" => plugin.to_owned(),
            "fallback" => format!("{}, for {plugin} gave no answer", self.policy),
            _ => self.policy.clone(),
        }
    }
}

impl ExplainedSequence {
    /// Where the sequence is.
    fn place(&self, place: &str, ahead: Option<usize>) -> String {
        let ExplainedSequence { live, ended, kept, .. } = self;
        match (live, ended, kept) {
            (Some(live), ..) if place == "waiting" => {
                let ahead = ahead.map(|ahead| format!(", sequences ahead: {ahead}")).unwrap_or_default();
                format!("has waited for a slot for {}{ahead}", span(live.waited_seconds.unwrap_or(live.age_seconds)))
            }
            (Some(live), ..) => format!("live, {}{}", self.stage(), slot_of(live)),
            _ if self.node.is_some() => format!("on server {}", self.node.as_deref().unwrap_or_default()),
            (_, Some(ended), _) => format!("ended {} ago: {}", span(ended.ago_seconds), because(ended)),
            (_, _, Some(kept)) => format!("{}, waits for its next step", kept.place()),
            _ => "unknown".to_owned(),
        }
    }

    fn stage(&self) -> &str {
        match self.state.as_str() {
            "preparing" => "a request is being prepared",
            "ready" => "a request waits for a batch",
            "running" => "a step runs",
            "sealing" => "its state is being written",
            "posting" => "an answer is being finished",
            state => state,
        }
    }
}

impl ExplainedMember {
    fn row(&self) -> [String; 4] {
        let ExplainedMember { model, place, sequence, refused } = self;
        let last = refused.first().map(|of| match &of.text {
            Some(text) => format!("{} ago, {}: {text}", span(of.ago_seconds), of.reason),
            None => format!("{} ago, {}", span(of.ago_seconds), of.reason),
        });
        let step = if sequence.step == 0 { "-".to_owned() } else { sequence.step.to_string() };
        let state = if place == "unknown" { "no sequence of this id".to_owned() } else { sequence.place(place, None) };
        [model.clone(), step, state, last.unwrap_or_else(|| "-".to_owned())]
    }
}

impl ExplainedRemedy {
    fn render(&self) -> String {
        let settings = self.settings.iter().map(|ExplainedSetting { key, file }| format!("  {key}   in {file}\n"));
        format!("to prevent it: {}\n{}read {}\n", self.advice, settings.collect::<String>(), self.page)
    }
}

impl ExplainedKept {
    fn place(&self) -> String {
        match self.origin.as_str() {
            "operator" => format!("has a state from an operator, of version {}", self.version),
            "reload" => format!("moved from version {} when that was replaced", self.version),
            _ => format!("stored by version {}", self.version),
        }
    }
}

fn slot_of(ExplainedLive { instance, slot, version, .. }: &ExplainedLive) -> String {
    match (instance, slot) {
        (Some(instance), Some(slot)) => format!(" in slot {slot} of instance {instance}, version {version}"),
        _ => format!(" on version {version}"),
    }
}

fn because(ExplainedEnd { reason, plugin, world, member, .. }: &ExplainedEnd) -> String {
    match (world, plugin, member) {
        (Some(world), Some(plugin), _) => format!("{reason}, by {world} {plugin}"),
        (.., Some(member)) => format!("{reason}, by member {member}"),
        _ => reason.clone(),
    }
}

/// The other sequences of a batch: a few ids and the number of the rest.
fn mates(of: &ExplainedStep) -> String {
    let all = of.batch.saturating_sub(1);
    let named: Vec<String> = of.mates.iter().take(MATES.min(all)).map(shown).collect();
    match (named.is_empty(), all - named.len()) {
        (_, 0) => named.join(", "),
        (true, rest) => format!("{rest} more"),
        (false, rest) => format!("{} and {rest} more", named.join(", ")),
    }
}

/// An id as `sequor sequence` prints it: `7`, `"call-77"`, or `#9f…`.
fn shown(id: &Value) -> String {
    match id.as_str() {
        Some(hash) if hash.starts_with('#') => hash.to_owned(),
        _ => id.to_string(),
    }
}

fn refusal(ExplainedRefusal { ago_seconds, reason, member, text, hidden }: &ExplainedRefusal) -> [String; 3] {
    let absent = if *hidden { "hidden: [admin] peek = false" } else { "-" };
    let reason = match member {
        Some(member) => format!("{reason}, in member {member}"),
        None => reason.clone(),
    };
    [format!("{} ago", span(*ago_seconds)), reason, text.clone().unwrap_or_else(|| absent.to_owned())]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rendered(answer: &Value) -> String {
        Explained::deserialize(answer).unwrap().render("7")
    }

    fn step(step: u64, batch: usize, chosen_by: &str, mates: &Value) -> Value {
        json!({
            "step": step, "ago_seconds": 3.1, "waited_seconds": 0.0012, "ran_seconds": 0.011, "batch": batch, "mates": mates,
            "chosen_by": chosen_by, "failed": step == 400
        })
    }

    #[test]
    fn a_live_sequence_shows_its_steps_with_their_batches() {
        let steps = [
            step(402, 38, "plugin", &json!([8, "call-77", "#00ff", 9])),
            step(401, 1, "fallback", &json!([])),
            step(400, 3, "policy", &json!([8])),
            step(0, 0, "policy", &json!([])),
        ];
        insta::assert_snapshot!(rendered(&json!({
            "model": "encoder", "place": "live", "policy": "oldest", "scheduler": "fair-share", "steps": steps, "refused": [],
            "sequence": {
                "id": 7, "state": "idle", "step": 402,
                "live": {
                    "version": 2, "instance": 0, "slot": 17, "queued": 0, "queued_bytes": 0, "state_bytes": 3_565_158, "ending": false,
                    "age_seconds": 411.0, "idle_seconds": 3.1, "left_seconds": 1.9
                }
            }
        })));
    }

    #[test]
    fn an_ended_sequence_shows_why_and_what_would_have_kept_it() {
        let remedy = json!({
            "reason": "expired", "advice": "raise the idle time", "page": "docs/troubleshoot.md#expired",
            "settings": [{ "key": "[sequence] idle", "file": "encoder/sequor.toml" }]
        });
        insta::assert_snapshot!(rendered(&json!({
            "model": "encoder", "place": "ended", "policy": "oldest", "steps": [step(402, 2, "plugin", &json!([8]))], "remedy": remedy,
            "refused": [{ "ago_seconds": 1.2, "reason": "expired", "text": "must specify the START flag" }],
            "sequence": {
                "id": 7, "state": "ended", "step": 402, "ended": { "reason": "expired", "idle_seconds": 5.0, "ago_seconds": 12.0 }
            }
        })));
        let unsealed = json!({ "sequence": { "step": 3, "ended": { "reason": "unsealed" } } });
        assert!(rendered(&unsealed).contains("the state of its step 3 was not stored"));
        let by = json!({ "sequence": { "ended": { "reason": "plugin_rejected", "plugin": "redact", "world": "processor" } } });
        assert!(rendered(&by).contains("ended 0 us ago: plugin_rejected, by processor redact\n"), "{}", rendered(&by));
    }

    #[test]
    fn a_sequence_of_an_ensemble_names_the_member_that_ended_it() {
        let ended = |reason: &str| json!({ "reason": reason, "ago_seconds": 3.0 });
        let mut end = ended("member_failed");
        end["member"] = json!("second");
        let live = json!({ "version": 1, "instance": 0, "slot": 2 });
        insta::assert_snapshot!(rendered(&json!({
            "model": "both", "place": "ended", "policy": "ensemble",
            "sequence": { "id": 7, "state": "ended", "step": 0, "ended": end },
            "refused": [{ "ago_seconds": 3.0, "reason": "plugin_failed", "member": "second", "hidden": true }],
            "members": [
                {
                    "model": "first", "place": "ended", "refused": [],
                    "sequence": { "id": 7, "state": "ended", "step": 4, "ended": ended("member_failed") }
                },
                {
                    "model": "second", "place": "ended",
                    "refused": [{ "ago_seconds": 3.0, "reason": "plugin_failed", "text": "plug-in x failed" }],
                    "sequence": { "id": 7, "state": "ended", "step": 3, "ended": ended("member_failed") }
                },
                { "model": "third", "place": "live", "refused": [], "sequence": { "state": "idle", "step": 1, "live": live } }
            ]
        })));
    }

    #[test]
    fn a_text_that_is_not_shown_names_the_setting_that_hides_it() {
        let refused = json!([{ "reason": "plugin_failed", "hidden": true }, { "reason": "bad_input" }]);
        let text = rendered(&json!({ "refused": refused }));
        assert!(text.contains("plugin_failed  hidden: [admin] peek = false\n"), "{text}");
        assert!(text.lines().any(|line| line.contains("bad_input") && line.trim_end().ends_with(" -")), "{text}");
    }

    #[test]
    fn a_sequence_without_a_slot_and_one_in_the_store_say_what_they_wait_for() {
        let live = json!({ "version": 2, "queued": 1, "state_bytes": 0, "age_seconds": 1.4, "idle_seconds": 1.4, "left_seconds": 0.6 });
        insta::assert_snapshot!(rendered(&json!({
            "model": "encoder", "place": "waiting", "ahead": 11, "policy": "oldest",
            "sequence": { "id": 7, "state": "backlog", "step": 0, "live": live }
        })));
        insta::assert_snapshot!(rendered(&json!({
            "model": "encoder", "place": "stored", "policy": "oldest",
            "sequence": { "id": 7, "state": "kept", "step": 40, "kept": { "version": 2, "origin": "store", "bytes": 1024, "left_seconds": 1800.0 } }
        })));
    }

    #[test]
    fn a_sequence_of_another_server_names_it() {
        let kept = json!({ "version": 2, "origin": "store", "bytes": 1024 });
        let of = |kept: Option<Value>| {
            let sequence = json!({ "id": 7, "state": "elsewhere", "step": 40, "node": "b", "kept": kept });
            rendered(&json!({ "model": "encoder", "place": "elsewhere", "policy": "oldest", "sequence": sequence }))
        };
        let first = "encoder 7: on server b\n  ";
        assert_eq!(of(Some(kept)), format!("{first}its last stored step is 40; state 1 KiB\n  {ASK_THERE}\n"));
        assert_eq!(of(None), format!("{first}it has no stored state\n  {ASK_THERE}\n"));
    }

    #[test]
    fn a_sequence_outside_the_slots_shows_where_its_state_comes_from() {
        for (origin, place) in [
            ("store", "stored by version 2"),
            ("operator", "has a state from an operator, of version 2"),
            ("reload", "moved from version 2 when that was replaced"),
        ] {
            let kept = json!({ "sequence": { "kept": { "version": 2, "origin": origin } } });
            assert!(rendered(&kept).contains(&format!(": {place}, waits for its next step\n")), "{}", rendered(&kept));
        }
    }

    #[test]
    fn an_unknown_sequence_is_explained() {
        insta::assert_snapshot!(rendered(&json!({
            "model": "encoder", "place": "unknown", "policy": "oldest", "sequence": { "state": "unknown", "step": 0 },
            "refused": [{ "ago_seconds": 0.5, "reason": "bad_input" }]
        })));
    }
}
