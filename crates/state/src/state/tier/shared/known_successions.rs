//! The successions of all models, as this server knows them, and the command that changes those of a model in Redis.

use std::collections::HashMap;

use parking_lot::Mutex;
use redis::Value;

use super::keys;
use super::link::{Bundle, RedisLink};
use super::scripts::RecordScript;
use crate::state::tier::error::TierError;
use crate::state::tier::succession::Successions;

/// The successions of a model, as this server knows them.
#[derive(Debug, Default)]
struct ModelSuccessions {
    /// Those that were read once, or that this server wrote last.
    list: Successions,
    /// Whether they could be read when the model asked first. If not, they are never taken from here, but read each time.
    is_read: bool,
    /// Lists that this server wrote without an answer. Redis may have any of their entries.
    tried: Vec<Successions>,
}

/// The successions of all models.
#[derive(Debug, Default)]
pub(super) struct KnownSuccessions(Mutex<HashMap<String, ModelSuccessions>>);

impl KnownSuccessions {
    /// The successions of a model. They are read once from Redis, so later changes of other servers are not seen.
    pub(super) fn of(&self, model: &str, link: &Mutex<RedisLink>) -> Successions {
        if let Some(known) = self.0.lock().get(model).filter(|known| known.is_read) {
            return known.list.clone();
        }
        let found = read(model, &mut link.lock());
        let mut all = self.0.lock();
        match found {
            // A model that was given none before knows none of these. So they are not taken for what it knows.
            Ok(found) if all.contains_key(model) => found,
            Ok(list) => {
                let known = ModelSuccessions { list: list.clone(), is_read: true, tried: Vec::new() };
                all.insert(model.to_owned(), known);
                list
            }
            Err(error) => {
                tracing::warn!(model, %error, "which version goes on from which is unknown: stored sequences of earlier versions may be refused");
                all.entry(model.to_owned()).or_default().list.clone()
            }
        }
    }

    /// Adds the command that brings the successions of a model to this list. Changes only what this server has changed, because others may
    /// have changed something else.
    pub(super) fn add_command(&self, bundle: &mut Bundle, model: &str, after: &Successions) {
        let mut all = self.0.lock();
        let known = all.entry(model.to_owned()).or_default();
        let earlier = known.tried.iter().chain([&known.list]);
        let removed: Vec<u8> = earlier.flat_map(|list| list.without(after).encode()).collect();
        let added = if known.tried.is_empty() { after.without(&known.list) } else { after.clone() };
        bundle.script(
            RecordScript::Succeed,
            &[keys::SUCCESSIONS.as_bytes()],
            &[model.as_bytes(), &removed, &added.encode()],
        );
        if !known.tried.contains(after) {
            known.tried.push(after.clone());
        }
    }

    /// Records that Redis has this list now.
    pub(super) fn written(&self, model: String, list: Successions) {
        let mut all = self.0.lock();
        let known = all.entry(model).or_default();
        (known.list, known.tried) = (list, Vec::new());
    }
}

/// Reads the successions of a model from Redis.
fn read(model: &str, link: &mut RedisLink) -> Result<Successions, TierError> {
    let mut bundle = Bundle::new();
    bundle.command("HGET", &[keys::SUCCESSIONS.as_bytes(), model.as_bytes()]);
    match link.send(&bundle)?.pop() {
        Some(Value::BulkString(written)) => Ok(Successions::decode(&written).unwrap_or_default()),
        None | Some(Value::Nil) => Ok(Successions::default()),
        Some(other) => Err(link.unexpected(&other)),
    }
}
