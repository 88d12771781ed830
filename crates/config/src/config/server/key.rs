//! Declares each setting of the server once: its key, type, default, help and rule. `http.port` in the file is `--http-port` as a flag and
//! `SEQUOR_HTTP_PORT` in the environment. The struct for the file, the flags and the reference page are generated from the declaration.

use std::path::PathBuf;
use std::str::FromStr as _;

use toml::Value;

use super::listen_address::ListenAddress;
use crate::config::units::{Size, Span};

/// A setting.
#[derive(Debug)]
pub struct Key {
    /// Section and name, separated by a dot.
    pub path: &'static str,
    pub kind: ValueKind,
    pub(super) rule: Rule,
    /// Whether a reload of the configuration applies a new value. If not, the value waits for a restart.
    pub reload: bool,
    /// One sentence for `--help` and the reference.
    pub help: &'static str,
    pub(super) default: fn() -> Option<Value>,
}

/// The type of a value, which decides how text is parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    Bool,
    Number,
    Ratio,
    Text,
    Path,
    /// Repeatable as a flag; separated by commas in one text.
    Texts,
    Paths,
    Span,
    Size,
    /// An IP address to listen on.
    Address,
    Choice(&'static [&'static str]),
    /// Restricted groups with their secrets. Repeatable as a flag, one a line in one text.
    Restrictions,
}

/// A restriction on the values of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    Any,
    Positive,
    /// From 0 to 1.
    Share,
}

/// A type for settings.
pub(super) trait SettingValue {
    const KIND: ValueKind;
}

/// Declares a section: the struct for the file, its defaults, and its keys. A key without help does not compile. `reload` marks a key that a
/// reload applies; it stands behind the rule, if there is one. `with` lists fields that are not keys.
macro_rules! section {
    (
        $(#[$of:meta])*
        $vis:vis struct $name:ident, $prefix:literal {
            $( $(#[doc = $help:literal])+ $key_vis:vis $field:ident: $kind:ty = $default:expr $(, $mark:ident)*; )*
        }
        $(with { $( $other_vis:vis $other:ident: $section:ty = $none:expr; )* })?
    ) => {
        $(#[$of])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields, default)]
        $vis struct $name {
            $( $(#[doc = $help])+ $key_vis $field: $kind, )*
            $( $( $other_vis $other: $section, )* )?
        }

        impl Default for $name {
            fn default() -> Self {
                $name { $( $field: $default, )* $( $( $other: $none, )* )? }
            }
        }

        impl $name {
            pub(super) const KEYS: &[$crate::config::server::key::Key] = &[$( $crate::config::server::key::Key {
                path: concat!($prefix, stringify!($field)),
                kind: <$kind as $crate::config::server::key::SettingValue>::KIND,
                rule: $crate::config::server::key::rule!($($mark)*),
                reload: $crate::config::server::key::reloads!($($mark)*),
                help: concat!($($help),*).trim_ascii(),
                default: || toml::Value::try_from::<$kind>($default).ok(),
            }, )*];
        }
    };
}

macro_rules! rule {
    ($(reload)?) => {
        $crate::config::server::key::Rule::Any
    };
    (positive $(reload)?) => {
        $crate::config::server::key::Rule::Positive
    };
    (share $(reload)?) => {
        $crate::config::server::key::Rule::Share
    };
}

macro_rules! reloads {
    (reload) => {
        true
    };
    ($rule:ident reload) => {
        true
    };
    ($($rule:ident)?) => {
        false
    };
}

/// Declares the choices of a setting, with their words in the file.
macro_rules! choice {
    ($(#[$of:meta])* $vis:vis enum $name:ident { $( $(#[$on:meta])* $variant:ident = $word:literal, )* }) => {
        $(#[$of])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        $vis enum $name {
            $( $(#[$on])* #[serde(rename = $word)] $variant, )*
        }

        impl $crate::config::server::key::SettingValue for $name {
            const KIND: $crate::config::server::key::ValueKind = $crate::config::server::key::ValueKind::Choice(&[$($word),*]);
        }
    };
}

pub(super) use {choice, reloads, rule, section};

macro_rules! kinds {
    ($($of:ty => $kind:ident),* $(,)?) => { $(
        impl SettingValue for $of {
            const KIND: ValueKind = ValueKind::$kind;
        }
    )* };
}

kinds! {
    bool => Bool,
    u16 => Number,
    u32 => Number,
    u64 => Number,
    usize => Number,
    f64 => Ratio,
    String => Text,
    PathBuf => Path,
    Vec<String> => Texts,
    Vec<PathBuf> => Paths,
    Span => Span,
    Size => Size,
    ListenAddress => Address,
}

impl<T: SettingValue> SettingValue for Option<T> {
    const KIND: ValueKind = T::KIND;
}

impl Key {
    /// The flag, for example `http-port`.
    pub fn flag(&self) -> String {
        self.path.replace(['.', '_'], "-")
    }

    /// The environment variable, for example `SEQUOR_HTTP_PORT`.
    pub fn variable(&self) -> String {
        format!("SEQUOR_{}", self.path.replace('.', "_").to_ascii_uppercase())
    }

    /// The section, if there is one, and the name.
    pub fn parts(&self) -> Vec<&'static str> {
        self.path.split('.').collect()
    }

    /// The default in the file's form; `None` if there is none.
    pub fn default(&self) -> Option<Value> {
        (self.default)()
    }
}

impl Rule {
    /// Why the rule does not allow a value; `None` if it does.
    pub(super) fn refuse(self, kind: ValueKind, value: &Value) -> Option<&'static str> {
        let is_zero = match (kind, value) {
            (ValueKind::Span, Value::String(text)) => text.parse().is_ok_and(|Span(span)| span.is_zero()),
            (ValueKind::Size, Value::String(text)) => text.parse() == Ok(Size(0)),
            (_, Value::Integer(number)) => *number == 0,
            _ => false,
        };
        let is_share = value.as_float().is_none_or(|share| (0.0..=1.0).contains(&share));
        match self {
            Rule::Positive if is_zero => Some("must be more than 0"),
            Rule::Share if !is_share => Some("must be from 0 to 1"),
            _ => None,
        }
    }
}

impl ValueKind {
    /// Parses a text to a value.
    pub fn read(self, text: &str) -> Result<Value, String> {
        match self {
            ValueKind::Bool => match text.to_ascii_lowercase().as_str() {
                "true" | "1" => Ok(Value::Boolean(true)),
                "false" | "0" => Ok(Value::Boolean(false)),
                _ => Err(format!("\"{text}\" is neither true nor false")),
            },
            ValueKind::Number => text.parse().map(Value::Integer).map_err(|_| format!("\"{text}\" is not a number")),
            ValueKind::Ratio => text.parse().map(Value::Float).map_err(|_| format!("\"{text}\" is not a number")),
            ValueKind::Text | ValueKind::Path => Ok(Value::String(text.to_owned())),
            ValueKind::Texts | ValueKind::Paths => {
                let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
                Ok(Value::Array(parts.map(|part| Value::String(part.to_owned())).collect()))
            }
            ValueKind::Restrictions => {
                let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
                Ok(Value::Array(lines.map(|line| Value::String(line.to_owned())).collect()))
            }
            ValueKind::Span => Span::from_str(text).map(|_| Value::String(text.to_owned())),
            ValueKind::Size => Size::from_str(text).map(|_| Value::String(text.to_owned())),
            ValueKind::Address => ListenAddress::from_str(text).map(|_| Value::String(text.to_owned())),
            // Triton's flags take words in any case.
            ValueKind::Choice(choices) => match choices.iter().find(|choice| choice.eq_ignore_ascii_case(text)) {
                Some(choice) => Ok(Value::String((*choice).to_owned())),
                None => Err(format!("\"{text}\" is none of {}", choices.join(", "))),
            },
        }
    }

    /// The placeholder for the value in the help text.
    pub fn placeholder(self) -> String {
        match self {
            ValueKind::Bool => "BOOL".to_owned(),
            ValueKind::Number => "N".to_owned(),
            ValueKind::Ratio => "RATIO".to_owned(),
            ValueKind::Text | ValueKind::Texts => "TEXT".to_owned(),
            ValueKind::Path | ValueKind::Paths => "PATH".to_owned(),
            ValueKind::Span => "DURATION".to_owned(),
            ValueKind::Size => "SIZE".to_owned(),
            ValueKind::Address => "ADDRESS".to_owned(),
            ValueKind::Choice(choices) => choices.join("|"),
            ValueKind::Restrictions => "GROUPS:KEY=VALUE".to_owned(),
        }
    }
}
