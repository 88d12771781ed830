//! The explanation of one sequence: where it is, its last steps and refused requests, and what would have kept it. Of a sequence of an
//! ensemble, also where it is in each member, and the member that ended it.

use std::time::Duration;

use sequor_core::Id;
use serde::Serialize;

use super::Admin;
use super::sequence_list::SequenceRow;
use crate::api::control::aside;
use crate::api::remedies::{Remedy, not_stored, not_stored_yet, plugin_failed, remedy};
use crate::api::{Status, refusal, triton};
use crate::config::model::settings::DurabilityWhen;
use crate::error::Failure;
use crate::model::{ChosenBy, LiveSequence, PastRefusal, PastStep, SequenceHistory};
use crate::scheduling::report::{Attached, BindingState, Summary};

/// The reason of a step without a START, and of one after a START that failed.
const NEVER_STARTED: &str = "never_started";
/// The reason of a sequence of an ensemble that a step ended in one of its members.
const BY_MEMBER: &str = "member_failed";

/// Everything that is known of one sequence.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Explanation {
    model: String,
    sequence: SequenceRow,
    place: &'static str,
    /// Sequences that have waited for a slot for longer, if this one waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    ahead: Option<usize>,
    /// The built-in policy that decides, and the plug-in that decides in its place.
    policy: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduler: Option<String>,
    /// The last answered steps, the latest first.
    steps: Vec<StepRow>,
    /// The last refused requests, the latest first.
    refused: Vec<RefusedRow>,
    /// The same sequence in the members of an ensemble.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    members: Vec<MemberRow>,
    /// What keeps such a sequence, or what prevents the last refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<Remedy>,
}

/// A sequence of an ensemble in one of the ensemble's members.
#[derive(Debug, Clone, Serialize)]
struct MemberRow {
    model: String,
    place: &'static str,
    sequence: SequenceRow,
    /// The last refused requests in this member, the latest first.
    refused: Vec<RefusedRow>,
}

#[derive(Debug, Clone, Serialize)]
struct StepRow {
    /// 0 if it was answered without a run.
    step: u64,
    ago_seconds: f64,
    waited_seconds: f64,
    ran_seconds: f64,
    /// Requests in its batch; 0 if it ran in none.
    batch: u32,
    /// Ids of some of the others in its batch, or hashes of hidden texts.
    mates: Vec<serde_json::Value>,
    chosen_by: &'static str,
    failed: bool,
}

#[derive(Debug, Clone, Serialize)]
struct RefusedRow {
    ago_seconds: f64,
    reason: &'static str,
    /// The member of the ensemble that refused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    member: Option<String>,
    /// What the client got; absent if that is not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// Whether the text is kept and not shown, because it may contain what users sent.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    hidden: bool,
}

const fn chosen_by(of: ChosenBy) -> &'static str {
    match of {
        ChosenBy::Policy => "policy",
        ChosenBy::Plugin => "plugin",
        ChosenBy::Fallback => "fallback",
    }
}

/// Where a sequence is.
fn place_of(row: &SequenceRow) -> &'static str {
    match row {
        SequenceRow { live: Some(_), state: "backlog", .. } => "waiting",
        SequenceRow { live: Some(_), .. } => "live",
        SequenceRow { node: Some(_), .. } => "elsewhere",
        SequenceRow { kept: Some(_), .. } => "stored",
        SequenceRow { ended: Some(_), .. } => "ended",
        _ => "unknown",
    }
}

/// The reason that the remedy is for. A sequence that got no refusal needs none if it lives, or if its client ended it.
fn reason_of(place: &'static str, row: &SequenceRow, refused: &[RefusedRow]) -> Option<&'static str> {
    let refusal = refused.first().map(|refusal| refusal.reason);
    match (place, &row.ended) {
        ("waiting", _) => Some("backlog_timeout"),
        (_, Some(ended)) if ended.reason == "ended" && refused.is_empty() => None,
        // The START did not take effect: its own refusal says why.
        (_, Some(ended)) if ended.reason == NEVER_STARTED => Some(of_start(refused).unwrap_or(NEVER_STARTED)),
        (_, Some(ended)) => Some(ended.reason),
        ("unknown", _) => refusal.or(Some(NEVER_STARTED)),
        _ => refusal,
    }
}

/// The reason of the last refused START, if steps after it were refused because of that.
fn of_start(refused: &[RefusedRow]) -> Option<&'static str> {
    refused.iter().map(|refusal| refusal.reason).find(|reason| *reason != NEVER_STARTED)
}

/// The reason of an end or a refusal in the member of an ensemble that caused it, and this member. Otherwise the same reason and model.
fn cause<'a>(
    reason: &'static str,
    model: &'a str,
    row: &'a SequenceRow,
    history: &'a SequenceHistory,
) -> (&'static str, &'a str) {
    let of_member = history.refusals.iter().find_map(|refusal| match &refusal.failure {
        Some(Failure::Member { member, why, .. }) => Some((refusal::reason(why), member.as_str())),
        _ => None,
    });
    let ender = row.ended.as_ref().and_then(|ended| ended.member.as_deref());
    match (reason, of_member, ender) {
        (BY_MEMBER, Some(cause), _) => cause,
        (_, _, Some(member)) => (reason, member),
        (_, Some((in_member, member)), None) if in_member == reason => (reason, member),
        _ => (reason, model),
    }
}

/// What to do about this reason, as far as the refusals and the model's settings say more than the reason.
fn remedy_of(reason: &'static str, model: &str, row: &SequenceRow, history: &SequenceHistory) -> Option<Remedy> {
    let is_unknown = row.ended.is_none();
    let plugin = row.ended.as_ref().and_then(|ended| ended.plugin.as_deref());
    let fault = history.refusals.iter().find_map(|refusal| match refusal.failure {
        Some(Failure::NotStored { fault, .. }) => Some(fault),
        _ => None,
    });
    let more = match (reason, plugin, fault, history.durable) {
        ("unsealed" | "store_failed", _, Some(fault), _) => not_stored(reason, fault, model),
        ("plugin_failed", Some(plugin), ..) => plugin_failed(plugin, model),
        (NEVER_STARTED, _, _, Some(DurabilityWhen::Every(every))) if is_unknown => not_stored_yet(every.get(), model),
        _ => None,
    };
    more.or_else(|| remedy(reason, model))
}

impl Admin {
    /// Explains a sequence. An id of which nothing is known is explained as well; an unknown model is refused.
    pub(super) async fn why(&self, model: String, id: Id) -> Result<Explanation, Status> {
        let found = self.found(&model, &id).await?;
        let (repository, of, wanted) = (self.api().repository().clone(), model.clone(), id.clone());
        let sequence = found.unwrap_or_else(|| self.row(&id, "unknown", 0));
        let waits = place_of(&sequence) == "waiting";
        let read = move || {
            let live = if waits { repository.live_sequences(&of)? } else { Vec::new() };
            let members = repository.sequence_members(&of)?;
            Ok((repository.sequence_history(&of, &wanted)?, ahead(&live, &wanted), members))
        };
        let (history, ahead, members) = aside(read).await?;
        let plugins = self.list().await.unwrap_or_default();
        let mut rows = Vec::with_capacity(members.len());
        for member in members {
            // A member that is being unloaded, or whose store does not answer, is left out.
            rows.extend(self.in_member(member, &id).await);
        }
        let explanation = self.explanation(model, sequence, history, ahead, scheduler(&plugins));
        Ok(Explanation { members: rows, ..explanation })
    }

    /// A sequence of an ensemble in this member.
    async fn in_member(&self, model: String, id: &Id) -> Result<MemberRow, Status> {
        let sequence = self.found(&model, id).await?.unwrap_or_else(|| self.row(id, "unknown", 0));
        let (repository, of, wanted) = (self.api().repository().clone(), model.clone(), id.clone());
        let history = aside(move || repository.sequence_history(&of, &wanted)).await?;
        let refused = history.refusals.iter().map(|refusal| self.refused_row(refusal)).collect();
        Ok(MemberRow { model, place: place_of(&sequence), sequence, refused })
    }

    fn explanation(
        &self,
        model: String,
        sequence: SequenceRow,
        history: SequenceHistory,
        ahead: Option<usize>,
        scheduler: impl Fn(&str) -> Option<String>,
    ) -> Explanation {
        let place = place_of(&sequence);
        let refused: Vec<RefusedRow> = history.refusals.iter().map(|refusal| self.refused_row(refusal)).collect();
        let reason = reason_of(place, &sequence, &refused);
        let remedy = reason.and_then(|reason| {
            let (in_member, member) = cause(reason, &model, &sequence, &history);
            remedy_of(in_member, member, &sequence, &history).or_else(|| remedy(reason, &model))
        });
        let SequenceHistory { steps, policy, .. } = history;
        Explanation {
            place,
            ahead: ahead.filter(|_| place == "waiting"),
            policy,
            scheduler: scheduler(&model),
            steps: steps.into_iter().map(|step| self.step_row(step)).collect(),
            refused,
            members: Vec::new(),
            remedy,
            sequence,
            model,
        }
    }

    fn refused_row(&self, PastRefusal { ago, failure }: &PastRefusal) -> RefusedRow {
        let status = failure.as_ref().map(triton::status);
        let reason = status.as_ref().map_or("bad_input", |status| status.reason);
        let is_shown = self.rights().peek() || !failure.as_ref().is_some_and(is_private);
        let text = status.map(|status| status.message).filter(|_| is_shown);
        let member = match failure {
            Some(Failure::Member { member, .. }) => Some(member.clone()),
            Some(Failure::Refused(refused)) => refused.member.clone(),
            _ => None,
        };
        RefusedRow { ago_seconds: ago.as_secs_f64(), reason, member, text, hidden: !is_shown }
    }

    fn step_row(&self, of: PastStep) -> StepRow {
        let PastStep { step, ago, waited, ran, batch, mates, chosen_by: by, failed } = of;
        let shown = |id: &Id| {
            let row = self.row(id, "", 0);
            row.id.or(row.id_hash.map(|hash| format!("#{hash}").into())).unwrap_or_default()
        };
        let [ago_seconds, waited_seconds, ran_seconds] = [ago, waited, ran].map(|span: Duration| span.as_secs_f64());
        let mates = mates.iter().map(shown).collect();
        StepRow { step, ago_seconds, waited_seconds, ran_seconds, batch, mates, chosen_by: chosen_by(by), failed }
    }
}

/// Sequences that have waited for a slot for longer than this one. `None` if it does not wait. All ages are of one reading.
fn ahead(live: &[LiveSequence], id: &Id) -> Option<usize> {
    let waited = live.iter().find(|of| of.id == *id)?.waited?;
    Some(live.iter().filter(|other| other.waited.is_some_and(|other| other > waited)).count())
}

/// The plug-in that decides for a model.
fn scheduler(plugins: &[Summary]) -> impl Fn(&str) -> Option<String> {
    move |model| {
        let decides = |at: &Attached| at.model == model && at.state == BindingState::Active;
        let plugin = plugins.iter().find(|plugin| plugin.world == "scheduler" && plugin.attached.iter().any(decides));
        plugin.map(|plugin| plugin.name.clone())
    }
}

/// Whether the text of a refusal may contain another sequence's id, or text of a user.
fn is_private(failure: &Failure) -> bool {
    // The runtime's own text may name a value of a tensor.
    let is_own_text = matches!(failure, Failure::Run(_) | Failure::Internal(_));
    is_own_text || matches!(failure, Failure::Processor(_) | Failure::NotCopied { .. } | Failure::Member { .. })
}

#[cfg(test)]
mod tests {
    use super::super::sequence_list::{EndedRow, KeptRow, LiveRow};
    use super::*;
    use crate::error::StoreFault;

    fn live(state: &'static str) -> SequenceRow {
        let live = LiveRow {
            version: 1,
            instance: None,
            slot: None,
            queued: 0,
            queued_bytes: 0,
            state_bytes: 0,
            ending: false,
            age_seconds: 1.0,
            waited_seconds: None,
            idle_seconds: 1.0,
            left_seconds: None,
        };
        SequenceRow { state, live: Some(live), ..SequenceRow::default() }
    }

    fn ended(reason: &'static str) -> SequenceRow {
        let ended = EndedRow { reason, plugin: None, world: None, member: None, idle_seconds: None, ago_seconds: 1.0 };
        SequenceRow { state: "ended", ended: Some(ended), ..SequenceRow::default() }
    }

    #[test]
    fn the_remedy_is_for_the_end_else_for_the_last_refusal() {
        let stored = SequenceRow {
            state: "kept",
            kept: Some(KeptRow { version: 1, bytes: 1, origin: "store", left_seconds: None }),
            ..SequenceRow::default()
        };
        let unknown = SequenceRow { state: "unknown", ..SequenceRow::default() };
        let elsewhere = SequenceRow { state: "elsewhere", node: Some("b".to_owned()), ..stored.clone() };
        let refusal = |reason| RefusedRow { ago_seconds: 1.0, reason, member: None, text: None, hidden: false };
        let full = [refusal("queue_full"), refusal("bad_input")];
        for (row, place, alone, refused) in [
            (live("idle"), "live", None, Some("queue_full")),
            (live("backlog"), "waiting", Some("backlog_timeout"), Some("backlog_timeout")),
            (stored, "stored", None, Some("queue_full")),
            (ended("expired"), "ended", Some("expired"), Some("expired")),
            (ended("ended"), "ended", None, Some("ended")),
            (unknown, "unknown", Some("never_started"), Some("queue_full")),
            (elsewhere, "elsewhere", None, Some("queue_full")),
        ] {
            assert_eq!(place_of(&row), place);
            assert_eq!(reason_of(place, &row, &[]), alone, "{place}");
            assert_eq!(reason_of(place, &row, &full), refused, "{place}");
        }
    }
    #[test]
    fn a_sequence_whose_start_was_refused_gets_the_remedy_of_that_refusal() {
        let refusal = |reason| RefusedRow { ago_seconds: 1.0, reason, member: None, text: None, hidden: false };
        let row = ended("never_started");
        let refused = [refusal("never_started"), refusal("plugin_failed")];
        assert_eq!(reason_of("ended", &row, &refused), Some("plugin_failed"));
        assert_eq!(reason_of("ended", &row, &refused[..1]), Some("never_started"));
        assert_eq!(reason_of("ended", &ended("backlog_timeout"), &[]), Some("backlog_timeout"));
    }

    #[test]
    fn the_remedy_of_an_ensembles_sequence_is_for_the_member_that_caused_the_end() {
        let refusal = |member: &str, why| {
            let failure = Failure::Member {
                ensemble: "both".to_owned(),
                member: member.to_owned(),
                id: Id::from(7),
                ended: true,
                may_retry: false,
                why: Box::new(why),
            };
            PastRefusal { ago: Duration::ZERO, failure: Some(failure) }
        };
        let memory = Failure::StateMemory { model: "b".to_owned(), id: Id::from(7), wanted: 1, used: 1, limit: 1 };
        let failed = SequenceHistory { refusals: vec![refusal("b", memory)], ..SequenceHistory::default() };
        let none = SequenceHistory::default();
        let by = |reason, member: &str| {
            let mut row = ended(reason);
            row.ended.as_mut().unwrap().member = Some(member.to_owned());
            row
        };
        assert_eq!(cause(BY_MEMBER, "both", &by(BY_MEMBER, "b"), &failed), ("state_memory", "b"));
        assert_eq!(cause(BY_MEMBER, "both", &by(BY_MEMBER, "b"), &none), (BY_MEMBER, "b"));
        assert_eq!(cause("evicted", "both", &by("evicted", "a"), &failed), ("evicted", "a"));
        assert_eq!(
            cause("expired", "both", &ended("expired"), &failed),
            ("expired", "both"),
            "the ensemble's own clock"
        );
        assert_eq!(cause("state_memory", "both", &SequenceRow::default(), &failed), ("state_memory", "b"));
    }

    #[test]
    fn texts_that_may_name_a_value_or_an_id_are_private() {
        for failure in [Failure::Run("idx=7 is out of bounds".to_owned()), Failure::Internal("7".to_owned())] {
            assert!(is_private(&failure), "{failure:?}");
        }
        assert!(!is_private(&Failure::StateMemory {
            model: "m".to_owned(),
            id: Id::from(7),
            wanted: 1,
            used: 1,
            limit: 1
        }));
    }

    #[test]
    fn a_remedy_names_the_plugin_the_cause_of_the_store_and_the_steps_between_two_writes() {
        let advice = |reason, row: &SequenceRow, history: &SequenceHistory| {
            remedy_of(reason, "m", row, history).unwrap().advice.into_owned()
        };
        let none = SequenceHistory::default();
        let mut failed = ended("never_started");
        failed.ended.as_mut().unwrap().plugin = Some("i-python".to_owned());
        assert!(advice("plugin_failed", &failed, &none).contains("`sequor plugin logs i-python`"));
        let fault = StoreFault::Disk;
        let (model, id, why) = ("m".to_owned(), Id::from(7), String::new());
        let failure = Failure::NotStored { model, id, start: true, goes_on: false, fault, why };
        let refusals = vec![PastRefusal { ago: Duration::ZERO, failure: Some(failure) }];
        let full = SequenceHistory { refusals, ..SequenceHistory::default() };
        assert_eq!(advice("unsealed", &ended("unsealed"), &full), "make room on the disk of state.dir");
        let every = Some(DurabilityWhen::Every(std::num::NonZeroU32::new(5).unwrap()));
        let every = SequenceHistory { durable: every, ..SequenceHistory::default() };
        let unknown = SequenceRow { state: "unknown", ..SequenceRow::default() };
        assert!(advice("never_started", &unknown, &every).contains("(every = 5)"));
        assert!(!advice("never_started", &unknown, &none).contains("every ="));
    }
}
