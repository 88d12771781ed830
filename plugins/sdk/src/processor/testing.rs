//! A test bench for `cargo test`: it stands in for the server and the model, and checks answers by the server's rules.
//!
//! ```
//! use sequor_plugin::processor::testing::Bench;
//! use sequor_plugin::processor::*;
//!
//! #[derive(Default)]
//! struct Last;
//!
//! /// Answers each step with the sum of this step's input and the one before.
//! impl Processor for Last {
//!     type Scratch = Json<i32>;
//!
//!     fn pre(&mut self, _: &Call<'_>, inputs: Tensors, last: &mut Json<i32>) -> Result<Prepared, Refusal> {
//!         let value = inputs.get("x")?.values::<i32>()?[0];
//!         let sum = value + std::mem::replace(&mut last.0, value);
//!         Ok(Prepared::run([("x", Tensor::new(&[1], &[sum]))]))
//!     }
//! }
//!
//! let model = Signature::new().input("x", Dtype::INT32, &[1]).output("y", Dtype::INT32, &[1]);
//! let twice = |run: &Tensors| Tensors::from([("y", Tensor::new(&[1], &[2 * run.get("x").unwrap().values::<i32>().unwrap()[0]]))]);
//! let mut bench = Bench::<Last>::new(model, twice).scratch_limit(64);
//! let x = |value: i32| [("x", Tensor::new(&[1], &[value]))];
//! assert_eq!(bench.start(7, x(1)).unwrap().get("y").unwrap().values::<i32>().unwrap(), [2]);
//! assert_eq!(bench.step(7, x(10)).unwrap().get("y").unwrap().values::<i32>().unwrap(), [22]);
//! ```

use std::collections::BTreeMap;

use super::Processor;
use super::call::CallFacts;
use super::dtype::Element;
use super::files::Files;
use super::held::Held;
use super::instance::{Action, Instance, Value};
use super::join::join;
use super::prepared::RUNS;
use super::refusal::Refusal;
use super::signature::{Port, Signature};
use super::tensor::Tensor;
use super::tensors::Tensors;
use crate::host;
use crate::model::Model;

/// A processor in front of a stand-in for its model.
pub struct Bench<P> {
    pub plugin: Instance<P>,
    pub model: Model,
    /// The inputs of each run of the last request.
    pub runs: Vec<Tensors>,
    config: String,
    files: Vec<(String, Tensor)>,
    inner: Signature,
    outer: Option<Signature>,
    answer: Box<dyn FnMut(&Tensors) -> Tensors>,
    sequences: BTreeMap<u64, (u64, Vec<u8>)>,
    numbers: BTreeMap<String, f64>,
    keys: BTreeMap<String, String>,
    reads: Option<Vec<String>>,
    posts: bool,
    scratch: usize,
    by_value: u64,
}

impl<P: Processor> Bench<P> {
    /// A processor in front of a model with this signature. `answer` makes the outputs of a run from its inputs.
    pub fn new(inner: Signature, answer: impl FnMut(&Tensors) -> Tensors + 'static) -> Bench<P> {
        Bench {
            plugin: Instance::default(),
            model: Model::default(),
            runs: Vec::new(),
            config: String::new(),
            files: Vec::new(),
            inner,
            outer: None,
            answer: Box::new(answer),
            sequences: BTreeMap::new(),
            numbers: BTreeMap::new(),
            keys: BTreeMap::new(),
            reads: None,
            posts: true,
            scratch: 0,
            by_value: 64 << 10,
        }
    }

    /// The table `config` of `[[plugins.processor]]`, as JSON.
    #[must_use]
    pub fn config(mut self, json: &str) -> Self {
        self.config = json.to_owned();
        self
    }

    /// A file that sequor.toml names.
    #[must_use]
    pub fn file(mut self, name: &str, content: impl AsRef<[u8]>) -> Self {
        let content = content.as_ref();
        let held = Held::new(super::Dtype::UINT8, vec![content.len() as u64], content);
        self.files.push((name.to_owned(), Tensor::of_held(held)));
        self
    }

    /// A numeric feature of all requests.
    #[must_use]
    pub fn number(mut self, feature: &str, value: f64) -> Self {
        self.numbers.insert(feature.to_owned(), value);
        self
    }

    /// A key feature of all requests.
    #[must_use]
    pub fn key(mut self, feature: &str, text: &str) -> Self {
        self.keys.insert(feature.to_owned(), text.to_owned());
        self
    }

    /// Sets `reads` of plugin.toml.
    #[must_use]
    pub fn reads(mut self, names: &[&str]) -> Self {
        self.reads = Some(names.iter().map(|name| (*name).to_owned()).collect());
        self
    }

    /// Sets `wants = ["pre"]` of plugin.toml.
    #[must_use]
    pub fn without_post(mut self) -> Self {
        self.posts = false;
        self
    }

    /// Sets `scratch` of plugin.toml, in bytes; default 0.
    #[must_use]
    pub fn scratch_limit(mut self, bytes: usize) -> Self {
        self.scratch = bytes;
        self
    }

    /// Sets `by-value` of plugin.toml, in bytes; default 64 KiB.
    #[must_use]
    pub fn by_value(mut self, bytes: u64) -> Self {
        self.by_value = bytes;
        self
    }

    /// Configures the processor. Returns the signature that clients see, or the processor's error. Otherwise the first request does this.
    pub fn configure(&mut self) -> Result<Signature, String> {
        self.model.numbers = self.numbers.keys().cloned().collect();
        self.model.keys = self.keys.keys().cloned().collect();
        let files = Files::new(self.files.clone());
        let outer = self.plugin.configure(&self.config, self.model.clone(), self.inner.clone(), &files)?;
        self.outer = Some(outer.clone());
        Ok(outer)
    }

    /// Sends a START. A sequence with this id starts again.
    pub fn start(&mut self, id: u64, inputs: impl Into<Tensors>) -> Result<Tensors, Refusal> {
        self.sequences.insert(id, (0, Vec::new()));
        let answer = self.send(id, true, false, inputs.into());
        if answer.is_err() {
            self.sequences.remove(&id);
        }
        answer
    }

    /// Sends a step of a sequence.
    pub fn step(&mut self, id: u64, inputs: impl Into<Tensors>) -> Result<Tensors, Refusal> {
        self.send(id, false, false, inputs.into())
    }

    /// Sends an END. It may come without inputs: `Tensors::new()`.
    pub fn end(&mut self, id: u64, inputs: impl Into<Tensors>) -> Result<Tensors, Refusal> {
        let answer = self.send(id, false, true, inputs.into())?;
        self.sequences.remove(&id);
        Ok(answer)
    }

    /// Sends a request without a sequence.
    pub fn once(&mut self, inputs: impl Into<Tensors>) -> Result<Tensors, Refusal> {
        self.send(0, false, false, inputs.into())
    }

    /// Sends a whole sequence: these values as one input of one dimension, `packet` values a request, and an END without inputs. The
    /// answers are joined on their first dimension.
    pub fn stream<T: Element>(&mut self, input: &'static str, values: &[T], packet: usize) -> Result<Tensors, Refusal> {
        const ID: u64 = u64::MAX;
        let mut answers = Vec::new();
        for (n, values) in values.chunks(packet.max(1)).enumerate() {
            let inputs = [(input, Tensor::new(&[values.len() as u64], values))];
            answers.push(if n == 0 { self.start(ID, inputs)? } else { self.step(ID, inputs)? });
        }
        answers.push(self.end(ID, Tensors::new())?);
        answers.retain(|answer| !answer.is_empty());
        Ok(join(answers))
    }

    /// The scratch of a live sequence.
    #[must_use]
    pub fn scratch(&self, id: u64) -> Option<&[u8]> {
        self.sequences.get(&id).map(|(_, scratch)| scratch.as_slice())
    }

    fn send(&mut self, id: u64, start: bool, end: bool, inputs: Tensors) -> Result<Tensors, Refusal> {
        let outer = match &self.outer {
            Some(outer) => outer.clone(),
            None => self.configure().unwrap_or_else(|what| panic!("configure: {what}")),
        };
        let (step, scratch) = match self.sequences.get(&id) {
            Some((step, scratch)) => (step + 1, scratch.clone()),
            None if id == 0 => (0, Vec::new()),
            None => panic!("sequence {id} does not live: start it"),
        };
        let facts = self.facts(id, step, start, end, &outer);
        let (outputs, scratch) = self.run(&facts, scratch, &outer, inputs)?;
        if id != 0 {
            self.sequences.insert(id, (step, scratch));
        }
        Ok(outputs)
    }

    fn facts(&self, sequence: u64, step: u64, start: bool, end: bool, outer: &Signature) -> CallFacts {
        let numbers = self.numbers.values().copied().collect();
        let keys = self.keys.values().map(|text| host::remember(text)).collect();
        let outputs = (0..outer.outputs.len() as u32).collect();
        CallFacts { sequence, step, start, end, numbers, keys, outputs }
    }

    fn run(
        &mut self,
        facts: &CallFacts,
        scratch: Vec<u8>,
        outer: &Signature,
        inputs: Tensors,
    ) -> Result<(Tensors, Vec<u8>), Refusal> {
        let (seen, passed) = self.split(&outer.inputs, inputs);
        let (action, changed) = self.plugin.pre(facts, &scratch, seen)?;
        let scratch = self.kept(facts, scratch, changed);
        self.runs.clear();
        let runs = match action {
            Action::Reply(outputs) => return Ok((checked(&outer.outputs, outputs, "reply"), scratch)),
            Action::Run(runs) => runs,
        };
        assert!(!runs.is_empty(), "pre answered 0 runs; a request has 1 to {RUNS}");
        for run in runs {
            self.runs.push(self.whole(run, &passed));
        }
        let shapes = |run: &Tensors| run.iter().map(|(name, t)| (name.to_owned(), t.shape())).collect::<Vec<_>>();
        let first = self.runs.first().map(shapes);
        assert!(self.runs.iter().all(|run| Some(shapes(run)) == first), "the runs have different shapes");
        let answers: Vec<Tensors> = self.runs.iter().map(&mut self.answer).collect();
        if !self.posts {
            return Ok((join(answers), scratch));
        }
        let (mut seen, mut unseen) = (Vec::new(), Vec::new());
        for answer in answers {
            let (of, beside) = self.split(&self.inner.outputs, answer);
            seen.push(of);
            unseen.push(beside);
        }
        let (outputs, changed) = self.plugin.post(facts, &scratch, seen)?;
        let scratch = self.kept(facts, scratch, changed);
        let mut outputs = checked(&outer.outputs, outputs, "post");
        for (name, tensor) in join(unseen).into_entries() {
            if outputs.find(&name).is_none() && outer.outputs.iter().any(|port| port.name == name) {
                outputs.insert(name, tensor);
            }
        }
        for port in &outer.outputs {
            assert!(outputs.find(&port.name).is_some(), "post answered without \"{}\"", port.name);
        }
        Ok((outputs, scratch))
    }

    /// The inputs of a run, including the request's inputs that the plug-in does not see.
    fn whole(&self, run: Vec<Value>, passed: &Tensors) -> Tensors {
        let mut run = checked(&self.inner.inputs, run, "run");
        for port in &self.inner.inputs {
            if let (None, Some(tensor)) = (run.find(&port.name), passed.find(&port.name)) {
                run.insert(port.name.clone(), tensor.clone());
            }
            assert!(port.optional || run.find(&port.name).is_some(), "a run is without \"{}\"", port.name);
        }
        run
    }

    /// The tensors that the plug-in sees, large ones as handles, and those that it does not see.
    fn split(&self, ports: &[Port], tensors: Tensors) -> (Vec<Value>, Tensors) {
        let (mut seen, mut passed) = (Vec::new(), Tensors::new());
        for (name, tensor) in tensors.into_entries() {
            let at = ports.iter().position(|port| port.name == name);
            let at = at.unwrap_or_else(|| panic!("there is no \"{name}\""));
            ports[at].check(&tensor).unwrap_or_else(|what| panic!("{what}"));
            if self.reads.as_ref().is_some_and(|reads| !reads.iter().any(|read| *read == name)) {
                passed.insert(name, tensor);
                continue;
            }
            let is_small = tensor.is_handle() || tensor.size() <= self.by_value;
            let held = || Tensor::of_held(Held::new(tensor.dtype(), tensor.shape(), &tensor.bytes()));
            seen.push((at as u32, if is_small { tensor.clone() } else { held() }));
        }
        (seen, passed)
    }

    fn kept(&self, facts: &CallFacts, before: Vec<u8>, changed: Option<Vec<u8>>) -> Vec<u8> {
        let Some(now) = changed.filter(|_| facts.sequence != 0) else { return before };
        let (is, most) = (now.len(), self.scratch);
        assert!(is <= most, "the plug-in left {is} bytes of scratch; the limit is {most} (Bench::scratch_limit)");
        now
    }
}

/// Tensors by name, each checked.
fn checked(ports: &[Port], values: Vec<Value>, what: &str) -> Tensors {
    let mut all = Tensors::new();
    for (at, tensor) in values {
        let port = ports.get(at as usize).unwrap_or_else(|| panic!("{what}: port {at} of {}", ports.len()));
        port.check(&tensor).unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
        all.insert(port.name.clone(), tensor);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::{Call, Dtype, Json, Prepared, refuse};
    use super::*;

    /// Collects four values a run, and refuses negative ones.
    #[derive(Default)]
    struct Fours;

    impl Processor for Fours {
        type Scratch = Json<Vec<i16>>;

        fn pre(&mut self, call: &Call<'_>, inputs: Tensors, kept: &mut Json<Vec<i16>>) -> Result<Prepared, Refusal> {
            if let Some(x) = inputs.find("x") {
                kept.extend(x.values::<i16>()?);
            }
            if kept.iter().any(|value| *value < 0) {
                return Err(refuse(3, "negative").retry_us(5));
            }
            if call.end && !kept.is_empty() {
                let whole = kept.len().next_multiple_of(4);
                kept.resize(whole, 0);
            }
            let runs: Vec<Vec<i16>> = kept.chunks_exact(4).map(<[i16]>::to_vec).collect();
            kept.drain(..4 * runs.len());
            let runs = runs.into_iter().map(|run| [("x", Tensor::new(&[4], &run))]);
            Ok(Prepared::run_each(runs).or_reply([("y", Tensor::empty(Dtype::INT32, &[0]))]))
        }
    }

    fn bench() -> Bench<Fours> {
        let model = Signature::new().input("x", Dtype::INT16, &[-1]).output("y", Dtype::INT32, &[-1]);
        let sum = |run: &Tensors| {
            let sum = run.get("x").unwrap().values::<i16>().unwrap().into_iter().map(i32::from).sum::<i32>();
            Tensors::from([("y", Tensor::new(&[1], &[sum]))])
        };
        Bench::new(model, sum).scratch_limit(64)
    }

    fn x(values: &[i16]) -> Tensors {
        Tensors::from([("x", Tensor::new(&[values.len() as u64], values))])
    }

    #[test]
    fn the_packet_size_does_not_change_the_results() {
        let values: Vec<i16> = (0..23).collect();
        let whole = bench().stream("x", &values, values.len()).unwrap();
        assert_eq!(whole.get("y").unwrap().values::<i32>().unwrap(), [6, 22, 38, 54, 70, 63]);
        for packet in 1..values.len() {
            assert_eq!(bench().stream("x", &values, packet).unwrap(), whole, "{packet} a packet");
        }
        // The same by handle.
        assert_eq!(bench().by_value(3).stream("x", &values, 5).unwrap(), whole);
    }

    #[test]
    fn a_refused_step_leaves_the_scratch_unchanged() {
        let mut bench = bench();
        bench.start(1, x(&[1, 2])).unwrap();
        assert_eq!(bench.scratch(1), Some(&b"[1,2]"[..]));
        let refused = bench.step(1, x(&[-1])).unwrap_err();
        assert_eq!((refused.code, refused.retry_us, refused.ends), (3, Some(5), false));
        assert_eq!(bench.scratch(1), Some(&b"[1,2]"[..]));
        assert_eq!(bench.step(1, x(&[3, 4])).unwrap().get("y").unwrap().values::<i32>().unwrap(), [10]);
        assert_eq!(bench.runs, [x(&[1, 2, 3, 4])]);
        assert!(bench.start(2, x(&[-1])).is_err() && bench.scratch(2).is_none());
    }

    #[test]
    fn a_request_that_needs_too_many_runs_is_refused() {
        let mut bench = bench();
        bench.start(1, x(&[1, 2])).unwrap();
        assert_eq!(bench.step(1, x(&vec![1; 4 * RUNS - 2])).unwrap().get("y").unwrap().shape(), [4096]);
        let refused = bench.step(1, x(&vec![1; 4 * (RUNS + 1)])).unwrap_err();
        assert_eq!(refused.code, 1);
        assert_eq!(refused.text, "the request needs more than 4096 runs of the model. Send less in one request");
    }

    #[test]
    #[should_panic(expected = "8 bytes of scratch; the limit is 4")]
    fn too_much_scratch_fails_the_call() {
        let _ = bench().scratch_limit(4).start(1, x(&[100, 10]));
    }

    #[derive(Default)]
    struct Nothing;

    impl Processor for Nothing {
        type Scratch = ();
    }

    #[test]
    fn a_processor_without_functions_passes_everything_on() {
        let model = Signature::new().input("x", Dtype::INT16, &[-1]).output("y", Dtype::INT16, &[-1]);
        let echo = |run: &Tensors| Tensors::from([("y", run.get("x").unwrap().clone())]);
        let mut bench = Bench::<Nothing>::new(model.clone(), echo);
        assert_eq!(bench.configure(), Ok(model));
        assert_eq!(bench.once(x(&[1, 2])).unwrap().get("y").unwrap().values::<i16>().unwrap(), [1, 2]);
    }
}
