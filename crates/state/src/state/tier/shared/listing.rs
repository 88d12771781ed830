//! Lists sequences that belong to no server, in portions, looks up one sequence, and checks that Redis keeps what it is given.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Value;
use sequor_core::Id;

use super::keys;
use super::link::{Bundle, RedisLink};
use super::scripts::{bytes, number, text};
use crate::state::tier::error::TierError;
use crate::state::tier::record::{StateHead, TierKey};

/// Keys that Redis looks at for one portion.
const PORTION: &[u8] = b"1000";
/// Maximum time for a list.
const PATIENCE: Duration = Duration::from_secs(2);

/// A sequence without an owner, and the idle time that it has left.
pub type UnownedSequence = (Id, Arc<StateHead>, Option<Duration>);

/// One sequence of the servers that share the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedSequence {
    /// The other server that has it. `None`: its next step may go on from its state on any server.
    pub node: Option<String>,
    /// The facts about its stored state, and the idle time that it has left. A server that has the sequence may not have stored a state yet.
    pub stored: Option<(Arc<StateHead>, Option<Duration>)>,
}

/// Looks up one sequence. `run` is this server. `None` if no other server has it and it has no state.
pub(super) fn find(link: &mut RedisLink, key: &TierKey, run: &str) -> Result<Option<SharedSequence>, TierError> {
    let record = keys::record(key);
    let mut bundle = Bundle::new();
    bundle.command("HMGET", &[&record, b"owner", b"head"]);
    bundle.command("PTTL", &[&record]);
    let answers = link.send(&bundle)?;
    let [Value::Array(fields), left] = answers.as_slice() else {
        return Err(link.unexpected(answers.first().unwrap_or(&Value::Nil)));
    };
    let head = fields.get(1).and_then(|head| StateHead::decode(bytes(head)?));
    let left = number(left).and_then(|left| u64::try_from(left).ok()).map(Duration::from_millis);
    let owner = fields.first().and_then(text).filter(|owner| !owner.is_empty() && owner != run);
    // A server that has failed has no heartbeat any more. Then the next step takes its sequence over.
    let node = match owner {
        Some(owner) => {
            let mut beat = Bundle::new();
            beat.command("GET", &[keys::beat(&owner).as_bytes()]);
            link.send(&beat)?.first().and_then(text).map(keys::node_of)
        }
        None => None,
    };
    let found = SharedSequence { node, stored: head.map(|head| (Arc::new(head), left)) };
    Ok(Some(found).filter(|found| found.node.is_some() || found.stored.is_some()))
}

/// Stored sequences of a model without an owner. Stops after so many, or when it takes too long.
pub(super) fn unowned(link: &mut RedisLink, model: &str, most: usize) -> Result<Vec<UnownedSequence>, TierError> {
    let (pattern, until) = (keys::records_of(model), Instant::now() + PATIENCE);
    let (mut cursor, mut all) = ("0".to_owned(), Vec::new());
    loop {
        let mut scan = Bundle::new();
        scan.command("SCAN", &[cursor.as_bytes(), b"MATCH", &pattern, b"COUNT", PORTION]);
        let answer = link.send(&scan)?.pop().unwrap_or(Value::Nil);
        let Value::Array(parts) = &answer else { return Err(link.unexpected(&answer)) };
        let [next, Value::Array(found)] = parts.as_slice() else { return Err(link.unexpected(&answer)) };
        let records: Vec<&[u8]> = found.iter().filter_map(bytes).collect();
        all.extend(portion(link, &records)?);
        cursor = text(next).unwrap_or_default();
        if cursor == "0" || cursor.is_empty() || all.len() >= most || Instant::now() >= until {
            all.truncate(most);
            return Ok(all);
        }
    }
}

fn portion(link: &mut RedisLink, records: &[&[u8]]) -> Result<Vec<UnownedSequence>, TierError> {
    let mut bundle = Bundle::new();
    for record in records {
        bundle.command("HMGET", &[record, b"owner", b"head"]);
        bundle.command("PTTL", &[record]);
    }
    let answers = link.send(&bundle)?;
    let one = |(record, pair): (&&[u8], &[Value])| {
        let [Value::Array(fields), left] = pair else { return None };
        let (owner, head) = (text(fields.first()?)?, StateHead::decode(bytes(fields.get(1)?)?)?);
        let key = TierKey::decode(record.strip_prefix(keys::RECORD.as_bytes())?)?;
        let left = u64::try_from(number(left)?).ok().map(Duration::from_millis);
        owner.is_empty().then(|| (key.id, Arc::new(head), left))
    };
    Ok(records.iter().zip(answers.chunks(2)).filter_map(one).collect())
}

/// Warns if Redis may drop states when its memory is full. A Redis that does not say so is not asked again.
pub(super) fn check_policy(link: &mut RedisLink) {
    let mut bundle = Bundle::new();
    bundle.command("CONFIG", &[b"GET", b"maxmemory-policy"]);
    let Ok(answers) = link.send(&bundle) else { return };
    let policy = match answers.first() {
        Some(Value::Array(pair)) => pair.get(1).and_then(text),
        Some(Value::Map(pairs)) => pairs.first().and_then(|(_, policy)| text(policy)),
        _ => None,
    };
    if let Some(policy) = policy.filter(|policy| policy != "noeviction") {
        tracing::warn!(policy, "Redis may drop states when its memory is full; set its maxmemory-policy to noeviction");
    }
}
