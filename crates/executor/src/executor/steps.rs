//! Model steps deferred to a group of threads. Tasks of these threads make the requests, and a thread without a task runs the steps.
//!
//! Each thread looks for steps after every task, so the thread whose task deferred a step finds it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::queue::{ExecutorHandle, HostQueue, TaskQueue};
use crate::sync::Mutex;
use crate::sync::planted::{PlantedFault, is_planted};

/// Maximum number of waiting steps: one for each instance that these requests wake at a time.
const STEPS: usize = 16;

/// The steps deferred to the threads. Clones share them.
#[derive(Clone)]
pub struct ThreadSteps(Arc<HostQueue>);

impl ThreadSteps {
    pub fn new() -> ThreadSteps {
        let queue = TaskQueue { polling: true, ..TaskQueue::default() };
        ThreadSteps(Arc::new(HostQueue { queue: Mutex::new(queue), runtime: None, steps: STEPS, gathers: true }))
    }

    /// The handle for requests that tasks of these threads make.
    pub fn handle(&self) -> ExecutorHandle {
        ExecutorHandle(Arc::clone(&self.0))
    }

    /// Whether any step waits.
    pub fn any(&self) -> bool {
        !self.0.queue.lock().deferred.is_empty()
    }

    /// Runs the waiting steps on this thread. If a step does not run here, its instance is woken.
    pub fn run(&self) {
        let steps = std::mem::take(&mut self.0.queue.lock().deferred);
        if !is_planted(PlantedFault::ForgetsStep) {
            let thread = self.handle();
            steps.into_iter().for_each(|step| step.run(&thread));
        }
    }

    /// Takes no steps for this long. Instances are woken instead.
    pub fn refuse_for(&self, time: Duration) {
        self.0.queue.lock().refuses_until = Instant::now().checked_add(time);
    }
}

impl Default for ThreadSteps {
    fn default() -> ThreadSteps {
        ThreadSteps::new()
    }
}

impl fmt::Debug for ThreadSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ThreadSteps")
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::super::queue::ModelStep;
    use super::*;

    /// Counts the steps that threads ran, and the wake-ups of its instance.
    #[derive(Debug, Default)]
    struct Counted {
        ran: AtomicU32,
        woken: AtomicU32,
    }

    impl ModelStep for Counted {
        fn try_step(&self, instance: u16, _: &ExecutorHandle) -> bool {
            self.ran.fetch_add(1, Ordering::Relaxed);
            instance == 0
        }

        fn wake(&self, _: u16) {
            self.woken.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn steps_of_several_instances_wait_and_run_once() {
        let (steps, load) = (ThreadSteps::new(), Arc::new(Counted::default()));
        let counts = || (load.ran.load(Ordering::Relaxed), load.woken.load(Ordering::Relaxed));
        assert!(!steps.any());
        assert!(steps.handle().defer(&load, 0) && steps.handle().defer(&load, 1));
        assert_eq!((steps.any(), counts()), (true, (0, 0)));
        steps.run();
        assert_eq!((steps.any(), counts()), (false, (2, 1)), "the second instance is left to its own thread");
        steps.run();
        assert_eq!(counts(), (2, 1));
    }

    #[test]
    fn steps_are_bounded_and_refused_for_a_while() {
        let (steps, load) = (ThreadSteps::new(), Arc::new(Counted::default()));
        let taken = (0..20).filter(|n| steps.handle().defer(&load, *n)).count();
        assert_eq!(taken, STEPS);
        steps.run();
        steps.refuse_for(Duration::from_secs(3600));
        assert!(!steps.handle().defer(&load, 0));
        steps.refuse_for(Duration::ZERO);
        assert!(steps.handle().defer(&load, 0));
    }
}
