//! A test bench for `cargo test`: it drives a plug-in with candidates made by hand, and checks answers by the server's rules.
//!
//! ```
//! # use sequor_plugin::{scheduler::*, testing::{Bench, Candidate}};
//! # #[derive(Default)] struct Urgent;
//! # impl Scheduler for Urgent {
//! #     fn plan(&mut self, _: &Round, ready: &Ready) -> Plan { Plan::fire(ready.indices().min_by_key(|&i| ready.deadline_us(i))) }
//! # }
//! let mut bench = Bench::<Urgent>::new();
//! let decision = bench.plan(&[Candidate::new().deadline_us(9), Candidate::new().deadline_us(5)]);
//! assert_eq!(decision.fire, [1]);
//! ```

use std::collections::BTreeSet;

use crate::Instance;
use crate::manifest::Manifest;
use crate::scheduler::{Admission, Column, Columns, Decision, Ending, Events, Key, Model, Round, Scheduler};

/// One candidate. By default it is the first step of the next sequence, ready since 0, without a deadline.
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
    /// 0 for a request without a sequence.
    sequence: u64 = |c: &mut Candidate, v| c.sequence = Some(v);
    step: u64 = |c: &mut Candidate, v| c.step = v;
    slot: u32 = |c: &mut Candidate, v| c.slot = Some(v);
    /// Also the time at which it became ready, unless `ready_us` sets another.
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

    /// The text of a key feature. [`crate::host::key_text`] knows it from then on.
    #[must_use]
    pub fn key(mut self, feature: &str, text: &str) -> Candidate {
        self.keys.push((feature.to_owned(), crate::host::remember(text)));
        self
    }
}

/// The columns of candidates.
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

    /// The columns that the server fills.
    fn columns(&self, manifest: &Manifest) -> Columns<'_> {
        fn shown<'a, T>(column: &'a [T], name: &str, manifest: &Manifest) -> Column<'a, T> {
            if manifest.has_column(name) { column.into() } else { Column::default() }
        }
        let m = manifest;
        Columns {
            len: self.sequence.len() as u32,
            sequence: shown(&self.sequence, "sequence", m),
            step: shown(&self.step, "step", m),
            slot: shown(&self.slot, "slot", m),
            arrival_us: shown(&self.arrival_us, "arrival-us", m),
            ready_us: shown(&self.ready_us, "ready-us", m),
            deadline_us: shown(&self.deadline_us, "deadline-us", m),
            priority: shown(&self.priority, "priority", m),
            shape_key: shown(&self.shape_key, "shape-key", m),
            start_end: shown(&self.start_end, "start-end", m),
            rows: shown(&self.rows, "rows", m),
            input_bytes: shown(&self.input_bytes, "input-bytes", m),
            state_bytes: shown(&self.state_bytes, "state-bytes", m),
            numbers: shown(&self.numbers, "numbers", m),
            keys: shown(&self.keys, "keys", m),
        }
    }
}

fn of<T: Copy + Default>(name: &str, given: &[(String, T)]) -> T {
    given.iter().find(|(feature, _)| feature == name).map(|(_, value)| *value).unwrap_or_default()
}

/// A plug-in under test, configured before its first call. It has the hooks, columns and defaults of the crate's `plugin.toml`. A column
/// that the file does not name is missing, as in the server.
#[derive(Debug)]
pub struct Bench<P> {
    pub instance: Instance<P>,
    /// The state of the load for the next question. `now_us` is the clock.
    pub round: Round,
    model: Model,
    manifest: Manifest,
    config: String,
    ready: bool,
}

impl<P: Scheduler> Bench<P> {
    /// A bench with the crate's `plugin.toml`. Panics if it cannot be parsed.
    #[must_use]
    #[track_caller]
    pub fn new() -> Bench<P> {
        match Manifest::of_this_crate() {
            Ok(manifest) => Bench::with(manifest),
            Err(what) => panic!("{what}"),
        }
    }

    /// A bench with this text in place of the crate's `plugin.toml`.
    #[must_use]
    #[track_caller]
    pub fn with_manifest(text: &str) -> Bench<P> {
        match Manifest::parse(text) {
            Ok(manifest) => Bench::with(manifest),
            Err(what) => panic!("plugin.toml: {what}"),
        }
    }

    fn with(manifest: Manifest) -> Bench<P> {
        let (round, model) = (Round::default(), Model::default());
        Bench { instance: Instance::default(), round, model, manifest, config: String::new(), ready: false }
    }

    /// The configuration, as JSON. The defaults of `plugin.toml` are filled in.
    #[must_use]
    pub fn config(mut self, json: &str) -> Bench<P> {
        self.config = json.to_owned();
        self
    }

    /// The model's key features.
    #[must_use]
    pub fn keys(mut self, names: &[&str]) -> Bench<P> {
        self.model.keys = names.iter().map(ToString::to_string).collect();
        self
    }

    /// The model's numeric features.
    #[must_use]
    pub fn numbers(mut self, names: &[&str]) -> Bench<P> {
        self.model.numbers = names.iter().map(ToString::to_string).collect();
        self
    }

    #[must_use]
    pub fn max_batch(mut self, rows: u32) -> Bench<P> {
        (self.model.max_batch, self.round.max_batch) = (rows, rows);
        self
    }

    /// Configures the plug-in, and returns its error.
    pub fn configure(&mut self) -> Result<(), String> {
        self.ready = true;
        self.instance.configure(&self.manifest.resolve(&self.config)?, self.model.clone())
    }

    /// Asks for a plan. Panics if the answer breaks a rule of the server, or leaves the round to the built-in policy.
    #[track_caller]
    pub fn plan(&mut self, candidates: &[Candidate]) -> Decision {
        self.ask(candidates).expect("the plug-in left the round to the server")
    }

    /// Asks for a plan. Panics if the answer breaks a rule of the server.
    #[track_caller]
    pub fn ask(&mut self, candidates: &[Candidate]) -> Option<Decision> {
        self.start("plan");
        let table = Table::of(candidates, &self.model);
        let decision = self.instance.plan(&self.round, &table.columns(&self.manifest), Events::default())?;
        // The server knows shapes and rows even if the plug-in does not see them.
        if let Err(what) = check(&decision, &table.columns(&Manifest::default()), &self.round) {
            panic!("{what}: {decision:?}");
        }
        Some(decision)
    }

    /// Asks which sequences get a slot.
    #[track_caller]
    pub fn admit(&mut self, waiting: &[Candidate], room: &[u32], victims: &[Candidate]) -> Vec<Admission> {
        self.start("admit");
        let [waiting, victims] = [waiting, victims].map(|candidates| Table::of(candidates, &self.model));
        let (waiting, victims) = (waiting.columns(&self.manifest), victims.columns(&self.manifest));
        self.instance.admit(&self.round, &waiting, room, &victims, Events::default())
    }

    /// Advances the clock.
    pub fn wait_us(&mut self, micros: u64) {
        self.round.now_us += micros;
    }

    /// Reports that the sequences of these requests began.
    pub fn began(&mut self, starts: &[Candidate]) {
        self.report(1, starts, |start| start.step.saturating_sub(1));
    }

    /// Reports that their sequences got slots, after this time in the backlog.
    pub fn slotted(&mut self, starts: &[Candidate], waited_us: u64) {
        self.report(2, starts, |_| waited_us);
    }

    /// Reports that these requests ran.
    pub fn done(&mut self, candidates: &[Candidate]) {
        self.report(3, candidates, |request| request.rows.unwrap_or(1).into());
    }

    /// Reports that these requests failed.
    pub fn failed(&mut self, candidates: &[Candidate]) {
        self.report(4, candidates, |request| request.rows.unwrap_or(1).into());
    }

    /// Reports that the sequences of these STARTs ended.
    pub fn ended(&mut self, starts: &[Candidate], why: Ending) {
        self.report(5, starts, |_| why.code());
    }

    /// Reports that a batch ran for this long.
    pub fn batch_ran(&mut self, micros: u64) {
        self.report(6, &[Candidate::new().sequence(0)], |_| micros);
    }

    /// Reports an event of this kind for each of these requests. If `plugin.toml` does not name `observe`, the plug-in gets none.
    fn report(&mut self, kind: u32, of: &[Candidate], amount: impl Fn(&Candidate) -> u64) {
        self.configure_once();
        if !self.manifest.wants("observe") {
            return;
        }
        let Table { sequence, mut keys, .. } = Table::of(of, &self.model);
        // Only the events of requests, and of beginnings and ends, have keys.
        if matches!(kind, 2 | 6) {
            keys.fill(0);
        }
        let (kind, amount) = (vec![kind; of.len()], of.iter().map(amount).collect::<Vec<_>>());
        self.instance.observe(Events { kind: &kind, sequence: &sequence, amount: &amount, keys: &keys });
    }

    #[track_caller]
    fn start(&mut self, hook: &str) {
        assert!(
            self.manifest.wants(hook),
            "the server does not ask for a {hook}; add \"{hook}\" to `wants` of plugin.toml"
        );
        self.configure_once();
    }

    #[track_caller]
    fn configure_once(&mut self) {
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

/// Checks an answer by the server's rules.
pub fn check(said: &Decision, see: &Columns<'_>, round: &Round) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    let mut sequences = BTreeSet::new();
    for i in said.fire.iter().copied().chain(said.reject.iter().map(|rejection| rejection.candidate)) {
        if i >= see.len {
            return Err(format!("index {i} of {} candidates", see.len));
        }
        if !seen.insert(i) {
            return Err(format!("candidate {i} twice"));
        }
        let sequence = see.sequence.get(i as usize).copied().unwrap_or(0);
        if sequence != 0 && !sequences.insert(sequence) {
            return Err(format!("sequence {sequence} twice"));
        }
    }
    let of = |column: &[u64], i: &u32| column.get(*i as usize).copied().unwrap_or(0);
    let rows: u32 = said.fire.iter().map(|i| see.rows.get(*i as usize).copied().unwrap_or(1)).sum();
    if rows > round.max_batch && said.fire.len() > 1 {
        return Err(format!("{rows} rows in a batch of at most {}", round.max_batch));
    }
    if said.fire.windows(2).any(|two| of(&see.shape_key, &two[0]) != of(&see.shape_key, &two[1])) {
        return Err("unlike shapes in one batch".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::{Event, Plan, Ready};

    /// Counts events, and fires by deadline.
    #[derive(Debug, Default)]
    struct Counts {
        seen: Vec<String>,
        burst: u32,
    }

    impl Scheduler for Counts {
        fn configure(&mut self, config: &crate::scheduler::Config, _: &Model) -> Result<(), String> {
            self.burst = config.get("burst")?;
            Ok(())
        }

        fn plan(&mut self, round: &Round, ready: &Ready<'_>) -> Plan {
            if round.now_us < 5 {
                return Plan::wait_us(self.burst.into());
            }
            Plan::fire(ready.sorted(|i| ready.deadline_us(i)).take(1)).shed(1, 7)
        }

        fn observe(&mut self, event: &Event<'_>) {
            self.seen.push(match event {
                Event::Began { steps, keys, .. } => format!("began {steps} {}", keys.get("tenant") != 0),
                Event::Slotted { waited_us, .. } => format!("slotted {waited_us}"),
                Event::Done { rows, keys, .. } => format!("done {rows} {}", keys.get("tenant") != 0),
                Event::Failed { rows, .. } => format!("failed {rows}"),
                Event::Ended { why, keys, .. } => format!("ended {why:?} {}", keys.get("tenant") != 0),
                Event::BatchRan { took_us } => format!("ran {took_us}"),
                Event::Other { kind, .. } => format!("other {kind}"),
            });
        }
    }

    const MANIFEST: &str = "wants = [\"plan\", \"observe\"]\ncolumns = [\"deadline-us\"]\n[config.burst]\ntype = \"integer\"\ndefault = 4\n";

    #[test]
    fn clock_defaults_and_every_event_can_be_driven() {
        let mut bench = Bench::<Counts>::with_manifest(MANIFEST).keys(&["tenant"]);
        let two = [Candidate::new().key("tenant", "gold").deadline_us(1), Candidate::new()];
        assert_eq!(bench.plan(&two).wake_us, Some(4), "the default of plugin.toml");
        bench.wait_us(5);
        assert_eq!(bench.plan(&two).fire, [0]);
        let one = &two[..1];
        bench.began(one);
        bench.slotted(one, 8);
        bench.done(one);
        bench.failed(one);
        bench.batch_ran(900);
        bench.ended(one, Ending::Idle);
        let seen = ["began 0 true", "slotted 8", "done 1 true", "failed 1", "ran 900", "ended Idle true"];
        assert_eq!(bench.instance.plugin.seen, seen);
    }

    #[test]
    #[should_panic(expected = "add \"deadline-us\" to `columns` of plugin.toml")]
    fn the_bench_panics_if_a_plugin_reads_a_column_missing_in_plugin_toml() {
        let mut bench = Bench::<Counts>::with_manifest(&MANIFEST.replace("deadline-us", "rows"));
        bench.wait_us(5);
        bench.plan(&[Candidate::new(), Candidate::new()]);
    }

    #[test]
    #[should_panic(expected = "add \"admit\" to `wants` of plugin.toml")]
    fn the_bench_panics_if_a_test_calls_a_hook_missing_in_plugin_toml() {
        Bench::<Counts>::with_manifest(MANIFEST).admit(&[Candidate::new()], &[1], &[]);
    }

    #[test]
    #[should_panic(expected = "is not configured, and plugin.toml has no default for it")]
    fn the_bench_panics_if_plugin_toml_has_no_default_for_a_setting() {
        Bench::<Counts>::with_manifest("wants = [\"plan\"]\n").plan(&[Candidate::new()]);
    }
}
