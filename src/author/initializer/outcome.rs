//! Runs a case: the first state of each sequence, and its differences from the expected one.

use std::collections::BTreeMap;
use std::time::Duration;

use super::case::{InitializerCase, StartExpect};
use super::trial::{RunningInitializer, StartAnswer};
use crate::author::processor::data::DataSource;
use crate::author::processor::outcome::{append, difference};
use crate::initializing::FirstAnswer;
use crate::processing::{PortTensors, ProcessorRefusal, RefusedBy, TensorPort};
use crate::tensor::Tensor;

/// The outcome of one START of a case.
#[derive(Debug)]
pub struct StartOutcome {
    /// The kind of first state, in a word or two.
    pub begins: String,
    pub steps: usize,
    pub initialize: Duration,
    /// Time to ask for the steps; zero without steps.
    pub asking: Duration,
    /// The differences from the expected results.
    pub wrong: Vec<String>,
}

/// Sends each START of a case once. Returns an error if the case cannot be run.
pub fn run(case: &InitializerCase, running: &RunningInitializer) -> Result<Vec<StartOutcome>, String> {
    let mut all = Vec::with_capacity(case.starts.len());
    for (start, id) in case.starts.iter().zip(1..) {
        let inputs = case.inputs(start)?;
        let nothing = StartExpect::default();
        let (expect, is_expected) = (start.expect.as_ref().unwrap_or(&nothing), start.expect.is_some());
        all.push(match running.ask(id, start, &inputs) {
            Ok(answer) => {
                let wrong = if is_expected { against(case, expect, &answer)? } else { Vec::new() };
                let StartAnswer { first, steps, initialize, asking } = answer;
                StartOutcome { begins: words(&first), steps: steps.len(), initialize, asking, wrong }
            }
            Err(refusal) => refused(expect, &refusal),
        });
    }
    Ok(all)
}

fn words(first: &FirstAnswer) -> String {
    match first {
        FirstAnswer::Default => "default".to_owned(),
        FirstAnswer::States(states) => match states.iter().flatten().count() {
            1 => "1 state".to_owned(),
            count => format!("{count} states"),
        },
        FirstAnswer::CopyOf(id) => copy_of(id),
        FirstAnswer::Kept(name) => kept(name.name()),
    }
}

fn refused(expect: &StartExpect, refusal: &ProcessorRefusal) -> StartOutcome {
    let (begins, what, code) = match &refusal.why {
        RefusedBy::Plugin { code, text, .. } => {
            (format!("refused {code}"), format!("it is refused with code {code}: {text}"), Some(*code))
        }
        RefusedBy::Failure { what } | RefusedBy::Unavailable { what } => ("failed".to_owned(), what.clone(), None),
    };
    let wrong = if code.is_some() && code == expect.refused { Vec::new() } else { vec![what] };
    StartOutcome { begins, steps: 0, initialize: Duration::ZERO, asking: Duration::ZERO, wrong }
}

fn copy_of(id: &str) -> String {
    format!("copy of {id}")
}

fn kept(name: &str) -> String {
    format!("kept {name}")
}

fn against(case: &InitializerCase, expect: &StartExpect, answer: &StartAnswer) -> Result<Vec<String>, String> {
    let mut wrong = Vec::new();
    let is = words(&answer.first);
    let mut wants = |want: String| wrong.push(format!("it begins with {is}; {want} is expected"));
    if let Some(code) = expect.refused {
        wants(format!("a refusal with code {code}"));
    }
    if expect.default && answer.first != FirstAnswer::Default {
        wants("default".to_owned());
    }
    let copy_of = expect.copy_of.as_ref().map(|id| copy_of(id));
    let kept = expect.kept.as_ref().map(|name| kept(name));
    copy_of.into_iter().chain(kept).filter(|want| *want != is).for_each(&mut wants);
    if let Some(steps) = expect.steps.filter(|steps| *steps != answer.steps.len()) {
        wrong.push(format!("it has {} steps; {steps} are expected", answer.steps.len()));
    }
    if let Some(states) = &expect.states {
        let given = match &answer.first {
            FirstAnswer::States(given) => by_name(&case.ports.states, std::slice::from_ref(given))?,
            _ => BTreeMap::new(),
        };
        compare(case, "state", states, &given, &mut wrong)?;
        let more = given.keys().filter(|name| !states.contains_key(*name));
        wrong.extend(more.map(|name| format!("state \"{name}\" is not expected")));
    }
    let inputs = by_name(&case.ports.step, &answer.steps)?;
    compare(case, "input", &expect.inputs, &inputs, &mut wrong)?;
    Ok(wrong)
}

/// Tensors by the names of their ports. Tensors of several steps are joined.
fn by_name(ports: &[TensorPort], each: &[PortTensors]) -> Result<BTreeMap<String, Tensor>, String> {
    let mut all = BTreeMap::new();
    for tensors in each {
        append(&mut all, ports, tensors.clone())?;
    }
    Ok(all)
}

fn compare(
    case: &InitializerCase,
    what: &str,
    expected: &BTreeMap<String, DataSource>,
    found: &BTreeMap<String, Tensor>,
    wrong: &mut Vec<String>,
) -> Result<(), String> {
    for (name, source) in expected {
        let Some(tensor) = found.get(name) else {
            wrong.push(format!("{what} \"{name}\" is not there"));
            continue;
        };
        let data = source.read(case.folder(), tensor.dtype)?;
        if let Some(difference) = difference(tensor, &data.tensor, 0.0) {
            wrong.push(format!("{what} \"{name}\": {difference}"));
        }
    }
    Ok(())
}
