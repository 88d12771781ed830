//! A recorded trace as a workload: the arrivals of one model, and the observations of that day.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::BufRead;
use std::path::Path;
use std::time::Duration;

use sequor_core::Time;

use super::tenants::{NO_TENANT, place_of};
use super::{Arrival, RecordedServing, Workload};
use crate::config::place::Place;
use crate::config::units::{Span, SpanOrNever};
use crate::config::{Fault, fault};
use crate::recording::trace::{self, Hash, Load, RecordedRequest, TraceLine};
use crate::simulate::serving::ServingOptions;
use crate::simulate::slowdown_trace::RecordedBatch;
use crate::simulate::{Costs, SimulateError};

/// Collects the requests of one model, file after file.
#[derive(Debug, Default)]
pub struct Replay {
    /// The model to collect. If none was named, it is the first of the trace.
    model: Option<String>,
    wished: bool,
    models: BTreeSet<String>,
    /// The strategy and the options of each model.
    loads: BTreeMap<String, (String, ServingOptions)>,
    workload: Workload,
    live: RecordedServing,
    seen: Vec<RecordedBatch>,
    /// Looked up, never iterated. Ids of two recordings are unrelated, so the recording's zero is part of the key.
    numbers: HashMap<(u64, Hash), u32>,
    zero_us: u64,
    stateless: u64,
}

impl Replay {
    /// Collects the model of this name, or the only one.
    pub fn new(model: Option<&str>) -> Replay {
        Replay { model: model.map(str::to_owned), wished: model.is_some(), ..Replay::default() }
    }

    /// Reads one file.
    pub fn file(&mut self, path: &Path, mut text: impl BufRead) -> Result<(), SimulateError> {
        let failed = |e: std::io::Error| SimulateError::File { path: path.to_owned(), what: e.to_string() };
        let mut line = String::new();
        for n in 1u32.. {
            line.clear();
            if text.read_line(&mut line).map_err(failed)? == 0 {
                break;
            }
            let whole = line.ends_with('\n');
            match trace::read(line.trim_end()) {
                Ok(read) => self.line(&read),
                Err(_) if line.trim().is_empty() => {}
                // The recording server stopped in the middle of a line.
                Err(_) if !whole && n > 1 => {
                    self.live.notes.push(format!("{}: its last line is cut off", path.display()));
                }
                Err(what) => {
                    let at = Place { line: n, column: 0 }.at(path);
                    return Err(Fault { at, code: fault::code::PARSE, what }.into());
                }
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &TraceLine<'_>) {
        match line {
            TraceLine::Head(head) => self.zero_us = head.zero_unix_us,
            TraceLine::Load(load) => self.load(load),
            TraceLine::Request(request) => self.request(request),
        }
    }

    /// Records how a model was served. The latest of its loads counts.
    fn load(&mut self, load: &Load<'_>) {
        let span = |micros| Span(Duration::from_micros(micros));
        let wishes = ServingOptions {
            instances: Some(vec![load.instances.max(1)]),
            // A stateless load has no slots. `direct` has as many as rows, which is no evidence for `oldest`.
            slots: (load.slots > 0).then_some(load.slots),
            max_batch: Some(load.max_batch.max(1)),
            delay: Some(span(load.delay_us)),
            idle: Some(SpanOrNever(load.idle_us.map(|us| span(us).0))),
            ..ServingOptions::default()
        };
        self.loads.insert(load.load.clone().into_owned(), (load.strategy.clone().into_owned(), wishes));
    }

    fn request(&mut self, request: &RecordedRequest<'_>) {
        if !self.models.contains(request.model.as_ref()) {
            self.models.insert(request.model.clone().into_owned());
        }
        if *self.model.get_or_insert_with(|| request.model.clone().into_owned()) != request.model {
            return;
        }
        let micros = Duration::from_micros;
        let at = Time::ZERO + micros(self.zero_us.saturating_add(request.t));
        let tenant =
            request.tenant.as_ref().map_or(NO_TENANT, |name| place_of(name.to_string(), &mut self.workload.tenants));
        let sequence = self.number(request.seq);
        self.workload.arrivals.push(Arrival {
            flow: 0,
            at,
            sequence,
            start: request.start || request.seq.is_none(),
            end: request.end || request.seq.is_none(),
            tenant,
            priority: request.priority,
            within: request.timeout_us.map(micros),
            bytes: request.bytes,
            shape: request.shape.map_or(0, |h| h.0),
        });
        if request.batch > 0 {
            self.live.waits.push(request.queue_us.saturating_mul(1000));
            let at = at + micros(request.queue_us);
            self.seen.push(RecordedBatch { batch: request.batch, micros: request.run_us, at });
        }
    }

    fn number(&mut self, seq: Option<Hash>) -> u32 {
        let next = self.workload.sequences;
        let number = match seq {
            Some(seq) => *self.numbers.entry((self.zero_us, seq)).or_insert(next),
            None => {
                self.stateless += 1;
                next
            }
        };
        self.workload.sequences = next.max(number.saturating_add(1));
        number
    }

    /// The workload, with its first request at time 0.
    pub fn finish(mut self) -> Result<Workload, SimulateError> {
        if self.models.len() > 1 && !self.wished {
            let names: Vec<&str> = self.models.iter().map(String::as_str).collect();
            return Err(SimulateError::Given(format!(
                "the trace is of several models, choose one with --model: {}",
                names.join(", ")
            )));
        }
        let mut workload = self.workload.in_order();
        let Some(first) = workload.arrivals.first().map(|a| a.at) else {
            let of = self.model.as_ref().map_or_else(String::new, |m| format!(" of model {m}"));
            return Err(SimulateError::Given(format!("the trace has no request{of}")));
        };
        for arrival in &mut workload.arrivals {
            arrival.at = Time::ZERO + (arrival.at - first);
        }
        let under_way = begin_everywhere(&mut workload);
        workload.span =
            workload.arrivals.last().map_or(Duration::ZERO, |a| a.at - Time::ZERO) + Duration::from_nanos(1);
        workload.about = "trace".to_owned();
        if under_way > 0 {
            self.live.notes.push(format!(
                "{under_way} sequences were under way when the trace began: their first request is taken for a START"
            ));
        }
        if self.stateless > 0 {
            self.live.notes.push(format!(
                "{} requests are of no sequence: each is taken for one of a single step",
                self.stateless
            ));
        }
        if let Some((strategy, wishes)) = self.model.and_then(|m| self.loads.remove(&m)) {
            (self.live.strategy, self.live.wishes) = (Some(strategy), wishes);
        }
        self.live.waits.sort_unstable();
        self.seen.iter_mut().for_each(|run| run.at = Time::ZERO + (run.at - first));
        self.live.costs = Costs::observed(self.seen);
        Ok(Workload { live: Some(self.live), ..workload })
    }
}

/// Makes the first request of every sequence a START. Returns how many were not one.
fn begin_everywhere(workload: &mut Workload) -> u64 {
    let mut seen = vec![false; workload.sequences as usize];
    let mut bent = 0;
    for arrival in &mut workload.arrivals {
        let known = seen.get_mut(arrival.sequence as usize).is_some_and(|seen| std::mem::replace(seen, true));
        if !known && !arrival.start {
            arrival.start = true;
            bent += 1;
        }
    }
    bent
}
