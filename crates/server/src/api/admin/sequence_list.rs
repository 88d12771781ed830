//! Lists of sequences for operators: live, ended, and stored ones. Text ids are shown only if [admin] peek allows it.

use std::cmp::Reverse;
use std::hash::BuildHasher as _;
use std::time::Duration;

use sequor_core::{EndReason, Id, Stage};
use serde::{Deserialize, Serialize};

use super::{Admin, refused};
use crate::api::control::{aside, off_socket};
use crate::api::{Code, Status, triton};
use crate::config::fault::did_you_mean;
use crate::config::units::Span;
use crate::error::Failure;
use crate::model::{AbsentSequence, EndedSequence, LiveSequence, ResumableFrom, ResumableSequence};
use crate::telemetry::ended_reason;

/// Rows of a list if the request sets no number, and at most.
const ROWS: usize = 100;
const MOST_ROWS: usize = 10_000;

/// Selects which sequences to list, in which order, and how many.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct SequenceQuery {
    pub(super) limit: Option<usize>,
    /// For live sequences.
    pub(super) sort: Option<Sort>,
    /// List ended sequences instead of live ones.
    pub(super) ended: bool,
    /// List stored sequences that wait for their next step, instead of live ones.
    pub(super) resumable: bool,
    /// For ended sequences: only those with this reason, and within this time.
    pub(super) reason: Option<String>,
    pub(super) since: Option<Span>,
}

/// The sort key; the largest value comes first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Sort {
    #[default]
    Age,
    Idle,
    Step,
    Queued,
    Bytes,
}

/// The list of one model.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct SequenceList {
    pub(super) sequences: Vec<SequenceRow>,
    /// The number of matching sequences, including those beyond `limit`.
    pub(super) all: usize,
    /// The number of live sequences in slots.
    pub(super) in_slots: usize,
    pub(super) in_backlog: usize,
}

/// A sequence that is live, stored, or ended and still remembered.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct SequenceRow {
    /// A number, or a text if operators may see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<serde_json::Value>,
    /// The hash of a hidden text id. Equal texts have equal hashes until the server ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id_hash: Option<String>,
    /// preparing, backlog, idle, ready, running, sealing, posting, ended, kept, elsewhere
    pub(super) state: &'static str,
    pub(super) step: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) live: Option<LiveRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ended: Option<EndedRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kept: Option<KeptRow>,
    /// The server that has it, if it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<String>,
}

/// A stored sequence that waits for its next step.
#[derive(Debug, Clone, Serialize)]
pub(super) struct KeptRow {
    pub(super) version: u64,
    /// Size of the file with its state.
    pub(super) bytes: u64,
    /// store, operator, reload
    pub(super) origin: &'static str,
    /// The time until it expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) left_seconds: Option<f64>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct LiveRow {
    pub(super) version: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) instance: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) slot: Option<u32>,
    pub(super) queued: u32,
    pub(super) queued_bytes: u64,
    pub(super) state_bytes: u64,
    /// Whether it ends after its queued requests.
    pub(super) ending: bool,
    /// The time since its last START. Of a sequence that came from the store, from an operator or from a replaced load and had no START since:
    /// the time since it came.
    pub(super) age_seconds: f64,
    /// The time that it has waited for a slot, if it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) waited_seconds: Option<f64>,
    /// The time since its last request arrived or was answered.
    pub(super) idle_seconds: f64,
    /// The time until it expires or leaves the backlog.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) left_seconds: Option<f64>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct EndedRow {
    pub(super) reason: &'static str,
    /// The plug-in that ended it, and the plug-in's world.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) plugin: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) world: Option<&'static str>,
    /// The member that ended it, if it is a sequence of an ensemble.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) member: Option<String>,
    /// Its allowed idle time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) idle_seconds: Option<f64>,
    pub(super) ago_seconds: f64,
}

const fn name(stage: Stage) -> &'static str {
    match stage {
        Stage::Preparing => "preparing",
        Stage::Backlogged => "backlog",
        Stage::Idle => "idle",
        Stage::Ready => "ready",
        Stage::Running => "running",
        Stage::Sealing => "sealing",
        Stage::Posting => "posting",
    }
}

impl Admin {
    pub(super) fn row(&self, id: &Id, state: &'static str, step: u64) -> SequenceRow {
        let (shown, hash) = match id {
            Id::Int(number) => (Some((*number).into()), None),
            Id::Str(text) if self.rights().peek() => (Some(text.as_ref().into()), None),
            Id::Str(_) => (None, Some(format!("{:016x}", self.0.ids.hash_one(id)))),
            Id::None => (None, None),
        };
        SequenceRow { id: shown, id_hash: hash, state, step, ..SequenceRow::default() }
    }

    fn live(&self, of: &LiveSequence) -> SequenceRow {
        let live = LiveRow {
            version: of.version,
            instance: of.placement.map(|(instance, _)| instance),
            slot: of.placement.map(|(_, slot)| slot),
            queued: of.queued,
            queued_bytes: of.queued_bytes,
            state_bytes: of.state_bytes,
            ending: of.ending,
            age_seconds: of.age.as_secs_f64(),
            waited_seconds: of.waited.map(|waited| waited.as_secs_f64()),
            idle_seconds: of.quiet.as_secs_f64(),
            left_seconds: of.left.map(|left| left.as_secs_f64()),
        };
        SequenceRow { live: Some(live), ..self.row(&of.id, name(of.stage), of.step) }
    }

    fn past(&self, of: &EndedSequence) -> SequenceRow {
        let (plugin, world) = of.by.as_ref().map(|by| (by.plugin.clone(), by.world)).unzip();
        let (idle_seconds, ago_seconds) = (of.idle.map(|idle| idle.as_secs_f64()), of.ago.as_secs_f64());
        let member = of.member.clone();
        let ended = EndedRow { reason: of.reason, plugin, world, member, idle_seconds, ago_seconds };
        SequenceRow { ended: Some(ended), ..self.row(&of.id, "ended", of.step) }
    }

    fn kept(&self, of: &ResumableSequence) -> SequenceRow {
        let left_seconds = of.left.map(|left| left.as_secs_f64());
        let origin = match of.origin {
            ResumableFrom::Store => "store",
            ResumableFrom::Operator => "operator",
            ResumableFrom::Reload => "reload",
        };
        let kept = KeptRow { version: of.version, bytes: of.bytes, origin, left_seconds };
        SequenceRow { kept: Some(kept), ..self.row(&of.id, "kept", of.step) }
    }

    /// A sequence that does not live here. The step is that of its stored state.
    fn absent(&self, id: &Id, AbsentSequence { node, state }: AbsentSequence) -> SequenceRow {
        let row = state.map_or_else(|| self.row(id, "kept", 0), |state| self.kept(&state));
        match node {
            Some(_) => SequenceRow { state: "elsewhere", node, ..row },
            None => row,
        }
    }

    /// Lists the sequences of a model that match a query, as JSON. A list may be long, so all of this runs on a thread for blocking work.
    pub(super) async fn sequences(&self, model: String, wanted: SequenceQuery) -> Result<Vec<u8>, Status> {
        wanted.check()?;
        let admin = self.clone();
        let list = move || {
            let list = admin.list_sequences(&model, &wanted).map_err(|failure| triton::status(&failure))?;
            serde_json::to_vec(&list).map_err(|error| Status::new(Code::Internal, "internal", error.to_string()))
        };
        off_socket(list).await
    }

    fn list_sequences(&self, model: &str, wanted: &SequenceQuery) -> Result<SequenceList, Failure> {
        let (limit, repository) = (wanted.limit.unwrap_or(ROWS), self.api().repository());
        if wanted.ended {
            let mut ended = repository.ended_sequences(model)?;
            let since = wanted.since.map_or(Duration::MAX, |Span(span)| span);
            ended.retain(|e| e.ago <= since && wanted.reason.as_ref().is_none_or(|reason| reason == e.reason));
            let sequences = ended.iter().take(limit).map(|e| self.past(e)).collect();
            return Ok(SequenceList { sequences, all: ended.len(), ..SequenceList::default() });
        }
        if wanted.resumable {
            let kept = repository.resumable(model)?;
            let sequences = kept.iter().take(limit).map(|k| self.kept(k)).collect();
            return Ok(SequenceList { sequences, all: kept.len(), ..SequenceList::default() });
        }
        let mut live = repository.live_sequences(model)?;
        let list = SequenceList {
            sequences: Vec::new(),
            all: live.len(),
            in_slots: live.iter().filter(|s| s.placement.is_some()).count(),
            in_backlog: live.iter().filter(|s| s.stage == Stage::Backlogged).count(),
        };
        match wanted.sort.unwrap_or_default() {
            Sort::Age => keep_largest(&mut live, limit, |s| s.age),
            Sort::Idle => keep_largest(&mut live, limit, |s| s.quiet),
            Sort::Step => keep_largest(&mut live, limit, |s| s.step),
            Sort::Queued => keep_largest(&mut live, limit, |s| s.queued),
            Sort::Bytes => keep_largest(&mut live, limit, |s| s.state_bytes),
        }
        Ok(SequenceList { sequences: live.iter().map(|s| self.live(s)).collect(), ..list })
    }

    /// Finds the sequence of this id: live, else stored, else ended.
    pub(super) async fn sequence(&self, model: String, id: Id) -> Result<SequenceRow, Status> {
        self.found(&model, &id).await?.ok_or_else(|| absent(&model, &id))
    }

    /// The same; `None` if nothing is known of the id.
    pub(super) async fn found(&self, model: &str, id: &Id) -> Result<Option<SequenceRow>, Status> {
        let (repository, wanted, of) = (self.api().repository().clone(), id.clone(), model.to_owned());
        let found = aside(move || {
            if let Some(live) = repository.find_live(&of, &wanted)? {
                return Ok((Some(live), None, None));
            }
            let ended = || repository.find_ended(&of, &wanted);
            match repository.find_absent(&of, &wanted) {
                Ok(Some(absent)) => Ok((None, Some(absent), None)),
                Ok(None) => Ok((None, None, ended()?)),
                // Without the store's answer the id may be known elsewhere, so it is not called unknown.
                Err(failure) => Ok((None, None, Some(ended()?.ok_or(failure)?))),
            }
        });
        Ok(match found.await? {
            (Some(live), ..) => Some(self.live(&live)),
            (None, Some(absent), _) => Some(self.absent(id, absent)),
            (None, None, ended) => ended.map(|ended| self.past(&ended)),
        })
    }
}

impl SequenceQuery {
    /// Refuses parameters that would have no effect.
    fn check(&self) -> Result<(), Status> {
        let refuse = |text: String| Err(refused::bad_input(text));
        if self.limit.is_some_and(|limit| limit > MOST_ROWS) {
            return refuse(format!("limit is at most {MOST_ROWS}"));
        }
        if self.ended && self.resumable {
            return refuse("ended and resumable are two lists: ask for one of them".to_owned());
        }
        if self.sort.is_some() && (self.ended || self.resumable) {
            return refuse("sort is for live sequences: leave it out".to_owned());
        }
        if !self.ended && (self.reason.is_some() || self.since.is_some()) {
            return refuse("reason and since are for sequences that have ended: add ended=true".to_owned());
        }
        let Some(reason) = &self.reason else { return Ok(()) };
        let ends = EndReason::ALL.into_iter().filter(|why| !why.continues_from_store());
        let known: Vec<&str> = ends.map(ended_reason).collect();
        if known.contains(&reason.as_str()) {
            return Ok(());
        }
        refuse(format!("no sequence ends with the reason \"{reason}\"{}", did_you_mean(reason, known)))
    }
}

/// Keeps the rows with the largest keys, the largest first.
fn keep_largest<T, K: Ord>(rows: &mut Vec<T>, limit: usize, key: impl Fn(&T) -> K) {
    if let Some(last) = limit.checked_sub(1).filter(|_| limit < rows.len()) {
        rows.select_nth_unstable_by_key(last, |row| Reverse(key(row)));
    }
    rows.truncate(limit);
    rows.sort_unstable_by_key(|row| Reverse(key(row)));
}

pub(super) fn absent(model: &str, id: &Id) -> Status {
    let text = format!("sequence {id} of model '{model}' does not live here, and nothing is remembered of it");
    Status::new(Code::NotFound, "absent", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_without_an_effect_are_refused() {
        let ended = SequenceQuery { ended: true, ..SequenceQuery::default() };
        let reason = |reason: &str| SequenceQuery { reason: Some(reason.to_owned()), ..ended.clone() };
        for good in [SequenceQuery::default(), ended.clone(), reason("expired")] {
            assert!(good.check().is_ok(), "{good:?}");
        }
        let with_sort = SequenceQuery { sort: Some(Sort::Step), ..ended.clone() };
        for (wrong, why) in [
            (SequenceQuery { limit: Some(MOST_ROWS + 1), ..SequenceQuery::default() }, "limit is at most 10000"),
            (SequenceQuery { resumable: true, ..ended.clone() }, "two lists"),
            (with_sort, "sort is for live sequences"),
            (SequenceQuery { ended: false, ..reason("expired") }, "add ended=true"),
            (reason("expird"), "did you mean \"expired\"?"),
        ] {
            let status = wrong.check().unwrap_err();
            assert!(status.reason == "bad_input" && status.message.contains(why), "{}", status.message);
        }
    }

    #[test]
    fn the_largest_rows_come_first() {
        let largest = |limit| {
            let mut rows = vec![3, 9, 1, 7, 5];
            keep_largest(&mut rows, limit, |row| *row);
            rows
        };
        assert_eq!([largest(0), largest(2), largest(5), largest(9)].concat(), [9, 7, 9, 7, 5, 3, 1, 9, 7, 5, 3, 1]);
    }
}
