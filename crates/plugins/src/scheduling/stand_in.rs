//! A plug-in without WebAssembly. A test controls its guests.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "only tests use it"
)]

use std::sync::Arc;
use std::thread::{self, ThreadId};

use crate::config::model::LoadFacts;
use crate::sync::Mutex;
use sequor_core::*;
use sequor_wasm::call_error::{CallError, CallFault};
use sequor_wasm::limits::Limits;
use sequor_wasm::room::{GuestRoom, NoGuestRoom, RoomPurpose, RoomShare};
use sequor_wasm::services::Services;

use crate::error::RejectionReason;
use crate::scheduling::guest::{Events, Guest, Manifest, Source};

pub const MS: u64 = 1_000_000;

/// The behaviour of a version's guests, and the record of their calls.
#[derive(Debug, Default)]
pub struct Script {
    pub does: Does,
    pub plans: u64,
    /// Everything observed since the last start.
    pub events: Events,
    /// Calls of `observe`: events without a question.
    pub observed: u64,
    pub starts: u32,
    pub restored: Option<Vec<u8>>,
    pub memory: u64,
    pub configure: Option<String>,
    /// Features of the last question.
    pub saw: (Vec<f64>, Vec<u64>),
    /// `plan` and `save` wait while a test holds it.
    pub gate: Option<Arc<Mutex<()>>>,
    /// The outcome of `restore` if it does not succeed: a refusal, or (`Ok`) a trap.
    pub restore: Option<Result<(), String>>,
    /// The thread that asked for the last plan.
    pub asked_by: Option<ThreadId>,
    /// Number of plans at each admission.
    pub plans_at_admit: Vec<u64>,
    pub meanwhile: Meanwhile,
}

/// A callback that runs while a guest decides about an admission.
#[derive(Clone, Default)]
pub struct Meanwhile(pub Option<Arc<dyn Fn() + Send + Sync>>);

impl std::fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meanwhile")
    }
}

impl Script {
    fn gate(script: &Mutex<Script>) {
        let gate = script.lock().gate.clone();
        if let Some(gate) = gate {
            drop(gate.lock());
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Does {
    /// Fires the oldest alone.
    #[default]
    First,
    /// Fires all requests as one batch.
    All,
    Trap,
    /// Fails like an endless loop.
    Time,
    Memory,
    Beyond,
    Twice,
    TooMany,
    Default,
    Wait,
    /// Fires all but the first request, so that the first one would never run.
    Starve,
    TrapInObserve,
    TrapInConfigure,
    /// Gives a free slot to each waiting sequence.
    Admit,
    AdmitTrap,
    AdmitBeyond,
    /// Rejects every request that it sees, and ends their sequences.
    Reject,
    /// Takes the slot of the first victim, if no slot is free.
    AdmitEvict,
}

#[derive(Debug)]
pub struct StandInVersion {
    pub script: Arc<Mutex<Script>>,
    pub room: GuestRoom,
    manifest: Manifest,
    sha256: String,
}

#[derive(Debug)]
struct Puppet(Arc<Mutex<Script>>, u64);

impl StandInVersion {
    pub fn new(sha256: &str, hooks: Hooks) -> Arc<StandInVersion> {
        let (name, version) = ("puppet".to_owned(), "0.1.0".to_owned());
        let manifest = Manifest { name, version, hooks, features: Vec::new(), codes: Arc::default() };
        Arc::new(StandInVersion {
            script: Arc::default(),
            room: GuestRoom::default(),
            manifest,
            sha256: sha256.to_owned(),
        })
    }

    /// A version whose plugin.toml gives this reason for code 7.
    pub fn names_code(sha256: &str, hooks: Hooks, reason: RejectionReason) -> Arc<StandInVersion> {
        let mut version = Arc::into_inner(StandInVersion::new(sha256, hooks)).unwrap();
        version.manifest.codes = Arc::new([(7, reason)].into());
        Arc::new(version)
    }

    pub fn needs(sha256: &str, hooks: Hooks, feature: &str) -> Arc<StandInVersion> {
        let mut version = Arc::into_inner(StandInVersion::new(sha256, hooks)).unwrap();
        version.manifest.features.push(feature.to_owned());
        Arc::new(version)
    }

    pub fn does(&self, does: Does) {
        self.script.lock().does = does;
    }
}

impl Source for StandInVersion {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn sha256(&self) -> &str {
        &self.sha256
    }

    fn open_share(&self, purpose: RoomPurpose) -> Result<RoomShare, NoGuestRoom> {
        self.room.open(1, purpose)
    }

    fn start(&self, _: Arc<dyn Services>, limits: Limits) -> Result<Box<dyn Guest>, CallError> {
        let mut script = self.script.lock();
        script.starts += 1;
        script.events.clear();
        script.restored = None;
        drop(script);
        Ok(Box::new(Puppet(Arc::clone(&self.script), limits.memory.unwrap_or(0))))
    }
}

fn failed<T>(fault: CallFault) -> Result<T, CallError> {
    Err(CallError { fault, what: "index out of bounds, src/lib.rs:41".to_owned() })
}

impl Puppet {
    fn learn(&mut self, events: &Events) -> Result<(), CallError> {
        let mut script = self.0.lock();
        if script.does == Does::TrapInObserve && !events.is_empty() {
            return failed(CallFault::Trap);
        }
        let all = &mut script.events;
        all.kind.extend(&events.kind);
        all.sequence.extend(&events.sequence);
        all.amount.extend(&events.amount);
        all.keys.extend(&events.keys);
        Ok(())
    }
}

impl Guest for Puppet {
    fn configure(&mut self, _: &str, _: &LoadFacts) -> Result<Result<(), String>, CallError> {
        let script = self.0.lock();
        match (&script.configure, script.does) {
            (_, Does::TrapInConfigure) => failed(CallFault::Trap),
            (Some(why), _) => Ok(Err(why.clone())),
            (None, _) => Ok(Ok(())),
        }
    }

    fn plan(&mut self, _: u32, see: &Columns, news: &Events, picks: &mut Picks) -> Result<Decision, CallError> {
        self.learn(news)?;
        Script::gate(&self.0);
        let mut script = self.0.lock();
        script.plans += 1;
        script.asked_by = Some(thread::current().id());
        script.saw = (see.numbers.clone(), see.keys.clone());
        match script.does {
            Does::Trap => return failed(CallFault::Trap),
            Does::Time => return failed(CallFault::Time),
            Does::Memory => return failed(CallFault::Memory),
            Does::Beyond => picks.fire = vec![0, see.len + 3],
            Does::Twice => picks.fire = vec![0, 0],
            Does::TooMany => picks.fire = (0..=see.max_batch).collect(),
            Does::Default => return Ok(Decision::Default),
            Does::Wait => return Ok(Decision::Wait(Time(see.now + 50 * MS))),
            Does::All => picks.fire = (0..see.len.min(see.max_batch)).collect(),
            Does::Reject => {
                picks.reject = (0..see.len).map(|candidate| Rejection { candidate, code: 7, ends: true }).collect();
            }
            Does::Starve if see.len < 2 => return Ok(Decision::Wait(Time::NEVER)),
            Does::Starve => picks.fire = vec![see.len - 1],
            _ => picks.fire = vec![0],
        }
        Ok(Decision::Fire)
    }

    fn admit(
        &mut self,
        see: &Columns,
        room: &[u32],
        victims: &Columns,
        news: &Events,
    ) -> Result<Vec<Admission>, CallError> {
        self.learn(news)?;
        let mut script = self.0.lock();
        let plans = script.plans;
        script.plans_at_admit.push(plans);
        let (does, meanwhile) = (script.does, script.meanwhile.clone());
        drop(script);
        meanwhile.0.inspect(|meanwhile| meanwhile());
        match does {
            Does::AdmitTrap => failed(CallFault::Trap),
            Does::AdmitBeyond => Ok(vec![Admission::Take { instance: room.len() as u16 }]),
            Does::AdmitEvict if room.iter().all(|free| *free == 0) && victims.len > 0 => {
                Ok(vec![Admission::Evict { victim: 0 }; see.len as usize])
            }
            _ => Ok(vec![Admission::Take { instance: 0 }; see.len as usize]),
        }
    }

    fn observe(&mut self, events: &Events) -> Result<(), CallError> {
        self.0.lock().observed += 1;
        self.learn(events)
    }

    fn save(&mut self) -> Result<Vec<u8>, CallError> {
        Script::gate(&self.0);
        Ok(self.0.lock().plans.to_string().into_bytes())
    }

    fn restore(&mut self, saved: &[u8]) -> Result<Result<(), String>, CallError> {
        let mut script = self.0.lock();
        script.restored = Some(saved.to_owned());
        match script.restore.clone() {
            None => Ok(Ok(())),
            Some(Ok(())) => failed(CallFault::Trap),
            Some(why) => Ok(why),
        }
    }

    fn memory(&self) -> u64 {
        self.0.lock().memory
    }

    fn memory_limit(&self) -> u64 {
        self.1
    }
}
