//! Writes changes to the shared store: the commands for each change, and what their answers change here.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::Value;

use super::held_records::HeldRecord;
use super::keys;
use super::link::{Bundle, RedisLink};
use super::scripts::{RecordScript, bytes, text};
use super::shared_tier::SharedTier;
use crate::state::tier::contract::{Released, TierChange};
use crate::state::tier::error::TierError;
use crate::state::tier::record::{StateHead, TierKey};
use crate::state::tier::succession::Successions;

/// Time after which Redis drops a state that no record points to.
const UNUSED_STATE_TTL: Duration = Duration::from_secs(60);
/// Time for which Redis remembers the end of a sequence.
const END_TTL: Duration = Duration::from_secs(300);

/// The command for a change, with what it changes here once Redis has done it.
enum PlannedWrite {
    Put {
        key: TierKey,
        epoch: u64,
        head: Arc<StateHead>,
        blob: String,
    },
    Clear {
        key: TierKey,
        epoch: u64,
    },
    Release {
        key: TierKey,
        epoch: u64,
    },
    Succeed {
        model: String,
        list: Successions,
    },
    /// Changes nothing here.
    Note,
}

fn millis(span: Option<Duration>) -> String {
    span.map_or_else(|| "-1".to_owned(), |span| span.as_millis().to_string())
}

impl PlannedWrite {
    /// The sequence, and the epoch in which it is written.
    fn subject(&self) -> Option<(TierKey, u64)> {
        match self {
            PlannedWrite::Put { key, epoch, .. }
            | PlannedWrite::Clear { key, epoch }
            | PlannedWrite::Release { key, epoch } => Some((key.clone(), *epoch)),
            PlannedWrite::Succeed { .. } | PlannedWrite::Note => None,
        }
    }
}

impl SharedTier {
    /// Adds the commands for a change to a bundle. An error makes only this change fail.
    fn plan(&self, change: &TierChange, bundle: &mut Bundle) -> Result<Option<PlannedWrite>, TierError> {
        let held = |key: &TierKey| self.held.get(key).ok_or(TierError::Fenced);
        match change {
            TierChange::Put { key, head, file } => {
                let HeldRecord { epoch, since, head: before, .. } = held(key)?;
                // The same state again, once further steps may be answered.
                let is_same =
                    before.as_ref().is_some_and(|of| (of.incarnation, of.step) == (head.incarnation, head.step));
                if head.incarnation < since && !is_same {
                    return Err(TierError::Fenced);
                }
                if before.is_some_and(|before| before.incarnation > head.incarnation) {
                    return Ok(None);
                }
                let blob = keys::blob(&self.run, self.blobs.fetch_add(1, Ordering::Relaxed));
                let unused = UNUSED_STATE_TTL.as_millis().to_string();
                // If it is sent again, the state may be in use already, and must not expire.
                bundle.command("SET", &[blob.as_bytes(), file, b"NX", b"PX", unused.as_bytes()]);
                let (in_epoch, number, idle) = (epoch.to_string(), self.next_number(), millis(head.idle));
                bundle.script(
                    RecordScript::Commit,
                    &[&keys::record(key), blob.as_bytes(), &keys::end(key)],
                    &[self.run.as_bytes(), in_epoch.as_bytes(), number.as_bytes(), &head.encode(), idle.as_bytes()],
                );
                Ok(Some(PlannedWrite::Put { key: key.clone(), epoch, head: Arc::clone(head), blob }))
            }
            TierChange::Remove { key, incarnation } => {
                let HeldRecord { epoch, since, head, .. } = held(key)?;
                if *incarnation < since && head.as_ref().is_none_or(|head| head.incarnation != *incarnation) {
                    return Err(TierError::Fenced);
                }
                if head.is_some_and(|head| head.incarnation > *incarnation) {
                    return Ok(None);
                }
                let (in_epoch, number) = (epoch.to_string(), self.next_number());
                let arguments = [self.run.as_bytes(), in_epoch.as_bytes(), number.as_bytes()];
                bundle.script(RecordScript::Clear, &[&keys::record(key)], &arguments);
                Ok(Some(PlannedWrite::Clear { key: key.clone(), epoch }))
            }
            TierChange::Release { key, left } => {
                let Ok(HeldRecord { epoch, head, .. }) = held(key) else { return Ok(None) };
                self.release(bundle, key, (epoch, head.as_deref()), left);
                Ok(Some(PlannedWrite::Release { key: key.clone(), epoch }))
            }
            TierChange::UseEpochs { until } => {
                let least = until.to_string();
                bundle.script(RecordScript::Epoch, &[keys::EPOCH.as_bytes()], &[least.as_bytes(), b"1"]);
                Ok(Some(PlannedWrite::Note))
            }
            TierChange::Succeed { model, successions } => {
                self.successions.add_command(bundle, model, successions);
                Ok(Some(PlannedWrite::Succeed { model: model.clone(), list: successions.clone() }))
            }
            TierChange::Remember { key, ended } => {
                // Others read it once this server has released the sequence, or has failed before that.
                let Ok(HeldRecord { epoch, .. }) = held(key) else { return Ok(None) };
                let (epoch, number, ends) = (epoch.to_string(), self.next_number(), END_TTL.as_millis().to_string());
                bundle.script(
                    RecordScript::Remember,
                    &[&keys::record(key), &keys::end(key)],
                    &[self.run.as_bytes(), epoch.as_bytes(), number.as_bytes(), &ended.encode(key), ends.as_bytes()],
                );
                Ok(Some(PlannedWrite::Note))
            }
            // Redis itself counts idle time.
            TierChange::NoteRunning { .. } => Ok(None),
        }
    }

    /// Adds the command that releases a sequence, whose epoch and stored state are given.
    pub(super) fn release(
        &self,
        bundle: &mut Bundle,
        key: &TierKey,
        (epoch, head): (u64, Option<&StateHead>),
        left: &Released,
    ) {
        let (waits, idle, end) = match (left, head) {
            (Released::Waiting { idle_left }, _) => (b"1", millis(*idle_left), Vec::new()),
            (Released::AsStored { .. }, Some(head)) => (b"1", millis(head.idle_left), Vec::new()),
            (Released::Nothing { ended } | Released::AsStored { ended }, _) => {
                (b"0", millis(None), ended.as_ref().map(|ended| ended.encode(key)).unwrap_or_default())
            }
        };
        let (epoch, number, ends) = (epoch.to_string(), self.next_number(), END_TTL.as_millis().to_string());
        let owned = keys::owned(&self.run);
        bundle.script(
            RecordScript::Release,
            &[&keys::record(key), owned.as_bytes(), &keys::end(key)],
            &[
                self.run.as_bytes(),
                epoch.as_bytes(),
                number.as_bytes(),
                &key.encode(),
                waits,
                idle.as_bytes(),
                &end,
                ends.as_bytes(),
            ],
        );
    }

    /// Records the answer to a change.
    fn written(&self, planned: PlannedWrite, answers: &[&Value], link: &RedisLink) -> Result<(), TierError> {
        if let Some(error) = answers.iter().find(|answer| matches!(answer, Value::ServerError(_))) {
            return Err(link.unexpected(error));
        }
        let last_answer = answers.last().and_then(|answer| bytes(answer)).unwrap_or_default();
        match (planned, last_answer) {
            (PlannedWrite::Put { key, head, blob, .. }, b"ok") => {
                self.held.set_state(&key, head, blob);
                Ok(())
            }
            (PlannedWrite::Clear { key, .. }, b"ok") => {
                self.held.clear_state(&key);
                Ok(())
            }
            (PlannedWrite::Release { key, epoch }, b"ok" | b"fenced") => {
                self.counts.given_up.fetch_add(1, Ordering::Relaxed);
                self.held.lose(&key, epoch);
                Ok(())
            }
            (PlannedWrite::Succeed { model, list }, b"ok") => {
                self.successions.written(model, list);
                Ok(())
            }
            (PlannedWrite::Note, _) => Ok(()),
            (PlannedWrite::Put { .. } | PlannedWrite::Clear { .. }, b"fenced") => Err(TierError::Fenced),
            (PlannedWrite::Put { .. }, _) => Err(TierError::Refused {
                address: link.address().shown.clone(),
                what: "it dropped a state before it was pointed to; is maxmemory-policy noeviction?".to_owned(),
            }),
            _ => Err(link.unexpected(answers.last().copied().unwrap_or(&Value::Nil))),
        }
    }

    /// Handles a change without an answer. A sequence that was to be released may belong to another server by now, so this one does not
    /// have it any more until it claims it again. The state of any other sequence is read again before it is used.
    fn unanswered(&self, write: &PlannedWrite) {
        match write {
            PlannedWrite::Put { key, epoch, .. } | PlannedWrite::Clear { key, epoch } => {
                self.held.set_unsure(key, *epoch);
            }
            PlannedWrite::Release { key, epoch } => _ = self.held.lose(key, *epoch),
            PlannedWrite::Succeed { .. } | PlannedWrite::Note => {}
        }
    }

    /// Reads the states of those of these sequences whose last write got no answer. Returns the sequences that belong to another server now,
    /// and forgets them. A state whose facts are unreadable stays unknown.
    pub(super) fn recall(&self, link: &mut RedisLink, of: &[&TierKey]) -> Result<Vec<TierKey>, TierError> {
        let unsure = of.iter().filter_map(|key| Some((*key, self.held.unsure_epoch_of(key)?)));
        let unsure: Vec<(&TierKey, u64)> = unsure.collect();
        let mut bundle = Bundle::new();
        for (key, epoch) in &unsure {
            let (epoch, number) = (epoch.to_string(), self.next_number());
            let arguments = [self.run.as_bytes(), epoch.as_bytes(), number.as_bytes()];
            bundle.script(RecordScript::Recall, &[&keys::record(key)], &arguments);
        }
        let (answers, mut lost) = (link.send(&bundle)?, Vec::new());
        for ((key, epoch), answer) in unsure.into_iter().zip(&answers) {
            match recalled(answer) {
                Some(Recalled::State(head, blob)) => self.held.set_state(key, head, blob),
                Some(Recalled::None) => self.held.clear_state(key),
                Some(Recalled::Fenced) => lost.extend(self.held.lose(key, epoch).then(|| key.clone())),
                None => tracing::debug!(error = %link.unexpected(answer), "the stored state of a sequence is unknown"),
            }
        }
        Ok(lost)
    }

    /// Reports sequences that belong to other servers now.
    pub(super) fn report_fenced(&self, fenced: Vec<TierKey>) {
        if fenced.is_empty() {
            return;
        }
        self.counts.fenced.fetch_add(fenced.len() as u64, Ordering::Relaxed);
        if let Some(host) = self.host() {
            host.lost(fenced);
        }
    }

    /// Sends a portion of changes. Adds those that failed to `failed`. An error is that of the link: all of them have failed, or got no answer.
    pub(super) fn put_portion(
        &self,
        changes: &[(usize, &TierChange)],
        failed: &mut HashMap<usize, TierError>,
    ) -> Result<(), TierError> {
        let mut link = self.link.lock();
        let subjects: Vec<&TierKey> = changes.iter().filter_map(|(_, change)| change.key()).collect();
        let recalled = self.recall(&mut link, &subjects).map_err(TierError::unsent);
        let mut fenced = recalled.inspect_err(|error| {
            failed.extend(changes.iter().map(|(place, _)| (*place, error.clone())));
        })?;
        let (mut bundle, mut planned) = (Bundle::new(), Vec::new());
        for (place, change) in changes {
            let sent = bundle.len();
            match self.plan(change, &mut bundle) {
                Ok(Some(write)) => planned.push((*place, write, bundle.len() - sent)),
                Ok(None) => {}
                Err(error) => _ = failed.insert(*place, error),
            }
        }
        let outcome = match link.send(&bundle) {
            Ok(answers) => {
                fenced.extend(self.take_answers(planned, &answers, &link, failed));
                Ok(())
            }
            Err(error) => {
                if matches!(error, TierError::Unanswered { .. }) {
                    planned.iter().for_each(|(_, write, _)| self.unanswered(write));
                }
                failed.extend(planned.iter().map(|(place, ..)| (*place, error.clone())));
                Err(error)
            }
        };
        drop(link);
        self.report_fenced(fenced);
        outcome
    }

    /// Records the answers to these changes, each with the number of its commands. Returns the sequences that belong to other servers now.
    fn take_answers(
        &self,
        planned: Vec<(usize, PlannedWrite, usize)>,
        answers: &[Value],
        link: &RedisLink,
        failed: &mut HashMap<usize, TierError>,
    ) -> Vec<TierKey> {
        let (mut answers, mut fenced) = (answers.iter(), Vec::new());
        for (place, write, commands) in planned {
            let answers: Vec<&Value> = answers.by_ref().take(commands).collect();
            let subject = write.subject();
            if let Err(error) = self.written(write, &answers, link) {
                let is_fenced = error == TierError::Fenced;
                let lost = subject.filter(|(key, epoch)| is_fenced && self.held.lose(key, *epoch));
                fenced.extend(lost.map(|(key, _)| key));
                failed.insert(place, error);
            }
        }
        fenced
    }
}

/// What Redis has of a sequence of this server.
enum Recalled {
    State(Arc<StateHead>, String),
    None,
    Fenced,
}

/// `None` if the answer is something else.
fn recalled(answer: &Value) -> Option<Recalled> {
    let Value::Array(parts) = answer else {
        return (bytes(answer) == Some(b"fenced")).then_some(Recalled::Fenced);
    };
    let [head, blob] = parts.as_slice() else { return None };
    match bytes(head)? {
        [] => Some(Recalled::None),
        head => Some(Recalled::State(Arc::new(StateHead::decode(head)?), text(blob)?)),
    }
}
