//! States on disk, in an embedded store: a copy-on-write B-tree in one file, so that a commit is whole or not there.
//!
//! Heads are in memory as well, so an id that is not kept costs no read. A failed write or a panic of the store closes the file; the next use opens
//! it again, as after a crash.

use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::Mutex;
use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use sequor_core::Id;

use super::contract::{Tier, TierChange, TierUsage};
use super::error::TierError;
use super::record::{StateHead, TierKey};

type Slice = &'static [u8];

const HEADS: TableDefinition<'_, Slice, Slice> = TableDefinition::new("heads");
const STATES: TableDefinition<'_, Slice, Slice> = TableDefinition::new("states");
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");
const EPOCH: &str = "epoch";

/// Opens the file, at the start and after a failed write.
pub(super) type OpenDatabase = dyn Fn() -> Result<Database, TierError> + Send + Sync;

pub struct DiskTier {
    path: String,
    open: Box<OpenDatabase>,
    /// `None`: to be opened again.
    database: Mutex<Option<Arc<Database>>>,
    /// Held for a whole commit, so that memory and disk agree.
    kept: Mutex<KeptHeads>,
}

struct KeptHeads {
    heads: HashMap<TierKey, StateHead>,
    /// Slice of all files.
    used: u64,
    limit: u64,
    closed: bool,
}

/// The new state under a key; `None` removes it.
type NewState<'a> = Option<(&'a StateHead, &'a [u8])>;

/// What the changes of a batch come to: the writes to make, and the heads after it.
struct CommitPlan<'a> {
    writes: Vec<(&'a TierKey, NewState<'a>)>,
    used: u64,
    too_large: Vec<usize>,
}

impl fmt::Debug for DiskTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskTier").field("path", &self.path).finish_non_exhaustive()
    }
}

impl DiskTier {
    /// Opens a store and reads its heads.
    pub(super) fn open(path: String, open: Box<OpenDatabase>, limit: u64) -> Result<DiskTier, TierError> {
        let kept = KeptHeads { heads: HashMap::new(), used: 0, limit, closed: false };
        let tier = DiskTier { path, open, database: Mutex::new(None), kept: Mutex::new(kept) };
        let heads = tier.with(|database| {
            let write = database.begin_write()?;
            write.open_table(STATES)?;
            write.open_table(NUMBERS)?;
            let heads = {
                let table = write.open_table(HEADS)?;
                let rows: Result<Vec<_>, redb::StorageError> = table
                    .iter()?
                    .map(|row| row.map(|(key, head)| (key.value().to_vec(), head.value().to_vec())))
                    .collect();
                rows?
            };
            write.commit()?;
            Ok(heads)
        })?;
        let damaged = || TierError::Damaged { path: tier.path.clone(), what: "a head cannot be read".to_owned() };
        {
            let mut kept = tier.kept.lock();
            for (key, head) in heads {
                let (key, head) = TierKey::decode(&key).zip(StateHead::decode(&head)).ok_or_else(damaged)?;
                kept.used += head.bytes;
                kept.heads.insert(key, head);
            }
        }
        Ok(tier)
    }

    /// Gives free space of the file back to the file system.
    pub(super) fn compact(&self) -> Result<(), TierError> {
        let mut at = self.database.lock();
        let Some(mut database) = at.take().and_then(Arc::into_inner) else { return Ok(()) };
        let compacted = database.compact();
        *at = Some(Arc::new(database));
        compacted.map(drop).map_err(|e| TierError::Io { path: self.path.clone(), what: e.to_string() })
    }

    /// Does this with the store. If that fails, the store is opened again for the next use: after a failed write it takes no further one.
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
        // The store panics where a page that it trusts is not as it was written.
        let done = catch_unwind(AssertUnwindSafe(|| work(&database)));
        drop(database);
        done.unwrap_or_else(|_| Err(redb::Error::Corrupted("its pages contradict each other".to_owned()))).map_err(
            |e| {
                drop(self.database.lock().take());
                match e {
                    redb::Error::Corrupted(what) => damaged(what),
                    other => TierError::Io { path: self.path.clone(), what: other.to_string() },
                }
            },
        )
    }
}

impl KeptHeads {
    /// What of these changes is to be written: in order, the last one of a key alone.
    fn plan<'a>(&self, changes: &'a [TierChange]) -> CommitPlan<'a> {
        let mut after: HashMap<&TierKey, NewState<'_>> = HashMap::new();
        let (mut used, mut too_large) = (self.used, Vec::new());
        for (n, change) in changes.iter().enumerate() {
            let (key, new) = match change {
                TierChange::Put { key, head, file } => (key, Some((head, file.as_slice()))),
                TierChange::Remove { key, .. } => (key, None),
            };
            let incarnation = match change {
                TierChange::Put { head, .. } => head.incarnation,
                TierChange::Remove { incarnation, .. } => *incarnation,
            };
            let now = match after.get(key) {
                Some(now) => now.map(|(head, _)| head),
                None => self.heads.get(key),
            };
            if now.is_some_and(|head| head.incarnation > incarnation) || (now.is_none() && new.is_none()) {
                continue;
            }
            let (freed, more) = (now.map_or(0, |head| head.bytes), new.map_or(0, |(head, _)| head.bytes));
            let sum = used.saturating_sub(freed).saturating_add(more);
            // A state that takes no more than before is written also where the limit was lowered.
            if more > freed && sum > self.limit {
                too_large.push(n);
                continue;
            }
            used = sum;
            after.insert(key, new);
        }
        CommitPlan { writes: after.into_iter().collect(), used, too_large }
    }
}

impl Tier for DiskTier {
    fn get(&self, key: &TierKey) -> Result<Option<(StateHead, Vec<u8>)>, TierError> {
        let Some(head) = self.kept.lock().heads.get(key).cloned() else { return Ok(None) };
        let at = key.encode();
        let file = self.with(|database| {
            let table = database.begin_read()?.open_table(STATES)?;
            Ok(table.get(at.as_slice())?.map(|file| file.value().to_vec()))
        })?;
        match file {
            Some(file) if head.fits(&file) => Ok(Some((head, file))),
            _ => Err(TierError::Checksum { step: head.step }),
        }
    }

    fn put_batch(&self, changes: &[TierChange]) -> Result<Vec<usize>, TierError> {
        let mut kept = self.kept.lock();
        if kept.closed {
            return Err(TierError::Closed);
        }
        let CommitPlan { writes, used, too_large } = kept.plan(changes);
        if writes.is_empty() {
            return Ok(too_large);
        }
        self.with(|database| {
            let write = database.begin_write()?;
            {
                let (mut heads, mut states) = (write.open_table(HEADS)?, write.open_table(STATES)?);
                for (key, new) in &writes {
                    let key = key.encode();
                    match new {
                        Some((head, file)) => {
                            heads.insert(key.as_slice(), head.encode().as_slice())?;
                            states.insert(key.as_slice(), *file)?;
                        }
                        None => {
                            heads.remove(key.as_slice())?;
                            states.remove(key.as_slice())?;
                        }
                    }
                }
            }
            write.commit()?;
            Ok(())
        })?;
        kept.used = used;
        for (key, new) in writes {
            match new {
                Some((head, _)) => kept.heads.insert(key.clone(), head.clone()),
                None => kept.heads.remove(key),
            };
        }
        Ok(too_large)
    }

    fn list(&self, model: &str) -> Vec<(Id, StateHead)> {
        let kept = self.kept.lock();
        let of_model = kept.heads.iter().filter(|(key, _)| key.model == model);
        of_model.map(|(key, head)| (key.id.clone(), head.clone())).collect()
    }

    fn usage(&self) -> TierUsage {
        let kept = self.kept.lock();
        TierUsage { states: kept.heads.len(), bytes: kept.used, limit: kept.limit }
    }

    fn next_epoch(&self, least: u64) -> Result<u64, TierError> {
        self.with(|database| {
            let write = database.begin_write()?;
            let epoch = {
                let mut numbers = write.open_table(NUMBERS)?;
                let last = numbers.get(EPOCH)?.map(|n| n.value());
                let epoch = last.map_or(least, |last| least.max(last.saturating_add(1)));
                numbers.insert(EPOCH, epoch)?;
                epoch
            };
            write.commit()?;
            Ok(epoch)
        })
    }

    fn close(&self) {
        self.kept.lock().closed = true;
        drop(self.database.lock().take());
    }
}
