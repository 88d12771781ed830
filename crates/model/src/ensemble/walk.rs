//! The progress of one request through the steps of its ensemble. Tensors are passed on without copying their bytes.

use std::sync::Arc;

use crate::tensor::{NamedTensor, Tensor};

use super::plan::EnsemblePlan;

/// The tensors that are known, and the steps that still wait for some.
#[derive(Debug)]
pub(crate) struct FlowProgress {
    plan: Arc<EnsemblePlan>,
    tensors: Vec<TensorSlot>,
    steps: Vec<StepState>,
}

/// One tensor of the ensemble.
#[derive(Debug, Clone, Default)]
struct TensorSlot {
    value: Option<Tensor>,
    /// Whether the value is known, or known to be absent.
    is_known: bool,
    /// Number of steps and outputs that have not read it yet. After the last one it is dropped.
    readers: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StepState {
    Waiting,
    Started,
    Done,
}

impl FlowProgress {
    /// Starts a request with these inputs, in the order of the settings. An optional input may be left out.
    pub(crate) fn new(plan: &Arc<EnsemblePlan>, inputs: Vec<Option<Tensor>>) -> FlowProgress {
        let mut walk = FlowProgress {
            plan: Arc::clone(plan),
            tensors: vec![TensorSlot::default(); plan.tensors],
            steps: vec![StepState::Waiting; plan.steps.len()],
        };
        let read = plan.steps.iter().flat_map(|step| &step.inputs).map(|(_, tensor)| *tensor);
        for tensor in read.chain(plan.outputs.iter().copied()) {
            if let Some(slot) = walk.tensors.get_mut(tensor) {
                slot.readers += 1;
            }
        }
        for (at, value) in plan.inputs.iter().zip(inputs.into_iter().chain(std::iter::repeat(None))) {
            walk.set(*at, value);
        }
        walk
    }

    fn set(&mut self, tensor: usize, value: Option<Tensor>) {
        if let Some(slot) = self.tensors.get_mut(tensor) {
            slot.is_known = true;
            slot.value = value.filter(|_| slot.readers > 0);
        }
    }

    /// Returns the steps whose inputs are all known and that have not started, and marks them as started.
    pub(crate) fn start_ready(&mut self) -> Vec<usize> {
        let is_known = |tensor: usize| self.tensors.get(tensor).is_some_and(|slot| slot.is_known);
        let is_ready = |step: usize| {
            let waits = self.steps.get(step) == Some(&StepState::Waiting);
            waits && self.plan.steps.get(step).is_some_and(|s| s.inputs.iter().all(|(_, tensor)| is_known(*tensor)))
        };
        let ready: Vec<usize> = (0..self.steps.len()).filter(|step| is_ready(*step)).collect();
        for step in &ready {
            self.mark(*step, StepState::Started);
        }
        ready
    }

    /// The inputs of a step, under its member's names. Call it once a step.
    pub(crate) fn take_inputs(&mut self, step: usize) -> Vec<NamedTensor> {
        let Some(planned) = self.plan.steps.get(step) else { return Vec::new() };
        let mut inputs = Vec::with_capacity(planned.inputs.len());
        for (port, tensor) in &planned.inputs {
            let Some(slot) = self.tensors.get_mut(*tensor) else { continue };
            slot.readers = slot.readers.saturating_sub(1);
            let value = if slot.readers == 0 { slot.value.take() } else { slot.value.clone() };
            inputs.extend(value.map(|tensor| NamedTensor { name: port.clone(), tensor }));
        }
        inputs
    }

    /// Stores the outputs of a step.
    pub(crate) fn finish(&mut self, step: usize, outputs: Vec<NamedTensor>) {
        let plan = Arc::clone(&self.plan);
        let Some(planned) = plan.steps.get(step) else { return };
        let mut outputs = outputs;
        for (port, tensor) in &planned.outputs {
            let at = outputs.iter().position(|output| output.name == *port);
            let value = at.map(|at| outputs.swap_remove(at).tensor);
            self.set(*tensor, value);
        }
        self.mark(step, StepState::Done);
    }

    /// Drops all tensors of a request that is over.
    pub(crate) fn abandon(&mut self) {
        self.tensors.iter_mut().for_each(|slot| slot.value = None);
    }

    fn mark(&mut self, step: usize, state: StepState) {
        if let Some(place) = self.steps.get_mut(step) {
            *place = state;
        }
    }

    /// Whether every step is done.
    pub(crate) fn is_done(&self) -> bool {
        self.steps.iter().all(|step| *step == StepState::Done)
    }

    /// The outputs, in the order of the settings.
    pub(crate) fn outputs(&mut self) -> Vec<Option<Tensor>> {
        let plan = Arc::clone(&self.plan);
        let take = |tensor: &usize| self.tensors.get(*tensor).and_then(|slot| slot.value.clone());
        plan.outputs.iter().map(take).collect()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sequor_core::{DataType, Shape};

    use super::*;
    use crate::ensemble::MemberStep;

    fn step(model: &str, inputs: &[(&str, usize)], outputs: &[(&str, usize)]) -> MemberStep {
        let ports = |ports: &[(&str, usize)]| ports.iter().map(|(port, at)| ((*port).to_owned(), *at)).collect();
        MemberStep {
            model: model.to_owned(),
            version: None,
            is_stateful: false,
            inputs: ports(inputs),
            outputs: ports(outputs),
        }
    }

    fn tensor(byte: u8) -> Tensor {
        Tensor { dtype: DataType::Uint8, shape: Shape::new(&[3]), data: Bytes::from(vec![byte; 3]) }
    }

    fn named(name: &str, tensor: &Tensor) -> NamedTensor {
        NamedTensor { name: name.to_owned(), tensor: tensor.clone() }
    }

    /// Tensor 0 goes to two steps, whose outputs 1 and 2 go to a third one; 3 is the output. Input 4 is optional.
    fn walk() -> FlowProgress {
        let steps = vec![
            step("last", &[("A", 1), ("B", 2), ("C", 4)], &[("OUT", 3)]),
            step("left", &[("X", 0)], &[("Y", 1)]),
            step("right", &[("X", 0)], &[("Y", 2), ("Z", 5)]),
        ];
        let plan = EnsemblePlan { steps, tensors: 6, inputs: vec![0, 4], outputs: vec![3], stateful: Vec::new() };
        FlowProgress::new(&Arc::new(plan), vec![Some(tensor(7)), None])
    }

    #[test]
    fn steps_start_when_their_inputs_are_there_and_tensors_are_handed_on_without_a_copy() {
        let mut walk = walk();
        assert_eq!((walk.start_ready(), walk.start_ready()), (vec![1, 2], vec![]));
        let inputs = [walk.take_inputs(1), walk.take_inputs(2)];
        assert_eq!(inputs[0][0].tensor.data.as_ptr(), inputs[1][0].tensor.data.as_ptr());
        assert!(walk.tensors[0].value.is_none(), "after its last reader it is dropped");
        let left = tensor(1);
        walk.finish(1, vec![named("Y", &left)]);
        assert!(walk.start_ready().is_empty() && !walk.is_done());
        walk.finish(2, vec![named("Y", &tensor(2)), named("Z", &tensor(3))]);
        assert!(walk.tensors[5].value.is_none(), "no step and no client reads it");
        assert_eq!(walk.start_ready(), [0]);
        let inputs = walk.take_inputs(0);
        assert_eq!(inputs.iter().map(|input| input.name.as_str()).collect::<Vec<_>>(), ["A", "B"], "C was left out");
        assert_eq!(inputs[0].tensor.data.as_ptr(), left.data.as_ptr());
        walk.finish(0, vec![named("OUT", &tensor(9))]);
        assert!(walk.is_done());
        assert_eq!(walk.outputs(), [Some(tensor(9))]);
    }
}
