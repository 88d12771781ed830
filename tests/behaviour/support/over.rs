//! Runs ONNX Runtime as if on an accelerator: on a stand-in that catches up before each run. The graph reads and writes the stand-in's
//! memory. Outputs that the graph allocates stay there, except BYTES.

use std::path::Path;
use std::sync::Arc;

use sequor::backend::{Backend, BackendError, Context, Feed, Fetch, Graph, LoadOptions, Produced, Signature};
use sequor::device::{Buffer, Device, DeviceId, MemorySpan, Owned, stand_in};
use sequor_core::DataType;

/// Wraps a backend for the host, so that it runs on stand-ins.
#[derive(Debug)]
pub struct Over(pub Arc<dyn Backend>);

impl Backend for Over {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn load(&self, file: &Path, options: &LoadOptions) -> Result<Arc<dyn Graph>, BackendError> {
        self.0.load(file, options)
    }

    fn is_for_accelerators(&self) -> Result<(), BackendError> {
        Ok(())
    }

    fn load_on(
        &self,
        file: &Path,
        options: &LoadOptions,
        device: &Arc<dyn Device>,
    ) -> Result<Arc<dyn Graph>, BackendError> {
        Ok(Arc::new(There { graph: self.0.load(file, options)?, device: Arc::clone(device) }))
    }
}

#[derive(Debug)]
struct There {
    graph: Arc<dyn Graph>,
    device: Arc<dyn Device>,
}

impl Graph for There {
    fn signature(&self) -> &Signature {
        self.graph.signature()
    }

    fn context(&self, inputs: &[String], outputs: &[String]) -> Result<Box<dyn Context>, BackendError> {
        let context = self.graph.context(inputs, outputs)?;
        Ok(Box::new(Run { context, device: Arc::clone(&self.device) }))
    }
}

#[derive(Debug)]
struct Run {
    context: Box<dyn Context>,
    device: Arc<dyn Device>,
}

impl Context for Run {
    fn run(&mut self, inputs: &[Feed<'_>], outputs: &mut [Fetch<'_>]) -> Result<(), BackendError> {
        // SAFETY: the stream is a stand-in's, because these tests have no other accelerators.
        unsafe { stand_in::catch_up(self.device.stream().unwrap()) };
        let feeds: Vec<Feed<'_>> = inputs.iter().map(|feed| Feed { data: here(feed), ..feed.clone() }).collect();
        let mut fetches: Vec<Fetch<'_>> = outputs
            .iter_mut()
            .map(|fetch| match fetch {
                // SAFETY: as above.
                Fetch::Into { shape, data } => Fetch::Into { shape, data: unsafe { stand_in::write(data) } },
                Fetch::New(_) => Fetch::New(None),
            })
            .collect();
        self.context.run(&feeds, &mut fetches)?;
        let made: Vec<Option<Produced>> = fetches
            .into_iter()
            .map(|fetch| match fetch {
                Fetch::New(made) => made.map(|made| there(&self.device, made)),
                Fetch::Into { .. } => None,
            })
            .collect();
        for (fetch, made) in outputs.iter_mut().zip(made) {
            if let Fetch::New(answer) = fetch {
                *answer = made;
            }
        }
        Ok(())
    }
}

/// Checks that an input is in the memory from which a GPU's provider takes it without a copy.
fn here<'a>(feed: &Feed<'a>) -> MemorySpan<'a> {
    assert_eq!(feed.data.place() == DeviceId::Host, feed.dtype == DataType::Bytes, "{feed:?}");
    // SAFETY: as above.
    unsafe { stand_in::read(&feed.data) }
}

fn there(device: &Arc<dyn Device>, made: Produced) -> Produced {
    match made.dtype {
        DataType::Bytes => made,
        _ => Produced { data: Owned::new(Buffer::holding(device, made.data.as_ref()).unwrap()), ..made },
    }
}
