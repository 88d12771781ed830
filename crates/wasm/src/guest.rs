//! A running component: its store, and every call into it within its limits. After a trap it can no longer be used. Its owner starts
//! another guest of the same [`Component`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use wasmtime::Store;

use super::budget::{CpuTimer, FUEL_A_NANO};
use super::call_error::{Call, CallError, CallFault, fault_of};
use super::clock_random::ClockAndRandom;
use super::component::Component;
use super::engine::{Engine, Mode};
use super::host::{HostState, cut};
use super::limits::Limits;
use super::services::Services;
use super::settings::PluginSettings;
use super::suspension::{BegunCall, CallMeter, at_once};
use super::urgency;
use super::world::{Lifecycle, World};
use sequor_files::units::Span;

/// A running component of this world.
pub struct WasmGuest<W: World> {
    store: Store<HostState>,
    bindings: W::Bindings,
    engine: Arc<Engine>,
    settings: PluginSettings,
    limit: Duration,
    /// Instructions of the last call, if they are counted.
    fuel: u64,
}

impl<W: World> WasmGuest<W> {
    fn start(of: &Component<W>, services: Arc<dyn Services>, limits: Limits) -> Result<WasmGuest<W>, CallError> {
        let engine = Arc::clone(&of.engine);
        let state = HostState::new(services, limits, ClockAndRandom::for_mode(engine.mode()), W::data());
        let mut store = Store::new(engine.wasmtime(), state);
        store.limiter(|state| &mut state.memory);
        store.data_mut().timer = CpuTimer::new(engine.call_clock());
        store.set_hostcall_fuel(W::LIMITS.bytes_at_once);
        if engine.mode() == Mode::Serving {
            store.epoch_deadline_callback(|mut store| Ok(store.data_mut().timer.tick()));
        }
        let limit = W::LIMITS.off_path_limit(limits.time);
        let running = engine.enter();
        begin(&mut store, engine.mode(), limit);
        let started = bind(of, &mut store);
        let started = in_time(&mut store, started);
        drop(running);
        urgency::as_any();
        let asked = Call { name: "its start", of: None };
        let bindings = started.map_err(|e| fault_of(&e, store.data(), &Span(limit).to_string(), asked))?;
        store.data_mut().memory.started();
        let settings = of.declared.settings.clone();
        Ok(WasmGuest { store, bindings, engine, settings, limit: limits.time, fuel: 0 })
    }

    /// Instructions of the last call, if they are counted ([`Mode::Simulation`]); otherwise 0.
    pub fn fuel(&self) -> u64 {
        self.fuel
    }

    /// Bytes of its linear memories.
    pub fn memory_used(&self) -> u64 {
        self.store.data().memory.used
    }

    /// Maximum bytes of its linear memories.
    pub fn memory_maximum(&self) -> u64 {
        self.store.data().memory.limit()
    }

    /// CPU time limit of a call on the request path.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Sets the guest's clock, if it is virtual ([`Mode::Simulation`]).
    pub fn set_clock(&mut self, nanos: u64) {
        self.store.data_mut().clock_random.ask_at(nanos);
    }

    /// The data that the guest's world keeps for it.
    pub fn world_data<T: 'static>(&mut self) -> wasmtime::Result<&mut T> {
        self.store.data_mut().world_data()
    }

    /// Configures the guest. `config` is JSON and is checked against the settings that the component declares. An error of the inner result
    /// is the guest's own sentence.
    pub fn call_configure<R>(
        &mut self,
        config: &str,
        call: impl FnOnce(&W::Bindings, &mut Store<HostState>, &str) -> wasmtime::Result<Result<R, String>>,
    ) -> Result<Result<R, String>, CallError> {
        let config = match self.settings.resolve(config) {
            Ok(config) => config,
            Err(what) => return Ok(Err(what)),
        };
        Ok(self.call_off_path("configure", |bindings, store| call(bindings, store, &config))?.map_err(cut))
    }

    /// Makes one call, within `limit`.
    pub fn call<R>(
        &mut self,
        asked: Call,
        limit: Duration,
        call: impl FnOnce(&W::Bindings, &mut Store<HostState>) -> wasmtime::Result<R>,
    ) -> Result<R, CallError> {
        let mode = self.engine.mode();
        let running = self.engine.enter();
        let given = begin(&mut self.store, mode, limit);
        let answer = call(&self.bindings, &mut self.store);
        let answer = in_time(&mut self.store, answer);
        drop(running);
        // A call about several items is repeated. Only such a call counts for the thread's urgency.
        if asked.of.is_some() {
            urgency::call_over();
        } else {
            urgency::as_any();
        }
        if mode == Mode::Simulation {
            self.fuel = given.saturating_sub(self.store.get_fuel().unwrap_or(0));
        }
        answer.map_err(|e| fault_of(&e, self.store.data(), &Span(limit).to_string(), asked))
    }

    /// Begins a call that may wait, within `limit`.
    pub fn begin(&mut self, limit: Duration) -> BegunCall<'_, W::Bindings> {
        begin(&mut self.store, self.engine.mode(), limit);
        let clock = self.store.data().timer.clock();
        let meter = CallMeter { engine: Arc::clone(&self.engine), clock };
        BegunCall { bindings: &self.bindings, store: &mut self.store, meter }
    }

    /// Ends a call that [`WasmGuest::begin`] began.
    pub fn end<R>(&mut self, asked: Call, limit: Duration, answer: wasmtime::Result<R>) -> Result<R, CallError> {
        let answer = in_time(&mut self.store, answer);
        urgency::call_over();
        answer.map_err(|e| fault_of(&e, self.store.data(), &Span(limit).to_string(), asked))
    }

    /// A call off the request path.
    fn call_off_path<R>(
        &mut self,
        name: &'static str,
        call: impl FnOnce(&W::Bindings, &mut Store<HostState>) -> wasmtime::Result<R>,
    ) -> Result<R, CallError> {
        self.call(Call { name, of: None }, W::LIMITS.off_path_limit(self.limit), call)
    }
}

/// A guest's life beyond one call.
impl<W: Lifecycle> WasmGuest<W> {
    /// Configures the guest. `config` is JSON and is checked against the declared settings. An error of the inner result is the guest's own
    /// sentence.
    pub fn configure_with(&mut self, config: &str, facts: &W::Facts) -> Result<Result<(), String>, CallError> {
        self.call_configure(config, |bindings, store, config| W::configure(bindings, store, config, facts))
    }

    /// The state that the guest hands to its successor.
    pub fn save_state(&mut self) -> Result<Vec<u8>, CallError> {
        self.store.set_hostcall_fuel(W::LIMITS.saved_at_once);
        let saved = self.call_off_path("save", |bindings, store| W::save(bindings, store));
        self.store.set_hostcall_fuel(W::LIMITS.bytes_at_once);
        let (saved, most) = (saved?, W::LIMITS.saved);
        if saved.len() > most {
            let what = format!("it saved {} bytes; at most {most} are kept", saved.len());
            return Err(CallError { fault: CallFault::Memory, what });
        }
        Ok(saved)
    }

    /// Restores the state that another guest has saved. An error of the inner result is the guest's own sentence.
    pub fn restore_state(&mut self, saved: &[u8]) -> Result<Result<(), String>, CallError> {
        let call = |bindings: &_, store: &mut _| W::restore(bindings, store, saved);
        Ok(self.call_off_path("restore", call)?.map_err(cut))
    }
}

impl<W: World> Component<W> {
    /// Starts a guest.
    pub fn guest(&self, services: Arc<dyn Services>, limits: Limits) -> Result<WasmGuest<W>, CallError> {
        WasmGuest::start(self, services, limits)
    }
}

/// Creates an instance in this store, and binds its functions.
fn bind<W: World>(of: &Component<W>, store: &mut Store<HostState>) -> wasmtime::Result<W::Bindings> {
    let instance = if W::SUSPENDS {
        // A start never waits.
        let started = at_once(of.pre.instantiate_async(&mut *store));
        started.unwrap_or_else(|| Err(wasmtime::Error::msg("it must not wait while it starts")))?
    } else {
        of.pre.instantiate(&mut *store)?
    };
    W::bind(&of.exports, instance, store)
}

/// Prepares the store for a call. Returns the instructions that the call may use.
fn begin(store: &mut Store<HostState>, mode: Mode, limit: Duration) -> u64 {
    let state = store.data_mut();
    state.last_error = None;
    state.memory.refused = None;
    match mode {
        Mode::Serving => {
            state.timer.start(limit);
            store.set_epoch_deadline(1);
            0
        }
        Mode::Simulation => {
            let fuel = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX).saturating_mul(FUEL_A_NANO);
            // It fails only if instructions are not counted.
            let _ = store.set_fuel(fuel);
            fuel
        }
    }
}

/// The answer of a call, unless the call exceeded its limit.
fn in_time<R>(store: &mut Store<HostState>, answer: wasmtime::Result<R>) -> wasmtime::Result<R> {
    let ended = store.data_mut().timer.end();
    answer.and_then(|answer| ended.map(|()| answer))
}

impl<W: World> fmt::Debug for WasmGuest<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WasmGuest({}, {} bytes)", W::NAME, self.memory_used())
    }
}
