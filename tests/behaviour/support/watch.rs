//! Wraps a backend: records the inputs of every run, and can hold runs at a gate.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use sequor::backend::{Backend, BackendError, Context, Feed, Fetch, Graph, LoadOptions, Signature};
use sequor_core::Shape;

use super::values::Element;

/// So long that only a fault reaches it.
pub const HANG: Duration = Duration::from_secs(180);

/// The inputs of one run of a graph.
#[derive(Debug, Clone)]
pub struct Run {
    /// The name of the thread that ran it: `model.instance`.
    pub instance: String,
    pub inputs: BTreeMap<String, (Shape, Vec<u8>)>,
}

impl Run {
    #[track_caller]
    pub fn fed<E: Element>(&self, input: &str) -> Vec<E> {
        E::all(&self.inputs.get(input).unwrap_or_else(|| panic!("{input} was not fed: {self:?}")).1)
    }

    #[track_caller]
    pub fn shape(&self, input: &str) -> Vec<u64> {
        self.inputs[input].0.0.clone()
    }

    /// Number of rows of INPUT.
    pub fn rows(&self) -> u64 {
        self.shape("INPUT")[0]
    }
}

/// Records and holds runs.
#[derive(Debug, Default)]
pub struct Watch {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    runs: Vec<Run>,
    /// Holds the runs of instances whose names end with this text.
    gate: Option<String>,
    /// Number of runs that may pass the closed gate.
    passes: usize,
    /// Whether the next run fails.
    fails: bool,
}

impl Watch {
    pub fn runs(&self) -> Vec<Run> {
        self.inner.lock().runs.clone()
    }

    /// Waits until `runs` runs have begun.
    #[track_caller]
    pub fn wait_for(&self, runs: usize) {
        let until = Instant::now() + HANG;
        let mut inner = self.inner.lock();
        while inner.runs.len() < runs {
            let late = self.changed.wait_until(&mut inner, until).timed_out();
            assert!(!late, "{} of {runs} runs have begun", inner.runs.len());
        }
    }

    /// Holds the runs of instances whose names end with this text; an empty text holds all.
    pub fn close(&self, instances: &str) {
        self.inner.lock().gate = Some(instances.to_owned());
    }

    pub fn open(&self) {
        let mut inner = self.inner.lock();
        (inner.gate, inner.passes) = (None, 0);
        self.changed.notify_all();
    }

    /// Lets one run pass the closed gate.
    pub fn pass(&self) {
        self.inner.lock().passes += 1;
        self.changed.notify_all();
    }

    /// Makes the next run fail, after it was recorded.
    pub fn fail_next(&self) {
        self.inner.lock().fails = true;
    }

    /// Records a run and waits at the gate. Returns whether the run has to fail.
    fn enter(&self, run: Run) -> bool {
        let mut inner = self.inner.lock();
        let fails = std::mem::take(&mut inner.fails);
        let instance = run.instance.clone();
        inner.runs.push(run);
        self.changed.notify_all();
        while inner.gate.as_ref().is_some_and(|gate| instance.ends_with(gate.as_str())) {
            if inner.passes > 0 {
                inner.passes -= 1;
                break;
            }
            self.changed.wait(&mut inner);
        }
        fails
    }
}

/// A backend with recorded runs.
#[derive(Debug)]
pub struct Watched {
    pub backend: Arc<dyn Backend>,
    pub watch: Arc<Watch>,
}

impl Backend for Watched {
    fn name(&self) -> &'static str {
        self.backend.name()
    }

    fn load(&self, file: &Path, options: &LoadOptions) -> Result<Arc<dyn Graph>, BackendError> {
        Ok(Arc::new(WatchedGraph { graph: self.backend.load(file, options)?, watch: Arc::clone(&self.watch) }))
    }
}

#[derive(Debug)]
struct WatchedGraph {
    graph: Arc<dyn Graph>,
    watch: Arc<Watch>,
}

impl Graph for WatchedGraph {
    fn signature(&self) -> &Signature {
        self.graph.signature()
    }

    fn context(&self, inputs: &[String], outputs: &[String]) -> Result<Box<dyn Context>, BackendError> {
        let context = self.graph.context(inputs, outputs)?;
        Ok(Box::new(WatchedContext { context, names: inputs.to_vec(), watch: Arc::clone(&self.watch) }))
    }
}

#[derive(Debug)]
struct WatchedContext {
    context: Box<dyn Context>,
    names: Vec<String>,
    watch: Arc<Watch>,
}

impl Context for WatchedContext {
    fn run(&mut self, inputs: &[Feed<'_>], outputs: &mut [Fetch<'_>]) -> Result<(), BackendError> {
        let fed = |feed: &Feed<'_>| (feed.shape.clone(), feed.data.as_host().unwrap().to_vec());
        let inputs_seen = self.names.iter().cloned().zip(inputs.iter().map(fed)).collect();
        let instance = std::thread::current().name().unwrap_or_default().to_owned();
        if self.watch.enter(Run { instance, inputs: inputs_seen }) {
            return Err(BackendError("the test fails this run".to_owned()));
        }
        self.context.run(inputs, outputs)
    }
}
