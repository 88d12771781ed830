//! Keeps states on disk, in an embedded store: a copy-on-write B-tree in one file, so that a commit is complete or absent.
//!
//! Heads are in memory as well, so the lookup of an id that is not stored costs no read. A failed write or a panic of the store closes the
//! file. The next use opens it again, as after a crash. A commit that has failed may be in the file all the same, so the heads of its keys are
//! read again before the next use of one.

use std::fmt;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::Mutex;
use redb::{Database, ReadableDatabase as _};
use sequor_core::Id;

use super::commit_plan::KeptHeads;
use super::found_facts::{read_facts, read_head};
use super::pieces::{PieceKey, pieces};
use super::store_error::tier_error;
use super::tables::{NUMBERS, STATES, next_epoch, read_heads, write};
use crate::state::tier::contract::{FoundState, RunningTime, Tier, TierChange, TierUsage};
use crate::state::tier::error::TierError;
use crate::state::tier::record::{EndedState, StateHead, TierKey};
use crate::state::tier::succession::Successions;

/// The open file of a store.
pub(in crate::state::tier) struct StoreFile {
    pub(in crate::state::tier) database: Database,
    /// Its size when it was opened.
    pub(in crate::state::tier) len: u64,
}

/// Opens the file, at the start and after a failed write.
pub(in crate::state::tier) type OpenStoreFile = dyn Fn() -> Result<StoreFile, TierError> + Send + Sync;

pub struct DiskTier {
    path: String,
    open: Box<OpenStoreFile>,
    /// `None` if the file must be opened again.
    file: Mutex<Option<Arc<StoreFile>>>,
    /// The lock on the directory. The file's own lock is given up with each failed write, so it does not keep another server out.
    folder: Mutex<Option<File>>,
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
        open: Box<OpenStoreFile>,
        limit: u64,
    ) -> Result<DiskTier, TierError> {
        let (file, folder, commit) = (Mutex::new(None), Mutex::new(None), Mutex::new(()));
        let tier = DiskTier { path, open, file, folder, commit, kept: Mutex::default() };
        let kept = tier.with_file(|file| read_facts(&file.database, (&tier.path, file.len), limit))??;
        *tier.kept.lock() = kept;
        Ok(tier)
    }

    /// Keeps the lock on the directory until the store is closed.
    pub(in crate::state::tier) fn hold(&self, folder: File) {
        *self.folder.lock() = Some(folder);
    }

    /// The number of all pieces.
    #[cfg(test)]
    pub(in crate::state::tier) fn pieces(&self) -> Result<u64, TierError> {
        use redb::ReadableTableMetadata as _;
        self.with(|database| Ok(database.begin_read()?.open_table(STATES)?.len()?))
    }

    /// Returns free space of the file to the file system. If that fails, the next use opens the file again.
    pub(in crate::state::tier) fn compact(&self) -> Result<(), TierError> {
        let mut at = self.file.lock();
        let Some(mut file) = at.take().and_then(Arc::into_inner) else { return Ok(()) };
        let failed = match catch_unwind(AssertUnwindSafe(|| file.database.compact())) {
            Ok(Ok(_)) => {
                *at = Some(Arc::new(file));
                return Ok(());
            }
            Ok(Err(error)) => tier_error(&self.path, error.into()),
            Err(_) => self.contradicts(),
        };
        close(file);
        Err(failed)
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
            let head = head.map(|head| read_head(&self.path, &head)).transpose()?;
            kept.set_found(key, head);
        }
        Ok(())
    }

    /// Runs `work` on the store. If it fails, the next use opens the store again, because a store accepts no write after a failed one.
    fn with<T>(&self, work: impl FnOnce(&Database) -> Result<T, redb::Error>) -> Result<T, TierError> {
        self.with_file(|file| work(&file.database))
    }

    fn with_file<T>(&self, work: impl FnOnce(&StoreFile) -> Result<T, redb::Error>) -> Result<T, TierError> {
        let file = self.file()?;
        // The store panics if a page that it trusts is not as it was written.
        let done = catch_unwind(AssertUnwindSafe(|| work(&file)));
        drop(file);
        let failed = match done {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(error)) => tier_error(&self.path, error),
            Err(_) => self.contradicts(),
        };
        close(self.file.lock().take());
        Err(failed)
    }

    /// The open file. Opens it if it is not open.
    fn file(&self) -> Result<Arc<StoreFile>, TierError> {
        let mut at = self.file.lock();
        if let Some(file) = &*at {
            return Ok(Arc::clone(file));
        }
        // Another server may have the file by now.
        if self.kept.lock().closed {
            return Err(TierError::Closed);
        }
        let opened = catch_unwind(AssertUnwindSafe(|| (self.open)()));
        let file = Arc::new(opened.map_err(|_| self.contradicts())??);
        *at = Some(Arc::clone(&file));
        Ok(file)
    }

    /// The error after a panic of the store.
    fn contradicts(&self) -> TierError {
        TierError::Damaged { path: self.path.clone(), what: "its pages contradict each other".to_owned() }
    }
}

/// Closes the store. It writes then, and may panic there as well.
fn close(file: impl Sized) {
    let _ = catch_unwind(AssertUnwindSafe(move || drop(file)));
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

    fn known(&self, key: &TierKey) -> Option<Option<Arc<StateHead>>> {
        let kept = self.kept.lock();
        (!kept.unsure.contains(key)).then(|| kept.heads.get(key).cloned())
    }

    /// A commit is complete or absent, and the file is opened again after a failed one, so it has the state before that commit or the one
    /// after it.
    fn look(&self, key: &TierKey) -> Result<Option<Arc<StateHead>>, TierError> {
        let _commit = self.commit.lock();
        self.look_again(std::iter::once(key))?;
        Ok(self.kept.lock().heads.get(key).cloned())
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
        close(self.file.lock().take());
        // Last, so that the next server finds a complete file.
        drop(self.folder.lock().take());
    }
}
