//! Declares each key of a model's `sequor.toml` once: name, type, default, example, check and help. The parser and the
//! reference page are generated from the declaration.

use std::collections::BTreeMap;

use crate::config::units::{Size, Span, SpanOrNever};

/// A key of the file.
#[derive(Debug, Clone, Copy)]
pub struct KeyEntry {
    /// The key's table; empty at the top of the file. `state.X` is the table of one state.
    pub table: &'static str,
    pub name: &'static str,
    /// The type of its value, or its choices.
    pub value: &'static str,
    /// The value used if the key is absent.
    pub default: &'static str,
    pub example: &'static str,
    /// The effect of the key, and what happens at the limit.
    pub help: &'static str,
}

/// A table of the file with its keys, in the order of the page.
#[derive(Debug, Clone, Copy)]
pub struct TableEntry {
    pub path: &'static str,
    pub title: &'static str,
    pub introduction: &'static str,
    pub keys: &'static [KeyEntry],
}

/// A refused value: its key, the code and the sentence.
#[derive(Debug)]
pub(super) struct KeyFault {
    pub(super) key: Vec<String>,
    pub(super) code: &'static str,
    pub(super) what: String,
}

/// A check of a value. Gets the key's name and the value; returns the code and the sentence of a fault.
pub(super) type ValueCheck<V> = fn(&str, &V) -> Option<(&'static str, String)>;

/// A type of values.
pub(super) trait KeyValue {
    /// The type as the page names it.
    const TEXT: &'static str;
    /// The type that a check gets.
    type Value: ?Sized;

    /// The value; `None` if the key is absent.
    fn written(&self) -> Option<&Self::Value>;
}

/// One table, or a list or map of tables of the same type.
pub(super) trait Section {
    /// Adds this table and those within it.
    fn entries(all: &mut Vec<TableEntry>);

    /// Adds the faults of values. `path` leads to this table.
    fn check(&self, path: &mut Vec<String>, faults: &mut Vec<KeyFault>);
}

/// Declares a table: its struct and its keys. A key without help does not compile. `[default]` is for an optional key whose type is
/// not `Option`. `as` gives a more exact type for the page. `tables` lists the tables within this one.
macro_rules! section {
    (
        $(#[$of:meta])*
        $vis:vis struct $name:ident($path:literal, $title:literal $(, $introduction:literal)?) {
            $(
                $(#[doc = $help:literal])+
                $key_vis:vis $key:ident: $kind:ty $([$serde:ident])? $(as $text:literal)?
                $(, default $default:literal, example $example:literal)? $(, check $check:path)?;
            )*
        }
        $(tables { $( $(#[$table_doc:meta])* $table_vis:vis $table:ident: $tables:ty; )* })?
    ) => {
        #[derive(Debug, Clone, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        $(#[$of])*
        $vis struct $name {
            $( $(#[doc = $help])+ $(#[serde($serde)])? $key_vis $key: $kind, )*
            $( $( $(#[$table_doc])* #[serde(default)] $table_vis $table: $tables, )* )?
        }

        impl $name {
            const KEYS: &'static [$crate::config::model::sequor_toml::declare::KeyEntry] =
                &[$( $crate::config::model::sequor_toml::declare::KeyEntry {
                    table: $path,
                    name: $crate::config::model::sequor_toml::declare::key_name(stringify!($key)),
                    value: $crate::config::model::sequor_toml::declare::either!(
                        $($text)?;
                        <$kind as $crate::config::model::sequor_toml::declare::KeyValue>::TEXT
                    ),
                    default: $crate::config::model::sequor_toml::declare::either!($($default)?; ""),
                    example: $crate::config::model::sequor_toml::declare::either!($($example)?; ""),
                    help: concat!($($help),*).trim_ascii(),
                }, )*];
        }

        impl $crate::config::model::sequor_toml::declare::Section for $name {
            fn entries(all: &mut Vec<$crate::config::model::sequor_toml::declare::TableEntry>) {
                all.push($crate::config::model::sequor_toml::declare::TableEntry {
                    path: $path,
                    title: $title,
                    introduction: concat!($($introduction)?),
                    keys: $name::KEYS,
                });
                $( $( <$tables as $crate::config::model::sequor_toml::declare::Section>::entries(all); )* )?
            }

            #[allow(unused_mut, unused_variables, reason = "a table may have no keys, or only tables")]
            fn check(
                &self,
                path: &mut Vec<String>,
                faults: &mut Vec<$crate::config::model::sequor_toml::declare::KeyFault>,
            ) {
                let mut keys = $name::KEYS.iter();
                $( $crate::config::model::sequor_toml::declare::check_key(
                    path,
                    keys.next(),
                    &self.$key,
                    $crate::config::model::sequor_toml::declare::optional!($($check)?),
                    faults,
                ); )*
                $( $( $crate::config::model::sequor_toml::declare::check_table(
                    path,
                    stringify!($table),
                    &self.$table,
                    faults,
                ); )* )?
            }
        }
    };
}

/// Expands to the first expression if there is one, otherwise to the second.
macro_rules! either {
    (; $other:expr) => {
        $other
    };
    ($first:expr; $other:expr) => {
        $first
    };
}

macro_rules! optional {
    () => {
        None
    };
    ($value:expr) => {
        Some($value)
    };
}

/// Declares the choices of a key, with their words in the file.
macro_rules! choice {
    (
        $(#[$of:meta])*
        $vis:vis enum $name:ident {
            $(#[$on_first:meta])* $first:ident = $first_word:literal,
            $( $(#[$on:meta])* $variant:ident = $word:literal, )*
        }
    ) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
        $(#[$of])*
        $vis enum $name {
            $(#[$on_first])* #[serde(rename = $first_word)] $first,
            $( $(#[$on])* #[serde(rename = $word)] $variant, )*
        }

        $crate::config::model::sequor_toml::declare::values! {
            $name => concat!("`", $first_word, "`" $(, ", `", $word, "`")*),
        }
    };
}

macro_rules! values {
    ($($of:ty => $text:expr),* $(,)?) => { $(
        impl $crate::config::model::sequor_toml::declare::KeyValue for $of {
            const TEXT: &'static str = $text;
            type Value = $of;

            fn written(&self) -> Option<&$of> {
                Some(self)
            }
        }
    )* };
}

pub(super) use {choice, either, optional, section, values};

values! {
    f64 => "number",
    u8 => "integer",
    u32 => "integer",
    toml::Value => "any value",
    toml::Table => "table",
    Vec<String> => "list of strings",
    Vec<u64> => "list of integers",
    Size => "size",
    Span => "duration",
    SpanOrNever => "duration, or `never`",
}

impl KeyValue for String {
    const TEXT: &'static str = "string";
    type Value = str;

    fn written(&self) -> Option<&str> {
        Some(self)
    }
}

/// `false` counts as absent.
impl KeyValue for bool {
    const TEXT: &'static str = "boolean";
    type Value = bool;

    fn written(&self) -> Option<&bool> {
        self.then_some(self)
    }
}

impl<T: KeyValue> KeyValue for Option<T> {
    const TEXT: &'static str = T::TEXT;
    type Value = T::Value;

    fn written(&self) -> Option<&T::Value> {
        self.as_ref()?.written()
    }
}

impl<S: Section> Section for Option<S> {
    fn entries(all: &mut Vec<TableEntry>) {
        S::entries(all);
    }

    fn check(&self, path: &mut Vec<String>, faults: &mut Vec<KeyFault>) {
        if let Some(section) = self {
            section.check(path, faults);
        }
    }
}

impl<S: Section> Section for Vec<S> {
    fn entries(all: &mut Vec<TableEntry>) {
        S::entries(all);
    }

    fn check(&self, path: &mut Vec<String>, faults: &mut Vec<KeyFault>) {
        for (n, section) in self.iter().enumerate() {
            check_table(path, &n.to_string(), section, faults);
        }
    }
}

impl<S: Section> Section for BTreeMap<String, S> {
    fn entries(all: &mut Vec<TableEntry>) {
        S::entries(all);
    }

    fn check(&self, path: &mut Vec<String>, faults: &mut Vec<KeyFault>) {
        for (name, section) in self {
            check_table(path, name, section, faults);
        }
    }
}

/// Checks the value of a key.
pub(super) fn check_key<T: KeyValue>(
    path: &[String],
    key: Option<&KeyEntry>,
    value: &T,
    check: Option<ValueCheck<T::Value>>,
    faults: &mut Vec<KeyFault>,
) {
    let (Some(key), Some(value)) = (key, value.written()) else { return };
    let place = || path.iter().cloned().chain([key.name.to_owned()]).collect();
    let refused = check.and_then(|check| check(key.name, value));
    faults.extend(refused.map(|(code, what)| KeyFault { key: place(), code, what }));
}

pub(super) fn check_table(path: &mut Vec<String>, name: &str, table: &impl Section, faults: &mut Vec<KeyFault>) {
    path.push(name.to_owned());
    table.check(path, faults);
    path.pop();
}

impl KeyEntry {
    /// Table and name.
    pub fn path(&self) -> String {
        match self.table {
            "" => self.name.to_owned(),
            table => format!("{table}.{}", self.name),
        }
    }
}

/// The name of a field without the prefix of a raw identifier.
pub(super) const fn key_name(field: &'static str) -> &'static str {
    match field.as_bytes() {
        [b'r', b'#', name @ ..] => match std::str::from_utf8(name) {
            Ok(name) => name,
            Err(_) => field,
        },
        _ => field,
    }
}

/// A key in TOML syntax, quoted if necessary.
pub(in crate::config::model) fn bare(key: &str) -> String {
    let plain = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if plain { key.to_owned() } else { toml::Value::String(key.to_owned()).to_string() }
}
