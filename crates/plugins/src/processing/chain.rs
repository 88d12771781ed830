//! The processors of one load. Requests pass from the first processor to the last and become runs of the model. Answers return from the
//! last to the first.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use sequor_wasm::call_error::CallFault;
use sequor_wasm::instances::ReplacedGuests;
use sequor_wasm::suspension::at_once;

use super::calls::CallFacts;
use super::fit::{KnownMemory, have_like_shapes};
use super::link::ChainLink;
use super::link_answer::{LinkPlan, RUN_BYTES, RUNS};
use super::place::Misfit;
use super::ports::{PortTensors, TensorSignature};
use super::refusal::{ProcessorRefusal, RefusedBy};
use super::source::ProcessorSource;
use super::version::LinkVersion;
use crate::config::model::LoadFacts;

/// The processors of one load, in order.
#[derive(Debug)]
pub struct Chain {
    links: Vec<Arc<ChainLink>>,
}

/// The scratch of one sequence: bytes for each processor. Cheap to clone. The default is the scratch of a new sequence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SequenceScratch(Option<Arc<[Bytes]>>);

/// The action of a prepared request.
#[derive(Debug)]
pub enum Plan {
    /// The model runs once for each of these inputs.
    Run(Vec<PortTensors>),
    /// The model does not run.
    Reply(PortTensors),
}

/// A prepared request.
#[derive(Debug)]
pub struct PreparedRequest {
    pub plan: Plan,
    /// Bytes that the prepared request holds in addition to its own inputs: inputs of runs, and answers that need no run.
    pub bytes: u64,
    pub pending: PendingAnswer,
}

/// Data that a prepared request needs once its runs are over.
#[derive(Debug)]
pub struct PendingAnswer {
    root: Node,
    scratch: Vec<Bytes>,
}

/// How one request of a processor was prepared.
#[derive(Debug)]
enum Node {
    /// The next run of the model.
    Run,
    /// Requests to the next processor or the model, as this version prepared them.
    Inner(Arc<LinkVersion>, Vec<Node>),
    /// The processor failed, and the request bypasses it.
    Bypassed(Box<Node>),
    /// The request is already answered.
    Reply(PortTensors),
}

impl SequenceScratch {
    /// The bytes of each processor. Empty if the sequence has not begun.
    pub fn parts(&self) -> &[Bytes] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl Chain {
    /// Configures processors in front of a model. `guests` is the maximum number of guests of each. The error names the processor that does
    /// not fit, and the reason.
    pub fn new(
        sources: Vec<ProcessorSource>,
        facts: &LoadFacts,
        model: TensorSignature,
        guests: usize,
    ) -> Result<Chain, (usize, Misfit)> {
        let mut links = Vec::with_capacity(sources.len());
        let mut inner = model;
        for (n, source) in sources.into_iter().enumerate().rev() {
            let link = ChainLink::new(source, facts, inner, guests).map_err(|what| (n, what))?;
            inner = link.outer.clone();
            links.push(Arc::new(link));
        }
        links.reverse();
        Ok(Chain { links })
    }

    /// The inputs and outputs that clients see.
    pub fn signature(&self) -> TensorSignature {
        self.links.first().map(|link| link.outer.clone()).unwrap_or_default()
    }

    /// Whether a processor must be called after the runs.
    pub fn posts(&self) -> bool {
        self.links.iter().any(|link| link.posts())
    }

    /// Maximum bytes of scratch per sequence.
    pub fn scratch_bytes(&self) -> u64 {
        self.links.iter().map(|link| link.scratch_bytes()).sum()
    }

    /// Guests of all processors that did not stay after a call.
    pub fn replaced(&self) -> ReplacedGuests {
        let all = self.links.iter().map(|link| link.current.load().replaced());
        all.fold(ReplacedGuests::default(), |sum, of| ReplacedGuests {
            spent: sum.spent + of.spent,
            failed: sum.failed + of.failed,
        })
    }

    /// Names of the processors, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.links.iter().map(|link| link.name.as_str())
    }

    /// The processors, in order.
    pub fn links(&self) -> &[Arc<ChainLink>] {
        &self.links
    }

    /// Records that the load takes no more new sequences.
    pub fn retire(&self) {
        self.links.iter().for_each(|link| link.retire());
    }

    /// The reason why the chain refuses requests, if a processor that cannot be bypassed is parked.
    pub fn parked(&self) -> Option<String> {
        self.links.iter().find_map(|link| link.refuses())
    }

    /// Whether a guest of the chain may call other models.
    pub fn calls_models(&self) -> bool {
        self.links.iter().any(|link| !link.may_call().is_empty())
    }

    /// The models that guests of the chain may call.
    pub fn may_call(&self) -> impl Iterator<Item = &str> {
        self.links.iter().flat_map(|link| link.may_call()).map(String::as_str)
    }

    /// Like [`Chain::pre_async`], for processors that call no models.
    pub fn pre(
        &self,
        facts: &CallFacts,
        scratch: &SequenceScratch,
        inputs: PortTensors,
    ) -> Result<PreparedRequest, ProcessorRefusal> {
        at_once(self.pre_async(facts, scratch, inputs)).unwrap_or_else(|| Err(self.waits()))
    }

    /// Like [`Chain::post_async`], for processors that call no models.
    pub fn post(
        &self,
        facts: &CallFacts,
        pending: PendingAnswer,
        runs: Vec<PortTensors>,
    ) -> Result<(PortTensors, SequenceScratch), (ProcessorRefusal, SequenceScratch)> {
        let finished = at_once(self.post_async(facts, pending, runs));
        finished.unwrap_or_else(|| Err((self.waits(), SequenceScratch::default())))
    }

    fn waits(&self) -> ProcessorRefusal {
        let name = self.names().next().unwrap_or_default();
        let what = "it waits for another model, where nothing may wait".to_owned();
        ProcessorRefusal::new(name, RefusedBy::Failure { what })
    }

    /// Prepares a request. It changes nothing: the new scratch is part of the pending answer. It waits while a guest waits for other
    /// models, and while all guests are in use.
    pub async fn pre_async(
        &self,
        facts: &CallFacts,
        scratch: &SequenceScratch,
        inputs: PortTensors,
    ) -> Result<PreparedRequest, ProcessorRefusal> {
        let mut scratch = scratch.open(self.links.len());
        let mut gathered = GatheredRuns::new(&inputs);
        let root = prepare(&self.links, facts, &mut scratch, inputs, &mut gathered).await?;
        let GatheredRuns { runs, bytes, .. } = gathered;
        if !runs.is_empty() {
            return Ok(PreparedRequest { plan: Plan::Run(runs), bytes, pending: PendingAnswer { root, scratch } });
        }
        let answer = finish(&self.links, facts, &mut scratch, root, &mut Vec::new().into_iter()).await?;
        let pending = PendingAnswer { root: Node::Reply(PortTensors::new()), scratch };
        Ok(PreparedRequest { plan: Plan::Reply(answer), bytes: 0, pending })
    }

    /// Finishes a request from the outputs of its runs. A refusal carries the scratch that the preparation left.
    pub async fn post_async(
        &self,
        facts: &CallFacts,
        pending: PendingAnswer,
        runs: Vec<PortTensors>,
    ) -> Result<(PortTensors, SequenceScratch), (ProcessorRefusal, SequenceScratch)> {
        let PendingAnswer { root, mut scratch } = pending;
        let before = scratch.clone();
        match finish(&self.links, facts, &mut scratch, root, &mut runs.into_iter()).await {
            Ok(answer) => Ok((answer, SequenceScratch::new(scratch))),
            Err(refusal) => Err((refusal, SequenceScratch::new(before))),
        }
    }
}

/// The runs that the processors of a request have asked for so far. Each processor may multiply the runs, so they are counted as they
/// arrive.
struct GatheredRuns {
    runs: Vec<PortTensors>,
    /// Answers that need no run.
    answers: usize,
    known: KnownMemory,
    /// Bytes of runs and answers.
    bytes: u64,
}

impl GatheredRuns {
    fn new(brought: &PortTensors) -> GatheredRuns {
        GatheredRuns { runs: Vec::new(), answers: 0, known: KnownMemory::new(brought), bytes: 0 }
    }

    fn push(&mut self, run: PortTensors) {
        self.bytes += self.known.add([&run]);
        self.runs.push(run);
    }

    fn count_answer(&mut self, answer: &PortTensors) {
        self.answers += 1;
        self.bytes += self.known.add([answer]);
    }

    /// Whether these runs have the same shapes as the earlier ones. The model runs all of them in the same kind of batch.
    fn fit(&self, runs: &[PortTensors]) -> bool {
        let (Some(first), Some(next)) = (self.runs.first(), runs.first()) else { return true };
        have_like_shapes(first, next)
    }

    /// Checks the limits on runs and bytes. The error names the limit that the request exceeds.
    fn check(&self) -> Result<(), String> {
        if self.runs.len() + self.answers > RUNS {
            return Err(format!("more than {RUNS} runs in all"));
        }
        check_bytes(self.bytes)
    }
}

fn check_bytes(bytes: u64) -> Result<(), String> {
    if bytes > RUN_BYTES as u64 { Err(format!("more than {RUN_BYTES} bytes between its processors")) } else { Ok(()) }
}

/// Prepares a request for these processors, and gathers the runs that it needs.
fn prepare<'a>(
    links: &'a [Arc<ChainLink>],
    facts: &'a CallFacts,
    scratch: &'a mut [Bytes],
    inputs: PortTensors,
    gathered: &'a mut GatheredRuns,
) -> BoxFuture<'a, Result<Node, ProcessorRefusal>> {
    Box::pin(async move {
        let (Some((link, links)), Some((own, scratch))) = (links.split_first(), scratch.split_first_mut()) else {
            gathered.push(inputs);
            return Ok(Node::Run);
        };
        let inner_facts = behind(facts, links);
        let plan = match links {
            [] => pre_of_last(link, facts, own, inputs, gathered).await?,
            _ => link.pre(facts, own, inputs).await?,
        };
        match plan {
            LinkPlan::Reply(outputs) => {
                gathered.count_answer(&outputs);
                Ok(Node::Reply(outputs))
            }
            LinkPlan::Bypass(inputs) => {
                let node = prepare(links, &inner_facts, scratch, inputs, gathered).await?;
                Ok(Node::Bypassed(Box::new(node)))
            }
            LinkPlan::Run(version, entries) => {
                let mut nodes = Vec::with_capacity(entries.len());
                for inputs in entries {
                    nodes.push(prepare(links, &inner_facts, scratch, inputs, gathered).await?);
                    gathered.check().map_err(|what| link.too_large(&what))?;
                }
                Ok(Node::Inner(version, nodes))
            }
        }
    })
}

/// Calls `pre` of the processor directly in front of the model. If its runs have other shapes than earlier ones, this processor has failed.
async fn pre_of_last(
    link: &ChainLink,
    facts: &CallFacts,
    scratch: &mut Bytes,
    inputs: PortTensors,
    gathered: &GatheredRuns,
) -> Result<LinkPlan, ProcessorRefusal> {
    const UNLIKE: &str = "the runs of one request have different shapes";
    let before = (!gathered.runs.is_empty()).then(|| (inputs.clone(), scratch.clone()));
    let plan = link.pre(facts, scratch, inputs).await?;
    let plan = match (plan, before) {
        (LinkPlan::Run(_, entries), Some((inputs, before))) if !gathered.fit(&entries) => {
            *scratch = before;
            link.failed(CallFault::Trap, UNLIKE.to_owned(), inputs)?
        }
        (plan, _) => plan,
    };
    match plan {
        // The earlier failure is already counted.
        LinkPlan::Bypass(inputs) if !gathered.fit(std::slice::from_ref(&inputs)) => {
            Err(link.refusal(RefusedBy::Failure { what: UNLIKE.to_owned() }))
        }
        plan => Ok(plan),
    }
}

/// Answers a request to these processors from the outputs of its runs.
fn finish<'a>(
    links: &'a [Arc<ChainLink>],
    facts: &'a CallFacts,
    scratch: &'a mut [Bytes],
    node: Node,
    runs: &'a mut std::vec::IntoIter<PortTensors>,
) -> BoxFuture<'a, Result<PortTensors, ProcessorRefusal>> {
    Box::pin(async move {
        let (Some((link, links)), Some((own, scratch))) = (links.split_first(), scratch.split_first_mut()) else {
            return Ok(runs.next().unwrap_or_default());
        };
        let inner_facts = behind(facts, links);
        match node {
            Node::Reply(outputs) => Ok(outputs),
            Node::Run => Ok(runs.next().unwrap_or_default()),
            Node::Bypassed(node) => {
                let outputs = finish(links, &inner_facts, scratch, *node, runs).await?;
                if outputs.is_empty() { Ok(outputs) } else { link.bypassed(&[outputs]) }
            }
            Node::Inner(version, nodes) => {
                let mut each = Vec::with_capacity(nodes.len());
                let (mut known, mut bytes) = (KnownMemory::default(), 0);
                for node in nodes {
                    let outputs = finish(links, &inner_facts, scratch, node, runs).await?;
                    // The instance counts the outputs of the model's own runs.
                    if !links.is_empty() {
                        bytes += known.add([&outputs]);
                        check_bytes(bytes).map_err(|what| link.too_large(&what))?;
                    }
                    each.push(outputs);
                }
                link.post(&version, facts, own, &each).await
            }
        }
    })
}

/// The facts of the request for the next processors. The current processor needs all their outputs.
fn behind(facts: &CallFacts, links: &[Arc<ChainLink>]) -> CallFacts {
    let outputs = links.first().map_or(0, |link| u32::try_from(link.outer.outputs.len()).unwrap_or(0));
    CallFacts { outputs: (0..outputs).collect(), ..facts.clone() }
}

impl PendingAnswer {
    /// The scratch that the sequence has once the request is done. Valid only if no work remains after the runs.
    pub fn into_scratch(self) -> SequenceScratch {
        SequenceScratch::new(self.scratch)
    }
}

impl SequenceScratch {
    /// Makes a scratch from the bytes of [`SequenceScratch::parts`].
    pub fn new(bytes: Vec<Bytes>) -> SequenceScratch {
        if bytes.iter().all(Bytes::is_empty) { SequenceScratch(None) } else { SequenceScratch(Some(bytes.into())) }
    }

    fn open(&self, processors: usize) -> Vec<Bytes> {
        let mut all = self.0.as_deref().map_or_else(Vec::new, <[Bytes]>::to_vec);
        all.resize(processors, Bytes::new());
        all
    }

    /// Total bytes of all processors.
    pub fn size(&self) -> u64 {
        self.0.iter().flat_map(|all| all.iter()).map(|bytes| bytes.len() as u64).sum()
    }

    /// The bytes of each processor.
    pub fn each(&self) -> &[Bytes] {
        self.0.as_deref().unwrap_or_default()
    }
}
