//! Times in JSON, in RFC 3339: `2026-11-20T11:02:07.123Z`.

use std::time::SystemTime;

use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer, Serializer};

pub fn serialize<S: Serializer>(at: &SystemTime, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&humantime::format_rfc3339_millis(*at))
}

pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SystemTime, D::Error> {
    let text = <std::borrow::Cow<'_, str>>::deserialize(from)?;
    humantime::parse_rfc3339(&text).map_err(D::Error::custom)
}
