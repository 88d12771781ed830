//! Drives a plug-in in `cargo test`: candidates put together by hand, answers held against the rules that the server holds them against.
//!
//! ```
//! # use sequor_plugin::{scheduler::*, testing::{Bench, Candidate}};
//! # #[derive(Default)] struct Urgent;
//! # impl Scheduler for Urgent {
//! #     fn plan(&mut self, _: &Round, ready: &Ready) -> Plan { Plan::fire(ready.indices().min_by_key(|&i| ready.deadline_us(i))) }
//! # }
//! let mut bench = Bench::<Urgent>::new();
//! let said = bench.plan(&[Candidate::new().deadline_us(9), Candidate::new().deadline_us(5)]);
//! assert_eq!(said.fire, [1]);
//! ```

use std::collections::BTreeSet;

use crate::Instance;
use crate::scheduler::{Admission, Columns, Decision, Events, Key, Model, Round, Scheduler};

/// One candidate, all of whose columns have a value. Left as it is: the next sequence's first step, ready since 0, with no deadline.
#[derive(Debug, Clone, Default)]
pub struct Candidate {
    sequence: Option<u64>,
    step: u64,
    slot: Option<u32>,
    arrival_us: u64,
    ready_us: Option<u64>,
    deadline_us: Option<u64>,
    priority: u32,
    shape: u64,
    start_end: u8,
    rows: Option<u32>,
    input_bytes: u64,
    state_bytes: u64,
    numbers: Vec<(String, f64)>,
    keys: Vec<(String, Key)>,
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $set:expr;)*) => {
        impl Candidate {
            $($(#[$doc])* #[must_use] pub fn $name(mut self, value: $type) -> Candidate { ($set)(&mut self, value); self })*
        }
    };
}

setters! {
    /// 0 is a request without a sequence.
    sequence: u64 = |c: &mut Candidate, v| c.sequence = Some(v);
    step: u64 = |c: &mut Candidate, v| c.step = v;
    slot: u32 = |c: &mut Candidate, v| c.slot = Some(v);
    /// Also when it became ready, unless that is said.
    arrival_us: u64 = |c: &mut Candidate, v| c.arrival_us = v;
    ready_us: u64 = |c: &mut Candidate, v| c.ready_us = Some(v);
    deadline_us: u64 = |c: &mut Candidate, v| c.deadline_us = Some(v);
    priority: u32 = |c: &mut Candidate, v| c.priority = v;
    shape: u64 = |c: &mut Candidate, v| c.shape = v;
    /// 1: starts its sequence; 2: ends it; 3: both.
    start_end: u8 = |c: &mut Candidate, v| c.start_end = v;
    rows: u32 = |c: &mut Candidate, v| c.rows = Some(v);
    input_bytes: u64 = |c: &mut Candidate, v| c.input_bytes = v;
    state_bytes: u64 = |c: &mut Candidate, v| c.state_bytes = v;
}

impl Candidate {
    #[must_use]
    pub fn new() -> Candidate {
        Candidate::default()
    }

    #[must_use]
    pub fn number(mut self, feature: &str, value: f64) -> Candidate {
        self.numbers.push((feature.to_owned(), value));
        self
    }

    /// The text of a key feature; [`crate::host::key_text`] knows it from then on.
    #[must_use]
    pub fn key(mut self, feature: &str, text: &str) -> Candidate {
        #[cfg(not(target_arch = "wasm32"))]
        let key = crate::host::remember(text);
        #[cfg(target_arch = "wasm32")]
        let key = crate::scheduler::key_of(text);
        self.keys.push((feature.to_owned(), key));
        self
    }
}

/// What the columns of candidates are slices of.
#[derive(Debug, Clone, Default)]
struct Table {
    sequence: Vec<u64>,
    step: Vec<u64>,
    slot: Vec<u32>,
    arrival_us: Vec<u64>,
    ready_us: Vec<u64>,
    deadline_us: Vec<u64>,
    priority: Vec<u32>,
    shape_key: Vec<u64>,
    start_end: Vec<u8>,
    rows: Vec<u32>,
    input_bytes: Vec<u64>,
    state_bytes: Vec<u64>,
    numbers: Vec<f64>,
    keys: Vec<Key>,
}

impl Table {
    /// These candidates, with the features of this model.
    fn of(candidates: &[Candidate], model: &Model) -> Table {
        let mut table = Table::default();
        for (n, c) in (1..).zip(candidates) {
            table.sequence.push(c.sequence.unwrap_or(n));
            table.step.push(c.step.max(1));
            table.slot.push(c.slot.unwrap_or(u32::MAX));
            table.arrival_us.push(c.arrival_us);
            table.ready_us.push(c.ready_us.unwrap_or(c.arrival_us));
            table.deadline_us.push(c.deadline_us.unwrap_or(u64::MAX));
            table.priority.push(c.priority);
            table.shape_key.push(c.shape);
            table.start_end.push(c.start_end);
            table.rows.push(c.rows.unwrap_or(1));
            table.input_bytes.push(c.input_bytes);
            table.state_bytes.push(c.state_bytes);
            table.numbers.extend(model.numbers.iter().map(|name| of(name, &c.numbers)));
            table.keys.extend(model.keys.iter().map(|name| of(name, &c.keys)));
        }
        table
    }

    fn columns(&self) -> Columns<'_> {
        Columns {
            len: self.sequence.len() as u32,
            sequence: self.sequence[..].into(),
            step: self.step[..].into(),
            slot: self.slot[..].into(),
            arrival_us: self.arrival_us[..].into(),
            ready_us: self.ready_us[..].into(),
            deadline_us: self.deadline_us[..].into(),
            priority: self.priority[..].into(),
            shape_key: self.shape_key[..].into(),
            start_end: self.start_end[..].into(),
            rows: self.rows[..].into(),
            input_bytes: self.input_bytes[..].into(),
            state_bytes: self.state_bytes[..].into(),
            numbers: self.numbers[..].into(),
            keys: self.keys[..].into(),
        }
    }
}

fn of<T: Copy + Default>(name: &str, given: &[(String, T)]) -> T {
    given.iter().find(|(feature, _)| feature == name).map(|(_, value)| *value).unwrap_or_default()
}

/// A plug-in on the bench: configured on the first question.
#[derive(Debug)]
pub struct Bench<P> {
    pub instance: Instance<P>,
    pub round: Round,
    model: Model,
    config: String,
    ready: bool,
}

impl<P: Scheduler> Bench<P> {
    #[must_use]
    pub fn new() -> Bench<P> {
        Bench {
            instance: Instance::default(),
            round: Round::default(),
            model: Model::default(),
            config: String::new(),
            ready: false,
        }
    }

    /// The configuration, as JSON. Defaults of plugin.toml are the server's to fill in: say them here.
    #[must_use]
    pub fn config(mut self, json: &str) -> Bench<P> {
        self.config = json.to_owned();
        self
    }

    #[must_use]
    pub fn keys(mut self, names: &[&str]) -> Bench<P> {
        self.model.keys = names.iter().map(ToString::to_string).collect();
        self
    }

    #[must_use]
    pub fn numbers(mut self, names: &[&str]) -> Bench<P> {
        self.model.numbers = names.iter().map(ToString::to_string).collect();
        self
    }

    #[must_use]
    pub fn max_batch(mut self, rows: u32) -> Bench<P> {
        (self.model.max_batch, self.round.max_rows) = (rows, rows);
        self
    }

    /// What `configure` says.
    pub fn configure(&mut self) -> Result<(), String> {
        self.ready = true;
        self.instance.configure(&self.config, self.model.clone())
    }

    /// Asks, and panics if the answer breaks a rule of the server or leaves the round to it.
    #[track_caller]
    pub fn plan(&mut self, candidates: &[Candidate]) -> Decision {
        self.ask(candidates).expect("the plug-in left the round to the server")
    }

    /// Asks, and panics if the answer breaks a rule of the server.
    #[track_caller]
    pub fn ask(&mut self, candidates: &[Candidate]) -> Option<Decision> {
        self.start();
        let table = Table::of(candidates, &self.model);
        let columns = table.columns();
        let said = self.instance.plan(&self.round, &columns)?;
        if let Err(what) = check(&said, &columns, &self.round) {
            panic!("{what}: {said:?}");
        }
        Some(said)
    }

    #[track_caller]
    pub fn admit(&mut self, waiting: &[Candidate], room: &[u32], victims: &[Candidate]) -> Vec<Admission> {
        self.start();
        let (waiting, victims) = (Table::of(waiting, &self.model), Table::of(victims, &self.model));
        self.instance.admit(&self.round, &waiting.columns(), room, &victims.columns())
    }

    /// Says that these requests ran.
    pub fn done(&mut self, candidates: &[Candidate]) {
        let Table { sequence, rows, keys, .. } = Table::of(candidates, &self.model);
        let (kind, amount) = (vec![3; rows.len()], rows.iter().map(|rows| u64::from(*rows)).collect::<Vec<_>>());
        self.instance.observe(Events { kind: &kind, sequence: &sequence, amount: &amount, keys: &keys });
    }

    #[track_caller]
    fn start(&mut self) {
        if !self.ready {
            self.configure().expect("the plug-in refused its configuration");
        }
    }
}

impl<P: Scheduler> Default for Bench<P> {
    fn default() -> Bench<P> {
        Bench::new()
    }
}

/// What the server would have against an answer.
pub fn check(said: &Decision, see: &Columns<'_>, round: &Round) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    let mut sequences = BTreeSet::new();
    for i in said.fire.iter().chain(&said.reject) {
        if *i >= see.len {
            return Err(format!("index {i} of {} candidates", see.len));
        }
        if !seen.insert(*i) {
            return Err(format!("candidate {i} twice"));
        }
        let sequence = see.sequence.get(*i as usize).copied().unwrap_or(0);
        if sequence != 0 && !sequences.insert(sequence) {
            return Err(format!("sequence {sequence} twice"));
        }
    }
    let of = |column: &[u64], i: &u32| column.get(*i as usize).copied().unwrap_or(0);
    let rows: u32 = said.fire.iter().map(|i| see.rows.get(*i as usize).copied().unwrap_or(1)).sum();
    if rows > round.max_rows && said.fire.len() > 1 {
        return Err(format!("{rows} rows in a batch of at most {}", round.max_rows));
    }
    if said.fire.windows(2).any(|two| of(&see.shape_key, &two[0]) != of(&see.shape_key, &two[1])) {
        return Err("unlike shapes in one batch".to_owned());
    }
    Ok(())
}
