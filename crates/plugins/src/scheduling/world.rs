//! The scheduler's world: makes a component a [`Guest`] that plans, admits and observes.

use std::path::Path;
use std::sync::Arc;

use sequor_core::{Admission, Columns, Decision, Picks, Rejection, Time};
use sequor_wasm::call_error::{Call, CallError};
use sequor_wasm::component::Component;
use sequor_wasm::guest::WasmGuest;
use sequor_wasm::host::HostState;
use sequor_wasm::limits::Limits;
use sequor_wasm::manifest::Declared;
use sequor_wasm::room::{NoGuestRoom, RoomPurpose, RoomShare};
use sequor_wasm::services::Services;
use sequor_wasm::world::{FunctionTypes, Lifecycle, World};
use wasmtime::Store;
use wasmtime::component::{Instance, InstancePre};

use super::contract::sequor::plugin::types;
use super::contract::{self, SchedulerPlugin, SchedulerPluginIndices, scheduler};
use super::guest::{Events, Guest, Manifest, Source};
use super::invalid_answer::worth_keeping;
use super::manifest;
use super::question::{Exports, Functions, contract_events, in_nanos};
use crate::config::fault::Fault;
use crate::config::model::LoadFacts;

/// Number of events for which `observe` gets one more time limit of a plan.
const EVENTS: u32 = 1024;

/// Components that decide which requests run together.
#[derive(Debug)]
pub struct Scheduler;

/// A version of a scheduler plug-in, compiled.
pub type SchedulerComponent = Component<Scheduler>;
/// A running scheduler plug-in.
pub type SchedulerGuest = WasmGuest<Scheduler>;

impl World for Scheduler {
    const NAME: &'static str = contract::WORLD;
    const VERSION: &'static str = contract::VERSION;
    const EXPORT: &'static str = contract::SCHEDULER;
    const FUNCTIONS: &'static [&'static str] = &["configure", "plan", "admit", "observe", "save", "restore"];
    const CLOCK_HINT: &'static str = " `now-us` of a round may be what you need.";

    type Manifest = Manifest;
    type Exports = (SchedulerPluginIndices, Exports);
    type Bindings = (SchedulerPlugin, Functions);

    fn declare(path: &Path, text: &str) -> Result<Declared<Manifest>, Fault> {
        manifest::parse(path, text)
    }

    fn undeclared(name: &str) -> Manifest {
        manifest::undeclared(name)
    }

    fn check(functions: &FunctionTypes<'_>) -> wasmtime::Result<()> {
        use scheduler as s;
        type Plan<'a> = (s::Round, s::Columns<'a>, Option<s::Events<'a>>);
        type Admit<'a> = (s::Round, s::Columns<'a>, &'a [u32], s::Columns<'a>, Option<s::Events<'a>>);
        functions.check::<(&str, types::Model<'_>), (Result<(), String>,)>("configure")?;
        functions.check::<Plan<'_>, (Option<s::Decision>,)>("plan")?;
        functions.check::<Admit<'_>, (Vec<s::Admission>,)>("admit")?;
        functions.check::<(s::Events<'_>,), ()>("observe")?;
        functions.check::<(), (Vec<u8>,)>("save")?;
        functions.check::<(&[u8],), (Result<(), String>,)>("restore")
    }

    fn exports(
        component: &wasmtime::component::Component,
        pre: &InstancePre<HostState>,
    ) -> wasmtime::Result<Self::Exports> {
        Ok((SchedulerPluginIndices::new(pre)?, Exports::resolve(component)?))
    }

    fn bind(
        (indices, questions): &Self::Exports,
        instance: Instance,
        store: &mut Store<HostState>,
    ) -> wasmtime::Result<Self::Bindings> {
        Ok((indices.load(&mut *store, &instance)?, Functions::resolve(instance, questions, store)?))
    }
}

impl Lifecycle for Scheduler {
    type Facts = LoadFacts;

    fn configure(
        (plugin, _): &Self::Bindings,
        store: &mut Store<HostState>,
        config: &str,
        model: &LoadFacts,
    ) -> wasmtime::Result<Result<(), String>> {
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
        plugin.sequor_plugin_scheduler().call_configure(store, config, facts)
    }

    fn save((plugin, _): &Self::Bindings, store: &mut Store<HostState>) -> wasmtime::Result<Vec<u8>> {
        plugin.sequor_plugin_scheduler().call_save(store)
    }

    fn restore(
        (plugin, _): &Self::Bindings,
        store: &mut Store<HostState>,
        saved: &[u8],
    ) -> wasmtime::Result<Result<(), String>> {
        plugin.sequor_plugin_scheduler().call_restore(store, saved)
    }
}

impl Guest for SchedulerGuest {
    fn configure(&mut self, config: &str, model: &LoadFacts) -> Result<Result<(), String>, CallError> {
        self.configure_with(config, model)
    }

    fn plan(&mut self, instance: u32, see: &Columns, news: &Events, picks: &mut Picks) -> Result<Decision, CallError> {
        self.set_clock(see.now);
        let asked = Call { name: "plan", of: Some((see.len, "candidates")) };
        let answer = self.call(asked, self.limit(), |(_, to), store| to.plan(store, instance, see, news))?;
        let Some(decision) = answer else { return Ok(Decision::Default) };
        let scheduler::Decision { mut fire, mut reject, wake_us } = decision;
        let most = worth_keeping(see.len);
        keep(&mut fire, most);
        keep(&mut reject, most);
        picks.fire = fire;
        picks.reject.extend(reject.into_iter().map(rejection));
        if picks.fire.is_empty() {
            return Ok(Decision::Wait(wake_us.map_or(Time::NEVER, |at| Time(in_nanos(at)))));
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
        self.set_clock(see.now);
        let asked = Call { name: "admit", of: Some((see.len, "sequences")) };
        let answers = self.call(asked, self.limit(), |(_, to), store| to.admit(store, see, room, victims, news))?;
        Ok(answers.into_iter().map(admission).collect())
    }

    fn observe(&mut self, events: &Events) -> Result<(), CallError> {
        let count = u32::try_from(events.len()).unwrap_or(u32::MAX);
        let limit = self.limit().saturating_mul(1 + count / EVENTS);
        let events = contract_events(events);
        let asked = Call { name: "observe", of: Some((count, "events")) };
        self.call(asked, limit, |(plugin, _), store| plugin.sequor_plugin_scheduler().call_observe(store, events))
    }

    fn save(&mut self) -> Result<Vec<u8>, CallError> {
        self.save_state()
    }

    fn restore(&mut self, saved: &[u8]) -> Result<Result<(), String>, CallError> {
        self.restore_state(saved)
    }

    fn memory(&self) -> u64 {
        self.memory_used()
    }

    fn memory_limit(&self) -> u64 {
        self.memory_maximum()
    }
}

impl Source for SchedulerComponent {
    fn manifest(&self) -> &Manifest {
        &self.declared().manifest
    }

    fn sha256(&self) -> &str {
        SchedulerComponent::sha256(self)
    }

    fn start(&self, services: Arc<dyn Services>, limits: Limits) -> Result<Box<dyn Guest>, CallError> {
        Ok(Box::new(self.guest(services, limits)?))
    }

    fn weight(&self) -> u32 {
        SchedulerComponent::weight(self)
    }

    fn open_share(&self, purpose: RoomPurpose) -> Result<RoomShare, NoGuestRoom> {
        SchedulerComponent::open_share(self, purpose)
    }
}

/// Keeps the first `most` picks, and no memory for more.
fn keep<T>(picks: &mut Vec<T>, most: usize) {
    if picks.len() > most {
        picks.truncate(most);
        picks.shrink_to_fit();
    }
}

fn rejection(answer: scheduler::Rejection) -> Rejection {
    let scheduler::Rejection { candidate, code, ends } = answer;
    Rejection { candidate, code, ends }
}

/// An instance number that does not fit becomes the largest one, which the core refuses.
fn admission(answer: scheduler::Admission) -> Admission {
    match answer {
        scheduler::Admission::Take(instance) => {
            Admission::Take { instance: u16::try_from(instance).unwrap_or(u16::MAX) }
        }
        scheduler::Admission::Evict(victim) => Admission::Evict { victim },
        scheduler::Admission::Defer => Admission::Defer,
        scheduler::Admission::Reject(code) => Admission::Reject(code),
    }
}
