//! Keeps states on disk, in an embedded store: a copy-on-write B-tree in one file, so that a commit is complete or absent.
//!
//! Heads are in memory as well, so the lookup of an id that is not stored costs no read. A failed write or a panic of the store closes the
//! file. The next use opens it again, as after a crash.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition, TableHandle as _};
use sequor_core::Id;

use super::contract::{FoundState, RunningTime, Tier, TierChange, TierUsage};
use super::error::TierError;
use super::record::{EndedState, StateHead, TierKey, micros};
use super::succession::Successions;

type Slice = &'static [u8];

const HEADS: TableDefinition<'_, Slice, Slice> = TableDefinition::new("heads");
const STATES: TableDefinition<'_, Slice, Slice> = TableDefinition::new("pieces");
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");
const EPOCH: &str = "epoch";
/// Total running time of servers in microseconds, the part of it before the last server began, and whether that server was stopped.
const RUNNING: &str = "running";
const BEGAN: &str = "began";
const CLOSED: &str = "closed";
/// The last ends of sequences, as a ring of [`ENDS`] places.
const ENDED: TableDefinition<'_, u32, Slice> = TableDefinition::new("ended");
const ENDS: u32 = 16_384;
/// States of the first layout: not in pieces.
const WHOLE: TableDefinition<'_, Slice, Slice> = TableDefinition::new("states");
/// Successions, by model.
const SUCCESSIONS: TableDefinition<'_, &str, Slice> = TableDefinition::new("successions");

/// Opens the file, at the start and after a failed write.
pub(super) type OpenDatabase = dyn Fn() -> Result<Database, TierError> + Send + Sync;

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

#[derive(Default)]
struct KeptHeads {
    heads: HashMap<TierKey, Arc<StateHead>>,
    successions: HashMap<String, Successions>,
    running: RunningTime,
    /// Bytes of all files.
    used: u64,
    limit: u64,
    /// Ends that were stored when the store was opened, until their models take them.
    ended: Vec<(TierKey, EndedState)>,
    /// The place in the ring for the next end.
    next_end: u32,
    closed: bool,
}

/// Bytes of a page that the page itself and the key need. The rest holds a piece.
const PAGE_FACTS: u64 = 512;
/// Maximum size of a page whose piece is not cut further.
const SMALL_PAGE: u64 = 4096;

/// The numbered pieces of a file of this many bytes. The store keeps a value in a page whose size is a power of two. Without pieces, a file a
/// little larger than such a page would take, and write, twice its size.
fn pieces(bytes: u64) -> impl Iterator<Item = (u16, Range<usize>)> {
    let size = |rest: u64| {
        let wanted = rest.saturating_add(PAGE_FACTS);
        let page = wanted.checked_next_power_of_two().unwrap_or(u64::MAX);
        if page <= SMALL_PAGE || page - wanted <= page / 8 { rest } else { (page / 2 - PAGE_FACTS).min(rest) }
    };
    let mut from = 0;
    (0u16..).map_while(move |n| {
        let piece = (from < bytes).then(|| from..from + size(bytes - from))?;
        from = piece.end;
        Some((n, usize::try_from(piece.start).ok()?..usize::try_from(piece.end).ok()?))
    })
}

/// The keys of the pieces of a file: the key of the sequence, and the number of the piece. Keys of different sequences differ if they are
/// equally long, so the keys of their pieces differ, too.
struct PieceKey(Vec<u8>);

impl PieceKey {
    /// The piece keys of a sequence's encoded key.
    fn new(mut at: Vec<u8>) -> PieceKey {
        at.extend_from_slice(&[0; 2]);
        PieceKey(at)
    }

    fn for_piece(&mut self, n: u16) -> &[u8] {
        if let Some(number) = self.0.last_chunk_mut::<2>() {
            *number = n.to_be_bytes();
        }
        &self.0
    }
}

/// The new state under a key; `None` removes it.
type NewState<'a> = Option<(&'a Arc<StateHead>, &'a [u8])>;

/// The plan for a batch of changes: the writes to make, and the facts that hold after it.
struct CommitPlan<'a> {
    writes: Vec<(&'a TierKey, NewState<'a>)>,
    /// The place in the ring for the next end.
    next_end: u32,
    ends: Vec<(&'a TierKey, &'a EndedState)>,
    /// Epochs up to this one are in use.
    epoch: u64,
    successions: Vec<(&'a str, &'a Successions)>,
    /// Total running time of servers, and whether this one stops.
    running: Option<(Duration, bool)>,
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
    pub(super) fn pieces(&self) -> Result<u64, TierError> {
        use redb::ReadableTableMetadata as _;
        self.with(|database| Ok(database.begin_read()?.open_table(STATES)?.len()?))
    }

    /// Returns free space of the file to the file system.
    pub(super) fn compact(&self) -> Result<(), TierError> {
        let mut at = self.database.lock();
        let Some(mut database) = at.take().and_then(Arc::into_inner) else { return Ok(()) };
        let compacted = database.compact();
        *at = Some(Arc::new(database));
        compacted.map(drop).map_err(|e| TierError::Io { path: self.path.clone(), what: e.to_string() })
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
                    other => TierError::Io { path: self.path.clone(), what: other.to_string() },
                }
            },
        )
    }
}

impl KeptHeads {
    /// Plans the writes for these changes. Of several changes of one key, only the last one is written.
    fn plan<'a>(&self, changes: &'a [TierChange]) -> CommitPlan<'a> {
        let mut after: HashMap<&TierKey, NewState<'_>> = HashMap::new();
        let (mut ends, mut epoch, mut successions, mut running) = (Vec::new(), 0, Vec::new(), None);
        let (mut used, mut too_large) = (self.used, Vec::new());
        for (n, change) in changes.iter().enumerate() {
            let (key, new, incarnation) = match change {
                TierChange::Put { key, head, file } => (key, Some((head, file.as_ref())), head.incarnation),
                TierChange::Remove { key, incarnation } => (key, None, *incarnation),
                TierChange::Remember { key, ended } => {
                    ends.push((key, ended));
                    continue;
                }
                TierChange::UseEpochs { until } => {
                    epoch = epoch.max(*until);
                    continue;
                }
                TierChange::Succeed { model, successions: of_model } => {
                    successions.push((model.as_str(), of_model));
                    continue;
                }
                TierChange::NoteRunning { until, closes } => {
                    running = Some((*until, *closes));
                    continue;
                }
                // One server has the whole store.
                TierChange::Release { .. } => continue,
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
            // A state that takes no more bytes than before is written even if the limit was lowered.
            if more > freed && sum > self.limit {
                too_large.push(n);
                continue;
            }
            used = sum;
            after.insert(key, new);
        }
        let next_end = self.next_end;
        let writes = after.into_iter().collect();
        CommitPlan { writes, next_end, ends, epoch, successions, running, used, too_large }
    }
}

/// Writes an epoch that is larger than the one before, and at least `least`.
fn next_epoch(numbers: &mut redb::Table<'_, &str, u64>, least: u64) -> Result<u64, redb::Error> {
    let last = numbers.get(EPOCH)?.map(|n| n.value());
    let epoch = last.map_or(least, |last| least.max(last.saturating_add(1)));
    numbers.insert(EPOCH, epoch)?;
    Ok(epoch)
}

/// Records the start of a server. `last` is the latest known time of the servers before it.
fn begin_running(numbers: &mut redb::Table<'_, &str, u64>, last: Duration) -> Result<RunningTime, redb::Error> {
    let number = |name: &'static str| numbers.get(name).map(|n| n.map_or(0, |n| n.value()));
    let (noted, last_began, last_closed) = (number(RUNNING)?, number(BEGAN)?, number(CLOSED)? != 0);
    // Later than each head of earlier servers.
    let at_open = noted.max(micros(last)).saturating_add(1);
    for (name, value) in [(RUNNING, at_open), (BEGAN, at_open), (CLOSED, 0)] {
        numbers.insert(name, value)?;
    }
    let [at_open, last_began] = [at_open, last_began].map(Duration::from_micros);
    Ok(RunningTime { at_open, last_began, last_closed })
}

/// Cuts the states of the first layout into pieces.
fn cut_whole_states(write: &redb::WriteTransaction) -> Result<(), redb::Error> {
    if !write.list_tables()?.any(|table| table.name() == WHOLE.name()) {
        return Ok(());
    }
    {
        let (whole, mut states) = (write.open_table(WHOLE)?, write.open_table(STATES)?);
        for row in whole.iter()? {
            let (key, file) = row?;
            let (mut at, file) = (PieceKey::new(key.value().to_vec()), file.value());
            for (n, range) in pieces(file.len() as u64) {
                states.insert(at.for_piece(n), file.get(range).unwrap_or_default())?;
            }
        }
    }
    write.delete_table(WHOLE)?;
    Ok(())
}

/// The successions of each model. Those that cannot be read are left out: states of other versions are not resumed then.
fn read_successions(
    table: &impl redb::ReadableTable<&'static str, Slice>,
) -> Result<HashMap<String, Successions>, redb::Error> {
    let mut all = HashMap::new();
    for row in table.iter()? {
        let (model, written) = row?;
        all.extend(Successions::decode(written.value()).map(|of_model| (model.value().to_owned(), of_model)));
    }
    Ok(all)
}

/// Reads the ring and rewrites it with the last end of each id, in the order of time.
fn compact_ends(table: &mut redb::Table<'_, u32, Slice>) -> Result<Vec<(TierKey, EndedState)>, redb::Error> {
    let mut last: HashMap<TierKey, EndedState> = HashMap::new();
    for row in table.iter()? {
        // An end that cannot be read is forgotten: only the text of a refusal depends on it.
        let Some((key, ended)) = EndedState::decode(row?.1.value()) else { continue };
        if last.get(&key).is_none_or(|known| known.at <= ended.at) {
            last.insert(key, ended);
        }
    }
    let mut ended: Vec<(TierKey, EndedState)> = last.into_iter().collect();
    ended.sort_by_key(|(_, ended)| ended.at);
    table.retain(|_, _| false)?;
    for (place, (key, ended)) in (0..ENDS).zip(&ended) {
        table.insert(place, ended.encode(key).as_slice())?;
    }
    Ok(ended)
}

impl Tier for DiskTier {
    fn get(&self, key: &TierKey) -> FoundState {
        let _commit = self.commit.lock();
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
        let plan = {
            let kept = self.kept.lock();
            if kept.closed {
                return Err(TierError::Closed);
            }
            let plan = kept.plan(changes);
            let before = |key: &TierKey| kept.heads.get(key).map_or(0, |head| head.bytes);
            let before: Vec<u64> = plan.writes.iter().map(|(key, _)| before(key)).collect();
            (plan, before)
        };
        let (CommitPlan { writes, mut next_end, ends, epoch, successions, running, used, too_large }, before) = plan;
        if writes.is_empty() && ends.is_empty() && epoch == 0 && successions.is_empty() && running.is_none() {
            return Ok(too_large);
        }
        self.with(|database| {
            let write = database.begin_write()?;
            {
                let (mut heads, mut states) = (write.open_table(HEADS)?, write.open_table(STATES)?);
                for ((key, new), before) in writes.iter().zip(before) {
                    let (at, mut piece_at) = (key.encode(), PieceKey::new(key.encode()));
                    match new {
                        Some((head, _)) => heads.insert(at.as_slice(), head.encode().as_slice())?,
                        None => heads.remove(at.as_slice())?,
                    };
                    let file = new.map_or(&[][..], |(_, file)| file);
                    let mut count = 0;
                    for (n, range) in pieces(file.len() as u64) {
                        states.insert(piece_at.for_piece(n), file.get(range).unwrap_or_default())?;
                        count = n + 1;
                    }
                    for (n, _) in pieces(before).filter(|(n, _)| *n >= count) {
                        states.remove(piece_at.for_piece(n))?;
                    }
                }
            }
            if epoch > 0 {
                next_epoch(&mut write.open_table(NUMBERS)?, epoch)?;
            }
            if let Some((until, closes)) = running {
                let mut numbers = write.open_table(NUMBERS)?;
                numbers.insert(RUNNING, micros(until))?;
                numbers.insert(CLOSED, u64::from(closes))?;
            }
            for (model, of_model) in &successions {
                write.open_table(SUCCESSIONS)?.insert(*model, of_model.encode().as_slice())?;
            }
            if !ends.is_empty() {
                let mut table = write.open_table(ENDED)?;
                for (key, ended) in &ends {
                    table.insert(next_end, ended.encode(key).as_slice())?;
                    next_end = (next_end + 1) % ENDS;
                }
            }
            write.commit()?;
            Ok(())
        })?;
        let mut kept = self.kept.lock();
        (kept.used, kept.next_end) = (used, next_end);
        let successions = successions.into_iter().map(|(model, of_model)| (model.to_owned(), of_model.clone()));
        kept.successions.extend(successions);
        for (key, new) in writes {
            match new {
                Some((head, _)) => kept.heads.insert(key.clone(), Arc::clone(head)),
                None => kept.heads.remove(key),
            };
        }
        Ok(too_large)
    }

    fn head(&self, key: &TierKey) -> Option<Arc<StateHead>> {
        self.kept.lock().heads.get(key).cloned()
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
