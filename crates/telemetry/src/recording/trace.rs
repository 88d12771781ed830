//! The lines of a recorded trace: one JSON object a line. A recording server writes them and the simulator reads them. They contain no
//! tensors and no correlation ids. Ids are hashed with a key that is new for each recording and stored nowhere.

use std::borrow::Cow;
use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The format's version.
pub const FORMAT: u32 = 1;

/// Any line of a trace.
#[derive(Debug, Clone, PartialEq)]
pub enum TraceLine<'a> {
    Head(Head),
    Load(Load<'a>),
    Request(RecordedRequest<'a>),
}

/// The first line of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    pub sequor_trace: u32,
    /// Microseconds from 1970 to time zero of this file.
    pub zero_unix_us: u64,
}

/// A served version of a model, with its scheduling parameters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load<'a> {
    #[serde(borrow)]
    pub load: Cow<'a, str>,
    pub version: u64,
    /// `oldest`, `direct`, `dynamic`, `default`.
    #[serde(borrow)]
    pub strategy: Cow<'a, str>,
    pub instances: u16,
    /// Slots of one instance; 0 if the model is stateless.
    pub slots: u32,
    pub max_batch: u32,
    pub delay_us: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_us: Option<u64>,
}

/// A request that was answered or refused. An absent key means 0, false or none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedRequest<'a> {
    /// Arrival, in microseconds since time zero.
    pub t: u64,
    #[serde(borrow)]
    pub model: Cow<'a, str>,
    pub version: u64,
    /// Hash of the correlation id; none for a stateless request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<Hash>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub start: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub end: bool,
    /// Bytes of all inputs.
    #[serde(default, skip_serializing_if = "is_default")]
    pub bytes: u64,
    /// Class of the inputs' shapes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<Hash>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_us: Option<u64>,
    /// Time from arrival until its batch was taken, or until it was refused.
    pub queue_us: u64,
    /// Time from then until its answer.
    #[serde(default, skip_serializing_if = "is_default")]
    pub run_us: u64,
    /// Number of requests in its batch; 0 if it was refused.
    #[serde(default, skip_serializing_if = "is_default")]
    pub batch: u32,
    /// `ok`, `failed`, or the reason of the refusal.
    #[serde(borrow)]
    pub outcome: Cow<'a, str>,
    /// The tenant that the scheduler sees.
    #[serde(default, borrow, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Cow<'a, str>>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// 64 bits, written as 16 hexadecimal digits, because many JSON readers round large numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(pub u64);

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        u64::from_str_radix(&text, 16)
            .map(Hash)
            .map_err(|_| D::Error::custom(format!("\"{text}\" is no hash: 16 hexadecimal digits")))
    }
}

/// Parses a line.
pub fn read(line: &str) -> Result<TraceLine<'_>, String> {
    // Nearly all lines are requests.
    let error = match serde_json::from_str(line) {
        Ok(request) => return Ok(TraceLine::Request(request)),
        Err(error) => error,
    };
    if let Ok(head) = serde_json::from_str::<Head>(line) {
        return match head.sequor_trace {
            FORMAT => Ok(TraceLine::Head(head)),
            other => Err(format!("the trace is of format {other}; this version reads format {FORMAT}")),
        };
    }
    serde_json::from_str(line).map(TraceLine::Load).map_err(|_| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> RecordedRequest<'static> {
        RecordedRequest {
            t: 12,
            model: "vad".into(),
            version: 1,
            seq: Some(Hash(0xab)),
            start: true,
            end: false,
            bytes: 2304,
            shape: None,
            priority: 0,
            timeout_us: Some(5000),
            queue_us: 31,
            run_us: 600,
            batch: 3,
            outcome: "ok".into(),
            tenant: None,
        }
    }

    #[test]
    fn a_line_is_short_and_reads_back() {
        let text = serde_json::to_string(&request()).unwrap();
        let expected = r#"{"t":12,"model":"vad","version":1,"seq":"00000000000000ab","start":true,"bytes":2304,"timeout_us":5000,"queue_us":31,"run_us":600,"batch":3,"outcome":"ok"}"#;
        assert_eq!(text, expected);
        assert_eq!(read(&text), Ok(TraceLine::Request(request())));
    }

    #[test]
    fn trace_heads_and_loads_are_distinguished_from_requests() {
        let head = Head { sequor_trace: FORMAT, zero_unix_us: 7 };
        assert_eq!(read(&serde_json::to_string(&head).unwrap()), Ok(TraceLine::Head(head)));
        let load = Load {
            load: "vad".into(),
            version: 1,
            strategy: "direct".into(),
            instances: 1,
            slots: 4,
            max_batch: 4,
            delay_us: 0,
            idle_us: None,
        };
        assert_eq!(read(&serde_json::to_string(&load).unwrap()), Ok(TraceLine::Load(load)));
        assert!(read(r#"{"sequor_trace":9,"zero_unix_us":0}"#).unwrap_err().contains("format 9"));
        assert!(read(r#"{"t":1,"model":"x"}"#).unwrap_err().contains("missing field"));
        assert!(
            read(&serde_json::to_string(&request()).unwrap().replace("ab\"", "xy\""))
                .unwrap_err()
                .contains("is no hash")
        );
    }
}
