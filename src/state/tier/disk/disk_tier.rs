//! Keeps states on disk, in an embedded store: a copy-on-write B-tree in one file, so that a commit is complete or absent.
//!
//! Heads are in memory as well, so the lookup of an id that is not stored costs no read. A failed write or a panic of the store closes the
//! file. The next use opens it again, as after a crash. A commit that has failed may be in the file all the same, so the heads of its keys are
//! read again before the next use of one.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::Mutex;
use redb::{Database, ReadableDatabase as _, ReadableTable as _};
use sequor_core::Id;

use super::commit_plan::KeptHeads;
use super::pieces::{PieceKey, pieces};
use super::tables::{
    ENDED, ENDS, HEADS, NUMBERS, STATES, SUCCESSIONS, begin_running, compact_ends, cut_whole_states, next_epoch,
    read_heads, read_successions, write,
};
use crate::state::tier::contract::{FoundState, RunningTime, Tier, TierChange, TierUsage};
use crate::state::tier::error::TierError;
use crate::state::tier::record::{EndedState, StateHead, TierKey};
use crate::state::tier::succession::Successions;

/// Opens the file, at the start and after a failed write.
pub(in crate::state::tier) type OpenDatabase = dyn Fn() -> Result<Database, TierError> + Send + Sync;

pub struct DiskTier {
    path: String,
    open: Box<OpenDatabase>,
    /// `None` if the file must be opened again.
    database: Mutex<Option<Arc<Database>>>,
    /// Held for a whole commit and for each read, so that heads and files agree.
    commit: Mutex<()>,
    /// Not locked while the disk works, so a caller that reads it may hold a lock of its own.
    kept: Mutex<KeptHeads>,
}

impl fmt::Debug for DiskTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskTier").field("path", &self.path).finish_non_exhaustive()
    }
}

impl DiskTier {
    /// Opens a store and reads its heads.
    pub(in crate::state::tier) fn open(
        path: String,
        open: Box<OpenDatabase>,
        limit: u64,
    ) -> Result<DiskTier, TierError> {
        let kept = KeptHeads { limit, ..KeptHeads::default() };
        let tier = DiskTier { path, open, database: Mutex::new(None), commit: Mutex::new(()), kept: Mutex::new(kept) };
        let (heads, ended, successions, running) = tier.with(|database| {
            let write = database.begin_write()?;
            write.open_table(STATES)?;
            cut_whole_states(&write)?;
            let heads: Vec<(Vec<u8>, Vec<u8>)> = {
                let table = write.open_table(HEADS)?;
                let rows: Result<Vec<_>, redb::StorageError> = table
                    .iter()?
                    .map(|row| row.map(|(key, head)| (key.value().to_vec(), head.value().to_vec())))
                    .collect();
                rows?
            };
            let ended = compact_ends(&mut write.open_table(ENDED)?)?;
            let successions = read_successions(&write.open_table(SUCCESSIONS)?)?;
            let last = heads.iter().filter_map(|(_, head)| Some(StateHead::decode(head)?.running)).max();
            let running = begin_running(&mut write.open_table(NUMBERS)?, last.unwrap_or_default())?;
            write.commit()?;
            Ok((heads, ended, successions, running))
        })?;
        let damaged = || TierError::Damaged { path: tier.path.clone(), what: "a head cannot be read".to_owned() };
        {
            let mut kept = tier.kept.lock();
            kept.next_end = u32::try_from(ended.len()).unwrap_or(0) % ENDS;
            (kept.ended, kept.successions, kept.running) = (ended, successions, running);
            for (key, head) in heads {
                let (key, head) = TierKey::decode(&key).zip(StateHead::decode(&head)).ok_or_else(damaged)?;
                kept.used += head.bytes;
                kept.heads.insert(key, Arc::new(head));
            }
        }
        Ok(tier)
    }

    /// The number of all pieces.
    #[cfg(test)]
    pub(in crate::state::tier) fn pieces(&self) -> Result<u64, TierError> {
        use redb::ReadableTableMetadata as _;
        self.with(|database| Ok(database.begin_read()?.open_table(STATES)?.len()?))
    }

    /// Returns free space of the file to the file system.
    pub(in crate::state::tier) fn compact(&self) -> Result<(), TierError> {
        let mut at = self.database.lock();
        let Some(mut database) = at.take().and_then(Arc::into_inner) else { return Ok(()) };
        let compacted = database.compact();
        *at = Some(Arc::new(database));
        compacted.map(drop).map_err(|e| TierError::io(self.path.clone(), &e))
    }

    /// Reads the heads of these keys again, if the file may have others than are known here.
    fn look_again<'a>(&self, keys: impl Iterator<Item = &'a TierKey>) -> Result<(), TierError> {
        let unsure = self.kept.lock().unsure_of(keys);
        if unsure.is_empty() {
            return Ok(());
        }
        let heads = self.with(|database| read_heads(database, &unsure))?;
        let mut kept = self.kept.lock();
        for (key, head) in unsure.into_iter().zip(heads) {
            let damaged = || TierError::Damaged { path: self.path.clone(), what: "a head cannot be read".to_owned() };
            let head = head.map(|head| StateHead::decode(&head).ok_or_else(damaged)).transpose()?;
            kept.set_found(key, head);
        }
        Ok(())
    }

    /// Runs `work` on the store. If it fails, the next use opens the store again, because a store accepts no write after a failed one.
    fn with<T>(&self, work: impl FnOnce(&Database) -> Result<T, redb::Error>) -> Result<T, TierError> {
        let damaged = |what: String| TierError::Damaged { path: self.path.clone(), what };
        let database = {
            let mut at = self.database.lock();
            match &*at {
                Some(database) => Arc::clone(database),
                None => {
                    let opened = catch_unwind(AssertUnwindSafe(|| (self.open)()));
                    let database =
                        Arc::new(opened.map_err(|_| damaged("its pages contradict each other".to_owned()))??);
                    *at = Some(Arc::clone(&database));
                    database
                }
            }
        };
        // The store panics if a page that it trusts is not as it was written.
        let done = catch_unwind(AssertUnwindSafe(|| work(&database)));
        drop(database);
        done.unwrap_or_else(|_| Err(redb::Error::Corrupted("its pages contradict each other".to_owned()))).map_err(
            |e| {
                drop(self.database.lock().take());
                match e {
                    redb::Error::Corrupted(what) => damaged(what),
                    other => TierError::io(self.path.clone(), &other),
                }
            },
        )
    }
}

/// The key of the state that a change is of.
fn key_of_state(change: &TierChange) -> Option<&TierKey> {
    match change {
        TierChange::Put { key, .. } | TierChange::Remove { key, .. } => Some(key),
        _ => None,
    }
}

impl Tier for DiskTier {
    fn get(&self, key: &TierKey) -> FoundState {
        let _commit = self.commit.lock();
        self.look_again(std::iter::once(key))?;
        let Some(head) = self.kept.lock().heads.get(key).cloned() else { return Ok(None) };
        let mut at = PieceKey::new(key.encode());
        let file = self.with(|database| {
            let table = database.begin_read()?.open_table(STATES)?;
            let mut file = Vec::with_capacity(usize::try_from(head.bytes).unwrap_or(0));
            for (n, _) in pieces(head.bytes) {
                // A missing piece makes the checksum wrong.
                table.get(at.for_piece(n))?.iter().for_each(|piece| file.extend_from_slice(piece.value()));
            }
            Ok(file)
        })?;
        if head.fits(&file) { Ok(Some((head, file))) } else { Err(TierError::Checksum { step: head.step }) }
    }

    fn put_batch(&self, changes: &[TierChange]) -> Result<Vec<usize>, TierError> {
        let _commit = self.commit.lock();
        if self.kept.lock().closed {
            return Err(TierError::Closed);
        }
        self.look_again(changes.iter().filter_map(key_of_state))?;
        let (plan, before) = {
            let kept = self.kept.lock();
            let plan = kept.plan(changes);
            let before = |key: &TierKey| kept.heads.get(key).map_or(0, |head| head.bytes);
            let before: Vec<u64> = plan.writes.iter().map(|(key, _)| before(key)).collect();
            (plan, before)
        };
        if plan.is_empty() {
            return Ok(plan.too_large);
        }
        let written = self.with(|database| write(database, &plan, &before));
        let mut kept = self.kept.lock();
        let next_end = match written {
            Ok(next_end) => next_end,
            Err(error) => {
                kept.unsure.extend(plan.writes.into_iter().map(|(key, _)| key.clone()));
                return Err(error);
            }
        };
        (kept.used, kept.next_end) = (plan.used, next_end);
        let successions = plan.successions.into_iter().map(|(model, of_model)| (model.to_owned(), of_model.clone()));
        kept.successions.extend(successions);
        for (key, new) in plan.writes {
            match new {
                Some((head, _)) => kept.heads.insert(key.clone(), Arc::clone(head)),
                None => kept.heads.remove(key),
            };
        }
        Ok(plan.too_large)
    }

    fn head(&self, key: &TierKey) -> Option<Arc<StateHead>> {
        self.kept.lock().heads.get(key).cloned()
    }

    fn may_have(&self, key: &TierKey, incarnation: u64) -> bool {
        let kept = self.kept.lock();
        kept.unsure.contains(key) || kept.heads.get(key).is_some_and(|head| head.incarnation <= incarnation)
    }

    fn list(&self, model: &str) -> Vec<(Id, Arc<StateHead>)> {
        let kept = self.kept.lock();
        let of_model = kept.heads.iter().filter(|(key, _)| key.model == model);
        of_model.map(|(key, head)| (key.id.clone(), head.clone())).collect()
    }

    fn take_ended(&self, model: &str) -> Vec<(Id, EndedState)> {
        let mut kept = self.kept.lock();
        let of_model = kept.ended.extract_if(.., |(key, _)| key.model == model);
        of_model.map(|(key, ended)| (key.id, ended)).collect()
    }

    fn successions(&self, model: &str) -> Successions {
        self.kept.lock().successions.get(model).cloned().unwrap_or_default()
    }

    fn running_time(&self) -> RunningTime {
        self.kept.lock().running
    }

    fn free_bytes(&self) -> Option<u64> {
        let of = rustix::fs::statvfs(self.path.as_str()).ok()?;
        Some(of.f_bavail.saturating_mul(of.f_frsize))
    }

    fn usage(&self) -> TierUsage {
        let kept = self.kept.lock();
        TierUsage { states: kept.heads.len(), bytes: kept.used, limit: kept.limit }
    }

    fn next_epoch(&self, least: u64) -> Result<u64, TierError> {
        let _commit = self.commit.lock();
        self.with(|database| {
            let write = database.begin_write()?;
            let epoch = next_epoch(&mut write.open_table(NUMBERS)?, least)?;
            write.commit()?;
            Ok(epoch)
        })
    }

    fn close(&self) {
        let _commit = self.commit.lock();
        self.kept.lock().closed = true;
        drop(self.database.lock().take());
    }
}
