//! What prevents an end or a refusal: for each reason the settings to change and where they are. `docs/troubleshoot.md` has the same reasons,
//! with more words.

use std::borrow::Cow;

use serde::Serialize;

use crate::error::StoreFault;

/// The page that explains every reason, at the anchor of its name.
const PAGE: &str = "docs/troubleshoot.md";

/// The file that has a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SettingFile {
    Model,
    Server,
    Triton,
}

impl SettingFile {
    fn name(self, model: &str) -> String {
        match self {
            SettingFile::Model => format!("{model}/sequor.toml"),
            SettingFile::Server => "the server's sequor.toml".to_owned(),
            SettingFile::Triton => format!("{model}/config.pbtxt"),
        }
    }
}

/// A setting, as its file writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RemedySetting(&'static str, SettingFile);

const fn model(key: &'static str) -> RemedySetting {
    RemedySetting(key, SettingFile::Model)
}

const fn server(key: &'static str) -> RemedySetting {
    RemedySetting(key, SettingFile::Server)
}

const fn triton(key: &'static str) -> RemedySetting {
    RemedySetting(key, SettingFile::Triton)
}

/// One reason: what to do, and the settings that do it. Without settings, the client or the operator has to act.
struct RemedyRow(&'static str, &'static str, &'static [RemedySetting]);

const IDLE: RemedySetting = model("[sequence] idle");
const IDLE_SOFT: RemedySetting = model("[sequence] idle_soft");
const BACKLOG_TIMEOUT: RemedySetting = model("[backlog] timeout");
const DURABLE: RemedySetting = model("[durability] when");
const SLOTS: RemedySetting = triton("max_candidate_sequences");
const INSTANCES: RemedySetting = triton("instance_group");

const ROWS: [RemedyRow; 33] = [
    RemedyRow("expired", "raise the idle time above the client's longest pause, or let the client send END", &[IDLE]),
    RemedyRow("ended", "the client sent END: look for requests of it that overtake each other", &[]),
    RemedyRow(
        "evicted",
        "let it be idle for longer before its slot is taken, or give the model more slots",
        &[IDLE_SOFT, SLOTS, INSTANCES],
    ),
    RemedyRow("restarted", "another START of the same id came: let each client choose random ids", &[]),
    RemedyRow(
        "cancelled",
        "raise the client's timeout, or keep sequences whose requests are cancelled",
        &[model("[sequence] on_cancel")],
    ),
    RemedyRow("dropped", "an operator ended it: the audit line in the log names the operator", &[]),
    RemedyRow(
        "unsealed",
        "the log has the error of the store: raise its limit, make room on its disk, or look at its Redis",
        &[server("state.disk_limit"), server("state.dir"), server("state.url")],
    ),
    RemedyRow(
        "retired",
        "give live sequences more time when a version is replaced, or move them to the new one",
        &[model("[reload] drain"), model("[reload] then")],
    ),
    RemedyRow("fenced", "another server took it over", &[]),
    RemedyRow(
        "device_lost",
        "the accelerator with its state failed: the log has its error, and the server must be restarted",
        &[],
    ),
    RemedyRow("member_failed", "a member of the ensemble failed: its own errors say why", &[]),
    RemedyRow("step_failed", "a step failed after the model had run: its refusal and the plug-in's log say why", &[]),
    RemedyRow(
        "state_not_finite",
        "look at the inputs of the last step, and at the model; keep the state in a wider type",
        &[model("[state.X] storage"), model("[sequence] watch")],
    ),
    RemedyRow(
        "plugin_rejected",
        "the plug-in rejected a request: its log and its settings say why",
        &[model("[plugins.scheduler] config"), model("[[plugins.processor]] config")],
    ),
    RemedyRow(
        "never_started",
        "route all requests of an id to one server, and keep sequences over a restart",
        &[DURABLE],
    ),
    RemedyRow(
        "not_resumed",
        "put the model's files back, or let version_policy choose its version: the state stays in the store until its idle time is over",
        &[],
    ),
    RemedyRow(
        "backlog_timeout",
        "wait for longer, or free or add slots",
        &[BACKLOG_TIMEOUT, IDLE_SOFT, SLOTS, INSTANCES],
    ),
    RemedyRow(
        "backlog_full",
        "free or add slots; a longer backlog only makes clients wait longer",
        &[IDLE_SOFT, SLOTS, INSTANCES, model("[backlog] max")],
    ),
    RemedyRow(
        "live_limit",
        "allow more live sequences, or end abandoned ones sooner",
        &[model("[sequence] max_live"), IDLE],
    ),
    RemedyRow(
        "queue_full",
        "send the next request after an answer, then raise the limit that the message names",
        &[model("[sequence] max_queued"), server("limits.in_flight"), server("limits.queued")],
    ),
    RemedyRow("queue_expired", "wait for longer, or add an instance", &[model("[queue] expire"), INSTANCES]),
    RemedyRow(
        "peer_limit",
        "allow one client more, or let it end sequences it no longer needs",
        &[server("limits.sequences_per_peer"), server("limits.in_flight_per_peer"), server("limits.queued_per_peer")],
    ),
    RemedyRow(
        "state_memory",
        "allow more state memory, or let idle sequences move to the store",
        &[server("limits.state"), DURABLE, model("[state.X] storage")],
    ),
    RemedyRow("draining", "START with a new id: another server gets it", &[]),
    RemedyRow("deadline", "raise the client's deadline, or add an instance", &[INSTANCES]),
    RemedyRow(
        "plugin_failed",
        "`sequor plugin show` says why; go on without the plug-in while it fails",
        &[model("[[plugins.processor]] on_failure")],
    ),
    RemedyRow("run_failed", "the message is ONNX Runtime's; the state is as it was before", &[]),
    RemedyRow(
        "store_failed",
        "send the request again, or START if the sequence has ended; the message says what the disk or Redis did",
        &[server("state.dir"), server("state.url")],
    ),
    RemedyRow("bad_input", "correct the request: its client got a message that names the input", &[]),
    RemedyRow("already_live", "END the sequence first, or take another id", &[]),
    RemedyRow("step_gap", "send again from the step that the message names", &[]),
    RemedyRow("step_repeat", "wait for the answer, or go on with the step that the message names", &[]),
    RemedyRow("not_copied", "START the source first; the message says why it cannot be copied", &[]),
];

/// What to do about a reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Remedy {
    pub(crate) reason: &'static str,
    /// What to do, as a clause.
    pub(crate) advice: Cow<'static, str>,
    /// The settings, with their files.
    pub(crate) settings: Vec<NamedSetting>,
    /// The page to read.
    pub(crate) page: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct NamedSetting {
    pub(crate) key: &'static str,
    pub(crate) file: String,
}

/// What to do about this reason at a model. `None` for a reason that needs nothing, and for one that is no refusal.
pub(crate) fn remedy(reason: &str, of: &str) -> Option<Remedy> {
    let RemedyRow(reason, advice, settings) = ROWS.iter().find(|RemedyRow(name, ..)| *name == reason)?;
    let named = |RemedySetting(key, file): &RemedySetting| NamedSetting { key, file: file.name(of) };
    let page = format!("{PAGE}#{reason}");
    Some(Remedy { reason, advice: Cow::Borrowed(advice), settings: settings.iter().map(named).collect(), page })
}

/// What to do about a state that was not stored for this cause, if the reason is `unsealed` or `store_failed`.
pub(crate) fn not_stored(reason: &str, fault: StoreFault, of: &str) -> Option<Remedy> {
    let (advice, setting) = match fault {
        StoreFault::Limit => ("the store is full: raise its limit", "state.disk_limit"),
        StoreFault::Disk => ("make room on the disk of state.dir", "state.dir"),
        StoreFault::Redis => ("Redis did not confirm the write: see the log, and maxmemory", "state.url"),
    };
    let settings = vec![NamedSetting { key: setting, file: SettingFile::Server.name(of) }];
    Some(Remedy { advice: Cow::Borrowed(advice), settings, ..remedy(reason, of)? })
}

/// What to do about a failure in this plug-in.
pub(crate) fn plugin_failed(plugin: &str, of: &str) -> Option<Remedy> {
    let advice = Cow::Owned(format!("`sequor plugin logs {plugin}` says why it failed"));
    Some(Remedy { advice, settings: Vec::new(), ..remedy("plugin_failed", of)? })
}

/// What to do about a sequence that is unknown, at a model that stores a state after this many steps.
pub(crate) fn not_stored_yet(every: u32, of: &str) -> Option<Remedy> {
    let advice = Cow::Owned(format!(
        "route all requests of an id to one server; after a crash, \"every\" had not stored a step yet (every = {every}), and \"step\" loses none"
    ));
    Some(Remedy { advice, ..remedy("never_started", of)? })
}

#[cfg(test)]
mod tests {
    use sequor_core::EndReason;

    use super::*;
    use crate::telemetry::ended_reason;

    #[test]
    fn every_end_has_a_remedy() {
        for why in EndReason::ALL.into_iter().filter(|why| !why.continues_from_store()) {
            let reason = ended_reason(why);
            assert_eq!(remedy(reason, "m").map(|remedy| remedy.reason), Some(reason));
        }
        assert_eq!(remedy("fine", "m"), None);
    }

    #[test]
    fn a_state_that_was_not_stored_has_a_remedy_by_its_cause() {
        let of = |fault| {
            let remedy = not_stored("store_failed", fault, "m").unwrap();
            assert_eq!(remedy.reason, "store_failed");
            (remedy.advice.into_owned(), remedy.settings[0].key)
        };
        let all = [StoreFault::Limit, StoreFault::Disk, StoreFault::Redis].map(of);
        assert_eq!(all[0], ("the store is full: raise its limit".to_owned(), "state.disk_limit"));
        assert_eq!(all[1], ("make room on the disk of state.dir".to_owned(), "state.dir"));
        assert_eq!(all[2].1, "state.url");
        assert!(all[2].0.contains("maxmemory"), "{all:?}");
    }

    #[test]
    fn every_reason_has_its_place_on_the_page_and_every_setting_exists() {
        let read =
            |file: &str| fs_err::read_to_string(format!("{}/../../docs/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        let (page, of_models, of_servers) =
            (read("troubleshoot.md"), read("model-config.md") + &read("model-plugins.md"), read("reference/server.md"));
        for RemedyRow(reason, _, settings) in &ROWS {
            assert!(page.contains(&format!("<a id=\"{reason}\"></a>`{reason}`")), "{reason} is not on the page");
            for RemedySetting(key, file) in *settings {
                let name = key.rsplit([' ', '.']).next().unwrap();
                let there = match file {
                    SettingFile::Model => {
                        let table = key.split(' ').next().unwrap();
                        of_models.contains(&format!("## `{table}`")) && of_models.contains(&format!("### `{name}`"))
                    }
                    SettingFile::Server => of_servers.contains(&format!("| `{name}` |")),
                    SettingFile::Triton => read("reference/config-pbtxt.md").contains(key),
                };
                assert!(there, "{key} of {reason} is not documented");
            }
        }
    }
}
