//! A scheduler's component: checked against the contract, configured, and called with synthetic candidates.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sequor_core::policy::columns;
use sequor_core::{Columns, Decision, Hooks, Picks};

use sequor_wasm::call_error::CallError;
use sequor_wasm::counter::CounterName;
use sequor_wasm::services::Services;

use crate::author::trial::{TrialOptions, compile};
use crate::author::{AuthorError, Machine};
use crate::config::model::LoadFacts;
use crate::scheduling::SchedulerComponent;
use crate::scheduling::guest::{Events, Guest, Source};

/// A scheduler's component that passes a server's checks.
#[derive(Debug)]
pub struct SchedulerTrial {
    pub component: SchedulerComponent,
    facts: LoadFacts,
    options: TrialOptions,
    file: PathBuf,
    /// Time to compile it, or to load the cached code.
    pub loading: Duration,
}

/// A configured scheduler.
#[derive(Debug)]
pub struct RunningGuest {
    guest: Box<dyn Guest>,
    facts: LoadFacts,
    hooks: Hooks,
    /// Whether any plan was not left to the built-in policy.
    has_decided: bool,
    pub starting: Duration,
}

impl SchedulerTrial {
    /// Checks a file against the contract.
    pub fn new(
        file: &Path,
        bytes: &[u8],
        machine: &Machine,
        options: TrialOptions,
    ) -> Result<SchedulerTrial, AuthorError> {
        let (component, loading) = compile(file, machine, |engine, name, cache| {
            SchedulerComponent::new(engine, name, bytes, options.grants, cache)
        })?;
        // The model decides a feature's type, so each feature is present as both types.
        let features: Vec<String> = component.manifest().features.iter().take(4).cloned().collect();
        let facts = LoadFacts {
            name: "model".to_owned(),
            version: 1,
            strategy: "oldest",
            max_batch: 32,
            instances: 1,
            slots: 1024,
            numbers: features.clone(),
            keys: features,
        };
        Ok(SchedulerTrial { component, facts, options, file: file.to_owned(), loading })
    }

    /// Starts and configures it.
    pub fn start(&self) -> Result<RunningGuest, AuthorError> {
        let wrong = |hook: &str, what: &str| AuthorError::Component {
            path: self.file.clone(),
            what: format!("{hook}: {what}"),
        };
        let began = Instant::now();
        let mut guest =
            self.component.start(Arc::new(SilentServices), self.options.limits).map_err(|e| wrong("start", &e.what))?;
        let configured = guest.configure(&self.options.config, &self.facts).map_err(|e| wrong("configure", &e.what))?;
        configured.map_err(|what| wrong("configure", &what))?;
        let count = u8::try_from(self.facts.keys.len()).unwrap_or(4);
        let hooks = Hooks { numbers: count, keys: count, ..self.component.manifest().hooks };
        Ok(RunningGuest { guest, facts: self.facts.clone(), hooks, has_decided: false, starting: began.elapsed() })
    }
}

impl RunningGuest {
    /// Maximum number of candidates that it sees, from its plugin.toml.
    pub fn window(&self) -> u32 {
        if self.hooks.window == 0 { u32::MAX } else { self.hooks.window }
    }

    /// Asks for a plan for `candidates` candidates, or for as many as it wants to see. Returns an error if the answer is invalid.
    pub fn plan(&mut self, candidates: u32, round: u64) -> Result<Duration, String> {
        let candidates = candidates.min(self.window());
        let see = made_up(candidates, self.hooks, self.facts.max_batch, round);
        let mut picks = Picks::default();
        let began = Instant::now();
        let decision =
            self.guest.plan(0, &see, &Events::default(), &mut picks).map_err(name_hook("plan", candidates))?;
        let took = began.elapsed();
        self.has_decided |= decision != Decision::Default;
        // The plug-in's columns may lack what distinguishes candidates, but a server knows all columns.
        let all = Hooks { columns: columns::ALL, ..self.hooks };
        let known = made_up(candidates, all, self.facts.max_batch, round);
        wrong_with(&known, decision, &picks).map_or(Ok(took), |what| Err(format!("plan {what}")))
    }

    /// Calls every hook that it wants once, in the order around a plan.
    pub fn exercise(&mut self) -> Result<(), String> {
        let (keys, hooks) = (self.facts.keys.len(), self.hooks);
        if hooks.observe {
            let events = Events {
                kind: vec![1, 2, 6, 3, 4, 5, 99],
                sequence: vec![7, 7, 0, 7, 7, 7, 7],
                amount: vec![0, 50, 800, 1, 1, 1, 0],
                keys: vec![1; 7 * keys],
            };
            self.guest.observe(&events).map_err(name_hook("observe", 7))?;
        }
        if hooks.admit {
            let (see, victims) = (made_up(3, hooks, 32, 1), made_up(2, hooks, 32, 2));
            let answers = self.guest.admit(&see, &[1], &victims, &Events::default()).map_err(name_hook("admit", 3))?;
            if answers.len() > 3 {
                return Err(format!("admit answered {} times for 3 sequences", answers.len()));
            }
        }
        let saved = self.guest.save().map_err(name_hook("save", 0))?;
        self.guest
            .restore(&saved)
            .map_err(name_hook("restore", 0))?
            .map_err(|what| format!("restore: \"{what}\", of what it has just saved itself"))
    }

    /// Whether any plan was not left to the built-in policy.
    pub fn has_decided(&self) -> bool {
        self.has_decided
    }

    pub fn hooks(&self) -> Hooks {
        self.hooks
    }

    pub fn memory(&self) -> u64 {
        self.guest.memory()
    }
}

fn name_hook(hook: &'static str, candidates: u32) -> impl Fn(CallError) -> String {
    move |error| format!("{hook} of {candidates}: {error}")
}

/// Candidates of a busy server: sequences of five tenants, steps that are microseconds apart, two shapes, every third with a deadline.
fn made_up(count: u32, hooks: Hooks, max_batch: u32, round: u64) -> Columns {
    let now = 1_000_000_000 + round * 1_000_000;
    let wants = |column: u32| hooks.columns & column != 0;
    let all = || (0..u64::from(count)).map(move |i| (i, i.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17)));
    let column = |bit: u32, of: fn(u64, u64, u64) -> u64| -> Vec<u64> {
        if wants(bit) { all().map(|(i, chance)| of(i, chance, now)).collect() } else { Vec::new() }
    };
    let small = |bit: u32, of: fn(u64, u64, u64) -> u64| -> Vec<u32> {
        column(bit, of).into_iter().map(|n| u32::try_from(n).unwrap_or(u32::MAX)).collect()
    };
    let features =
        |names: u8| all().flat_map(move |(_, chance)| (0..u64::from(names)).map(move |f| chance % 5 + f + 1));
    Columns {
        now,
        max_batch,
        free_instances: 1,
        run_time: 900_000,
        live: count,
        len: count,
        seq: column(columns::SEQ, |i, _, _| i + 1),
        step: column(columns::STEP, |_, chance, _| chance % 100 + 1),
        slot: small(columns::SLOT, |i, _, _| i),
        arrival: column(columns::ARRIVAL, |i, _, now| now - 5_000_000 + i * 1000),
        ready: column(columns::READY, |i, _, now| now - 4_000_000 + i * 1000),
        deadline: column(
            columns::DEADLINE,
            |i, chance, now| {
                if i % 3 == 0 { now + chance % 50_000_000 } else { u64::MAX }
            },
        ),
        priority: small(columns::PRIORITY, |_, chance, _| chance % 3),
        shape: column(columns::SHAPE, |_, chance, _| u64::from(chance % 8 == 0)),
        flags: if wants(columns::FLAGS) { vec![0; count as usize] } else { Vec::new() },
        rows: small(columns::ROWS, |_, _, _| 1),
        bytes: column(columns::BYTES, |_, chance, _| chance % 10_000),
        state_bytes: column(columns::STATE_BYTES, |_, _, _| 4096),
        numbers: if wants(columns::NUMBERS) { features(hooks.numbers).map(|n| n as f64).collect() } else { Vec::new() },
        keys: if wants(columns::KEYS) { features(hooks.keys).collect() } else { Vec::new() },
        ..Columns::default()
    }
}

/// Why a server would reject an answer.
fn wrong_with(known: &Columns, decision: Decision, picks: &Picks) -> Option<String> {
    let mut seen = BTreeSet::new();
    for i in picks.indices() {
        if i >= known.len {
            return Some(format!("answered index {i} of {} candidates", known.len));
        }
        if !seen.insert(i) {
            return Some(format!("answered candidate {i} twice"));
        }
    }
    if decision != Decision::Fire {
        return None;
    }
    if picks.fire.len() > known.max_batch as usize {
        return Some(format!("fired {} rows; max-batch is {}", picks.fire.len(), known.max_batch));
    }
    let shapes: BTreeSet<u64> = picks.fire.iter().filter_map(|i| known.shape.get(*i as usize)).copied().collect();
    (shapes.len() > 1).then(|| "fired candidates whose shape-key differs as one batch".to_owned())
}

/// Host functions for a component on trial: they discard its log, and every key has a text.
#[derive(Debug)]
struct SilentServices;

impl Services for SilentServices {
    fn log(&self, _: u32, _: &str) {}

    fn metric_add(&self, _: &CounterName, _: f64) {}

    fn key_text(&self, key: u64) -> Option<String> {
        Some(format!("text {key}"))
    }

    fn sequence_text(&self, sequence: u64) -> Option<String> {
        Some(sequence.to_string())
    }
}

#[cfg(test)]
mod tests {
    use sequor_core::Rejection;

    use super::*;

    fn all() -> Hooks {
        Hooks { plan: true, columns: columns::ALL, numbers: 1, keys: 2, ..Hooks::default() }
    }

    #[test]
    fn requested_columns_are_filled_and_others_stay_empty() {
        let see = made_up(10, all(), 4, 0);
        assert_eq!((see.seq.len(), see.flags.len(), see.numbers.len(), see.keys.len()), (10, 10, 10, 20));
        let none = made_up(10, Hooks::default(), 4, 0);
        assert_eq!((none.len, none.seq.len(), none.keys.len()), (10, 0, 0));
    }

    #[test]
    fn invalid_scheduler_answers_are_reported() {
        let known = made_up(10, all(), 2, 0);
        let wrong = |fire: &[u32], reject: &[u32]| {
            let reject = reject.iter().map(|i| Rejection { candidate: *i, code: 0, ends: true }).collect();
            let picks = Picks { fire: fire.to_vec(), reject };
            wrong_with(&known, Decision::Fire, &picks).unwrap_or_default()
        };
        let alike: Vec<u32> = (0..10).filter(|i| known.shape[*i as usize] == 0).collect();
        let unlike = (0..10).find(|i| known.shape[*i as usize] == 1).unwrap();
        assert_eq!(wrong(&alike[..2], &alike[2..3]), "");
        assert_eq!(wrong(&[10], &[]), "answered index 10 of 10 candidates");
        assert_eq!(wrong(&alike[..1], &alike[..1]), format!("answered candidate {} twice", alike[0]));
        assert_eq!(wrong(&alike[..3], &[]), "fired 3 rows; max-batch is 2");
        assert!(wrong(&[alike[0], unlike], &[]).contains("shape-key"));
    }
}
