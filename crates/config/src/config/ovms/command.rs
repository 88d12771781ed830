//! The flags of `ovms`: the models to serve, and their location. `sequor serve` accepts them besides its own flags.

use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches};
use serde_json::Value;

use super::file::{self, OvmsNotice};
use super::model::{
    DEFAULT_SCAN_MINUTES, GivenSequences, OvmsModel, TOO_HIGH, is_auto, transposing_layout, version_policy,
};
use super::refresh::OvmsModels;

/// The values of the given flags.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OvmsCommand {
    /// `None` if no flag names a model.
    pub models: Option<OvmsModels>,
    /// Seconds between two scans of the models; 0 turns scans off.
    pub poll_seconds: u32,
    /// Minutes between two scans for idle sequences; 0 turns scans off.
    pub scan_minutes: u32,
    /// Settings of Sequor: the key, the flag as it was written, and the value.
    pub settings: Vec<(&'static str, String, String)>,
    pub notices: Vec<String>,
}

/// Flags of ports, the settings that they set, and those that port 0 turns off, as in OVMS.
const PORTS: [(&str, &str, &str); 2] =
    [("port", "grpc.port", "grpc.enabled"), ("rest_port", "http.port", "http.enabled")];
/// Other flags with a value, and the settings that they set.
const SETTINGS: [(&str, &str); 2] = [("grpc_bind_address", "grpc.address"), ("rest_bind_address", "http.address")];
const CONFIG: &str = "config_path";
const MODEL: &str = "model_path";
/// Flags of the model on the command line.
const MODELS: [&str; 3] = ["model_name", "nireq", "model_version_policy"];
/// Those without effect in Sequor.
const MODELS_WITHOUT_EFFECT: [&str; 5] = ["batch_size", "layout", "plugin_config", "shape", "target_device"];
/// Flags for the sequences of the model on the command line.
const SEQUENCES: [&str; 4] = ["stateful", "idle_sequence_cleanup", "max_sequence_number", "low_latency_transformation"];
const SCAN: &str = "sequence_cleaner_poll_wait_minutes";
const POLL: &str = "file_system_poll_wait_seconds";
const LOG_LEVEL: &str = "log_level";
/// The default interval at which OVMS scans its models, in seconds.
const DEFAULT_POLL_SECONDS: u32 = 1;
const METRICS: &str = "metrics_enable";
/// Flags of the server without effect in Sequor.
const WITHOUT_EFFECT: [&str; 12] = [
    "allow_cache",
    "cache_dir",
    "cpu_extension",
    "custom_node_resources_cleaner_interval",
    "custom_node_resources_cleaner_interval_seconds",
    "grpc_channel_arguments",
    "grpc_max_threads",
    "grpc_memory_quota",
    "grpc_workers",
    "log_path",
    "metrics_list",
    "rest_workers",
];

/// All flags, for adding to a command.
pub fn args() -> Vec<Arg> {
    let settings = SETTINGS.into_iter().map(|(flag, _)| flag).chain(PORTS.into_iter().map(|(flag, ..)| flag));
    let models = MODELS.into_iter().chain(MODELS_WITHOUT_EFFECT).chain([CONFIG, MODEL, "max_sequence_number"]);
    let valued = settings.chain(models).chain(WITHOUT_EFFECT).chain([SCAN, POLL, LOG_LEVEL]);
    let valued = valued.map(|flag| arg(flag).num_args(1).allow_hyphen_values(true));
    let switches = SEQUENCES.into_iter().filter(|flag| *flag != "max_sequence_number").chain([METRICS]);
    let switches = switches.map(|flag| arg(flag).num_args(0..=1).require_equals(true).default_missing_value("true"));
    valued.chain(switches).collect()
}

fn arg(flag: &'static str) -> Arg {
    Arg::new(flag).long(flag).hide(true).value_name("VALUE")
}

impl OvmsCommand {
    /// Reads the values of [`args`]; `None` if no flag was given. `read` reads a file.
    pub fn from_matches(
        matches: &ArgMatches,
        read: &dyn Fn(&Path) -> std::io::Result<String>,
    ) -> Result<Option<OvmsCommand>, Vec<String>> {
        let is_given = |flag: &str| matches.value_source(flag) == Some(ValueSource::CommandLine);
        let text = |flag: &str| matches.get_one::<String>(flag).filter(|_| is_given(flag)).map(String::as_str);
        if !args().iter().any(|arg| is_given(arg.get_id().as_str())) {
            return Ok(None);
        }
        let one = |what: String| vec![what];
        let mut command = OvmsCommand {
            scan_minutes: DEFAULT_SCAN_MINUTES,
            poll_seconds: DEFAULT_POLL_SECONDS,
            ..OvmsCommand::default()
        };
        command.settings = settings(&text);
        if let Some(level) = text(LOG_LEVEL) {
            let value = level_name(level).map_err(one)?;
            command.settings.push(("log.level", format!("--{LOG_LEVEL}"), value.to_owned()));
        }
        if let Some(enabled) = text(METRICS) {
            command.settings.push(("metrics.enabled", format!("--{METRICS}"), enabled.to_owned()));
        }
        command.notices = notices(&text);
        if let Some(minutes) = text(SCAN) {
            let wrong = |_| one(format!("--{SCAN} is a number of minutes, not \"{minutes}\""));
            command.scan_minutes = minutes.parse().map_err(wrong)?;
        }
        if let Some(seconds) = text(POLL) {
            let wrong = |_| one(format!("--{POLL} is a number of seconds, not \"{seconds}\""));
            command.poll_seconds = seconds.parse().map_err(wrong)?;
        }
        let of_a_model = |flag: &&str| is_given(flag);
        let models = MODELS.into_iter().chain(SEQUENCES).chain(MODELS_WITHOUT_EFFECT);
        match (text(CONFIG), text(MODEL)) {
            (Some(path), given) => {
                if let Some(flag) = given.map(|_| MODEL).or_else(|| models.clone().find(of_a_model)) {
                    return Err(one(format!("Model parameters in CLI are exclusive with the config file (--{flag})")));
                }
                let text = read(Path::new(path)).map_err(|error| one(error.to_string()))?;
                let file = file::parse(Path::new(path), &text);
                let file = file.map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>())?;
                command.models = Some(OvmsModels::File(path.into()));
                command.notices.extend(file.notices.iter().map(OvmsNotice::to_string));
            }
            (None, Some(path)) => {
                command.models = Some(OvmsModels::Given(vec![model(path.into(), &text).map_err(one)?]));
            }
            (None, None) => {
                if let Some(flag) = models.clone().find(of_a_model) {
                    return Err(one(format!("--{flag} needs --model_path and --model_name")));
                }
            }
        }
        Ok(Some(command))
    }
}

/// The settings of Sequor that these flags set.
fn settings<'m>(text: &impl Fn(&str) -> Option<&'m str>) -> Vec<(&'static str, String, String)> {
    let mut settings = Vec::new();
    for (flag, port, enabled) in PORTS {
        settings.extend(text(flag).map(|value| match value.parse() {
            Ok(0_u16) => (enabled, format!("--{flag}"), "false".to_owned()),
            _ => (port, format!("--{flag}"), value.to_owned()),
        }));
    }
    for (flag, key) in SETTINGS {
        settings.extend(text(flag).map(|value| (key, format!("--{flag}"), value.to_owned())));
    }
    settings
}

/// A line for each flag without effect. A `layout` that transposes refuses its model instead.
fn notices<'m>(text: &impl Fn(&str) -> Option<&'m str>) -> Vec<String> {
    let transposes = json(text, "layout").as_ref().and_then(transposing_layout).is_some();
    let flags = WITHOUT_EFFECT.into_iter().chain(MODELS_WITHOUT_EFFECT);
    let flags = flags.filter(|flag| text(flag).is_some() && !(*flag == "layout" && transposes));
    flags.map(|flag| format!("--{flag} has no effect")).collect()
}

/// The value of a flag that is a text, or JSON with a text for each input and output.
fn json<'m>(text: &impl Fn(&str) -> Option<&'m str>, flag: &str) -> Option<Value> {
    text(flag).map(|value| serde_json::from_str(value).unwrap_or_else(|_| value.into()))
}

/// The model that the command line names.
fn model<'m>(base_path: PathBuf, text: &impl Fn(&str) -> Option<&'m str>) -> Result<OvmsModel, String> {
    let flag = |flag: &str| match text(flag) {
        None => Ok(None),
        Some(value) => value
            .to_ascii_lowercase()
            .parse::<bool>()
            .map(Some)
            .map_err(|_| format!("--{flag} is true or false, not {value}")),
    };
    let name = text("model_name").ok_or("--model_path needs --model_name")?.to_owned();
    let most = text("max_sequence_number").map(|value| match value.parse::<u64>() {
        Ok(most) => u32::try_from(most).map_err(|_| TOO_HIGH.to_owned()),
        Err(_) => Err(format!("--max_sequence_number is a number of at least 0, not {value}")),
    });
    let given = GivenSequences {
        stateful: flag("stateful")?.unwrap_or(false),
        idle_sequence_cleanup: flag("idle_sequence_cleanup")?,
        max_sequence_number: most.transpose()?,
        low_latency_transformation: flag("low_latency_transformation")?,
    };
    let stateful = given.resolve(
        "Setting low_latency_transformation, max_sequence_number and idle_sequence_cleanup require setting stateful flag \
         for the model.",
    )?;
    let nireq = text("nireq").map(|value| value.parse::<u16>().map_err(|_| format!("--nireq {value} is no number")));
    let policy = text("model_version_policy").map(|policy| {
        let value = serde_json::from_str(policy).map_err(|error| format!("--model_version_policy: {error}"))?;
        version_policy(&value)
    });
    let (nireq, version_policy) = (nireq.transpose()?.filter(|n| *n > 0), policy.transpose()?);
    let is_dynamic = ["shape", "batch_size"].into_iter().any(|flag| json(text, flag).as_ref().is_some_and(is_auto));
    let unsupported = json(text, "layout").as_ref().and_then(transposing_layout);
    let unsupported = unsupported.or_else(|| stateful.and_then(|stateful| stateful.unsupported(is_dynamic)));
    Ok(OvmsModel { name, base_path, nireq, version_policy, stateful, unsupported })
}

fn level_name(level: &str) -> Result<&'static str, String> {
    match level {
        "TRACE" => Ok("trace"),
        "DEBUG" => Ok("debug"),
        "INFO" => Ok("info"),
        "WARNING" => Ok("warn"),
        "ERROR" => Ok("error"),
        _ => Err(format!("--{LOG_LEVEL} is TRACE, DEBUG, INFO, WARNING or ERROR, not {level}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(arguments: &[&str]) -> Result<Option<OvmsCommand>, Vec<String>> {
        let command = clap::Command::new("serve").args(args());
        let matches = command.try_get_matches_from(std::iter::once(&"serve").chain(arguments)).unwrap();
        let file = |_: &Path| Ok(r#"{"model_config_list": [{"config": {"name": "f", "base_path": "/f"}}]}"#.to_owned());
        OvmsCommand::from_matches(&matches, &file)
    }

    #[test]
    fn the_ovms_command_line_gives_a_model_and_its_ports() {
        assert_eq!(of(&[]), Ok(None));
        let line = "--model_path /m --model_name m --stateful --max_sequence_number 7 --port 9000 --rest_port 5555";
        let command = of(&line.split(' ').collect::<Vec<_>>()).unwrap().unwrap();
        let Some(OvmsModels::Given(models)) = &command.models else { panic!("{command:?}") };
        let [model] = models.as_slice() else { panic!("{command:?}") };
        assert_eq!((model.name.as_str(), model.stateful.unwrap().max_sequence_number), ("m", 7));
        let settings: Vec<_> =
            command.settings.iter().map(|(key, flag, value)| (*key, flag.as_str(), value.as_str())).collect();
        assert_eq!(settings, [("grpc.port", "--port", "9000"), ("http.port", "--rest_port", "5555")]);
        assert_eq!((command.scan_minutes, command.poll_seconds), (5, 1));
        let file = of(&["--config_path", "c.json", "--sequence_cleaner_poll_wait_minutes", "0"]).unwrap().unwrap();
        assert_eq!((file.models, file.scan_minutes), (Some(OvmsModels::File("c.json".into())), 0));
        let never = of(&["--config_path", "c.json", "--file_system_poll_wait_seconds", "0"]).unwrap().unwrap();
        assert_eq!(never.poll_seconds, 0);
    }

    #[test]
    fn a_layout_that_transposes_refuses_the_model_and_another_one_has_no_effect() {
        let supported = |layout: &str| {
            let command = of(&["--model_path", "/m", "--model_name", "m", "--layout", layout]).unwrap().unwrap();
            let Some(OvmsModels::Given(models)) = &command.models else { panic!("{command:?}") };
            models[0].check_supported()
        };
        assert!(supported("NHWC:NCHW").unwrap_err().starts_with("layout \"NHWC:NCHW\" is not served: add this step"));
        assert!(supported(r#"{"a": "NCHW", "b": "NHWC:NCHW"}"#).is_err());
        let line = ["--model_path", "/m", "--model_name", "m", "--layout"];
        let notices = |layout: &str| of(&[&line[..], &[layout]].concat()).unwrap().unwrap().notices;
        assert_eq!((notices("NHWC:NCHW"), notices("NCHW")), (vec![], vec!["--layout has no effect".to_owned()]));
        assert_eq!(supported("NCHW"), Ok(()));
        assert_eq!(supported(r#"{"a": "NCHW"}"#), Ok(()));
    }

    #[test]
    fn flags_without_effect_are_named() {
        for flag in [
            "custom_node_resources_cleaner_interval",
            "custom_node_resources_cleaner_interval_seconds",
            "grpc_max_threads",
            "grpc_memory_quota",
        ] {
            let command = of(&["--config_path", "c.json", &format!("--{flag}"), "4"]).unwrap().unwrap();
            assert_eq!(command.notices, [format!("--{flag} has no effect")]);
        }
    }

    #[test]
    fn every_rule_has_its_sentence() {
        let without = "Setting low_latency_transformation, max_sequence_number and idle_sequence_cleanup require setting \
                       stateful flag for the model.";
        let rows = [
            ("--model_path /m --model_name m --idle_sequence_cleanup", without),
            ("--model_path /m --model_name m --max_sequence_number 500", without),
            ("--model_path /m --model_name m --low_latency_transformation=false", without),
            (
                "--model_path /m --model_name m --stateful --max_sequence_number 4294967296",
                "Sequence max number parameter too high",
            ),
            ("--model_path /m", "--model_path needs --model_name"),
            (
                "--model_path /m --model_name m --stateful --max_sequence_number -1",
                "--max_sequence_number is a number of at least 0, not -1",
            ),
            ("--log_level LOUD", "--log_level is TRACE, DEBUG, INFO, WARNING or ERROR, not LOUD"),
        ];
        for (line, text) in rows {
            assert_eq!(of(&line.split(' ').collect::<Vec<_>>()), Err(vec![text.to_owned()]), "{line}");
        }
    }

    #[test]
    fn a_stateful_model_takes_no_shape_from_requests() {
        for (flags, is_refused) in
            [("--stateful --shape auto", true), ("--shape auto", false), ("--stateful --batch_size 4", false)]
        {
            let line = format!("--model_path /m --model_name m {flags}");
            let command = of(&line.split(' ').collect::<Vec<_>>()).unwrap().unwrap();
            let Some(OvmsModels::Given(models)) = &command.models else { panic!("{command:?}") };
            assert_eq!(models[0].check_supported().is_err(), is_refused, "{flags}");
        }
    }

    #[test]
    fn flags_of_a_model_are_never_dropped() {
        for flag in MODELS.into_iter().chain(SEQUENCES).chain(MODELS_WITHOUT_EFFECT) {
            let value = format!("--{flag}=1");
            let beside = of(&["--config_path", "c.json", &value]);
            let sentence = format!("Model parameters in CLI are exclusive with the config file (--{flag})");
            assert_eq!(beside, Err(vec![sentence]), "{flag}");
            let alone = of(&["--rest_port", "5555", &value]);
            assert_eq!(alone, Err(vec![format!("--{flag} needs --model_path and --model_name")]), "{flag}");
        }
        let both = of(&["--config_path", "c.json", "--model_path", "/m"]).unwrap_err();
        assert!(both[0].ends_with("(--model_path)"), "{both:?}");
    }

    #[test]
    fn port_0_turns_its_protocol_off() {
        let command = of(&["--port", "0", "--rest_port", "0"]).unwrap().unwrap();
        let settings = command.settings.iter().map(|(key, flag, value)| (*key, flag.as_str(), value.as_str()));
        let off = [("grpc.enabled", "--port", "false"), ("http.enabled", "--rest_port", "false")];
        assert_eq!(settings.collect::<Vec<_>>(), off);
    }
}
