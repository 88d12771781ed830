//! The names of everything in Redis. All begin with `sequor:`, so that other programs can use the same database.

use crate::state::tier::record::TierKey;

/// The set of servers that are or were alive.
pub(super) const RUNS: &str = "sequor:runs";
/// The last epoch in use.
pub(super) const EPOCH: &str = "sequor:epoch";
/// The last epoch of a record. It counts for all records, so that a sequence that begins again does not get an epoch twice.
pub(super) const RECORD_EPOCH: &str = "sequor:claims";
/// The successions, by model.
pub(super) const SUCCESSIONS: &str = "sequor:successions";
/// The heartbeat of a server, followed by its run. Its value is the heartbeat's life and the server's node.
pub(super) const BEAT: &str = "sequor:run:";
/// The sequences of a server, followed by its run.
pub(super) const OWNED: &str = "sequor:owned:";
/// The record of a sequence, followed by its key.
pub(super) const RECORD: &str = "sequor:seq:";
/// How a sequence has ended, followed by its key.
const END: &str = "sequor:end:";
/// Prefix of the channel on which a server is asked for sequences. The name of its run follows.
pub(super) const CHANNEL: &str = "sequor:yield:";
/// A state: the run that wrote it, and a number.
const BLOB: &str = "sequor:blob:";

fn of_key(kind: &str, key: &TierKey) -> Vec<u8> {
    let mut name = kind.as_bytes().to_vec();
    name.extend_from_slice(&key.encode());
    name
}

pub(super) fn record(key: &TierKey) -> Vec<u8> {
    of_key(RECORD, key)
}

pub(super) fn end(key: &TierKey) -> Vec<u8> {
    of_key(END, key)
}

pub(super) fn beat(run: &str) -> String {
    format!("{BEAT}{run}")
}

/// The node in the value of a heartbeat, `LIFE:NODE`.
pub(super) fn node_of(beat: String) -> String {
    beat.split_once(':').map(|(_, node)| node.to_owned()).unwrap_or(beat)
}

pub(super) fn owned(run: &str) -> String {
    format!("{OWNED}{run}")
}

pub(super) fn channel(run: &str) -> String {
    format!("{CHANNEL}{run}")
}

pub(super) fn blob(run: &str, number: u64) -> String {
    format!("{BLOB}{run}:{number}")
}

/// A name of each kind, of which there is nothing, with the pattern of its kind.
pub(super) fn kinds(run: &str) -> Vec<(String, String)> {
    let whole = [RUNS, EPOCH, RECORD_EPOCH, SUCCESSIONS].map(|name| (name.to_owned(), name.to_owned()));
    let begun = [BEAT, OWNED, RECORD, END, BLOB].map(|kind| (format!("{kind}{run}"), format!("{kind}*")));
    whole.into_iter().chain(begun).collect()
}

/// A pattern for the records of a model. Signs with a meaning in patterns are escaped.
pub(super) fn records_of(model: &str) -> Vec<u8> {
    let mut pattern = RECORD.as_bytes().to_vec();
    for byte in model.bytes() {
        if matches!(byte, b'*' | b'?' | b'[' | b']' | b'\\' | b'^' | b'-') {
            pattern.push(b'\\');
        }
        pattern.push(byte);
    }
    pattern.extend_from_slice(b"\0*");
    pattern
}
