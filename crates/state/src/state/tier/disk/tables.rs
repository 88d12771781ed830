//! The tables of the store: reads them when it opens, and writes a plan to them.

use std::collections::HashMap;
use std::time::Duration;

use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition, TableHandle as _};

use super::commit_plan::CommitPlan;
use super::pieces::{PieceKey, pieces};
use crate::state::tier::contract::RunningTime;
use crate::state::tier::record::{EndedState, TierKey, micros};
use crate::state::tier::succession::Successions;

type Slice = &'static [u8];

pub(super) const HEADS: TableDefinition<'_, Slice, Slice> = TableDefinition::new("heads");
pub(super) const STATES: TableDefinition<'_, Slice, Slice> = TableDefinition::new("pieces");
pub(super) const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");
const EPOCH: &str = "epoch";
/// Total running time of servers in microseconds, the part of it before the last server began, and whether that server was stopped.
const RUNNING: &str = "running";
const BEGAN: &str = "began";
const CLOSED: &str = "closed";
/// The last ends of sequences, as a ring of [`ENDS`] places.
pub(super) const ENDED: TableDefinition<'_, u32, Slice> = TableDefinition::new("ended");
pub(super) const ENDS: u32 = 16_384;
/// States of the first layout: not in pieces.
const WHOLE: TableDefinition<'_, Slice, Slice> = TableDefinition::new("states");
/// Successions, by model.
pub(super) const SUCCESSIONS: TableDefinition<'_, &str, Slice> = TableDefinition::new("successions");

/// Writes an epoch that is larger than the one before, and at least `least`.
pub(super) fn next_epoch(numbers: &mut redb::Table<'_, &str, u64>, least: u64) -> Result<u64, redb::Error> {
    let last = numbers.get(EPOCH)?.map(|n| n.value());
    let epoch = last.map_or(least, |last| least.max(last.saturating_add(1)));
    numbers.insert(EPOCH, epoch)?;
    Ok(epoch)
}

/// Records the start of a server. `last` is the latest known time of the servers before it.
pub(super) fn begin_running(
    numbers: &mut redb::Table<'_, &str, u64>,
    last: Duration,
) -> Result<RunningTime, redb::Error> {
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
pub(super) fn cut_whole_states(write: &redb::WriteTransaction) -> Result<(), redb::Error> {
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

/// The heads of these keys, as the file has them.
pub(super) fn read_heads(database: &Database, keys: &[TierKey]) -> Result<Vec<Option<Vec<u8>>>, redb::Error> {
    let table = database.begin_read()?.open_table(HEADS)?;
    let head = |key: &TierKey| Ok(table.get(key.encode().as_slice())?.map(|head| head.value().to_vec()));
    keys.iter().map(head).collect()
}

/// The successions of each model. Those that cannot be read are left out: states of other versions are not resumed then.
pub(super) fn read_successions(
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
pub(super) fn compact_ends(table: &mut redb::Table<'_, u32, Slice>) -> Result<Vec<(TierKey, EndedState)>, redb::Error> {
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

/// Writes what is planned, in one commit. `bytes_before` has the stored bytes of each state that is written. Returns the place in the ring for
/// the next end.
pub(super) fn write(database: &Database, plan: &CommitPlan<'_>, bytes_before: &[u64]) -> Result<u32, redb::Error> {
    let mut next_end = plan.next_end;
    let write = database.begin_write()?;
    {
        let (mut heads, mut states) = (write.open_table(HEADS)?, write.open_table(STATES)?);
        for ((key, new), before) in plan.writes.iter().zip(bytes_before) {
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
            for (n, _) in pieces(*before).filter(|(n, _)| *n >= count) {
                states.remove(piece_at.for_piece(n))?;
            }
        }
    }
    if plan.epoch > 0 {
        next_epoch(&mut write.open_table(NUMBERS)?, plan.epoch)?;
    }
    if let Some((until, closes)) = plan.running {
        let mut numbers = write.open_table(NUMBERS)?;
        numbers.insert(RUNNING, micros(until))?;
        numbers.insert(CLOSED, u64::from(closes))?;
    }
    for (model, of_model) in &plan.successions {
        write.open_table(SUCCESSIONS)?.insert(*model, of_model.encode().as_slice())?;
    }
    if !plan.ends.is_empty() {
        let mut table = write.open_table(ENDED)?;
        for (key, ended) in &plan.ends {
            table.insert(next_end, ended.encode(key).as_slice())?;
            next_end = (next_end + 1) % ENDS;
        }
    }
    write.commit()?;
    Ok(next_end)
}
