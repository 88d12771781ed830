//! Builds requests of a sequence, sends them, awaits them, and compares the answers.

use std::future::Future;
use std::time::Duration;

use sequor::error::Failure;
use sequor::model::{InferAnswer, InferRequest, NamedTensor, Pending, SequenceStep, Tensor};
use sequor_core::{Dialect, Id};

use super::server::Server;
use super::values::{Element, row};
use super::watch::{HANG, Run};

/// A sequence, live or not.
#[derive(Debug, Clone)]
pub struct Seq<'a> {
    pub server: &'a Server,
    pub id: Id,
}

impl<'a> Seq<'a> {
    pub fn start(&self) -> Ask<'a> {
        self.ask(true, false)
    }

    pub fn step(&self) -> Ask<'a> {
        self.ask(false, false)
    }

    pub fn end(&self) -> Ask<'a> {
        self.ask(false, true)
    }

    /// Request number `n`; 0 is START.
    pub fn nth(&self, n: usize) -> Ask<'a> {
        self.ask(n == 0, false)
    }

    /// A request with START and END.
    pub fn only(&self) -> Ask<'a> {
        self.ask(true, true)
    }

    fn ask(&self, start: bool, end: bool) -> Ask<'a> {
        let request = InferRequest {
            model: self.server.model.clone(),
            version: String::new(),
            id: String::new(),
            sequence: SequenceStep { id: self.id.clone(), start, end, ..SequenceStep::default() },
            priority: 0,
            timeout: None,
            inputs: Vec::new(),
            outputs: Vec::new(),
            parameters: Vec::new(),
            dialect: Dialect::TRITON,
        };
        Ask { server: self.server, request }
    }
}

/// A request before it is sent.
#[derive(Debug)]
#[must_use]
pub struct Ask<'a> {
    server: &'a Server,
    request: InferRequest,
}

impl Ask<'_> {
    /// Sets INPUT to one row.
    pub fn input<E: Element>(self, values: &[E]) -> Self {
        self.with("INPUT", row(values))
    }

    pub fn with(mut self, name: &str, tensor: Tensor) -> Self {
        self.request.inputs.push(NamedTensor { name: name.to_owned(), tensor });
        self
    }

    pub fn priority(mut self, priority: u32) -> Self {
        self.request.priority = priority;
        self
    }

    /// Gives the request a deadline.
    pub fn timeout(mut self, span: Duration) -> Self {
        self.request.timeout = Some(span);
        self
    }

    /// Sets the dialect of the request.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.request.dialect = dialect;
        self
    }

    /// Sets the idle time that a START asks for.
    pub fn idle(mut self, span: Duration) -> Self {
        self.request.sequence.idle = Some(span);
        self
    }

    /// Names the sequence whose state a START copies.
    pub fn copy_of(mut self, id: impl Into<Id>) -> Self {
        self.request.sequence.from = Some(id.into());
        self
    }

    /// Requests only these outputs.
    pub fn wanting(mut self, outputs: &[&str]) -> Self {
        self.request.outputs = outputs.iter().map(ToString::to_string).collect();
        self
    }

    /// Submits the request. An immediate refusal is returned when the answer is awaited.
    pub fn send(self) -> Waiting {
        Waiting(self.server.repository.submit(self.request))
    }

    #[track_caller]
    pub fn answer(self) -> Answer {
        self.send().answer()
    }

    #[track_caller]
    pub fn fails(self) -> Failure {
        self.send().fails()
    }

    /// Sends the request, and compares OUTPUT.
    #[track_caller]
    pub fn gives<E: Element + PartialEq + std::fmt::Debug>(self, values: &[E]) {
        self.send().gives(values);
    }
}

/// A submitted request.
#[derive(Debug)]
#[must_use]
pub struct Waiting(Result<Pending, Failure>);

impl Waiting {
    pub fn result(self) -> Result<Answer, Failure> {
        Ok(Answer(block_on(self.0?)?))
    }

    #[track_caller]
    pub fn answer(self) -> Answer {
        self.result().unwrap_or_else(|failure| panic!("no answer: {failure:?}"))
    }

    #[track_caller]
    pub fn fails(self) -> Failure {
        match self.result() {
            Err(failure) => failure,
            Ok(answer) => panic!("an answer: {answer:?}"),
        }
    }

    #[track_caller]
    pub fn gives<E: Element + PartialEq + std::fmt::Debug>(self, values: &[E]) {
        assert_eq!(self.answer().output::<E>("OUTPUT"), values);
    }
}

/// A request's outputs.
#[derive(Debug)]
pub struct Answer(pub InferAnswer);

impl Answer {
    #[track_caller]
    pub fn tensor(&self, name: &str) -> &Tensor {
        let found = self.0.outputs.iter().find(|o| o.name == name);
        &found.unwrap_or_else(|| panic!("no {name} in {:?}", self.0.outputs)).tensor
    }

    #[track_caller]
    pub fn output<E: Element>(&self, name: &str) -> Vec<E> {
        let tensor = self.tensor(name);
        assert_eq!(tensor.dtype, E::DTYPE, "{name}");
        E::all(&tensor.data)
    }

    #[track_caller]
    pub fn shape(&self, name: &str) -> &[u64] {
        &self.tensor(name).shape.0
    }
}

/// A held run, which blocks its instance.
#[derive(Debug)]
pub struct Held<'a> {
    pub(super) server: &'a Server,
    pub(super) plug: Option<Waiting>,
    /// Number of runs that had begun before the hold.
    pub(super) before: usize,
}

impl Held<'_> {
    /// Opens the gate, and waits for the held run.
    pub fn release(mut self) -> Answer {
        self.server.watch.open();
        self.plug.take().unwrap().answer()
    }

    /// Lets the held run pass, and waits for the run after it, which it holds.
    #[track_caller]
    pub fn next_run(&mut self) -> Run {
        self.server.watch.pass();
        self.before += 1;
        self.server.watch.wait_for(self.before);
        self.server.last_run()
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.server.watch.open();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(HANG, future).await }).expect("an answer comes")
}
