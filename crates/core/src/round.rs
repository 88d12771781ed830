//! A question to an external policy: owned and numbered, so that the core stays unlocked while the policy decides.

use std::num::NonZeroU32;

use crate::faults::{Planted, fault};
use crate::ids::{Instance, LoadId, Req, RoundId, Seq};
use crate::observed::Observed;
use crate::policy::{Admission, Columns, Decision, Hooks, Picks, PolicyFault};

/// The question to a policy.
#[derive(Debug, Clone, PartialEq)]
pub enum PolicyQuestion {
    /// Which candidates of `see` this instance runs next.
    Plan(Instance),
    /// Which backlogged sequences of `see` get a slot. `room`: the number of free slots of each instance.
    Admit { load: LoadId, room: Vec<u32>, victims: Box<Columns> },
}

/// One question. It borrows nothing from the core and returns with the answer.
#[derive(Debug, Clone)]
pub struct Round {
    pub id: RoundId,
    pub asked: PolicyQuestion,
    pub see: Columns,
    /// The hooks of the policy that gets the question. They determine which columns are filled.
    pub hooks: Hooks,
    /// The events since the policy's last question, in order.
    pub news: Vec<Observed>,
    /// The serial number of the first of `news`.
    pub first: u64,
    /// Whether events before `news` were dropped. Then the policy should read the live sequences again.
    pub lost: bool,
    /// Where the policy puts its picks.
    pub picks: Picks,
    /// The candidate behind each index of `see`.
    pub(crate) keys: Vec<Candidate>,
    /// The sequence behind each index of the victims.
    pub(crate) victims: Vec<Seq>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq)]
pub enum PolicyAnswer {
    Plan(Result<Decision, PolicyFault>),
    Admit(Result<Vec<Admission>, PolicyFault>),
}

impl Round {
    /// The sequences that lose their slots if this answer is valid.
    pub fn victims(&self, answer: &PolicyAnswer) -> impl Iterator<Item = Seq> + '_ {
        let answers = match answer {
            PolicyAnswer::Admit(Ok(answers)) if self.check(answer).is_ok() => answers.clone(),
            _ => Vec::new(),
        };
        answers.into_iter().filter_map(move |answer| match answer {
            Admission::Evict { victim } => self.victims.get(victim as usize).copied(),
            _ => None,
        })
    }

    pub fn load(&self) -> LoadId {
        match &self.asked {
            PolicyQuestion::Plan(who) => who.load,
            PolicyQuestion::Admit { load, .. } => *load,
        }
    }

    /// The request behind each index. In an admission question, the head request of each sequence.
    pub fn requests(&self) -> impl ExactSizeIterator<Item = Req> + '_ {
        self.keys.iter().map(|c| c.req)
    }

    /// The requests that the policy picked to run, in order. An index beyond the candidates is skipped.
    pub fn fired(&self) -> impl Iterator<Item = Req> + '_ {
        self.picks.fire.iter().filter_map(|i| self.keys.get(*i as usize)).map(|c| c.req)
    }

    /// Rows and shape of the request behind each index. The rules for answers need these and the indices.
    pub fn standing(&self) -> impl ExactSizeIterator<Item = (u32, u64)> + '_ {
        self.keys.iter().map(|c| (c.rows, c.shape))
    }

    /// Builds a recorded question, to ask it again. No request stands behind its indices, and no core takes its answer.
    pub fn again(
        asked: PolicyQuestion,
        see: Columns,
        hooks: Hooks,
        standing: impl IntoIterator<Item = (u32, u64)>,
    ) -> Round {
        let no_key = NonZeroU32::MIN;
        let victims = match &asked {
            PolicyQuestion::Admit { victims, .. } => victims.len,
            PolicyQuestion::Plan(_) => 0,
        };
        let behind = |(rows, shape)| Candidate { req: Req::new(u32::MAX, no_key), rows, shape };
        Round {
            id: RoundId::new(u32::MAX, no_key),
            asked,
            see,
            hooks,
            news: Vec::new(),
            first: 0,
            lost: false,
            picks: Picks::default(),
            keys: standing.into_iter().map(behind).collect(),
            victims: (0..victims).map(|_| Seq::new(u32::MAX, no_key)).collect(),
        }
    }

    /// Checks an answer against the question, as [`crate::Core::answer`] does. Every error here is the policy's fault.
    pub fn check(&self, answer: &PolicyAnswer) -> Result<(), PolicyFault> {
        match (answer, &self.asked) {
            (PolicyAnswer::Plan(Ok(_)), PolicyQuestion::Plan(_)) => {
                check_picks(&self.picks, &self.keys, self.see.max_batch.max(1))
            }
            (PolicyAnswer::Admit(Ok(answers)), PolicyQuestion::Admit { room, .. }) => {
                self.check_admissions(answers, room.len())
            }
            (PolicyAnswer::Plan(Err(fault)) | PolicyAnswer::Admit(Err(fault)), _) => Err(*fault),
            _ => Err(PolicyFault::Trap),
        }
    }

    fn check_admissions(&self, answers: &[Admission], instances: usize) -> Result<(), PolicyFault> {
        if answers.len() > self.keys.len() {
            return Err(PolicyFault::TooMany);
        }
        let unknown = |a: &Admission| match a {
            Admission::Evict { victim } => *victim as usize >= self.victims.len(),
            Admission::Take { instance } => usize::from(*instance) >= instances,
            Admission::Defer | Admission::Reject(_) => false,
        };
        if answers.iter().any(unknown) { Err(PolicyFault::Index) } else { Ok(()) }
    }
}

fn check_picks(picks: &Picks, keys: &[Candidate], max_batch: u32) -> Result<(), PolicyFault> {
    let mut seen = vec![false; keys.len()];
    for i in picks.indices() {
        let place = seen.get_mut(i as usize).ok_or(PolicyFault::Index)?;
        if std::mem::replace(place, true) {
            return Err(PolicyFault::Repeat);
        }
    }
    let mut fired = picks.fire.iter().filter_map(|i| keys.get(*i as usize));
    let Some(first) = fired.next() else { return Ok(()) };
    let mut rows = first.rows;
    for candidate in fired {
        if candidate.shape != first.shape && !fault(Planted::ShapesMixed) {
            return Err(PolicyFault::Shapes);
        }
        rows = rows.saturating_add(candidate.rows);
        if rows > max_batch {
            return Err(PolicyFault::TooMany);
        }
    }
    Ok(())
}

/// The request behind an index, with the facts that the check of an answer needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    pub(crate) req: Req,
    pub(crate) rows: u32,
    pub(crate) shape: u64,
}
