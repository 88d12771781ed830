//! The counts over all seeds, and their output.

use std::fmt::Write as _;

use sequor_core::*;

#[derive(Debug, Default, Clone)]
pub struct Outcome {
    pub seeds: u64,
    /// Events applied.
    pub events: u64,
    /// All calls: events, pulls, answers, questions.
    pub calls: u64,
    pub requests: u64,
    pub batches: u64,
    pub rows: u64,
    pub sequences: u64,
    pub transitions: Transitions,
    pub ended: [u64; EndReason::ALL.len()],
    pub refused: Vec<(&'static str, u64)>,
    pub faults: Vec<(String, u64)>,
    /// Answers of preparations, and what happened in between.
    pub prepared: Vec<(&'static str, u64)>,
}

impl Outcome {
    pub fn add(&mut self, other: &Outcome) {
        self.seeds += other.seeds;
        self.events += other.events;
        self.calls += other.calls;
        self.requests += other.requests;
        self.batches += other.batches;
        self.rows += other.rows;
        self.sequences += other.sequences;
        self.transitions.add(&other.transitions);
        for (mine, theirs) in self.ended.iter_mut().zip(other.ended) {
            *mine += theirs;
        }
        for (name, n) in &other.refused {
            count(&mut self.refused, name, *n);
        }
        for (name, n) in &other.prepared {
            count(&mut self.prepared, name, *n);
        }
        for (name, n) in &other.faults {
            count(&mut self.faults, name.clone(), *n);
        }
    }

    /// Transitions of the table that were taken less than `least` times, and taken ones that it does not list.
    pub fn arrows(&self, least: u64) -> (Vec<String>, Vec<String>) {
        let name = |s: Option<Stage>| s.map_or("-".to_owned(), |s| format!("{s:?}"));
        let mut rare = Vec::new();
        let mut foreign = Vec::new();
        let stages: Vec<Option<Stage>> = std::iter::once(None).chain(Stage::ALL.map(Some)).collect();
        for from in &stages {
            for to in &stages {
                let n = self.transitions.get(*from, *to);
                let text = format!("{} => {}: {n}", name(*from), name(*to));
                match Transitions::arrows().contains(&(*from, *to)) {
                    true if n < least => rare.push(text),
                    false if n > 0 => foreign.push(text),
                    _ => {}
                }
            }
        }
        (rare, foreign)
    }

    /// Outcomes of a preparation that occurred less than `least` times.
    pub fn rare(&self, least: u64) -> Vec<&'static str> {
        let all = [
            "run",
            "run steps",
            "reply",
            "a reply made durable",
            "a reply that is not durable",
            "refuse",
            "refuse and end",
            "cancelled while lent",
            "cancelled between runs",
            "cancelled after the run",
            "failed after the run",
            "first state",
            "next run",
            "brings a state",
            "continues on a retired load",
            "moved before it began",
            "an instance with sequences is lost",
            "the last instance is lost",
        ];
        self.rare_of(&all, least)
    }

    /// Events around a crash that occurred less than `least` times.
    pub fn rare_over_crashes(&self, least: u64) -> Vec<&'static str> {
        let all = [
            "crash",
            "a write survives",
            "a write is cut off",
            "an answered step is kept",
            "an answered END stays",
            "resumed after a crash",
            "resumed after it left memory",
            "answered again by the store",
            "a batch sealed in part",
            "rolled back",
            "rolled back to a write that failed",
        ];
        let mut rare = self.rare_of(&all, least);
        rare.extend(EndReason::ALL.iter().zip(self.ended).find_map(|(why, n)| {
            (*why == EndReason::Unsealed && n < least).then_some("ended because its state could not be made durable")
        }));
        rare
    }

    fn rare_of(&self, all: &[&'static str], least: u64) -> Vec<&'static str> {
        let met = |name: &str| self.prepared.iter().find(|(n, _)| *n == name).map_or(0, |(_, n)| *n);
        all.iter().copied().filter(|name| met(name) < least).collect()
    }

    pub fn table(&self) -> String {
        let mut text = format!(
            "{} seeds, {} events ({} calls), {} requests, {} sequences, {} batches of {:.2} rows\n",
            self.seeds,
            self.events,
            self.calls,
            self.requests,
            self.sequences,
            self.batches,
            self.rows as f64 / self.batches.max(1) as f64
        );
        let mut last = None;
        for (from, to) in Transitions::arrows() {
            if last != Some(from) {
                let _ = write!(text, "\n  {:<11}", from.map_or("(START)".to_owned(), |s| format!("{s:?}")));
                last = Some(from);
            }
            let _ = write!(
                text,
                " {} {}",
                to.map_or("(ended)".to_owned(), |s| format!("{s:?}")),
                self.transitions.get(from, to)
            );
        }
        text.push_str("\n\n  ended  ");
        for (why, n) in EndReason::ALL.iter().zip(self.ended) {
            let _ = write!(text, " {why:?} {n}");
        }
        text.push_str("\n  refused");
        for (name, n) in &self.refused {
            let _ = write!(text, " {name} {n}");
        }
        text.push_str("\n  prepared");
        for (name, n) in &self.prepared {
            let _ = write!(text, " {name} {n}");
        }
        text.push_str("\n  policies");
        for (name, n) in &self.faults {
            let _ = write!(text, " {name} {n}");
        }
        text
    }
}

pub fn count<T: PartialEq<U> + From<U>, U>(list: &mut Vec<(T, u64)>, name: U, n: u64) {
    match list.iter_mut().find(|(x, _)| *x == name) {
        Some((_, count)) => *count += n,
        None => list.push((name.into(), n)),
    }
}

pub fn kind(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Unknown(None) => "Unknown",
        Refusal::Unknown(Some(_)) => "UnknownNow",
        Refusal::Live => "Live",
        Refusal::Ending => "Ending",
        Refusal::TooMany { .. } => "TooMany",
        Refusal::StoreFull { .. } => "StoreFull",
        Refusal::BacklogFull { .. } => "BacklogFull",
        Refusal::NoId => "NoId",
        Refusal::Stopping => "Stopping",
        Refusal::NoVersion => "NoVersion",
        Refusal::QueueTimeout { .. } => "QueueTimeout",
        Refusal::BacklogTimeout { .. } => "BacklogTimeout",
        Refusal::Cancelled => "Cancelled",
        Refusal::QueueFull { .. } => "QueueFull",
        Refusal::StepGap { .. } => "StepGap",
        Refusal::StepGone { .. } => "StepGone",
        Refusal::StepBusy { .. } => "StepBusy",
        Refusal::Ended(_) => "Ended",
        Refusal::Elsewhere => "Elsewhere",
        Refusal::Policy(_) => "Policy",
        Refusal::Failed(_) => "Failed",
    }
}
