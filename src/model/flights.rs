//! Batches that an instance has asked of its accelerator, in the order of asking; and the thread that waits for each of them and gives it
//! back, while the instance's own asks for the next.

use std::collections::VecDeque;
use std::sync::Arc;

use sequor_core::Instance;

use crate::batch::Staging;

use super::driver::Model;
use super::execute::Submitted;
use super::loaded::Loaded;
use super::sync::{self, Mutex};
use super::taken::{Over, Taken};
use super::work::Spent;

/// A batch that is under way.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) taken: Taken,
    pub(super) submitted: Submitted,
    pub(super) spent: Spent,
    /// Where its inputs were laid out, which nobody touches before it is done.
    pub(super) staging: Staging,
}

/// Those of one instance.
#[derive(Debug)]
pub(super) struct Flights(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    under_way: VecDeque<Flight>,
    /// How many were begun and are not given back yet.
    open: usize,
    /// Memory for inputs that no batch under way reads.
    idle: Vec<Staging>,
    /// The instance's thread waits until none is open.
    awaited: bool,
    /// There will be no more.
    closed: bool,
}

/// What the waiting thread does next.
enum Next {
    Land(Box<Flight>),
    Sleep,
    End,
}

impl Flights {
    pub(super) fn new(idle: Vec<Staging>) -> Flights {
        Flights(Mutex::new(Queue { idle, ..Queue::default() }))
    }

    /// Memory to lay out the inputs of a batch in.
    pub(super) fn staging(&self) -> Option<Staging> {
        self.0.lock().idle.pop()
    }

    /// Gives back memory that nothing under way reads.
    pub(super) fn lay_by(&self, staging: Staging) {
        self.0.lock().idle.push(staging);
    }

    pub(super) fn begin(&self, flight: Flight) {
        let mut queue = self.0.lock();
        queue.open += 1;
        queue.under_way.push_back(flight);
    }

    /// Waits until every batch that was begun is given back. For the instance's own thread alone.
    pub(super) fn drain(&self) {
        loop {
            let mut queue = self.0.lock();
            if queue.open == 0 {
                return;
            }
            queue.awaited = true;
            drop(queue);
            sync::park(None);
        }
    }

    pub(super) fn close(&self) {
        self.0.lock().closed = true;
    }

    fn next(&self) -> Next {
        let mut queue = self.0.lock();
        match queue.under_way.pop_front() {
            Some(flight) => Next::Land(Box::new(flight)),
            None if queue.closed => Next::End,
            None => Next::Sleep,
        }
    }

    /// Notes that one was given back. Whether somebody waits for that.
    fn landed(&self) -> bool {
        let mut queue = self.0.lock();
        queue.open = queue.open.saturating_sub(1);
        queue.open == 0 && std::mem::take(&mut queue.awaited)
    }
}

/// Waits for one batch after the other and gives it back, until there will be no more.
pub(super) fn land(model: &Arc<Model>, load: &Loaded, who: Instance, flights: &Flights) {
    loop {
        match flights.next() {
            Next::Land(flight) => {
                let (over, staging) = flight.land(load);
                // Before the core hears of it: it may hand out the next batch at once.
                flights.lay_by(staging);
                model.give_back(over);
                if flights.landed() {
                    load.wake(who.n);
                }
            }
            Next::Sleep => sync::park(None),
            Next::End => break,
        }
    }
}

impl Flight {
    /// Waits for it. What became of its rows, and the memory that it does not need any more.
    fn land(self, load: &Loaded) -> (Over, Staging) {
        let Flight { taken, submitted, mut spent, staging } = self;
        let (extent, requests) = (submitted.extent, submitted.requests());
        let ran = match submitted.land(&mut spent) {
            Ok(outcomes) => outcomes.into_iter().map(Ok).collect(),
            // The device is lost, and with it every state there: none of its rows could go on, alone or not.
            Err(error) => (0..requests).map(|_| Err(error.clone())).collect(),
        };
        load.ran(extent, &spent);
        (taken.end(load, ran), staging)
    }
}
