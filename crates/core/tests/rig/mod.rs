//! A small driver for scenarios: virtual time, one thread that pulls, and answers collected by request.
#![allow(
    dead_code,
    unreachable_pub,
    missing_debug_implementations,
    reason = "two test binaries share it, each in part"
)]

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use sequor_core::*;

pub const MS: u64 = 1_000_000;

/// A driver with a clock of its own: submits, pulls, ends batches.
pub struct Rig {
    pub core: Core,
    /// The load whose one instance pulls.
    pub serves: LoadId,
    pub now: Time,
    pub next_req: u32,
    pub answers: BTreeMap<u32, Result<(), Refusal>>,
    pub ended: Vec<EndReason>,
    /// Refused requests whose sequences ended with them.
    pub ended_with: Vec<u32>,
    pub seen: Vec<Effect>,
}

pub fn spec(strategy: Strategy, max_batch: u32) -> LoadSpec {
    LoadSpec { expiry: Expiry::Idle(Duration::from_secs(1)), ..LoadSpec::new(1, strategy, max_batch) }
}

pub fn oldest(slots: u32) -> Strategy {
    Strategy::Oldest { slots, preferred: vec![], delay: Duration::ZERO, in_order: false }
}

impl Rig {
    pub fn new(spec: LoadSpec) -> Rig {
        let mut rig = Rig {
            core: Core::new(),
            serves: LoadId::FIRST,
            now: Time::ZERO,
            next_req: 0,
            answers: BTreeMap::new(),
            ended: Vec::new(),
            ended_with: Vec::new(),
            seen: Vec::new(),
        };
        rig.apply(Event::Loaded(LoadId::FIRST, spec));
        rig
    }

    pub fn apply(&mut self, event: Event) {
        let mut out = Vec::new();
        self.core.apply(self.now, event, &mut out);
        self.take(out);
    }

    pub fn take(&mut self, out: Vec<Effect>) {
        for effect in out {
            match &effect {
                Effect::Refuse { req, refusal, ended } => {
                    assert_eq!(self.answers.insert(req.ix, Err(*refusal)), None);
                    if *ended {
                        self.ended_with.push(req.ix);
                    }
                }
                Effect::Release(req) => assert_eq!(self.answers.insert(req.ix, Ok(())), None),
                Effect::Note(Note::Ended(_, why)) => self.ended.push(*why),
                _ => {}
            }
            self.seen.push(effect);
        }
    }

    pub fn submit(&mut self, id: u64, start: bool, end: bool) -> u32 {
        self.submit_with(id, start, end, |_| {})
    }

    pub fn submit_with(&mut self, id: u64, start: bool, end: bool, change: impl FnOnce(&mut Submit)) -> u32 {
        let req = Req::new(self.next_req, NonZeroU32::MIN);
        self.next_req += 1;
        let mut submit = Submit {
            req,
            id: Id::from(id),
            fresh_id: 0,
            start,
            end,
            adopt: None,
            adopt_on: None,
            prepare: false,
            step: None,
            version: None,
            dialect: Dialect::TRITON,
            deadline: None,
            backlog_until: None,
            queue_until: None,
            idle: None,
            priority: 0,
            meta: RequestMeta::default(),
            queue: QueueTerms::default(),
            origin: 0,
        };
        change(&mut submit);
        self.apply(Event::Submit(submit));
        req.ix
    }

    pub fn next(&mut self) -> Next {
        self.next_of(self.serves)
    }

    pub fn next_of(&mut self, load: LoadId) -> Next {
        let mut out = Vec::new();
        let next = self.core.next(self.now, Instance { load, n: 0 }, &mut out);
        self.take(out);
        next
    }

    /// Pulls one batch, after any tidying.
    pub fn batch(&mut self) -> Option<Batch> {
        loop {
            match self.next() {
                Next::Run(batch) => return Some(batch),
                Next::Tidy(_) => {}
                _ => return None,
            }
        }
    }

    pub fn ran(&mut self, batch: &Batch) {
        let rows = batch.real().map(|_| RowEnd::Done { state_shape: 0, state_bytes: 4 }).collect();
        self.apply(Event::Ran { batch: batch.id, rows });
    }

    /// Runs everything that can run now and returns the batch sizes.
    pub fn drain(&mut self) -> Vec<usize> {
        let mut sizes = Vec::new();
        while let Some(batch) = self.batch() {
            sizes.push(batch.real().count());
            self.ran(&batch);
        }
        sizes
    }

    pub fn wait(&mut self, ms: u64) {
        self.now = Time(self.now.0 + ms * MS);
        self.apply(Event::Tick);
    }

    pub fn usage(&self) -> Usage {
        self.core.usage(self.serves)
    }
}
