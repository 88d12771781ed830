//! A bare loop that only runs a graph: inputs up, outputs down, one wait a turn. The states are on the GPU or on the host.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sequor::backend::{BackendError, Context, Feed, Fetch, Graph, LoadOptions};
use sequor::device::cuda::CudaDriver;
use sequor::device::{Buffer, Device, MemorySpan, MemorySpanMut};
use sequor_core::{DataType, Shape};

use crate::Terms;

/// Turns before the measurement; they allocate memory and load kernels.
const WARM: usize = 20;

/// Names of a state's input and output, and its type and shape.
pub(crate) type State = (&'static str, &'static str, DataType, &'static [u64]);

/// A graph to measure, and the shapes of its rows.
pub(crate) struct BenchedGraph<'a> {
    pub(crate) name: &'a str,
    pub(crate) file: &'a str,
    pub(crate) config: &'a str,
    pub(crate) input: &'a [u64],
    pub(crate) output: &'a [u64],
    pub(crate) states: &'a [State],
}

pub(crate) struct BareLoop {
    pub(crate) device: Arc<dyn Device>,
    context: Box<dyn Context>,
    _graph: Arc<dyn Graph>,
    shapes: [Shape; 2],
    /// Input and output, on the host and on the device.
    host: [Buffer; 2],
    far: [Buffer; 2],
    states: Vec<(Shape, DataType, [Buffer; 2])>,
    batch: u64,
    span: Duration,
}

impl BareLoop {
    /// Prepares the buffers and runs the graph until it is warm.
    pub(crate) fn new(terms: &Terms, graph: &BenchedGraph<'_>, on_device: bool) -> BareLoop {
        let device = terms.device(&CudaDriver);
        let staging = device.staging().unwrap_or_else(|| Arc::clone(&device));
        let (file, options) = (terms.root.join(graph.file), LoadOptions::default());
        let loaded = match terms.rehearse {
            true => terms.backend.load(&file, &options),
            false => terms.backend.load_on(&file, &options, &device),
        };
        let loaded = loaded.unwrap();
        let names = |first: &str, of: fn(&State) -> &'static str| {
            std::iter::once(first.to_owned()).chain(graph.states.iter().map(|s| of(s).to_owned())).collect::<Vec<_>>()
        };
        let context = loaded.context(&names("INPUT", |s| s.0), &names("OUTPUT", |s| s.1)).unwrap();
        let batched = |dims: &[u64]| Shape::new(dims).with(0, u64::from(terms.batch));
        let bytes = |shape: &Shape, dtype: DataType| shape.elements().unwrap() as usize * dtype.size().unwrap();
        let place = if on_device { &device } else { &staging };
        let shapes = [batched(graph.input), batched(graph.output)];
        let host = shapes.each_ref().map(|s| Buffer::new(&staging, bytes(s, DataType::Fp32)).unwrap());
        let far = shapes.each_ref().map(|s| Buffer::new(&device, bytes(s, DataType::Fp32)).unwrap());
        let state = |(_, _, dtype, dims): &State| {
            let shape = batched(dims);
            let sides = [(), ()].map(|()| Buffer::new(place, bytes(&shape, *dtype)).unwrap());
            (shape, *dtype, sides)
        };
        let states = graph.states.iter().map(state).collect();
        let (batch, span) = (u64::from(terms.batch), Duration::from_secs(terms.seconds));
        let mut bare = BareLoop { device, context, _graph: loaded, shapes, host, far, states, batch, span };
        for turn in 0..WARM {
            bare.enqueue(turn % 2).unwrap();
            bare.wait();
        }
        bare
    }

    /// Submits one turn. It reads states on one side and writes them on the other.
    pub(crate) fn enqueue(&mut self, side: usize) -> Result<(), BackendError> {
        // SAFETY: nothing is dropped or touched before the wait at the end of the turn.
        unsafe { self.far[0].upload(&self.host[0], self.host[0].len()) }.map_err(|e| BackendError(e.to_string()))?;
        // SAFETY: buffers outlive the turn, and memory that is read is not written.
        let read = |buffer: &Buffer| -> MemorySpan<'_> { unsafe { buffer.read(0..buffer.len()) }.unwrap() };
        // SAFETY: as above.
        let write = |buffer: &Buffer| -> MemorySpanMut<'_> { unsafe { buffer.write(0..buffer.len()) }.unwrap() };
        let [input, output] = &self.shapes;
        let mut feeds = vec![Feed { dtype: DataType::Fp32, shape: input, data: read(&self.far[0]) }];
        let mut fetches = vec![Fetch::Into { shape: output, data: write(&self.far[1]) }];
        for (shape, dtype, both) in &self.states {
            feeds.push(Feed { dtype: *dtype, shape, data: read(&both[side]) });
            fetches.push(Fetch::Into { shape, data: write(&both[1 - side]) });
        }
        self.context.run(&feeds, &mut fetches)?;
        // SAFETY: as above.
        unsafe { self.far[1].download(&write(&self.host[1])) }.map_err(|e| BackendError(e.to_string()))
    }

    pub(crate) fn wait(&self) {
        self.device.wait(self.device.fence().unwrap()).unwrap();
    }

    /// Measures steps a second.
    pub(crate) fn rate(&mut self) -> f64 {
        self.rate_of(|bare, side| bare.enqueue(side).unwrap())
    }

    /// Measures steps a second of turns that `ask` submits.
    pub(crate) fn rate_of(&mut self, mut ask: impl FnMut(&mut BareLoop, usize)) -> f64 {
        let (began, mut turns) = (Instant::now(), 0u64);
        while began.elapsed() < self.span {
            ask(self, (turns % 2) as usize);
            self.wait();
            turns += 1;
        }
        (turns * self.batch) as f64 / began.elapsed().as_secs_f64()
    }
}
