//! The keys as flags of `sequor serve`, and the values given with them.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches};

use super::file::keys;
use super::key::{Key, ValueKind};
use super::triton::{FLAGS, Flag, FlagConversion, FlagSupport, order_backend_settings, ort_log_level, own_value};
use super::triton_trace::TraceConfig;
use crate::config::fault::code;

/// The id and name of the flag for the settings file.
pub const CONFIG: &str = "config";

/// The given flags, in the order of the keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GivenFlags {
    /// `--config`.
    pub config: Option<String>,
    /// The key, the flag as it was written, and its values in the flag's unit.
    pub(super) values: Vec<(&'static str, String, Vec<String>)>,
    /// Flags with an invalid use: the flag, the kind of fault, and a sentence.
    pub(super) wrong: Vec<(String, &'static str, String)>,
    /// Why some accepted flags have no effect, one sentence a flag.
    pub notices: Vec<String>,
}

/// All flags of the settings, for adding to a command.
pub fn args() -> Vec<Arg> {
    let config = Arg::new(CONFIG).long(CONFIG).value_name("FILE").help("The settings file [env: SEQUOR_CONFIG]");
    let flags =
        keys().flat_map(|key| std::iter::once(own(key)).chain(Flag::of_key(key.path).map(|(f, how)| alias(f, how))));
    let others = FLAGS.iter().filter(|f| !matches!(f.support, FlagSupport::Own | FlagSupport::Sets { .. }));
    let others = others.map(|flag| alias(flag.name, FlagConversion::AsIs));
    std::iter::once(config).chain(flags).chain(others).collect()
}

fn own(key: &'static Key) -> Arg {
    let heading = key.path.split_once('.').map_or("server", |(section, _)| section);
    let default = key.default().map(|value| plain(&value)).filter(|text| !text.is_empty());
    let default = default.map(|text| format!(" [default: {text}]")).unwrap_or_default();
    let help = format!("{}{default} [env: {}]", key.help, key.variable());
    arg(key, key.flag()).help(help).help_heading(heading)
}

/// A flag that other servers have for the same setting.
fn alias(flag: &'static str, how: FlagConversion) -> Arg {
    let arg = Arg::new(flag).long(flag).hide(true).value_name("VALUE").action(ArgAction::Append);
    match how {
        FlagConversion::Off => arg.action(ArgAction::SetTrue),
        _ => arg.num_args(1).allow_hyphen_values(true),
    }
}

fn arg(key: &'static Key, flag: String) -> Arg {
    let arg = Arg::new(flag.clone()).long(flag).value_name(key.kind.placeholder());
    match key.kind {
        ValueKind::Texts | ValueKind::Paths | ValueKind::Restrictions => arg.action(ArgAction::Append),
        ValueKind::Bool => arg.num_args(0..=1).default_missing_value("true"),
        _ => arg,
    }
}

/// A value in the form in which users write it.
fn plain(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

impl GivenFlags {
    /// Only the settings file, without other flags.
    pub fn of_file(config: Option<String>) -> GivenFlags {
        GivenFlags { config, ..GivenFlags::default() }
    }

    /// Sets a key through a flag that is not in [`args`].
    pub fn set(&mut self, key: &'static str, flag: String, value: String) {
        self.values.push((key, flag, vec![value]));
    }

    /// Reads the values of [`args`] from the command line.
    pub fn from_matches(matches: &ArgMatches) -> GivenFlags {
        let mut given = GivenFlags::of_file(matches.get_one::<String>(CONFIG).cloned());
        for key in keys() {
            if let Some(values) = given_values(matches, &key.flag()) {
                let values = values.into_iter().map(|value| own_value(&key.flag(), value)).collect();
                given.values.push((key.path, format!("--{}", key.flag()), values));
            }
            for (flag, how) in Flag::of_key(key.path) {
                given.alias(matches, key.path, flag, how);
            }
        }
        for flag in FLAGS {
            given.other(matches, flag);
        }
        given
    }

    /// Handles another server's flag for one of our keys.
    fn alias(&mut self, matches: &ArgMatches, key: &'static str, flag: &'static str, how: FlagConversion) {
        let values = match how {
            FlagConversion::Off => matches.get_flag(flag).then(|| vec![String::new()]),
            _ => given_values(matches, flag),
        };
        let Some(mut values) = values else { return };
        if how == FlagConversion::DefaultBatch {
            order_backend_settings(&mut values);
        }
        let name = format!("--{flag}");
        let mut ours = Vec::new();
        for value in values {
            match how.translate(&value) {
                Ok(Some(value)) => ours.push(value),
                Ok(None) if how == FlagConversion::DefaultBatch => match ort_log_level(&value) {
                    Some((key, Ok(level))) => self.values.push((key, name.clone(), vec![level.to_owned()])),
                    Some((_, Err(what))) => self.wrong.push((name.clone(), code::VALUE, what)),
                    None => self.notices.push(format!("{name} {value} has no effect")),
                },
                Ok(None) => {}
                Err(what) => self.wrong.push((name.clone(), code::VALUE, what)),
            }
        }
        if !ours.is_empty() {
            self.values.push((key, name, ours));
        }
    }

    /// Handles another server's flag that Sequor ignores or refuses.
    fn other(&mut self, matches: &ArgMatches, flag: &'static Flag) {
        let (name, values) = match flag.support {
            FlagSupport::Nothing(_) | FlagSupport::Refused { .. } | FlagSupport::Traces { .. } => {
                (format!("--{}", flag.name), given_values(matches, flag.name))
            }
            FlagSupport::Own | FlagSupport::Sets { .. } => return,
        };
        let Some(values) = values else { return };
        match flag.support {
            FlagSupport::Nothing(why) => self.notices.push(format!("{name} has no effect: {why}")),
            FlagSupport::Refused { instead, .. } if !values.iter().all(|value| flag.asks_for_nothing(value)) => {
                self.wrong.push((name, code::NOT_SERVED, format!("not served: {instead}")));
            }
            FlagSupport::Traces { instead } => self.traces(&name, &values, instead),
            _ => {}
        }
    }

    /// Handles Triton's flag of traces. A flag of ours for the same key wins.
    fn traces(&mut self, name: &str, values: &[String], instead: &str) {
        let TraceConfig { sets, notices, wrong } = TraceConfig::parse(values, instead);
        self.notices.extend(notices.into_iter().map(|notice| format!("{name} {notice}")));
        self.wrong
            .extend(wrong.into_iter().map(|why| (name.to_owned(), code::NOT_SERVED, format!("not served: {why}"))));
        let ours: Vec<_> = sets.into_iter().map(|(key, value)| (key, name.to_owned(), vec![value])).collect();
        // The last value of a key counts.
        self.values.splice(0..0, ours);
    }
}

/// The values of a flag; `None` if it was not given.
fn given_values(matches: &ArgMatches, id: &str) -> Option<Vec<String>> {
    let given = matches.value_source(id) == Some(ValueSource::CommandLine);
    given.then(|| matches.get_many::<String>(id).into_iter().flatten().cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(args: &[&str]) -> GivenFlags {
        let command = clap::Command::new("serve").args(super::args());
        let args = std::iter::once("serve").chain(args.iter().copied());
        GivenFlags::from_matches(&command.try_get_matches_from(args).unwrap())
    }

    #[test]
    fn flags_and_their_aliases_are_taken() {
        let given = given(&[
            "--config",
            "x.toml",
            "--http-port=80",
            "--model-repository",
            "/a",
            "--model-repository",
            "/b",
            "--exit-timeout-secs",
            "9",
            "--strict-readiness",
            "--exit-on-error=false",
        ]);
        let values: Vec<(&str, &str, String)> =
            given.values.iter().map(|(k, f, v)| (*k, f.as_str(), v.join(" "))).collect();
        let expected = [
            ("exit_on_error", "--exit-on-error", "false"),
            ("strict_readiness", "--strict-readiness", "true"),
            ("model.repository", "--model-repository", "/a /b"),
            ("http.port", "--http-port", "80"),
            ("drain.exit_timeout", "--exit-timeout-secs", "9s"),
        ];
        assert_eq!(values, expected.map(|(k, f, v)| (k, f, v.to_owned())));
        assert_eq!(given.config.as_deref(), Some("x.toml"));
    }

    #[test]
    fn a_command_line_of_tritons_is_taken() {
        let given = given(&[
            "--model-store=/mnt/models",
            "--strict-model-config=false",
            "--log-verbose=1",
            "--allow-http",
            "false",
            "--grpc-keepalive-time=7200000",
            "--backend-config=onnxruntime,default-max-batch-size=8",
            "--backend-config=tensorflow,version=2",
            "--backend-config=stateful,ort-logging-level=2",
            "--cuda-memory-pool-byte-size=0:1024",
            "--cuda-memory-pool-byte-size=1:1024",
            "--trace-count",
            "-1",
            "--reuse-grpc-port=False",
            "--trace-config=level=OFF",
            "--disable-auto-complete-config",
            "--log-format=ISO8601",
        ]);
        let values: Vec<(&str, &str)> = given.values.iter().map(|(k, _, v)| (*k, v.last().unwrap().as_str())).collect();
        let expected = [
            ("model.repository", "/mnt/models"),
            ("model.auto_complete", "false"),
            ("model.auto_complete", "true"),
            ("runtime.log_level", "warning"),
            ("model.default_max_batch_size", "8"),
            ("http.enabled", "false"),
            ("grpc.keepalive", "7200000ms"),
            ("log.format", "text"),
            ("log.level", "info,sequor=debug"),
        ];
        assert_eq!(values, expected);
        assert_eq!(given.wrong, []);
        assert_eq!(
            given.notices,
            [
                "--backend-config tensorflow,version=2 has no effect",
                "--trace-count has no effect: spans go to an OpenTelemetry collector (--otlp-endpoint URL), and requests are recorded with --record FILE",
                "--cuda-memory-pool-byte-size has no effect: instances take GPU memory as they need it; a model's instance_group names its \
                 GPUs",
            ]
        );
    }

    #[test]
    fn the_onnx_runtime_default_batch_size_overrides_the_common_default() {
        let given = given(&[
            "--backend-config=onnxruntime,default-max-batch-size=16",
            "--backend-config=default-max-batch-size=7",
            "--backend-config=tensorflow,default-max-batch-size=32",
        ]);
        let values: Vec<(&str, &str)> = given.values.iter().map(|(k, _, v)| (*k, v.last().unwrap().as_str())).collect();
        assert_eq!(values, [("model.default_max_batch_size", "16")]);
        assert_eq!(given.notices, ["--backend-config tensorflow,default-max-batch-size=32 has no effect"]);
    }

    #[test]
    fn unsupported_triton_flag_values_are_refused() {
        let given = given(&[
            "--grpc-use-ssl=true",
            "--log-verbose=loud",
            "--trace-config=level=TIMESTAMPS",
            "--grpc-use-ssl-mutual=false",
            "--backend-config=stateful,ort-logging-level=5",
        ]);
        let wrong: Vec<(&str, &str)> = given.wrong.iter().map(|(f, code, _)| (f.as_str(), *code)).collect();
        assert_eq!(
            wrong,
            [
                ("--backend-config", code::VALUE),
                ("--log-verbose", code::VALUE),
                ("--grpc-use-ssl", code::NOT_SERVED),
                ("--trace-config", code::NOT_SERVED)
            ]
        );
    }

    #[test]
    fn help_names_every_flag_with_its_default_and_variable() {
        let help = clap::Command::new("serve").term_width(100).args(super::args()).render_long_help().to_string();
        insta::assert_snapshot!(help);
    }
}
