//! The sequences that operators see, as rows: those that live, those that have ended and why, those that the store keeps. Texts that clients chose as
//! ids are shown only where that is allowed ([admin] peek).

use std::cmp::Reverse;
use std::hash::BuildHasher as _;
use std::time::Duration;

use sequor_core::{Id, Stage};
use serde::{Deserialize, Serialize};

use super::Admin;
use crate::api::control::aside;
use crate::api::{Code, Status};
use crate::config::units::Span;
use crate::model::{EndedSequence, LiveSequence, ResumableSequence};

/// Rows of a list if the request sets no number.
const ROWS: usize = 100;

/// Which sequences, in which order, and how many.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct SequenceQuery {
    pub(super) limit: Option<usize>,
    pub(super) sort: Sort,
    /// Those that have ended instead of those that live.
    pub(super) ended: bool,
    /// Those that the store keeps and whose next step has not come yet, instead of those that live.
    pub(super) resumable: bool,
    /// Of the ended: for this reason only, and within this time.
    pub(super) reason: Option<String>,
    pub(super) since: Option<Span>,
}

/// The largest first.
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

/// Of one model.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct SequenceList {
    pub(super) sequences: Vec<SequenceRow>,
    /// How many there are, those that are not told of among them.
    pub(super) all: usize,
    /// Of the live ones.
    pub(super) in_slots: usize,
    pub(super) in_backlog: usize,
}

/// A sequence that lives, or one that has ended and is remembered.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct SequenceRow {
    /// A number, or a text if that may be shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<serde_json::Value>,
    /// Instead of a text: the same for the same text until the server ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id_hash: Option<String>,
    /// preparing, backlog, idle, ready, running, sealing, posting, ended, kept
    pub(super) state: &'static str,
    pub(super) step: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) live: Option<LiveRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ended: Option<EndedRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kept: Option<KeptRow>,
}

/// A sequence of an earlier process, as the store has it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct KeptRow {
    pub(super) version: u64,
    /// Of the file with its state.
    pub(super) bytes: u64,
    /// Until it expires.
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
    /// It ends with what is queued.
    pub(super) ending: bool,
    pub(super) age_seconds: f64,
    /// Since its last request arrived or was answered.
    pub(super) idle_seconds: f64,
    /// Until it expires or leaves the backlog.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) left_seconds: Option<f64>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct EndedRow {
    pub(super) reason: &'static str,
    /// The plug-in that ended it, and its kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) plugin: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) world: Option<&'static str>,
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
            Id::Str(text) if self.options().peek => (Some(text.as_ref().into()), None),
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
            idle_seconds: of.quiet.as_secs_f64(),
            left_seconds: of.left.map(|left| left.as_secs_f64()),
        };
        SequenceRow { live: Some(live), ..self.row(&of.id, name(of.stage), of.step) }
    }

    fn past(&self, of: &EndedSequence) -> SequenceRow {
        let (plugin, world) = of.by.as_ref().map(|by| (by.plugin.clone(), by.world)).unzip();
        let ended = EndedRow { reason: of.reason, plugin, world, ago_seconds: of.ago.as_secs_f64() };
        SequenceRow { ended: Some(ended), ..self.row(&of.id, "ended", of.step) }
    }

    fn kept(&self, of: &ResumableSequence) -> SequenceRow {
        let left_seconds = of.left.map(|left| left.as_secs_f64());
        let kept = KeptRow { version: of.version, bytes: of.bytes, left_seconds };
        SequenceRow { kept: Some(kept), ..self.row(&of.id, "kept", of.step) }
    }

    /// The sequences of a model that a query names.
    pub(super) async fn sequences(&self, model: String, wanted: SequenceQuery) -> Result<SequenceList, Status> {
        let limit = wanted.limit.unwrap_or(ROWS);
        let repository = self.api().repository().clone();
        if wanted.ended {
            let mut ended = aside(move || repository.ended_sequences(&model)).await?;
            let since = wanted.since.map_or(Duration::MAX, |Span(span)| span);
            ended.retain(|e| e.ago <= since && wanted.reason.as_ref().is_none_or(|reason| reason == e.reason));
            let sequences = ended.iter().take(limit).map(|e| self.past(e)).collect();
            return Ok(SequenceList { sequences, all: ended.len(), ..SequenceList::default() });
        }
        if wanted.resumable {
            let kept = aside(move || repository.resumable(&model)).await?;
            let sequences = kept.iter().take(limit).map(|k| self.kept(k)).collect();
            return Ok(SequenceList { sequences, all: kept.len(), ..SequenceList::default() });
        }
        let mut live = aside(move || repository.live_sequences(&model)).await?;
        match wanted.sort {
            Sort::Age => live.sort_unstable_by_key(|s| Reverse(s.age)),
            Sort::Idle => live.sort_unstable_by_key(|s| Reverse(s.quiet)),
            Sort::Step => live.sort_unstable_by_key(|s| Reverse(s.step)),
            Sort::Queued => live.sort_unstable_by_key(|s| Reverse(s.queued)),
            Sort::Bytes => live.sort_unstable_by_key(|s| Reverse(s.state_bytes)),
        }
        Ok(SequenceList {
            sequences: live.iter().take(limit).map(|s| self.live(s)).collect(),
            all: live.len(),
            in_slots: live.iter().filter(|s| s.placement.is_some()).count(),
            in_backlog: live.iter().filter(|s| s.stage == Stage::Backlogged).count(),
        })
    }

    /// The sequence of this id that lives or is kept, or what became of it.
    pub(super) async fn sequence(&self, model: String, id: Id) -> Result<SequenceRow, Status> {
        let (repository, wanted) = (self.api().repository().clone(), id.clone());
        let of = model.clone();
        let found = aside(move || {
            // Of two, the older one ends and has a younger one beside it already.
            let live = repository.live_sequences(&of)?.into_iter().filter(|s| s.id == wanted);
            if let Some(live) = live.min_by_key(|s| (s.ending, s.age)) {
                return Ok((Some(live), None, None));
            }
            if let Some(kept) = repository.resumable(&of)?.into_iter().find(|s| s.id == wanted) {
                return Ok((None, Some(kept), None));
            }
            Ok((None, None, repository.ended_sequences(&of)?.into_iter().find(|s| s.id == wanted)))
        });
        match found.await? {
            (Some(live), ..) => Ok(self.live(&live)),
            (None, Some(kept), _) => Ok(self.kept(&kept)),
            (None, None, Some(ended)) => Ok(self.past(&ended)),
            (None, None, None) => Err(absent(&model, &id)),
        }
    }
}

pub(super) fn absent(model: &str, id: &Id) -> Status {
    let text = format!("sequence {id} of model '{model}' does not live here, and nothing is remembered of it");
    Status::new(Code::NotFound, "absent", text)
}
