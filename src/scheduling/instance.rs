//! A running instance of a component: its store, and every call into it within its limits. After a trap it is of no use any more; whoever holds
//! it makes another of the same [`Component`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sequor_core::{Admission, Columns, Decision, Fault, Picks, Time};
use wasmtime::Store;

use super::call_fault::{Call, fault_of};
use super::component::Component;
use super::contract::sequor::plugin::types;
use super::contract::{SchedulerPlugin, scheduler};
use super::guest::{CallError, Events, Guest, ModelFacts, Services};
use super::host::{HostState, cut};
use super::invalid_answer::worth_keeping;
use super::question::{Functions, in_nanos};
use crate::config::units::Span;
use crate::wasm::budget::{FUEL_A_NANO, Timer};
use crate::wasm::clock_random::ClockAndRandom;
use crate::wasm::engine::{Engine, Mode};
use crate::wasm::limits::Limits;
use crate::wasm::settings::Settings;
use crate::wasm::urgency;

/// What is not in the way of a request (starting, configuring, saving, restoring) may take so many times the limit of a plan.
const AT_LEISURE: u32 = 100;
/// Events that one more limit of a plan is given for.
const EVENTS: u32 = 1024;
/// Bytes that may be saved.
const SAVED: usize = 1 << 20;
/// Bytes that a guest may hand over at once, to a function of the host or as an answer: more than anything it may say is worth. Copying them takes
/// a fraction of a plan's limit, and the guest's time runs meanwhile.
const AT_ONCE: usize = 2 << 20;
/// The same of what it saves, so that one who saves too much is told how much that was.
const SAVED_AT_ONCE: usize = 8 << 20;

/// A live instance.
pub struct WasmGuest {
    store: Store<HostState>,
    plugin: SchedulerPlugin,
    questions: Functions,
    engine: Arc<Engine>,
    settings: Settings,
    limit: Duration,
    /// Instructions the last call took, where they are counted.
    fuel: u64,
}

impl WasmGuest {
    pub(super) fn start(of: &Component, services: Arc<dyn Services>, limits: Limits) -> Result<WasmGuest, CallError> {
        let engine = Arc::clone(&of.engine);
        let mut store =
            Store::new(engine.wasmtime(), HostState::new(services, limits, ClockAndRandom::of(engine.mode())));
        store.limiter(|held| &mut held.memory);
        store.data_mut().timer = Timer::new(engine.call_clock());
        store.set_hostcall_fuel(AT_ONCE);
        if engine.mode() == Mode::Serving {
            store.epoch_deadline_callback(|mut store| Ok(store.data_mut().timer.tick()));
        }
        let limit = limits.time * AT_LEISURE;
        let call = engine.enter();
        begin(&mut store, engine.mode(), limit);
        let started = functions(of, &mut store);
        let started = in_time(&mut store, started);
        drop(call);
        urgency::as_any();
        let asked = Call { hook: "its start", of: None };
        let (plugin, questions) = started.map_err(|e| fault_of(&e, store.data(), &Span(limit).to_string(), asked))?;
        store.data_mut().memory.started();
        let settings = of.declared.settings.clone();
        Ok(WasmGuest { store, plugin, questions, engine, settings, limit: limits.time, fuel: 0 })
    }

    /// Instructions that the last call took, where they are counted ([`Mode::Simulation`]); else 0.
    pub fn fuel(&self) -> u64 {
        self.fuel
    }

    /// One call, within `limit`.
    fn call<R>(
        &mut self,
        asked: Call,
        limit: Duration,
        call: impl FnOnce(&scheduler::Guest, Functions, &mut Store<HostState>) -> wasmtime::Result<R>,
    ) -> Result<R, CallError> {
        let mode = self.engine.mode();
        let running = self.engine.enter();
        let given = begin(&mut self.store, mode, limit);
        let guest = self.plugin.sequor_plugin_scheduler();
        let said = call(guest, self.questions, &mut self.store);
        let said = in_time(&mut self.store, said);
        drop(running);
        // Whoever is asked of candidates or events is asked again and again.
        if asked.of.is_some() {
            urgency::call_over();
        } else {
            urgency::as_any();
        }
        if mode == Mode::Simulation {
            self.fuel = given.saturating_sub(self.store.get_fuel().unwrap_or(0));
        }
        said.map_err(|e| fault_of(&e, self.store.data(), &Span(limit).to_string(), asked))
    }

    fn at_leisure(&self) -> Duration {
        self.limit * AT_LEISURE
    }
}

/// An instance in this store, and what of it is called.
fn functions(of: &Component, store: &mut Store<HostState>) -> wasmtime::Result<(SchedulerPlugin, Functions)> {
    let instance = of.pre.instantiate(&mut *store)?;
    Ok((of.indices.load(&mut *store, &instance)?, Functions::of(instance, &of.questions, store)?))
}

/// Makes the store ready for a call; the instructions it is given.
fn begin(store: &mut Store<HostState>, mode: Mode, limit: Duration) -> u64 {
    let held = store.data_mut();
    held.cried = None;
    held.memory.refused = None;
    match mode {
        Mode::Serving => {
            held.timer.start(limit);
            store.set_epoch_deadline(1);
            0
        }
        Mode::Simulation => {
            let fuel = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX).saturating_mul(FUEL_A_NANO);
            // It fails only where instructions are not counted.
            let _ = store.set_fuel(fuel);
            fuel
        }
    }
}

/// What a call has come to, unless it took longer than it may.
fn in_time<R>(store: &mut Store<HostState>, said: wasmtime::Result<R>) -> wasmtime::Result<R> {
    let ended = store.data_mut().timer.end();
    said.and_then(|said| ended.map(|()| said))
}

const fn of(hook: &'static str) -> Call {
    Call { hook, of: None }
}

impl Guest for WasmGuest {
    fn configure(&mut self, config: &str, model: &ModelFacts) -> Result<Result<(), String>, CallError> {
        let config = match self.settings.settle(config) {
            Ok(config) => config,
            Err(what) => return Ok(Err(what)),
        };
        let numbers: Vec<&str> = model.numbers.iter().map(String::as_str).collect();
        let keys: Vec<&str> = model.keys.iter().map(String::as_str).collect();
        let facts = types::Model {
            name: &model.name,
            version: model.version,
            strategy: model.strategy,
            max_batch: model.max_batch,
            instances: model.instances,
            slots: model.slots,
            numbers: &numbers,
            keys: &keys,
        };
        let limit = self.at_leisure();
        let said = self.call(of("configure"), limit, |guest, _, store| guest.call_configure(store, &config, facts))?;
        Ok(said.map_err(cut))
    }

    fn plan(&mut self, instance: u32, see: &Columns, picks: &mut Picks) -> Result<Decision, CallError> {
        self.store.data_mut().clock_random.ask_at(see.now);
        let asked = Call { hook: "plan", of: Some((see.len, "candidates")) };
        let said = self.call(asked, self.limit, |_, to, store| to.plan(store, instance, see))?;
        let Some(decision) = said else { return Ok(Decision::Default) };
        let scheduler::Decision { mut fire, mut reject, reject_code, wake_us } = decision;
        let most = worth_keeping(see.len);
        keep(&mut fire, most);
        keep(&mut reject, most);
        (picks.fire, picks.reject, picks.code) = (fire, reject, reject_code);
        if picks.fire.is_empty() {
            return Ok(Decision::Wait(wake_us.map_or(Time::NEVER, |at| Time(in_nanos(at)))));
        }
        Ok(Decision::Fire)
    }

    fn admit(&mut self, see: &Columns, room: &[u32], victims: &Columns) -> Result<Vec<Admission>, CallError> {
        self.store.data_mut().clock_random.ask_at(see.now);
        let asked = Call { hook: "admit", of: Some((see.len, "sequences")) };
        let said = self.call(asked, self.limit, |_, to, store| to.admit(store, see, room, victims))?;
        Ok(said.into_iter().map(admission).collect())
    }

    fn observe(&mut self, events: &Events) -> Result<(), CallError> {
        let Events { kind, sequence, amount, keys } = events;
        let count = u32::try_from(kind.len()).unwrap_or(u32::MAX);
        let limit = self.limit.saturating_mul(1 + count / EVENTS);
        let told = scheduler::Events { kind, sequence, amount, keys };
        let asked = Call { hook: "observe", of: Some((count, "events")) };
        self.call(asked, limit, |guest, _, store| guest.call_observe(store, told))
    }

    fn save(&mut self) -> Result<Vec<u8>, CallError> {
        let limit = self.at_leisure();
        self.store.set_hostcall_fuel(SAVED_AT_ONCE);
        let saved = self.call(of("save"), limit, |guest, _, store| guest.call_save(store));
        self.store.set_hostcall_fuel(AT_ONCE);
        let saved = saved?;
        if saved.len() > SAVED {
            let what = format!("it saved {} bytes; at most {SAVED} are kept", saved.len());
            return Err(CallError { fault: Fault::Memory, what });
        }
        Ok(saved)
    }

    fn restore(&mut self, saved: &[u8]) -> Result<Result<(), String>, CallError> {
        let limit = self.at_leisure();
        let said = self.call(of("restore"), limit, |guest, _, store| guest.call_restore(store, saved))?;
        Ok(said.map_err(cut))
    }

    fn memory(&self) -> u64 {
        self.store.data().memory.used
    }

    fn memory_limit(&self) -> u64 {
        self.store.data().memory.limit()
    }
}

/// Keeps the first so many, and no memory for more.
fn keep(picks: &mut Vec<u32>, most: usize) {
    if picks.len() > most {
        picks.truncate(most);
        picks.shrink_to_fit();
    }
}

/// An instance beyond the largest there can be is one that is not there: the core says so.
fn admission(said: scheduler::Admission) -> Admission {
    match said {
        scheduler::Admission::Take(instance) => {
            Admission::Take { instance: u16::try_from(instance).unwrap_or(u16::MAX) }
        }
        scheduler::Admission::Evict(victim) => Admission::Evict { victim },
        scheduler::Admission::Defer => Admission::Defer,
        scheduler::Admission::Reject(code) => Admission::Reject(code),
    }
}

impl fmt::Debug for WasmGuest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WasmGuest({} bytes)", self.memory())
    }
}
