//! Writes changes to the shared store: the commands for each change, and what their answers change here.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::Value;

use super::held_records::HeldRecord;
use super::keys;
use super::link::{Bundle, RedisLink};
use super::scripts::{RecordScript, bytes};
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
    Put { key: TierKey, epoch: u64, head: Arc<StateHead>, blob: String },
    Clear { key: TierKey, epoch: u64 },
    Release { key: TierKey, epoch: u64 },
    Succeed { model: String, list: Successions },
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
            PlannedWrite::Succeed { .. } => None,
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
                Ok(None)
            }
            TierChange::Succeed { model, successions } => {
                self.successions.add_command(bundle, model, successions);
                Ok(Some(PlannedWrite::Succeed { model: model.clone(), list: successions.clone() }))
            }
            TierChange::Remember { key, ended } => {
                // Others read it once this server has released the sequence, or has failed before that.
                if let Ok(HeldRecord { epoch, .. }) = held(key) {
                    let (epoch, number, ends) =
                        (epoch.to_string(), self.next_number(), END_TTL.as_millis().to_string());
                    bundle.script(
                        RecordScript::Remember,
                        &[&keys::record(key), &keys::end(key)],
                        &[
                            self.run.as_bytes(),
                            epoch.as_bytes(),
                            number.as_bytes(),
                            &ended.encode(key),
                            ends.as_bytes(),
                        ],
                    );
                }
                Ok(None)
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
            (PlannedWrite::Put { .. } | PlannedWrite::Clear { .. }, b"fenced") => Err(TierError::Fenced),
            (PlannedWrite::Put { .. }, _) => Err(TierError::Refused {
                address: link.address().shown.clone(),
                what: "it dropped a state before it was pointed to; is maxmemory-policy noeviction?".to_owned(),
            }),
            _ => Err(link.unexpected(answers.last().copied().unwrap_or(&Value::Nil))),
        }
    }

    /// Handles a change without an answer. A sequence that was to be released may belong to another server by now, so this one does not
    /// have it any more until it claims it again.
    fn unknown(&self, write: &PlannedWrite) {
        if let PlannedWrite::Release { key, epoch } = write {
            self.held.lose(key, *epoch);
        }
    }

    /// Sends a portion of changes. Returns those that failed alone.
    pub(super) fn put_portion(&self, changes: &[(usize, &TierChange)]) -> Result<HashMap<usize, TierError>, TierError> {
        let (mut failed, mut fenced) = (HashMap::new(), Vec::new());
        let mut link = self.link.lock();
        let (mut bundle, mut planned, mut sent) = (Bundle::new(), Vec::new(), 0);
        for (place, change) in changes {
            let write = self.plan(change, &mut bundle).unwrap_or_else(|error| {
                failed.insert(*place, error);
                None
            });
            let commands = bundle.len() - sent;
            sent = bundle.len();
            planned.push((*place, write, commands));
        }
        let answers = match link.send(&bundle) {
            Ok(answers) => answers,
            Err(error) => {
                planned.iter().filter_map(|(_, write, _)| write.as_ref()).for_each(|write| self.unknown(write));
                return Err(error);
            }
        };
        let mut answers = answers.iter();
        for (place, write, commands) in planned {
            let answers: Vec<&Value> = answers.by_ref().take(commands).collect();
            let Some(write) = write else { continue };
            let subject = write.subject();
            if let Err(error) = self.written(write, &answers, &link) {
                let is_fenced = error == TierError::Fenced;
                fenced.extend(
                    subject.filter(|(key, epoch)| is_fenced && self.held.lose(key, *epoch)).map(|(key, _)| key),
                );
                failed.insert(place, error);
            }
        }
        drop(link);
        if !fenced.is_empty() {
            self.counts.fenced.fetch_add(fenced.len() as u64, Ordering::Relaxed);
            if let Some(host) = self.host() {
                host.lost(fenced);
            }
        }
        Ok(failed)
    }
}
