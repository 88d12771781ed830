//! The keys as flags of `sequor serve`, and what was given with them.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches};

use super::keys::{KEYS, Key, Kind};

/// The id (and name) of the flag that says which file to read.
pub const CONFIG: &str = "config";

/// Flags that were given, in the order of the keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Given {
    /// `--config`.
    pub config: Option<String>,
    /// Key, the flag as it was written, and its values with the unit of the flag.
    pub(super) values: Vec<(&'static str, String, Vec<String>)>,
}

/// Every flag of the settings, to be added to a command.
pub fn args() -> Vec<Arg> {
    let config = Arg::new(CONFIG).long(CONFIG).value_name("FILE").help("The settings file [env: SEQUOR_CONFIG]");
    let served = KEYS.iter().filter(|key| key.is_served());
    let flags = served.flat_map(|key| std::iter::once(own(key)).chain(key.aliases.iter().map(|a| alias(key, a.flag))));
    std::iter::once(config).chain(flags).collect()
}

fn own(key: &'static Key) -> Arg {
    let heading = key.path.split_once('.').map_or("server", |(section, _)| section);
    let default = key.default().map(|value| plain(&value)).filter(|text| !text.is_empty());
    let default = default.map(|text| format!(" [default: {text}]")).unwrap_or_default();
    let help = format!("{}{default} [env: {}]", key.help, key.variable());
    arg(key, key.flag()).help(help).help_heading(heading)
}

fn alias(key: &'static Key, flag: &'static str) -> Arg {
    arg(key, flag.to_owned()).hide(true)
}

fn arg(key: &'static Key, flag: String) -> Arg {
    let arg = Arg::new(flag.clone()).long(flag).value_name(key.kind.placeholder());
    match key.kind {
        Kind::Texts | Kind::Paths => arg.action(ArgAction::Append),
        Kind::Bool => arg.num_args(0..=1).default_missing_value("true"),
        _ => arg,
    }
}

/// A value as a user would write it.
fn plain(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

impl Given {
    /// Nothing but the file.
    pub fn of_file(config: Option<String>) -> Given {
        Given { config, values: Vec::new() }
    }

    /// What was given on the command line, of [`args`].
    pub fn from_matches(matches: &ArgMatches) -> Given {
        let values = |id: &str| -> Option<Vec<String>> {
            let given = matches.value_source(id) == Some(ValueSource::CommandLine);
            given.then(|| matches.get_many::<String>(id).into_iter().flatten().cloned().collect())
        };
        let mut given = Given { config: matches.get_one::<String>(CONFIG).cloned(), values: Vec::new() };
        for key in KEYS.iter().filter(|key| key.is_served()) {
            let aliases = key.aliases.iter().map(|a| (a.flag.to_owned(), a.unit));
            for (flag, unit) in std::iter::once((key.flag(), "")).chain(aliases) {
                if let Some(values) = values(&flag) {
                    let values = values.into_iter().map(|value| format!("{value}{unit}")).collect();
                    given.values.push((key.path, format!("--{flag}"), values));
                }
            }
        }
        given
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(args: &[&str]) -> Given {
        let command = clap::Command::new("serve").args(super::args());
        let args = std::iter::once("serve").chain(args.iter().copied());
        Given::from_matches(&command.try_get_matches_from(args).unwrap())
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
    fn help_names_every_flag_with_its_default_and_variable() {
        let help = clap::Command::new("serve").term_width(100).args(super::args()).render_long_help().to_string();
        insta::assert_snapshot!(help);
    }
}
