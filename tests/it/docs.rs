//! Generates pages from the program's own tables. `UPDATE_DOCS=1` writes them; otherwise an outdated page fails its test.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use sequor::config::server::file::keys;
use sequor::config::server::key::Key;
use sequor::config::server::triton::{FLAGS, FlagConversion, FlagSupport};
use sequor::scheduling::word;
use sequor::telemetry::Surface;
use sequor::telemetry::{GpuReading, Metrics};
use sequor_core::PolicyFault;

use crate::server::root;

/// Writes the page, or compares it with the generated text.
pub(crate) fn is_page(name: &str, text: &str) {
    let path = root().join("docs").join(name);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, text).unwrap();
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    let behind = there.lines().zip(text.lines()).find(|(there, made)| there != made);
    assert!(there == text, "docs/{name} has fallen behind (UPDATE_DOCS=1 writes it); first at {behind:?}");
}

/// Escapes a text for a table cell. Renderers do not decode entities within code spans.
pub(crate) fn cell(text: &str) -> String {
    let escape = |(n, part): (usize, &str)| if n % 2 == 0 { part.replace('<', "&lt;") } else { part.to_owned() };
    text.replace('|', "\\|").split('`').enumerate().map(escape).collect::<Vec<_>>().join("`")
}

fn default_of(key: &Key) -> String {
    match key.default() {
        Some(toml::Value::String(text)) if text.is_empty() => String::new(),
        Some(toml::Value::Array(values)) if values.is_empty() => String::new(),
        Some(value) => format!("`{value}`"),
        None => String::new(),
    }
}

fn settings() -> String {
    let mut out = String::new();
    let mut section = None;
    for key in keys() {
        let of = key.path.split_once('.').map_or("", |(section, _)| section);
        if section != Some(of) {
            let title = if of.is_empty() { "At the top of the file".to_owned() } else { format!("`[{of}]`") };
            let _ = writeln!(
                out,
                "\n### {title}\n\n| key | flag | variable | value | default | change by | meaning |\n|---|---|---|---|---|---|---|"
            );
            section = Some(of);
        }
        let name = key.path.rsplit_once('.').map_or(key.path, |(_, name)| name);
        let (flag, variable, value) = (key.flag(), key.variable(), cell(&key.kind.placeholder()));
        let _ = writeln!(
            out,
            "| `{name}` | `--{flag}` | `{variable}` | {value} | {} | {} | {} |",
            default_of(key),
            if key.reload { "reload" } else { "restart" },
            cell(key.help)
        );
    }
    out
}

fn meaning(support: &FlagSupport) -> (&'static str, String) {
    match support {
        FlagSupport::Own => ("served", String::new()),
        FlagSupport::Sets { key, how } => {
            let how = match how {
                FlagConversion::AsIs => String::new(),
                FlagConversion::Unit(unit) => format!(", its number in {unit}"),
                FlagConversion::Not => ", turned around".to_owned(),
                FlagConversion::OnOff => ", true as `on` and false as `off`".to_owned(),
                FlagConversion::Off => " = false".to_owned(),
                FlagConversion::Verbosity => " = \"info,sequor=debug\" from 1 on".to_owned(),
                FlagConversion::Quiet(level) => format!(" = \"{level}\" if it is false"),
                FlagConversion::LocalCache => ", the bytes of `local,size=BYTES`".to_owned(),
                FlagConversion::DefaultBatch => {
                    " for the setting `default-max-batch-size` of `onnxruntime`, else of all backends; `runtime.log_level` for `stateful,ort-logging-level=N`; no effect for any other".to_owned()
                }
            };
            ("served", format!("`{key}`{how}"))
        }
        FlagSupport::Nothing(why) => ("no effect", (*why).to_owned()),
        FlagSupport::Traces { instead } => {
            let served = "with `mode=opentelemetry`: `otlp.endpoint` from `opentelemetry,url=URL`, `otlp.sample` = 1 / N from `rate=N`";
            ("served", format!("{served}; `level=OFF` asks for nothing; else refused: {instead}"))
        }
        FlagSupport::Refused { unless: [], instead } => ("refused", (*instead).to_owned()),
        FlagSupport::Refused { unless, instead } => {
            let unless: Vec<String> = unless.iter().map(|value| format!("`{value}`")).collect();
            ("refused", format!("{instead}; taken as {}", unless.join(" or ")))
        }
    }
}

const SETTINGS: &str = "\
# Settings and flags of `sequor serve`

For operators. After this page you can find and set every option of a server. A setting has three names: a key in the server's file, an environment
variable and a flag. The flag wins over the variable, the variable over the file, the file over the default.

```toml
# /etc/sequor/sequor.toml, named by --config or SEQUOR_CONFIG
[model]
repository = [\"/srv/models\"]

[limits]
state = \"4GiB\"              # or --limits-state 4GiB, or SEQUOR_LIMITS_STATE=4GiB
```

* **DURATION** is a number with `us`, `ms`, `s`, `m` or `h`. **SIZE** is a number with `B`, `KiB`, `MiB` or `GiB`.
* **BOOL** is `true` or `false`. A flag without a value is true.
* **Lists** are `[...]` in the file and separated by commas in a variable. Their flags may be repeated. **GROUPS:KEY=VALUE** holds commas itself: a
  variable has one a line ([restricted endpoints](security.md#restricted-endpoints)).
* **A misspelt variable** is named in the log at the start. A misspelt key or flag is refused.
* **Changes** take effect at the next start. Where the tables say `reload`, a [reload](../reload.md) (SIGHUP, `sequor config reload`) applies them too. The files of
  keys and certificates (`admin.keys_file`, `auth.keys_file`, `tls.*`) are read again when they change.
* `sequor config show --origin` takes the same flags, variables and file, starts nothing, and prints the value of every setting and where it comes from. It
  exits with 3 if the configuration is wrong. `sequor config running` shows the same of a running server.
* A model has a [file of its own](../model-config.md) with other keys. It is called `sequor.toml` as well, but is in the model's directory, beside `config.pbtxt`.

## Settings
";

const METRICS: &str = "\
# Metrics

For operators who build dashboards and alerts. Prometheus scrapes `http://HOST:8002/metrics`. [Operate](../operate.md#alerts) has alerts to copy.
Begin with these:

| question | metric |
|---|---|
| is the server ready? | `sequor_ready` |
| are slots full? | `sequor_slots{state=\"used\"}`, `sequor_sequences_backlogged` |
| why do requests fail? | `sequor_requests_total` by `code` and `reason` |
| where does the time go? | `sequor_request_seconds` by `phase` |
| why do sequences end? | `sequor_sequences_ended_total` by `reason` |
| is memory for states full? | sum of `sequor_state_bytes`, `sequor_state_limit_bytes` |
| is `state.dir` full? | `sequor_store_bytes`, `sequor_store_limit_bytes` |
| did a load fail? | `sequor_model_loads_total{result=\"failed\"}` |
| was the configuration reloaded? | `sequor_config_last_reload_successful`, `sequor_config_settings_pending_restart` |
| do [traces](../watch.md#traces) arrive? | `sequor_spans_dropped_total` by `reason` |

No label holds the id of a sequence, or the name of a model that is neither served nor wanted at the start. A histogram `x` has the series
`x_bucket`, `x_sum` and `x_count`. A series of `sequor_requests_total` for a refusal begins with its first event, and those of `sequor_model_loads_total` with
the first load: `increase` and `rate` do not see that event. In an alert, add the series that have just begun:
`increase(x[10m]) > 0 or (x > 0 unless x offset 10m)`.

Five minutes after the last load of a model version is gone, or a plug-in is unloaded, its series are removed. A version that is loaded again within that
time counts on. Later its series begin at 0.
";

#[test]
fn the_server_page_matches_the_tables_of_settings_and_flags() {
    let mut page = SETTINGS.to_owned();
    page += &settings();
    page += "\n## Flags of `tritonserver`\n\n\
        `sequor serve` accepts Triton's command lines. If a flag has no effect, the log says so once at the start, with the reason. If a flag is refused, the\n\
        server does not start (exit code 3), and the message says what to do instead.\n\n| flag | here | meaning |\n|---|---|---|\n";
    for flag in FLAGS {
        let (support, meaning) = meaning(&flag.support);
        let _ = writeln!(page, "| `--{}` | {support} | {} |", flag.name, cell(&meaning));
    }
    page += "\n<!-- Generated from crates/config/src/config/server/file.rs and triton.rs by tests/it/docs.rs. -->\n";
    is_page("reference/server.md", &page);
}

#[test]
fn the_page_of_security_names_every_limit() {
    let page = fs::read_to_string(root().join("docs/reference/security.md")).unwrap();
    let is_limit = |key: &&Key| ["limits.", "connections."].iter().any(|section| key.path.starts_with(section));
    let missing: Vec<&str> = keys()
        .filter(is_limit)
        .map(|key| key.path)
        .filter(|path| !page.contains(&format!("\n| `{path}` | ")))
        .collect();
    assert_eq!(missing, [""; 0]);
}

/// A metric as a scrape shows it: its help, and the labels of one of its series.
fn metric(text: &str, name: &str) -> (String, String) {
    let help = text.lines().find_map(|line| line.strip_prefix("# HELP ")?.strip_prefix(name)?.strip_prefix(' '));
    let begins =
        |line: &str| ["{", "_bucket{", "_total{"].iter().any(|mark| line.starts_with(&format!("{name}{mark}")));
    let series = text.lines().find(|line| begins(line)).and_then(|line| line.split_once('{')?.1.rsplit_once('}'));
    let labels =
        series.map_or("", |(labels, _)| labels).split("\",").filter_map(|label| label.split_once('=').map(|(l, _)| l));
    let labels: Vec<String> = labels.filter(|label| *label != "le").map(|label| format!("`{label}`")).collect();
    (help.unwrap_or_default().trim_end_matches('.').to_owned(), labels.join(", "))
}

/// The faults that count as strikes of a plug-in.
const STRIKES: [PolicyFault; 7] = [
    PolicyFault::Trap,
    PolicyFault::Time,
    PolicyFault::Memory,
    PolicyFault::Index,
    PolicyFault::Repeat,
    PolicyFault::TooMany,
    PolicyFault::Shapes,
];

/// Labels whose values are a server's own names and numbers, or a protocol's codes.
const OPEN: [&str; 6] = ["model", "version", "plugin", "gpu_uuid", "name", "code"];

/// The values of a label of a metric in a scrape.
fn values<'t>(text: &'t str, name: &str, label: &str) -> BTreeSet<&'t str> {
    let of = |line: &&str| line.starts_with(name) && !line.starts_with('#');
    let (first, later) = (format!("{{{label}=\""), format!(",{label}=\""));
    let value = |line: &'t str| {
        let (_, behind) = line.split_once(&first).or_else(|| line.split_once(&later))?;
        behind.split('"').next()
    };
    text.lines().filter(of).filter_map(value).collect()
}

/// A table of the labels that have few values.
fn table_of_values(text: &str, names: &[&str]) -> String {
    let mut table = "\n## Values of labels\n\n| label | of | values |\n|---|---|---|\n".to_owned();
    for name in names {
        let (_, labels) = metric(text, name);
        for label in labels.split(", ").map(|label| label.trim_matches('`')).filter(|label| !label.is_empty()) {
            if OPEN.contains(&label) || (*name, label) == ("sequor_requests_total", "reason") {
                continue;
            }
            let values: Vec<String> = values(text, name, label).iter().map(|value| format!("`{value}`")).collect();
            let _ = writeln!(table, "| `{label}` | `{name}` | {} |", values.join(", "));
        }
    }
    table
}

const WHAT_VALUES_MEAN: &str = "\n\
    * `code` and `reason` of `sequor_requests_total` are those of the answer: gRPC's name of the code (`OK` too), and what the client reads as\n  \
    `sequor-reason` ([protocol.md](protocol.md)), which is empty for `OK`. `OK` is an answer that was handed to the client's connection; an answer that\n  \
    could not be sent as the client asked for it has the reason `answer_unsent`. `CANCELLED` with `cancelled` also counts requests whose client\n  \
    had gone before its answer.\n\
    * `phase` of `sequor_request_seconds`: `queue` is the wait for a run, `pre` and `post` are processors, `state_in` and `state_out` copy inputs and\n  \
    states to the batch and back, `run` is ONNX Runtime, `total` is from arrival to answer.\n\
    * `reason` of `sequor_sequences_ended_total`: [troubleshooting](../troubleshoot.md#the-sequence-has-ended) explains each. One differs: `never_started`\n  \
    counts STARTs that failed.\n\
    * `sequor_sequences_moved_total` counts sequences that moved to the store ([restarts](../restarts.md#more-sequences-than-memory)) or to a new version\n  \
    (`[reload] then = \"carry\"`). `sequor_sequences_rolled_back_total` counts those that went back to [their last stored\n  \
    state](../restarts.md#if-a-state-cannot-be-written). A sequence that goes on counts as started again: started less ended, moved and rolled back is the\n  \
    number of live ones.\n\
    * `hook` is the function of the plug-in that was called (the contracts are in `wit/0.1.0/`).\n\
    * `reason` of `sequor_plugin_traps_total` says what a plug-in did wrong. `trap`: it crashed. `time`, `memory`: it exceeded its limit. `index`: it\n  \
    answered with a candidate that does not exist. `repeat`: it named a candidate twice. `too_many`: it answered with more than a batch holds, or more\n  \
    often than it was asked. `shapes`: it put unlike shapes into one batch.\n\
    * `result` of `sequor_plugin_reload_total`: `ok` if the new version took over, `refused` if the old one goes on.\n\
    * `sequor_plugin_room` counts instances ([the room](../plugins/models.md#room)). `use`: `own` is promised to the places of plug-ins, `further` is used\n  \
    beyond that, and `free` is the rest. `for` of `sequor_plugin_room_refused_total`: `new` is a load or an attachment that was refused, `replacement` a\n  \
    new version or a recovery that was refused or put off, and `further` a request that waited for another instance of its plug-in.\n\
    * `path` of `sequor_steps_total`: `inline` if a thread of a connection or of plug-ins ran the batch, `handed_over` if the instance's own thread ran it.\n";

#[test]
fn the_metrics_page_matches_a_scrape() {
    let metrics = Metrics::new(true);
    metrics.model("m", 1);
    let plugin = metrics.plugin("p");
    for placed in [metrics.processor("p"), metrics.initializer("i")] {
        placed.memory_at("m");
        placed.parked_at("m");
        placed.instances_at("m");
        placed.add_strike("trap");
        placed.count("served", &[], 1.0);
    }
    metrics.processor("p").waiting_at("m");
    for fault in STRIKES {
        plugin.add_strike(word(fault));
    }
    plugin.count("served", &[], 1.0);
    plugin.memory_at("m");
    plugin.parked_at("m");
    metrics.kept("m", 1);
    [true, false].iter().for_each(|is_ok| metrics.model_loaded("m", *is_ok));
    for surface in [Surface::KserveGrpc, Surface::KserveHttp, Surface::TfsGrpc, Surface::TfsHttp] {
        metrics.unserved().failed(surface, "INVALID_ARGUMENT", "expired");
    }
    let some = Some(0.0);
    let reading =
        GpuReading { utilization: some, watts: some, watts_at_most: some, joules: some, ..GpuReading::default() };
    metrics.gpu("g").set(&reading);
    let text = metrics.encode();
    let mut page = METRICS.to_owned();
    let families: Vec<(&str, &str)> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    for (title, prefix) in [("Sequor's own", "sequor_"), ("Under Triton's names (`metrics.triton_names`)", "nv_")] {
        let _ = writeln!(page, "\n## {title}\n\n| name | kind | labels | meaning |\n|---|---|---|---|");
        let mut named: Vec<_> = families.iter().filter(|(name, _)| name.starts_with(prefix)).collect();
        named.sort_unstable();
        assert!(named.len() > 5, "{text}");
        for (name, kind) in named {
            let (help, labels) = metric(&text, name);
            assert!(!help.is_empty(), "{name} says nothing of itself");
            let _ = writeln!(page, "| `{name}` | {kind} | {labels} | {} |", cell(&help));
        }
    }
    let mut names: Vec<&str> = families.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    page += &table_of_values(&text, &names);
    page += WHAT_VALUES_MEAN;
    page += "\n<!-- Generated from a scrape (crates/telemetry/src/telemetry/names/) by tests/it/docs.rs. -->\n";
    is_page("reference/metrics.md", &page);
}
