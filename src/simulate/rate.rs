//! A rate, as a count in a time: `2000/s`, `64/500ms`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::config::units::Span;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    pub count: f64,
    pub per: Duration,
}

impl Rate {
    /// The mean time between two events.
    pub fn gap(self) -> Duration {
        self.per.div_f64(self.count)
    }

    /// The expected number of events in this time.
    pub fn within(self, span: Duration) -> f64 {
        self.count * span.as_secs_f64() / self.per.as_secs_f64()
    }
}

impl FromStr for Rate {
    type Err = String;
    fn from_str(text: &str) -> Result<Rate, String> {
        let wrong = || format!("\"{text}\" is not a rate (as \"2000/s\", \"64/500ms\")");
        let (count, unit) = text.split_once('/').ok_or_else(wrong)?;
        let count: f64 = count.trim().parse().map_err(|_| wrong())?;
        let unit = unit.trim();
        let Span(per) = unit.parse().or_else(|_| format!("1{unit}").parse()).map_err(|_: String| wrong())?;
        if !(count.is_finite() && count > 0.0) || per.is_zero() {
            return Err(wrong());
        }
        Ok(Rate { count, per })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per = Span(self.per).to_string();
        write!(
            f,
            "{}/{}",
            self.count,
            per.strip_prefix('1').filter(|u| !u.starts_with(|c: char| c.is_ascii_digit())).unwrap_or(&per)
        )
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_read_back() {
        for text in ["2000/s", "64/500ms", "0.5/m", "1/10s"] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
        let rate: Rate = "64/500ms".parse().unwrap();
        assert_eq!((rate.gap(), rate.within(Duration::from_secs(2))), (Duration::from_nanos(7_812_500), 256.0));
    }

    #[test]
    fn invalid_rates_are_refused() {
        for text in ["2000", "/s", "0/s", "-1/s", "1/0s", "NaN/s", "1/x", "inf/s"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }
}
