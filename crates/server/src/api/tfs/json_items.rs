//! Visits the values of a JSON text one by one, without a tree of values: their kinds, and the items of an array or an object.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::api::Status;

/// The kind of a JSON value, as far as a body's layout depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Array,
    Object,
    /// `{"b64": TEXT}`, which is an element.
    Base64,
    /// A number or a text.
    Value,
    /// `true`, `false` or `null`.
    Word,
}

impl Form {
    pub(super) fn detect(text: &RawValue) -> Form {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Base64Element {
            #[serde(rename = "b64")]
            _text: IgnoredText,
        }
        match text.get().as_bytes().first() {
            Some(b'[') => Form::Array,
            Some(b'{') if serde_json::from_str::<Base64Element>(text.get()).is_ok() => Form::Base64,
            Some(b'{') => Form::Object,
            Some(b't' | b'f' | b'n') => Form::Word,
            _ => Form::Value,
        }
    }
}

/// A text that is not kept.
struct IgnoredText;

impl<'de> serde::Deserialize<'de> for IgnoredText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<IgnoredText, D::Error> {
        struct IgnoredTextVisitor;
        impl Visitor<'_> for IgnoredTextVisitor {
            type Value = IgnoredText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_str<E: Error>(self, _: &str) -> Result<IgnoredText, E> {
                Ok(IgnoredText)
            }
        }
        deserializer.deserialize_str(IgnoredTextVisitor)
    }
}

/// Calls `take` with each item of an array, or each member of an object. Items of an array have an empty name. If the text is neither,
/// `unparsed` makes the refusal.
pub(super) fn entries(
    text: &RawValue,
    unparsed: impl FnOnce(serde_json::Error) -> Status,
    take: &mut dyn FnMut(String, &RawValue) -> Result<(), Status>,
) -> Result<(), Status> {
    let mut status = None;
    let mut deserializer = serde_json::Deserializer::from_str(text.get());
    let items = JsonItems { take, status: &mut status };
    let read = items.deserialize(&mut deserializer);
    status.map_or_else(|| read.map_err(unparsed), Err)
}

struct JsonItems<'t> {
    take: &'t mut dyn FnMut(String, &RawValue) -> Result<(), Status>,
    /// The refusal of an item.
    status: &'t mut Option<Status>,
}

impl JsonItems<'_> {
    fn item<E: Error>(&mut self, name: String, item: &RawValue) -> Result<(), E> {
        (self.take)(name, item).map_err(|status| {
            *self.status = Some(status);
            E::custom("refused")
        })
    }
}

impl<'de> DeserializeSeed<'de> for JsonItems<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for JsonItems<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array or an object")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element::<&RawValue>()? {
            self.item(String::new(), item)?;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        while let Some((name, item)) = items.next_entry::<String, &RawValue>()? {
            self.item(name, item)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_a_json_value_is_detected_from_its_text() {
        let rows = [
            ("[1]", Form::Array),
            ("{}", Form::Object),
            (r#"{"b64": 1}"#, Form::Object),
            (r#"{"b64": "AA==", "x": 1}"#, Form::Object),
            (r#"{"b64": "AA=="}"#, Form::Base64),
            (r#"{"b64": "A\u0041=="}"#, Form::Base64),
            ("-1", Form::Value),
            ("\"b64\"", Form::Value),
            ("true", Form::Word),
            ("null", Form::Word),
        ];
        for (text, want) in rows {
            assert_eq!(Form::detect(serde_json::from_str(text).expect("JSON")), want, "{text}");
        }
    }
}
