//! Generates reference pages from the program's own tables and help: keys of a model's file, errors, commands. See `docs.rs` for
//! `UPDATE_DOCS`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use serde::Deserialize;

use sequor::config::model::fields::{CONFIG_MESSAGES, ConfigParameter, FieldStatus, PARAMETERS};
use sequor::config::model::sequor_toml::{self, KeyEntry, TableEntry};
use sequor::config::model::stateful::STATEFUL_PARAMETERS;

use crate::docs::{cell, is_page};
use crate::server::{Call, root};

const MODEL_CONFIG: &str = "# A model's sequor.toml\n\n\
    For operators who serve their own models. After this page you can set what `config.pbtxt` cannot say: idle times, limits of the\n\
    backlog, the batch axis of a state, constant inputs, and how long sequences outlive a version or the server. Keys for plug-ins have\n\
    [a page of their own](model-plugins.md).\n\n\
    This is the file `MODEL/sequor.toml`, beside `config.pbtxt`. It is optional, and so is every key. The server's own file has the same name and\n\
    other keys ([settings](reference/server.md)): it is the one that `--config` names.\n\n\
    ```toml\n\
    # models/encoder/sequor.toml\n\
    schema = 1\n\n\
    [sequence]\n\
    idle = \"30s\"          # end a sequence after 30 s without a request\n\
    idle_soft = \"2s\"      # after 2 s another sequence may take its slot\n\n\
    [backlog]\n\
    timeout = \"1s\"        # refuse a START that finds no slot within 1 s\n\
    ```\n\n\
    * **When a change takes effect.** Sequor reads the file when it loads the model. How a running server loads a model again depends on its\n  \
    control mode ([reload](operate.md#reload)). New sequences follow the new file; live ones finish under the old one.\n\
    * **Durations** are text with a unit: `\"5s\"`, `\"250ms\"`, `\"10m\"`. **Sizes** too: `\"64MiB\"`.\n\
    * **Unknown keys** and wrong values are refused with file, line and column, up to 20 of a file at once. In `config.pbtxt`, a fault of the structure, such as a\n  \
    missing brace, hides those behind it.\n\n\
    ## Find a key\n\n\
    | you want | key |\n|---|---|\n\
    | a sequence to live longer, or shorter, while its client sends nothing | [`[sequence] idle`](#sequence-idle) |\n\
    | a new sequence to take the slot of an idle one | [`[sequence] idle_soft`](#sequence-idle_soft) |\n\
    | to limit how long a START waits for a slot | [`[backlog] timeout`](#backlog-timeout) |\n\
    | to limit the live sequences of the model | [`[sequence] max_live`](#sequence-max_live) |\n\
    | a cancelled request not to end its sequence | [`[sequence] on_cancel`](#sequence-on_cancel) |\n\
    | END without inputs | [`[sequence] end_without_inputs`](#sequence-end_without_inputs) |\n\
    | clients to bring the first state | [`[sequence] client_state`](#sequence-client_state) |\n\
    | OVMS's rules for START and ids | [`[sequence] rules`](#sequence-rules) |\n\
    | a state whose batch is not on the first axis | [`[state.X] batch_axis`](#state-x-batch_axis) |\n\
    | half the memory for a state | [`[state.X] storage`](#state-x-storage) |\n\
    | states of different lengths in one batch | [`[state.X] pad`](#state-x-pad) |\n\
    | inputs of different lengths in one batch | [`[input.X] ragged`](#input-x-ragged) |\n\
    | a model input that clients do not send | [`[input.X] constant`](#input-x-constant) |\n\
    | sequences to outlive a restart of the server | [`[durability] when`](#durability-when) |\n\
    | live sequences to move to a new version | [`[reload] then`](#reload-then) |\n";

const MODEL_PLUGINS: &str = "# Plug-ins in a model's sequor.toml\n\n\
    For operators who attach plug-ins to a model. After this page you can name the scheduler, the state initializer and the processors of a model,\n\
    limit them, and say which values of a request they see. [A model's sequor.toml](model-config.md) has the other keys of this file.\n\n\
    ```toml\n\
    # models/encoder/sequor.toml\n\
    [[feature]]\n\
    name = \"tenant\"\n\
    from = \"parameter\"\n\
    key = \"tenant\"\n\
    type = \"key\"\n\n\
    [plugins.scheduler]\n\
    use = \"fair-share\"     # the file fair-share.wasm in plugins.dir of the server\n\
    time = \"1ms\"\n\
    config = { burst = 4 }\n\
    ```\n\n\
    If a plug-in is missing, has another hash or refuses its settings, Sequor does not load the model, and the error says why.\n";

/// Whether a table is about plug-ins. Those tables have a page of their own.
fn is_of_plugins(table: &TableEntry) -> bool {
    table.path == "feature" || table.path == "model" || table.path.starts_with("plugins")
}

/// A page of tables and their keys.
fn page_of_keys<'t>(head: &str, tables: impl Iterator<Item = &'t TableEntry>) -> String {
    let mut page = head.to_owned();
    for TableEntry { title, introduction, keys, .. } in tables {
        if keys.is_empty() {
            continue;
        }
        let _ = writeln!(page, "\n## {title}\n");
        if !introduction.is_empty() {
            let _ = writeln!(page, "{introduction}\n");
        }
        for key in *keys {
            let KeyEntry { name, help, value, default, example, .. } = key;
            let _ = write!(page, "### `{name}`{}\n\n{help}\n\n", anchor(key));
            let _ = write!(page, "Value: {value}. Default: {default}. Example: `{example}`\n\n");
        }
        page.truncate(page.trim_end().len() + 1);
    }
    page
}

#[test]
fn the_model_config_pages_match_the_declarations_of_their_keys() {
    let tables = sequor_toml::tables();
    let (of_plugins, others): (Vec<&TableEntry>, Vec<&TableEntry>) =
        tables.iter().partition(|table| is_of_plugins(table));
    is_page("model-config.md", &page_of_keys(MODEL_CONFIG, others.into_iter()));
    is_page("model-plugins.md", &page_of_keys(MODEL_PLUGINS, of_plugins.into_iter()));
}

/// A unique anchor for links, because several tables have keys with the same name.
fn anchor(key: &KeyEntry) -> String {
    format!(" <a id=\"{}\"></a>", key.path().replace('.', "-").to_lowercase())
}

const CONFIG_PBTXT: &str = "# Fields of config.pbtxt\n\n\
    For operators who bring models from Triton. After this page you know what each field of a model's `config.pbtxt` does in Sequor.\n\n\
    * **served**: the field takes effect, as in Triton unless the table says otherwise.\n\
    * **no effect**: the model loads. One line of the log names the field, its line in the file and the reason. `sequor check` shows the same\n  \
    line as a note.\n\
    * **refused**: the model does not load. The error names the field, its line in the file and the reason.\n\n\
    A field that a table does not list does not exist: the parser refuses it. This page is generated from `crates/config/src/config/model/fields/`.\n";

fn status_of(status: FieldStatus) -> (&'static str, &'static str) {
    match status {
        FieldStatus::Served(text) => ("served", text),
        FieldStatus::NoEffect(why) => ("no effect", why),
        FieldStatus::Refused(why) => ("refused", why),
    }
}

#[test]
fn the_config_pbtxt_page_matches_the_table_of_fields() {
    let mut page = CONFIG_PBTXT.to_owned();
    for message in CONFIG_MESSAGES.iter().filter(|message| !message.fields.is_empty()) {
        let _ = write!(page, "\n## {}\n\n| field | | |\n|---|---|---|\n", message.name);
        for (field, status) in message.fields {
            let (status, text) = status_of(*status);
            let _ = writeln!(page, "| `{field}` | {status} | {} |", cell(text));
        }
    }
    page += "\n## Parameters\n\nKeys of `parameters`. A key that begins with `session.`, `optimization.` or `mlas.` goes to ONNX Runtime as an entry\n\
        of its session options, under the same name: for example `session.intra_op.allow_spinning`. Every other key has no effect.\n\n\
        | key | | |\n|---|---|---|\n";
    for ConfigParameter { key, status } in PARAMETERS {
        let (status, text) = status_of(*status);
        let _ = writeln!(page, "| `{key}` | {status} | {} |", cell(text));
    }
    page += "\n## Parameters of the stateful backend\n\nKeys of `parameters` in a model with `backend: \"stateful\"`.\n\n| key | | |\n|---|---|---|\n";
    for (key, status) in STATEFUL_PARAMETERS {
        let (status, text) = status_of(*status);
        let _ = writeln!(page, "| `{key}` | {status} | {} |", cell(text));
    }
    is_page("reference/config-pbtxt.md", &page);
}

/// An entry of the table of refusals.
#[derive(Deserialize)]
struct Refusal {
    code: String,
    http: u16,
    reason: String,
    text: String,
}

pub(crate) fn refusals() -> BTreeMap<String, Vec<(String, u16, String)>> {
    let text = fs::read_to_string(root().join("tests/cases/refusals.toml")).unwrap();
    let entries: BTreeMap<String, Refusal> = toml::from_str(&text).unwrap();
    let mut by_reason: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for entry in entries.into_values() {
        by_reason.entry(entry.reason).or_default().push((entry.code, entry.http, entry.text));
    }
    by_reason.values_mut().for_each(|entries| {
        entries.sort();
        entries.dedup();
    });
    by_reason
}

#[test]
fn the_errors_page_matches_the_cases_of_refusals() {
    let mut page = "# Errors\n\n\
        For client authors and operators who have a sentence at hand. Search this page for words of it. The reason in the first column leads to\n\
        [what to do](../troubleshoot.md).\n\n\
        Programs match on the reason or on the code, never on the sentence: it begins as Triton's does, and may say more. The reason is the\n\
        trailer `sequor-reason` over gRPC, the header `sequor-reason` and the field `reason` over HTTP, and the response parameter\n\
        `sequor_reason` on a stream. The header or trailer `sequor-help` names the entry in troubleshooting.\n\n\
        Codes and sentences are those of KServe v2. TensorFlow Serving's protocol has [OVMS's](../from-ovms.md) for sequences, the same reasons, and no field\n\
        `reason` in the body.\n\n\
        The examples speak of a model 'acc', of sequence 7, and of an ensemble 'asr' with the member 'encoder'. Refusals of sequences stand first,\n\
        malformed requests (`bad_input`) last; `tests/cases/bad_input.toml` has more of those, with their requests.\n\n\
        | reason | gRPC | HTTP | sentence (example) |\n|---|---|---|---|\n"
        .to_owned();
    let mut refusals: Vec<_> = refusals().into_iter().collect();
    refusals.sort_by_key(|(reason, _)| reason == "bad_input");
    for (reason, entries) in refusals {
        for (code, http, text) in entries {
            let text = cell(&text);
            let _ = writeln!(page, "| [`{reason}`](../troubleshoot.md#{reason}) | {code} | {http} | {text} |");
        }
    }
    page += "\n<!-- Generated from tests/cases/refusals.toml by tests/it/reference.rs. -->\n";
    is_page("reference/errors.md", &page);
}

#[test]
fn the_page_of_codes_is_generated_from_their_table() {
    let mut page = "# Codes of `sequor check`\n\nFor everyone who configures models. `sequor check` prints a code for each fault and each note, and \
        the line of this page that explains it. Codes that begin with `E` are errors: the server refuses the model. Codes that begin with `N` are \
        notes: it serves.\n\n| code | meaning | what to do |\n|---|---|---|\n"
        .to_owned();
    for (code, meaning, action) in sequor::config::fault::code::ALL {
        let _ =
            writeln!(page, "| <a id=\"{}\"></a>`{code}` | {} | {} |", code.to_lowercase(), cell(meaning), cell(action));
    }
    page +=
        "\n<!-- Generated from the table of codes in crates/config/src/config/fault.rs by tests/it/reference.rs. -->\n";
    is_page("reference/check.md", &page);
}

/// The help of a command, and of the commands below it.
fn help(path: &[&str], page: &mut String) {
    let ended = Call::sequor().arguments(path).arguments(["--help"]).environment("COLUMNS", "100").end();
    assert_eq!(ended.code, Some(0), "{path:?}: {}", ended.stderr);
    let name = ["sequor"].iter().chain(path).copied().collect::<Vec<_>>().join(" ");
    let level = "#".repeat(2 + path.len().min(2));
    let text: Vec<&str> = ended.stdout.lines().map(str::trim_end).collect();
    // The flags of `serve` have a separate page.
    let shown = if path == ["serve"] {
        "See [server settings](server.md).".to_owned()
    } else {
        format!("```text\n{}\n```", text.join("\n").trim_end())
    };
    let _ = write!(page, "\n{level} `{name}`\n\n{shown}\n");
    let commands = text.iter().skip_while(|line| **line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    for line in commands.filter(|line| !line.starts_with("     ")) {
        let command = line.split_whitespace().next().unwrap();
        if command != "help" {
            help(&[path, &[command]].concat(), page);
        }
    }
}

#[test]
fn the_cli_page_matches_the_help_of_every_command() {
    let mut page = "# Commands\n\n\
        For everyone who types `sequor`. This page is the `--help` of every command, generated from the program.\n\n\
        Exit codes of all commands: 0 success, 1 failure, 2 usage, 3 configuration, 4 no answer from the server, 5 refused by the server, 141 the reader of the output has gone (as behind `| head`).\n\n\
        Flags that name the server (`--server`, `--key-file`, `--tls-ca`, `--tls-cert`, `--tls-key`) and `--output` may stand before the noun,\n\
        before the verb or after it: `sequor --server HOST:PORT plugin list` is `sequor plugin list --server HOST:PORT`.\n"
        .to_owned();
    help(&[], &mut page);
    is_page("reference/cli.md", &page);
}
