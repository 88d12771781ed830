//! What runs an instance: its own thread, each batch to its end; or on an accelerator two threads, of which one asks for the next batch while
//! the other waits for the last.

use std::io;
use std::sync::{Arc, Weak};

use sequor_core::Instance;

use crate::device::Place;

use super::ahead::Ahead;
use super::driver::Model;
use super::execute::Executor;
use super::flights;
use super::instance::{self, Baton, Handle};
use super::loaded::Loaded;
use super::run_error::RunError;
use super::site::Site;
use super::sync::{self, JoinHandle};

#[derive(Debug)]
pub(super) enum Crew {
    Alone(Arc<Baton>),
    Ahead(Box<Ahead>),
}

impl Crew {
    pub(super) fn new(load: &Arc<Loaded>, site: Site) -> Result<Crew, RunError> {
        let (spec, away) = (load.spec(), site.device.place() != Place::Host);
        let sided = matches!(spec.strategy, sequor_core::Strategy::Direct { .. });
        let executor = Executor::new(Arc::clone(load), site, spec.slots(), sided)?;
        // The host has nothing to do while it waits for itself.
        Ok(match spec.depth {
            2.. if away => Crew::Ahead(Box::new(Ahead::new(executor, spec.depth)?)),
            _ => Crew::Alone(Arc::new(Baton::new(executor)?)),
        })
    }

    /// Starts its threads. All of them are added to `threads`.
    pub(super) fn start(
        self,
        model: &Arc<Model>,
        load: &Arc<Loaded>,
        who: Instance,
        threads: &mut Vec<JoinHandle<()>>,
    ) -> io::Result<Handle> {
        let name = format!("{}.{}", load.settings.name, who.n);
        match self {
            Crew::Alone(baton) => alone(baton, name, model, load, who, threads),
            Crew::Ahead(ahead) => both(*ahead, name, model, load, who, threads),
        }
    }
}

fn alone(
    baton: Arc<Baton>,
    name: String,
    model: &Arc<Model>,
    load: &Arc<Loaded>,
    who: Instance,
    threads: &mut Vec<JoinHandle<()>>,
) -> io::Result<Handle> {
    let (model, load, weak) = (Arc::clone(model), Arc::clone(load), Arc::downgrade(&baton));
    let thread = sync::spawn(name, move || instance::run(&model, &load, who, &baton))?;
    let handle = Handle { thread: thread.thread().clone(), baton: weak };
    threads.push(thread);
    Ok(handle)
}

fn both(
    ahead: Ahead,
    name: String,
    model: &Arc<Model>,
    load: &Arc<Loaded>,
    who: Instance,
    threads: &mut Vec<JoinHandle<()>>,
) -> io::Result<Handle> {
    let under_way = Arc::clone(&ahead.flights);
    let (its_model, its_load, flights) = (Arc::clone(model), Arc::clone(load), Arc::clone(&under_way));
    let lander = sync::spawn(format!("{name}.done"), move || flights::land(&its_model, &its_load, who, &flights))?;
    let waits = lander.thread().clone();
    let (its_model, its_load, told) = (Arc::clone(model), Arc::clone(load), waits.clone());
    threads.push(lander);
    let thread = sync::spawn(name, move || ahead.run(&its_model, &its_load, who, &told)).inspect_err(|_| {
        under_way.close();
        waits.unpark();
    })?;
    // Nobody takes its place: whoever wakes it wakes its thread.
    let handle = Handle { thread: thread.thread().clone(), baton: Weak::new() };
    threads.push(thread);
    Ok(handle)
}
