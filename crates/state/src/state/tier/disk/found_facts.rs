//! The facts about stored states that a file has when it is opened. A file whose facts cannot be read is not changed.

use std::collections::HashMap;
use std::sync::Arc;

use redb::{Database, ReadableTable as _};

use super::commit_plan::KeptHeads;
use super::tables::{
    ENDED, ENDS, HEADS, NUMBERS, STATES, SUCCESSIONS, begin_running, compact_ends, cut_whole_states, read_successions,
};
use crate::state::tier::error::TierError;
use crate::state::tier::record::{StateHead, TierKey};

/// The heads by key, and the bytes of their files.
type FoundHeads = (HashMap<TierKey, Arc<StateHead>>, u64);

/// Reads the facts and records the start of a server, in one commit. `len` is the size of the file.
pub(super) fn read_facts(
    database: &Database,
    (path, len): (&str, u64),
    limit: u64,
) -> Result<Result<KeptHeads, TierError>, redb::Error> {
    let write = database.begin_write()?;
    write.open_table(STATES)?;
    let (heads, used) = match found_heads(&write, path, len)? {
        Ok(found) => found,
        Err(error) => return Ok(Err(error)),
    };
    cut_whole_states(&write)?;
    let ended = compact_ends(&mut write.open_table(ENDED)?)?;
    let successions = read_successions(&write.open_table(SUCCESSIONS)?)?;
    let last = heads.values().map(|head| head.running).max();
    let running = begin_running(&mut write.open_table(NUMBERS)?, last.unwrap_or_default())?;
    write.commit()?;
    let next_end = u32::try_from(ended.len()).unwrap_or(0) % ENDS;
    Ok(Ok(KeptHeads { heads, used, ended, successions, running, next_end, limit, ..KeptHeads::default() }))
}

fn found_heads(
    write: &redb::WriteTransaction,
    path: &str,
    len: u64,
) -> Result<Result<FoundHeads, TierError>, redb::Error> {
    let (mut heads, mut used) = (HashMap::new(), 0_u64);
    for row in write.open_table(HEADS)?.iter()? {
        let (key, head) = row?;
        let head = match read_head(path, head.value()) {
            Ok(head) => head,
            Err(error) => return Ok(Err(error)),
        };
        let Some(key) = TierKey::decode(key.value()) else { return Ok(Err(damaged(path, "a key cannot be read"))) };
        used = used.saturating_add(head.bytes);
        // Memory for a state is taken by the size that its head names.
        if used > len {
            return Ok(Err(damaged(path, "its heads name more bytes than it has")));
        }
        heads.insert(key, Arc::new(head));
    }
    Ok(Ok((heads, used)))
}

/// Reads a head of this file.
pub(super) fn read_head(path: &str, head: &[u8]) -> Result<StateHead, TierError> {
    if let Some(layout) = StateHead::later_layout(head) {
        let what = format!("a head of layout {layout}");
        return Err(TierError::OtherVersion { path: path.to_owned(), what });
    }
    StateHead::decode(head).ok_or_else(|| damaged(path, "a head cannot be read"))
}

fn damaged(path: &str, what: &str) -> TierError {
    TierError::Damaged { path: path.to_owned(), what: what.to_owned() }
}
