//! `sequor config reload | running`: the settings of a running server.

use clap::{ArgMatches, Command};
use serde::Deserialize;

use super::client::{Client, RequestPayload};
use super::{args, print};
use crate::cli::Failed;
use crate::text::table;

pub(in crate::cli) fn commands() -> [Command; 2] {
    let reload = "Read the settings of a running server again, and apply those that need no restart (as SIGHUP does)";
    let running = "Print the settings in force in a running server, and the values that wait for a restart";
    [Command::new("reload").about(reload).args(args()), Command::new("running").about(running).args(args())]
}

/// What the server answers. A server of another version may send more or less.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ReloadAnswer {
    changed: Vec<String>,
    pending: Vec<PendingRow>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PendingRow {
    key: String,
    value: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SettingRow {
    key: String,
    value: String,
    origin: String,
    pending: Option<String>,
}

pub(in crate::cli) fn reload(matches: &ArgMatches) -> Result<(), Failed> {
    let answer = Client::from_matches(matches)?.post("/admin/config/reload", RequestPayload::Nothing)?;
    print(matches, &answer, |answer: ReloadAnswer| sentences(&answer))
}

pub(in crate::cli) fn running(matches: &ArgMatches) -> Result<(), Failed> {
    let answer = Client::from_matches(matches)?.get("/admin/config")?;
    print(matches, &answer, |rows: Vec<SettingRow>| settings_table(rows))
}

fn sentences(answer: &ReloadAnswer) -> String {
    let ReloadAnswer { changed, pending } = answer;
    let mut text = match changed.as_slice() {
        [] => "no setting has changed\n".to_owned(),
        changed => format!("changed: {}\n", changed.join(", ")),
    };
    for PendingRow { key, value } in pending {
        text += &match value.as_str() {
            "" => format!("waits for a restart: {key}, which is no longer set\n"),
            value => format!("waits for a restart: {key} = {value}\n"),
        };
    }
    text
}

fn settings_table(rows: Vec<SettingRow>) -> String {
    let cells = |row: SettingRow| {
        let pending = row.pending.map_or_else(String::new, |value| match value.as_str() {
            "" => "no longer set".to_owned(),
            _ => value,
        });
        [row.key, row.value, row.origin, pending]
    };
    table(&["KEY", "VALUE", "ORIGIN", "AFTER A RESTART"], &rows.into_iter().map(cells).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reload_says_what_has_changed_and_what_waits() {
        let answer = |text: &str| sentences(&serde_json::from_str(text).unwrap());
        assert_eq!(answer(r#"{ "changed": [], "pending": [] }"#), "no setting has changed\n");
        let text = r#"{ "changed": ["log.level", "drain.finish"],
            "pending": [{ "key": "http.port", "value": "9000" }, { "key": "record", "value": "" }] }"#;
        assert_eq!(
            answer(text),
            "changed: log.level, drain.finish\nwaits for a restart: http.port = 9000\nwaits for a restart: record, which is no longer set\n"
        );
    }

    #[test]
    fn the_table_has_what_waits_in_a_column_of_its_own() {
        let rows = r#"[{ "key": "http.port", "value": "1", "origin": "default", "pending": "2" }, { "key": "node", "value": "a", "origin": "default" }]"#;
        let table = settings_table(serde_json::from_str(rows).unwrap());
        let words = |n: usize| table.lines().nth(n).unwrap().split_whitespace().collect::<Vec<_>>();
        assert_eq!((words(1), words(2)), (vec!["http.port", "1", "default", "2"], vec!["node", "a", "default"]));
    }
}
