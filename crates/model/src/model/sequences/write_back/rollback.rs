//! Sequences whose last state could not be written: they leave memory, and go on from the state that the store has.
//!
//! # Invariants
//!
//! A sequence goes back only if all of this holds. Otherwise it ends, and the store forgets it.
//!
//! - **The store has a state of this life of it** ([`WrittenSequence::durable`]). The failed write of a START leaves nothing to go on from: what
//!   the store has is of the sequence before, which the START has ended. That holds even if the store reports a write of that sequence later.
//! - **That state is not damaged.** The state of a step that did not run is made from the stored one.
//! - **No other write of it is on its way**, before or behind the failed one ([`WrittenSequence::writes`]). The store reports in the order in
//!   which it got the writes, so those before it are done. A request that was answered without a run does not wait for its write, and
//!   another one may run meanwhile: then the state of that one is written or is about to be, and contains the refused step.
//! - **It is the only sequence of its id**, on any version. The store has one state of an id.
//! - **Nothing has ended it yet**: another server, an operator, a START of its id.
//! - **Its client can tell which step follows.** Between two writes of `when = "every"` steps were answered. Only a client that numbers its
//!   steps can go on before them.
//!
//! A replaced version that alone can go on from the state stays for it until its time is over ([`Event::Stay`]).
//!
//! What the store has then is the last durable state, or that of the failed write, if that was done all the same. As long as the tier does not
//! know which, no step continues ([`WriteDoubt::Unread`]).
//!
//! [`WrittenSequence::durable`]: crate::model::sequences::offloaded::WrittenSequence
//! [`WrittenSequence::writes`]: crate::model::sequences::offloaded::WrittenSequence

use std::sync::Arc;

use sequor_core::{EndReason, Event, Stage, Time};

use crate::model::load::UnstoredState;
use crate::model::sequences::offloaded::{FailedWrite, KeptSequence, LookTask, WriteDoubt};
use crate::model::sequences::table::{SealingRow, SequenceLookup as _, StoreAction, Table};
use crate::state::tier::TierKey;

/// Decides how a sequence ends whose state could not be written for this reason. If it goes back to the store, the stored state is noted in
/// its entry until it has left. `replied`: its request was answered without a run, so others may have passed it.
pub(super) fn decide(
    table: &mut Table,
    now: Time,
    row: &SealingRow,
    (of, replied): (&UnstoredState, bool),
) -> EndReason {
    let why = of.why;
    if why != EndReason::Unsealed {
        return why;
    }
    if is_lost(table, row) {
        return EndReason::Fenced;
    }
    if of.is_damaged {
        return why;
    }
    let Some(kept) = stored_state(table, now, row, replied) else { return why };
    let Some(live) = table.live_mut(row.seq) else { return why };
    let load = Arc::clone(&live.load);
    let maker = kept.version_digest();
    live.rolls_back = Some(Box::new(kept));
    let made_it = load.durable.as_ref().is_some_and(|of| of.version_digest(load.version) == maker);
    if load.is_retired() && made_it && table.successors(maker) == [maker; 2] {
        // Before the sequence leaves, because the load may be over with it.
        table.apply(now, Event::Stay(load.key));
    }
    EndReason::RolledBack
}

/// Whether another server may have the sequence by now.
fn is_lost(table: &Table, row: &SealingRow) -> bool {
    let Some(job) = table.job(row.req) else { return false };
    let shared = job.load.durable.as_ref().and_then(|durable| durable.store.shared());
    shared.is_some_and(|shared| !shared.holds(&TierKey::new(&job.load.settings.name, &job.id)))
}

/// The stored state from which a sequence goes on after the write of this row has failed.
fn stored_state(table: &mut Table, now: Time, row: &SealingRow, replied: bool) -> Option<KeptSequence> {
    let job = table.job(row.req).filter(|job| !job.facts.start)?;
    let (load, id) = (Arc::clone(&job.load), job.id.clone());
    let durable = load.durable.as_ref()?;
    let is_told = durable.interval().is_none() || job.counted;
    let written = table.live(row.seq)?.written.as_ref().filter(|of| of.incarnation == row.incarnation)?;
    let is_last = written.durable > 0 && written.writes == row.write;
    let is_passed = replied
        && table
            .core
            .view_of(row.seq)
            .is_none_or(|view| matches!(view.stage, Stage::Running | Stage::Sealing | Stage::Posting));
    if !is_told || !is_last || is_passed || !table.is_alone(row.seq, &id) {
        return None;
    }
    let (store, key) = (&durable.store, TierKey::new(&load.settings.name, &id));
    let mut failed = FailedWrite { step: row.step, durable: written.durable, end: job.facts.end, is_asked: false };
    let (head, doubt) = match store.known(&key) {
        Some(head) => {
            let head = head?;
            let doubt = failed.doubt_about(&head)?;
            (head, doubt)
        }
        None => {
            // A disk is read again at once. A Redis that gave no answer is asked when the next step comes.
            failed.is_asked = store.shared().is_none();
            (store.head(&key)?, Some(WriteDoubt::Unread(failed)))
        }
    };
    if !store.is_of(&key, &head, row.incarnation) {
        return None;
    }
    if failed.is_asked {
        let look = LookTask { key, incarnation: row.incarnation, load: load.key };
        table.actions.rare().to_store.push(StoreAction::Look(look));
    }
    let until = table.core.idle_of_sequence(row.seq).map_or(Time::NEVER, |idle| now + idle);
    Some(KeptSequence { head, incarnation: row.incarnation, until, unwritten: None, doubt })
}
