//! What runs an instance: its own thread, each batch to its end; or on an accelerator two threads, of which one asks for the next batch while
//! the other waits for the last.

use std::io;
use std::sync::Arc;

use crate::device::Place;

use super::execute::Executor;
use super::handle::Handle;
use super::in_flight;
use super::instance::Identity;
use super::loaded::Loaded;
use super::pipelined::Pipeline;
use super::placement::Placement;
use super::run_error::RunError;
use super::serial::{Running, SerialInstance};
use super::sync::{self, JoinHandle};

#[derive(Debug)]
pub(super) enum Runner {
    Serial(Box<Running>),
    Pipelined(Box<Pipeline>),
}

impl Runner {
    pub(super) fn new(load: &Arc<Loaded>, placement: Placement) -> Result<Runner, RunError> {
        let (spec, away) = (load.spec(), placement.device.place() != Place::Host);
        let sided = matches!(spec.strategy, sequor_core::Strategy::Direct { .. });
        let executor = Executor::new(Arc::clone(load), placement, spec.slots(), sided)?;
        // The host has nothing to do while it waits for itself.
        Ok(match spec.depth {
            2.. if away => Runner::Pipelined(Box::new(Pipeline::new(executor, spec.depth)?)),
            _ => Runner::Serial(Box::new(Running::new(executor)?)),
        })
    }

    /// Starts its threads. All of them are added to `threads`.
    pub(super) fn start(self, identity: Identity, threads: &mut Vec<JoinHandle<()>>) -> io::Result<Handle> {
        match self {
            Runner::Serial(running) => serial(SerialInstance::new(identity, *running), threads),
            Runner::Pipelined(pipeline) => pipelined(*pipeline, identity, threads),
        }
    }
}

fn serial(instance: Arc<SerialInstance>, threads: &mut Vec<JoinHandle<()>>) -> io::Result<Handle> {
    let weak = Arc::downgrade(&instance);
    let thread = sync::spawn(instance.name(), move || instance.run())?;
    let handle = Handle { thread: thread.thread().clone(), inline: Some(weak) };
    threads.push(thread);
    Ok(handle)
}

fn pipelined(pipeline: Pipeline, identity: Identity, threads: &mut Vec<JoinHandle<()>>) -> io::Result<Handle> {
    let in_flight = Arc::clone(&pipeline.in_flight);
    let (its, of) = (Arc::clone(&in_flight), identity.clone());
    let completion = sync::spawn(format!("{}.done", identity.name()), move || in_flight::complete_all(&of, &its))?;
    let waits = completion.thread().clone();
    let to_wake = waits.clone();
    threads.push(completion);
    let thread = sync::spawn(identity.name(), move || pipeline.run(&identity, &to_wake)).inspect_err(|_| {
        in_flight.close();
        waits.unpark();
    })?;
    // Nobody takes its place: whoever wakes it wakes its thread.
    let handle = Handle { thread: thread.thread().clone(), inline: None };
    threads.push(thread);
    Ok(handle)
}
