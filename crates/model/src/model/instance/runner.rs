//! The threads of an instance. On the host, one thread runs each batch to its end. On an accelerator, one thread submits the next batch
//! while another waits for the last.

use std::io;
use std::sync::Arc;

use crate::device::DeviceId;
use crate::model::execute::{Executor, Placement, RunError};
use crate::model::load::{Handle, LoadedModel};
use crate::model::runtime::StartGate;
use crate::sync::{self, JoinHandle};

use super::identity::Identity;
use super::in_flight;
use super::pipelined::Pipeline;
use super::serial::{RunningInstance, SerialInstance};

/// An instance that is ready to start.
#[derive(Debug)]
pub(in crate::model) struct Runner(RunnerKind);

#[derive(Debug)]
enum RunnerKind {
    /// The runner of an ensemble. The batches run in its members.
    Ensemble,
    Serial(Box<RunningInstance>),
    Pipelined(Box<Pipeline>),
}

impl Runner {
    pub(in crate::model) fn new(load: &Arc<LoadedModel>, placement: Placement) -> Result<Runner, RunError> {
        let (spec, away) = (load.spec(), placement.device.place() != DeviceId::Host);
        let sided = matches!(spec.strategy, sequor_core::Strategy::Direct { .. });
        let executor = Executor::new(Arc::clone(load), placement, spec.slots(), sided)?;
        // The host gains nothing from a second batch in progress.
        Ok(match spec.depth {
            2.. if away => Runner(RunnerKind::Pipelined(Box::new(Pipeline::new(executor, spec.depth)?))),
            _ => Runner(RunnerKind::Serial(Box::new(RunningInstance::new(executor)?))),
        })
    }

    /// The runner of an ensemble. It runs no batches: its thread only ends with the load.
    pub(in crate::model) fn for_ensemble() -> Runner {
        Runner(RunnerKind::Ensemble)
    }

    /// Starts the threads, which wait at the gate. All of them are added to `threads`.
    pub(in crate::model) fn start(
        self,
        identity: Identity,
        gate: &StartGate,
        threads: &mut Vec<JoinHandle<()>>,
    ) -> io::Result<Handle> {
        match self.0 {
            RunnerKind::Ensemble => ensemble(identity, gate, threads),
            RunnerKind::Serial(running) => serial(SerialInstance::new(identity, *running), gate, threads),
            RunnerKind::Pipelined(pipeline) => pipelined(*pipeline, identity, gate, threads),
        }
    }
}

fn ensemble(identity: Identity, gate: &StartGate, threads: &mut Vec<JoinHandle<()>>) -> io::Result<Handle> {
    let thread = spawn(identity.name(), gate, move || identity.idle())?;
    let handle = Handle { thread: thread.thread().clone(), inline: None };
    threads.push(thread);
    Ok(handle)
}

fn serial(instance: Arc<SerialInstance>, gate: &StartGate, threads: &mut Vec<JoinHandle<()>>) -> io::Result<Handle> {
    let weak = Arc::downgrade(&instance);
    let thread = spawn(instance.name(), gate, move || instance.run())?;
    let handle = Handle { thread: thread.thread().clone(), inline: Some(weak) };
    threads.push(thread);
    Ok(handle)
}

fn pipelined(
    pipeline: Pipeline,
    identity: Identity,
    gate: &StartGate,
    threads: &mut Vec<JoinHandle<()>>,
) -> io::Result<Handle> {
    let (in_flight, of) = (Arc::clone(&pipeline.in_flight), identity.clone());
    let completion =
        spawn(format!("{}.done", identity.name()), gate, move || in_flight::complete_all(&of, &in_flight))?;
    let to_wake = completion.thread().clone();
    threads.push(completion);
    let thread = spawn(identity.name(), gate, move || pipeline.run(&identity, &to_wake))?;
    // No other thread runs steps of this instance, so waking the instance means waking this thread.
    let handle = Handle { thread: thread.thread().clone(), inline: None };
    threads.push(thread);
    Ok(handle)
}

fn spawn(name: String, gate: &StartGate, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let gate = gate.clone();
    sync::spawn(name, move || {
        if gate.wait() {
            run();
        }
    })
}
