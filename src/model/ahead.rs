//! An instance on an accelerator that has its next batch asked for while one runs. Its thread pulls and asks; another waits ([`flights`]).
//! What is asked for stands in one order on the device, so that a batch finds the states that those before it leave.
//!
//! [`flights`]: super::flights

use std::sync::Arc;

use sequor_core::Instance;

use super::driver::Model;
use super::execute::Executor;
use super::flights::{Flight, Flights};
use super::instance::{ask, end, tidy};
use super::loaded::Loaded;
use super::run_error::RunError;
use super::sync::{self, Thread};
use super::table::{Step, Task};
use super::taken::{Taken, one_by_one};
use super::work::{Extent, Spent};

/// Its means of running.
#[derive(Debug)]
pub(super) struct Ahead {
    executor: Executor,
    pub(super) flights: Arc<Flights>,
}

impl Ahead {
    /// With so many batches under way at once.
    pub(super) fn new(executor: Executor, depth: u8) -> Result<Ahead, RunError> {
        let idle = (0..depth).map(|_| executor.staging()).collect::<Result<_, _>>()?;
        Ok(Ahead { executor, flights: Arc::new(Flights::new(idle)) })
    }

    /// Pulls until the load is gone. `lander` is the thread that waits.
    pub(super) fn run(mut self, model: &Arc<Model>, load: &Arc<Loaded>, who: Instance, lander: &Thread) {
        let mail = load.mail.get(usize::from(who.n));
        let mut step = model.next(who);
        loop {
            if let Some(mail) = mail.filter(|mail| mail.is_full()) {
                // A state is let out as of a step that was answered.
                self.flights.drain();
                mail.serve(model, &mut self.executor.slots);
                // Whoever woke this thread meanwhile was not heard.
                if matches!(step, Step::Sleep(_)) {
                    step = model.next(who);
                }
            }
            step = match step {
                Step::Run(task) => self.begin(model, load, who, lander, task),
                Step::Tidy(ops) => tidy(model, who, &mut self.executor.slots, &ops),
                Step::Ask(round) => ask(model, load, who, round),
                Step::Sleep(until) => {
                    sync::park(until.map(|until| until - model.now()));
                    model.next(who)
                }
                Step::Gone => break,
            }
        }
        self.flights.close();
        lander.unpark();
        end(model, load, mail);
    }

    /// Asks for a batch and leaves it to the thread that waits. One that fails at once is tried again row by row, and given back here.
    fn begin(&mut self, model: &Arc<Model>, load: &Loaded, who: Instance, lander: &Thread, task: Task) -> Step {
        let (taken, work) = Taken::begin(load, &mut self.executor.slots, task);
        if work.iter().flatten().next().is_none() {
            return model.complete(who, taken.end(load, Vec::new()));
        }
        let mut staging = match self.flights.staging().map_or_else(|| self.executor.staging(), Ok) {
            Ok(staging) => staging,
            Err(error) => {
                let ran = work.iter().flatten().map(|_| Err(error.clone())).collect();
                return model.complete(who, taken.end(load, ran));
            }
        };
        let mut spent = Spent::default();
        match self.executor.submit(&mut staging, &work, &mut spent) {
            Ok(submitted) => {
                self.flights.begin(Flight { taken, submitted, spent, staging });
                lander.unpark();
                model.next(who)
            }
            Err(error) => {
                load.ran(Extent::of(&work), &spent);
                let ran = one_by_one(load, &mut self.executor, &mut staging, work, &error);
                self.flights.lay_by(staging);
                model.complete(who, taken.end(load, ran))
            }
        }
    }
}
