//! Durations and sizes in our files, flags and variables: text with a unit, `"5s"`, `"never"`, `"64MiB"`.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

/// `"250ms"`, `"5s"`, `"10m"`, `"1.5h"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Span(pub Duration);

/// A [`Span`] or `"never"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanOrNever(pub Option<Duration>);

/// `"64MiB"`, `"4GiB"`, `"512B"`: bytes, in powers of 1024.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Size(pub u64);

/// Units and their nanoseconds, the longest first. A duration is written in the first unit that divides it.
const SPANS: [(&str, u64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];
const SIZES: [(&str, u64); 5] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
/// Wrong units that people write for powers of 1024.
const NEAR_SIZES: [(&str, &str); 8] = [
    ("TB", "TiB"),
    ("GB", "GiB"),
    ("MB", "MiB"),
    ("KB", "KiB"),
    ("kB", "KiB"),
    ("G", "GiB"),
    ("M", "MiB"),
    ("K", "KiB"),
];

impl Size {
    /// The bytes as a length in memory.
    pub fn to_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl FromStr for Span {
    type Err = String;
    fn from_str(text: &str) -> Result<Span, String> {
        let nanos = with_unit(text, &SPANS);
        nanos.map(|n| Span(Duration::from_nanos(n))).ok_or_else(|| match text.parse::<f64>() {
            Ok(_) => format!("\"{text}\" is not a duration: it needs a unit (did you mean \"{text}s\"?)"),
            Err(_) => format!("\"{text}\" is not a duration (as \"250ms\", \"5s\", \"10m\")"),
        })
    }
}

impl FromStr for SpanOrNever {
    type Err = String;
    fn from_str(text: &str) -> Result<SpanOrNever, String> {
        if text == "never" {
            return Ok(SpanOrNever(None));
        }
        text.parse().map(|Span(span)| SpanOrNever(Some(span)))
    }
}

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Size, String> {
        with_unit(text, &SIZES).map(Size).ok_or_else(|| {
            let (number, unit) = split(text);
            match NEAR_SIZES.iter().find(|(near, _)| *near == unit) {
                Some((_, meant)) if number.parse::<f64>().is_ok() => {
                    format!("\"{text}\" is not a size (did you mean \"{number}{meant}\"?)")
                }
                _ => format!("\"{text}\" is not a size (as \"512KiB\", \"64MiB\", \"4GiB\")"),
            }
        })
    }
}

fn split(text: &str) -> (&str, &str) {
    let number = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text.split_at(number)
}

/// The number times its unit. A fraction is allowed and is rounded down to the smallest unit.
fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, unit) = split(text);
    let (_, scale) = units.iter().find(|(name, _)| *name == unit)?;
    match number.split_once('.') {
        None => number.parse::<u64>().ok()?.checked_mul(*scale),
        Some((whole, part)) => {
            let digits = u32::try_from(part.len()).ok().filter(|d| (1..=9).contains(d))?;
            let part = u128::from(part.parse::<u64>().ok()?) * u128::from(*scale) / 10u128.pow(digits);
            let whole = u128::from(whole.parse::<u64>().ok()?) * u128::from(*scale);
            u64::try_from(whole + part).ok()
        }
    }
}

fn in_units(n: u64, units: &[(&str, u64)], zero: &str) -> String {
    let fits = units.iter().find(|(_, scale)| n > 0 && n.is_multiple_of(*scale));
    fits.map_or_else(|| zero.to_owned(), |(name, scale)| format!("{}{name}", n / scale))
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&in_units(u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX), &SPANS, "0s"))
    }
}

impl fmt::Display for SpanOrNever {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(span) => Span(span).fmt(f),
            None => f.write_str("never"),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&in_units(self.0, &SIZES, "0B"))
    }
}

macro_rules! as_text {
    ($($name:ident, $example:literal;)*) => { $(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(TextVisitor(PhantomData, $example))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )* };
}

as_text! {
    Span, "a duration with its unit, as \"20s\"";
    SpanOrNever, "a duration with its unit, as \"20s\", or \"never\"";
    Size, "a size with its unit, as \"64MiB\"";
}

/// Parses a text. The second field describes it, for the fault of another type.
struct TextVisitor<T>(PhantomData<T>, &'static str);

impl<T: FromStr<Err = String>> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.1)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

/// A size for a sentence: `3.4 MiB`, `512 B`.
pub fn human(bytes: u64) -> String {
    let (name, unit) = SIZES.into_iter().find(|(_, unit)| bytes >= *unit).unwrap_or(("B", 1));
    #[allow(clippy::cast_precision_loss, reason = "one decimal is shown")]
    let value = bytes as f64 / unit as f64;
    if unit == 1 || bytes.is_multiple_of(unit) {
        format!("{} {name}", bytes / unit)
    } else {
        format!("{value:.1} {name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_read_back() {
        for text in ["250ms", "5s", "10m", "2h", "3d", "7us", "1ns", "0s"] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
        }
        for text in ["512B", "3KiB", "64MiB", "4GiB", "2TiB", "0B"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
        assert_eq!("1.5s".parse::<Span>().unwrap().to_string(), "1500ms");
        assert_eq!("0.5GiB".parse::<Size>().unwrap().to_string(), "512MiB");
        assert_eq!("never".parse::<SpanOrNever>().unwrap(), SpanOrNever(None));
    }

    #[test]
    fn an_invalid_size_or_duration_is_refused_with_a_suggestion() {
        let size = |text: &str| text.parse::<Size>().unwrap_err();
        assert_eq!(size("24GB"), "\"24GB\" is not a size (did you mean \"24GiB\"?)");
        assert_eq!(size("lots"), "\"lots\" is not a size (as \"512KiB\", \"64MiB\", \"4GiB\")");
        assert_eq!("5".parse::<Span>().unwrap_err(), "\"5\" is not a duration: it needs a unit (did you mean \"5s\"?)");
        for text in ["", "s", "-5s", "5 s", "never", "1.s", "99999999999999d", "1.0000000001s"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }
}
