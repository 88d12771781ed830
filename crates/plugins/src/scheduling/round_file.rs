//! A failed question on disk, so that its author can replay it: the question, the answer and the fault. The file holds numbers, and neither
//! tensors nor ids.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sequor_core::{
    Admission, Decision, Hooks, Instance, LoadId, PolicyAnswer, PolicyFault, PolicyQuestion, Rejection, Round, Time,
};
use sequor_wasm::call_error::CallError;
use sequor_wasm::limits::Limits;
use serde::{Deserialize, Serialize};

use super::columns_json::ColumnsJson;
use super::guest::{Events, Guest, Manifest, Strike};
use super::invalid_answer;
use super::round_folder;
use crate::config::model::LoadFacts;

/// The number of the format.
const FORMAT: u32 = 2;
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoundFile {
    pub sequor_round: u32,
    pub plugin: String,
    pub version: String,
    pub sha256: String,
    pub model: Facts,
    /// The guest's configuration: JSON, a table.
    pub config: String,
    pub time_us: u64,
    /// The guest's [`Limits::memory`].
    pub memory: Option<u64>,
    /// The fault: the server's word, and the sentence for the author in `what`.
    pub fault: String,
    pub what: String,
    pub question: Question,
    /// `None` if the guest gave no answer.
    pub answer: Option<Answer>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    pub name: String,
    pub version: u64,
    pub strategy: String,
    pub max_batch: u32,
    pub instances: u32,
    pub slots: u32,
    pub numbers: Vec<String>,
    pub keys: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Question {
    Plan { instance: u16, shown: ColumnsJson, standing: Vec<(u32, u64)> },
    Admit { shown: ColumnsJson, standing: Vec<(u32, u64)>, room: Vec<u32>, victims: Box<ColumnsJson> },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// The built-in policy's decision.
    Default,
    Wait {
        until_ns: u64,
        reject: Vec<Rejected>,
    },
    Fire {
        fire: Vec<u32>,
        reject: Vec<Rejected>,
    },
    Admit(Vec<Admitted>),
}

/// A candidate that was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rejected {
    pub candidate: u32,
    pub code: u32,
    pub ends: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Admitted {
    Take(u16),
    Evict(u32),
    Defer,
    Reject(u32),
}

/// The fault of a question.
#[derive(Debug, Clone, Copy)]
pub struct Wrong<'a> {
    pub fault: PolicyFault,
    pub what: &'a str,
}

/// The outcome of asking again.
#[derive(Debug, Clone, PartialEq)]
pub enum ReplayOutcome {
    /// The guest refused its configuration.
    Unconfigured(String),
    /// The guest gave no answer.
    Failed(CallError),
    /// The guest answered. The result is the core's verdict.
    Answered(Answer, Result<(), Strike>),
}

impl RoundFile {
    /// The file of a question and its answer, if there was one. `config` and `limits` are the guest's.
    pub fn new(
        round: &Round,
        answer: Option<&PolicyAnswer>,
        wrong: Wrong<'_>,
        of: (&Manifest, &str),
        at: (&LoadFacts, &str, Limits),
    ) -> RoundFile {
        let ((manifest, sha256), (model, config, limits)) = (of, at);
        RoundFile {
            sequor_round: FORMAT,
            plugin: manifest.name.clone(),
            version: manifest.version.clone(),
            sha256: sha256.to_owned(),
            model: model.into(),
            config: config.to_owned(),
            time_us: u64::try_from(limits.time.as_micros()).unwrap_or(u64::MAX),
            memory: limits.memory,
            fault: invalid_answer::word(wrong.fault).to_owned(),
            what: wrong.what.to_owned(),
            question: Question::of(round),
            answer: answer.and_then(|answer| Answer::of(answer, round)),
        }
    }

    /// Writes the file into a folder, as the next of its component.
    pub fn write(&self, folder: &Path) -> io::Result<PathBuf> {
        let component = self.sha256.get(..7).unwrap_or("unknown");
        round_folder::write(folder, component, |to| Ok(serde_json::to_writer(to, self)?))
    }

    pub fn read(text: &str) -> Result<RoundFile, String> {
        let file: RoundFile = serde_json::from_str(text).map_err(|e| format!("it is no recorded round: {e}"))?;
        if file.sequor_round != FORMAT {
            return Err(format!("it is a round of format {}; this program reads {FORMAT}", file.sequor_round));
        }
        Ok(file)
    }

    pub fn limits(&self) -> Limits {
        Limits { time: Duration::from_micros(self.time_us), memory: self.memory }
    }

    /// Asks a newly started guest the question. It has none of the events that the first one observed.
    pub fn ask(&self, guest: &mut dyn Guest) -> ReplayOutcome {
        match guest.configure(&self.config, &self.model.facts()) {
            Ok(Ok(())) => {}
            Ok(Err(what)) => return ReplayOutcome::Unconfigured(what),
            Err(error) => return ReplayOutcome::Failed(error),
        }
        let mut round = self.question.round();
        let answer = match &round.asked {
            PolicyQuestion::Plan(who) => {
                let none = Events::default();
                let answer = guest.plan(u32::from(who.n), &round.see, &none, &mut round.picks);
                answer.map(|answer| PolicyAnswer::Plan(Ok(answer)))
            }
            PolicyQuestion::Admit { room, victims, .. } => {
                let answer = guest.admit(&round.see, room, victims, &Events::default());
                answer.map(|answer| PolicyAnswer::Admit(Ok(answer)))
            }
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return ReplayOutcome::Failed(error),
        };
        let verdict = round
            .check(&answer)
            .map_err(|fault| Strike { fault, what: invalid_answer::sentence(&round, &answer, fault) });
        ReplayOutcome::Answered(Answer::of(&answer, &round).unwrap_or(Answer::Default), verdict)
    }
}

impl Question {
    fn of(round: &Round) -> Question {
        let (shown, standing) = (ColumnsJson::new(&round.see), round.standing().collect());
        match &round.asked {
            PolicyQuestion::Plan(who) => Question::Plan { instance: who.n, shown, standing },
            PolicyQuestion::Admit { room, victims, .. } => {
                Question::Admit { shown, standing, room: room.clone(), victims: Box::new(ColumnsJson::new(victims)) }
            }
        }
    }

    fn round(&self) -> Round {
        let load = LoadId::FIRST;
        let (asked, shown, standing) = match self {
            Question::Plan { instance, shown, standing } => {
                (PolicyQuestion::Plan(Instance { load, n: *instance }), shown, standing)
            }
            Question::Admit { shown, standing, room, victims } => {
                let victims = Box::new(victims.columns());
                (PolicyQuestion::Admit { load, room: room.clone(), victims }, shown, standing)
            }
        };
        Round::again(asked, shown.columns(), Hooks::default(), standing.iter().copied())
    }

    /// The columns that the guest was shown.
    pub fn shown(&self) -> &ColumnsJson {
        match self {
            Question::Plan { shown, .. } | Question::Admit { shown, .. } => shown,
        }
    }
}

impl Answer {
    fn of(answer: &PolicyAnswer, round: &Round) -> Option<Answer> {
        let (picks, most) = (&round.picks, invalid_answer::worth_keeping(round.see.len));
        let reject = picks.reject.iter().map(Rejected::from).collect();
        match answer {
            PolicyAnswer::Plan(Ok(Decision::Default)) => Some(Answer::Default),
            PolicyAnswer::Plan(Ok(Decision::Wait(Time(until_ns)))) => {
                Some(Answer::Wait { until_ns: *until_ns, reject })
            }
            PolicyAnswer::Plan(Ok(Decision::Fire)) => Some(Answer::Fire { fire: picks.fire.clone(), reject }),
            PolicyAnswer::Admit(Ok(answers)) => {
                Some(Answer::Admit(answers.iter().take(most).copied().map(Admitted::from).collect()))
            }
            PolicyAnswer::Plan(Err(_)) | PolicyAnswer::Admit(Err(_)) => None,
        }
    }
}

impl From<&Rejection> for Rejected {
    fn from(answer: &Rejection) -> Self {
        let Rejection { candidate, code, ends } = *answer;
        Rejected { candidate, code, ends }
    }
}

impl From<Admission> for Admitted {
    fn from(answer: Admission) -> Self {
        match answer {
            Admission::Take { instance } => Admitted::Take(instance),
            Admission::Evict { victim } => Admitted::Evict(victim),
            Admission::Defer => Admitted::Defer,
            Admission::Reject(code) => Admitted::Reject(code),
        }
    }
}

impl From<&LoadFacts> for Facts {
    fn from(of: &LoadFacts) -> Self {
        let LoadFacts { name, version, strategy, max_batch, instances, slots, numbers, keys } = of.clone();
        Facts { name, version, strategy: strategy.to_owned(), max_batch, instances, slots, numbers, keys }
    }
}

impl Facts {
    fn facts(&self) -> LoadFacts {
        let Facts { name, version, strategy, max_batch, instances, slots, numbers, keys } = self.clone();
        let strategy = ["stateless", "direct"].into_iter().find(|known| *known == strategy).unwrap_or("oldest");
        LoadFacts { name, version, strategy, max_batch, instances, slots, numbers, keys }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sequor_core::{Columns, Picks};

    use super::*;
    use crate::scheduling::SchedulerComponent;
    use crate::scheduling::wat_fixture::SERVING;
    use crate::scheduling::wat_fixture::{self, ServiceLog};
    use sequor_wasm::call_error::CallFault;
    use sequor_wasm::grants::Grants;

    fn round(len: u32, standing: u32) -> Round {
        let see = Columns {
            len,
            max_batch: 4,
            deadline: vec![u64::MAX; len as usize],
            numbers: vec![0.5, f64::NAN],
            ..Columns::default()
        };
        let who = Instance { load: LoadId::FIRST, n: 1 };
        Round::again(PolicyQuestion::Plan(who), see, Hooks::default(), (0..standing).map(|n| (1, u64::from(n / 2))))
    }

    fn file(round: &Round, answer: Option<&PolicyAnswer>) -> RoundFile {
        let manifest = Manifest {
            name: "fair".to_owned(),
            version: "1.2".to_owned(),
            hooks: Hooks::default(),
            features: Vec::new(),
            codes: Arc::default(),
        };
        let facts = LoadFacts { name: "vad".to_owned(), strategy: "direct", ..LoadFacts::default() };
        let wrong = Wrong { fault: PolicyFault::Index, what: "plan answered index 97 of 3 candidates" };
        RoundFile::new(round, answer, wrong, (&manifest, "3f2a91c4d0"), (&facts, "{}", Limits::default()))
    }

    #[test]
    fn a_round_file_round_trips() {
        let folder = tempfile::tempdir().unwrap();
        let mut round = round(3, 3);
        let rejection = Rejection { candidate: 1, code: 9, ends: false };
        round.picks = Picks { fire: vec![97, 0], reject: vec![rejection] };
        let file = file(&round, Some(&PolicyAnswer::Plan(Ok(Decision::Fire))));
        std::fs::write(folder.path().join("3f2a91c-2.json"), "{}").unwrap();
        let path = file.write(folder.path()).unwrap();
        assert_eq!(path.file_name().unwrap(), "3f2a91c-3.json");
        let read = RoundFile::read(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(read, file);
        let reject = vec![Rejected { candidate: 1, code: 9, ends: false }];
        assert_eq!(read.answer, Some(Answer::Fire { fire: vec![97, 0], reject }));
        assert_eq!(read.limits(), Limits::default());
        let again = read.question.round();
        assert_eq!(
            (again.asked, again.see.deadline),
            (PolicyQuestion::Plan(Instance { load: LoadId::FIRST, n: 1 }), round.see.deadline)
        );
        assert!(again.see.numbers[1].is_nan());
        assert!(RoundFile::read("{}").unwrap_err().starts_with("it is no recorded round: "));
    }

    #[test]
    fn a_too_long_admission_is_recorded_only_up_to_its_fault() {
        let victims = Box::new(Columns::default());
        let asked = PolicyQuestion::Admit { load: LoadId::FIRST, room: vec![0], victims };
        let round = Round::again(asked, Columns { len: 2, ..Columns::default() }, Hooks::default(), [(1, 0); 2]);
        let answer = PolicyAnswer::Admit(Ok(vec![Admission::Defer; 100_000]));
        let Some(Answer::Admit(kept)) = file(&round, Some(&answer)).answer else { panic!() };
        assert_eq!(kept.len(), 3);
        assert_eq!(round.check(&answer), Err(PolicyFault::TooMany));
    }

    #[test]
    fn an_admission_round_trips_through_a_round_file() {
        let victims = Box::new(Columns { len: 2, ..Columns::default() });
        let asked = PolicyQuestion::Admit { load: LoadId::FIRST, room: vec![0, 1], victims };
        let round = Round::again(asked, Columns { len: 1, ..Columns::default() }, Hooks::default(), [(1, 0)]);
        let answer = PolicyAnswer::Admit(Ok(vec![Admission::Evict { victim: 1 }]));
        assert_eq!(round.check(&answer), Ok(()));
        let file = file(&round, Some(&answer));
        let again = RoundFile::read(&serde_json::to_string(&file).unwrap()).unwrap().question.round();
        assert_eq!(again.check(&answer), Ok(()));
        assert_eq!(
            again.check(&PolicyAnswer::Admit(Ok(vec![Admission::Evict { victim: 2 }]))),
            Err(PolicyFault::Index)
        );
    }

    #[test]
    fn a_replayed_round_is_answered_and_validated() {
        let put = |guest: &wat_fixture::SchedulerWat<'_>, standing| {
            let bytes = guest.component();
            let component = SchedulerComponent::new(&SERVING, "x.wasm", &bytes, Grants::default(), None).unwrap();
            let mut instance = component.guest(Arc::new(ServiceLog::default()), Limits::default()).unwrap();
            file(&round(3, standing), None).ask(&mut instance)
        };
        // The guest fires all three, and the third has another shape.
        let ReplayOutcome::Answered(answer, verdict) = put(&wat_fixture::SchedulerWat::default(), 3) else { panic!() };
        assert_eq!(answer, Answer::Fire { fire: vec![0, 1, 2], reject: vec![] });
        let error = verdict.unwrap_err();
        assert_eq!((error.fault, error.what.contains("shape")), (PolicyFault::Shapes, true));
        let fell = put(&wat_fixture::SchedulerWat { plan: "unreachable", ..wat_fixture::SchedulerWat::default() }, 3);
        assert!(matches!(fell, ReplayOutcome::Failed(CallError { fault: CallFault::Trap, .. })), "{fell:?}");
        let refuses = "(i32.store8 (i32.const 1024) (i32.const 1)) (i32.const 1024)";
        let refuses = put(&wat_fixture::SchedulerWat { configure: refuses, ..wat_fixture::SchedulerWat::default() }, 3);
        assert_eq!(refuses, ReplayOutcome::Unconfigured(String::new()));
    }
}
