//! Runs a case of a processor in packets of every size, and compares the results with the expected ones. The size of packets must not
//! matter: the model's inputs and the clients' outputs must be the same for each.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use sequor_core::{DataType, Dims, Shape};
use sequor_wasm::instances::ReplacedGuests;

use super::case::{CaseEnd, PacketSize, ProcessorCase};
use super::data::CaseData;
use super::trial::TrialChain;
use crate::processing::{PortTensors, ProcessorRefusal, RefusedBy, TensorPort};
use crate::tensor::Tensor;
use crate::tensor::rows::BytesElements;

/// The outcome of a case with packets of one size.
#[derive(Debug)]
pub struct CaseOutcome {
    pub packet: PacketSize,
    pub requests: usize,
    pub runs: usize,
    /// All runs joined on the first dimension, by input of the model.
    inputs: BTreeMap<String, Tensor>,
    /// All answers joined, by output.
    outputs: BTreeMap<String, Tensor>,
    refusal: Option<ProcessorRefusal>,
    /// Wall time of each call. CPU time and waiting are not measured separately.
    pub pre: Vec<Duration>,
    pub post: Vec<Duration>,
    /// Maximum bytes of scratch.
    pub scratch: u64,
    /// Instances that did not stay after one of the calls.
    pub replaced: ReplacedGuests,
}

/// Runs a case with packets of one size, as one sequence.
pub fn run(case: &ProcessorCase, running: &TrialChain, packet: PacketSize, id: u64) -> Result<CaseOutcome, String> {
    let before = running.replaced();
    let outcome = sequence(case, running, packet, id)?;
    let after = running.replaced();
    let replaced = ReplacedGuests { spent: after.spent - before.spent, failed: after.failed - before.failed };
    Ok(CaseOutcome { replaced, ..outcome })
}

fn sequence(case: &ProcessorCase, running: &TrialChain, packet: PacketSize, id: u64) -> Result<CaseOutcome, String> {
    let ports = running.signature();
    let mut send = BTreeMap::new();
    for (name, source) in &case.send {
        let names = || ports.inputs.iter().map(|port| port.name.as_str()).collect::<Vec<_>>().join(", ");
        let port = ports.inputs.iter().find(|port| port.name == *name);
        let port = port.ok_or_else(|| format!("send: there is no input \"{name}\"; there are {}", names()))?;
        send.insert(name.as_str(), source.read(case.folder(), port.dtype)?);
    }
    let cut = ports.inputs.iter().find(|port| is_cut(port) && send.contains_key(port.name.as_str()));
    let stream = cut.and_then(|port| send.get(port.name.as_str()));
    let all = stream.map_or(1, CaseData::rows);
    let size = packet.rows(all, stream.and_then(|data| data.rate))?;
    let mut outcome = CaseOutcome::new(packet);
    let (mut sequence, mut answers, mut at) = (running.sequence(id), ModelStandIn { case, run: 0 }, 0);
    while at < all || outcome.requests == 0 {
        let to = (at + size).min(all);
        let mut inputs = PortTensors::with_capacity(ports.inputs.len());
        for port in &ports.inputs {
            let data = send.get(port.name.as_str());
            let part =
                |data: &CaseData| if is_cut(port) { data.part(port, at, to) } else { data.part(port, 0, data.rows()) };
            inputs.push(data.map(part).transpose()?);
        }
        let is_end = case.end == CaseEnd::Last && to >= all;
        let answer = sequence.send(inputs, is_end, &mut |run| answers.answer(run));
        outcome.scratch = outcome.scratch.max(sequence.scratch());
        if !outcome.take(answer, case, &ports.outputs)? {
            return Ok(outcome);
        }
        at = to;
    }
    if case.end == CaseEnd::Last {
        return Ok(outcome);
    }
    let answer = sequence.send(PortTensors::new(), true, &mut |run| answers.answer(run));
    outcome.take(answer, case, &ports.outputs)?;
    Ok(outcome)
}

/// Whether an input can be divided into packets.
fn is_cut(port: &TensorPort) -> bool {
    port.dims.fixed().is_none()
}

/// Answers runs with the case's values.
struct ModelStandIn<'a> {
    case: &'a ProcessorCase,
    run: u64,
}

impl ModelStandIn<'_> {
    fn answer(&mut self, _: &PortTensors) -> PortTensors {
        let each = self.case.model.outputs.iter().zip(&self.case.answers);
        let outputs = each.map(|(port, data)| Some(self.one(port, data.as_ref()))).collect();
        self.run += 1;
        outputs
    }

    fn one(&self, port: &TensorPort, data: Option<&CaseData>) -> Tensor {
        let row = data.filter(|data| self.run < data.rows());
        row.and_then(|data| data.part(port, self.run, self.run + 1).ok()).unwrap_or_else(|| zeros(port))
    }
}

/// A row of zeros, or of empty BYTES elements.
fn zeros(port: &TensorPort) -> Tensor {
    let shape = one_row(&port.dims);
    let elements = usize::try_from(shape.elements().unwrap_or(0)).unwrap_or(0);
    let data = vec![0; elements * port.dtype.size().unwrap_or(4)];
    Tensor { dtype: port.dtype, shape, data: Bytes::from(data) }
}

fn one_row(dims: &Dims) -> Shape {
    Shape(dims.to_wire().into_iter().map(|dim| u64::try_from(dim).unwrap_or(1)).collect())
}

impl CaseOutcome {
    fn new(packet: PacketSize) -> CaseOutcome {
        CaseOutcome {
            packet,
            requests: 0,
            runs: 0,
            inputs: BTreeMap::new(),
            outputs: BTreeMap::new(),
            refusal: None,
            pre: Vec::new(),
            post: Vec::new(),
            scratch: 0,
            replaced: ReplacedGuests::default(),
        }
    }

    /// Records an answer. Returns whether the sequence continues.
    fn take(
        &mut self,
        answer: Result<super::trial::TrialAnswer, ProcessorRefusal>,
        case: &ProcessorCase,
        outputs: &[TensorPort],
    ) -> Result<bool, String> {
        self.requests += 1;
        let answer = match answer {
            Ok(answer) => answer,
            Err(refusal) => {
                self.refusal = Some(refusal);
                return Ok(false);
            }
        };
        self.runs += answer.runs.len();
        self.pre.push(answer.pre);
        self.post.push(answer.post);
        for run in answer.runs {
            append(&mut self.inputs, &case.model.inputs, run)?;
        }
        append(&mut self.outputs, outputs, answer.outputs)?;
        Ok(true)
    }

    /// The differences from the outcome with packets of another size.
    pub fn against_other(&self, other: &CaseOutcome) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.refusal.is_some() != other.refusal.is_some() {
            wrong.push(format!(
                "it is refused in packets of one size: {}",
                self.refused_text().or(other.refused_text()).unwrap_or_default()
            ));
        }
        if self.runs != other.runs {
            wrong.push(format!(
                "the model runs {} times; in packets of {} it runs {} times",
                self.runs, other.packet, other.runs
            ));
        }
        for (what, mine, theirs) in [("input", &self.inputs, &other.inputs), ("output", &self.outputs, &other.outputs)]
        {
            for name in mine.keys().chain(theirs.keys().filter(|name| !mine.contains_key(*name))) {
                let (mine, theirs) = (mine.get(name), theirs.get(name));
                if mine.map(content) != theirs.map(content) {
                    wrong.push(format!("{what} \"{name}\" differs from that in packets of {}", other.packet));
                }
            }
        }
        wrong
    }

    /// The differences from the expected results.
    pub fn against(&self, case: &ProcessorCase) -> Result<Vec<String>, String> {
        let (expect, mut wrong) = (&case.expect, Vec::new());
        let code = self.refusal.as_ref().map(|refusal| match &refusal.why {
            RefusedBy::Plugin { code, .. } => Some(*code),
            RefusedBy::Failure { .. } | RefusedBy::Unavailable { .. } => None,
        });
        match (code, expect.refused) {
            (None, None) => {}
            (Some(is), Some(want)) if is == Some(want) => {}
            (None, Some(want)) => wrong.push(format!("no request was refused; code {want} is expected")),
            (Some(_), _) => wrong.push(self.refused_text().unwrap_or_default()),
        }
        if let Some(runs) = expect.runs.filter(|runs| *runs != self.runs) {
            wrong.push(format!("the model runs {} times; {runs} are expected", self.runs));
        }
        let both = [("input", &expect.inputs, &self.inputs), ("output", &expect.outputs, &self.outputs)];
        for (what, expected, found) in both {
            for (name, source) in expected {
                let Some(tensor) = found.get(name) else {
                    wrong.push(format!("{what} \"{name}\" is not there"));
                    continue;
                };
                let data = source.read(case.folder(), tensor.dtype)?;
                if let Some(difference) = difference(tensor, &data.tensor, expect.tolerance) {
                    wrong.push(format!("{what} \"{name}\": {difference}"));
                }
            }
        }
        Ok(wrong)
    }

    fn refused_text(&self) -> Option<String> {
        let ProcessorRefusal { why, .. } = self.refusal.as_ref()?;
        Some(match why {
            RefusedBy::Plugin { code, text, .. } => {
                format!("request {} is refused with code {code}: {text}", self.requests)
            }
            RefusedBy::Failure { what } | RefusedBy::Unavailable { what } => {
                format!("request {} fails: {what}", self.requests)
            }
        })
    }
}

/// Appends tensors to those of the same name.
pub(in crate::author) fn append(
    all: &mut BTreeMap<String, Tensor>,
    ports: &[TensorPort],
    tensors: PortTensors,
) -> Result<(), String> {
    for (port, tensor) in ports.iter().zip(tensors) {
        let Some(tensor) = tensor else { continue };
        match all.get_mut(&port.name) {
            None => {
                all.insert(port.name.clone(), tensor);
            }
            Some(whole) => {
                let rows = |of: &Tensor| of.shape.0.first().copied();
                let (Some(before), Some(more)) = (rows(whole), rows(&tensor)) else {
                    return Err(format!("\"{}\" has no dimension to join answers on", port.name));
                };
                whole.shape = whole.shape.without(0).with(0, before + more);
                whole.data = [&whole.data[..], &tensor.data[..]].concat().into();
            }
        }
    }
    Ok(())
}

/// The content that packets must not change. BYTES elements are joined to one text, because packets may divide it at any place.
fn content(tensor: &Tensor) -> Vec<u8> {
    if tensor.dtype == DataType::Bytes {
        BytesElements(&tensor.data).collect::<Vec<_>>().concat()
    } else {
        tensor.data.to_vec()
    }
}

/// The first difference between a tensor and the expected one.
pub(in crate::author) fn difference(is: &Tensor, want: &Tensor, tolerance: f64) -> Option<String> {
    if is.dtype == DataType::Bytes {
        let (is, want) = (content(is), content(want));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        return (is != want).then(|| format!("it is \"{}\"; \"{}\" is expected", text(&is), text(&want)));
    }
    if is.data.len() != want.data.len() || !has_shape(is, &want.shape) {
        return Some(format!("it is {}; {} is expected", is.shape, want.shape));
    }
    let size = is.dtype.size().unwrap_or(1);
    let each = is.data.chunks_exact(size).zip(want.data.chunks_exact(size));
    let mut wrong = each.enumerate().filter(|(_, (is_one, want_one))| !is_near(is.dtype, is_one, want_one, tolerance));
    let (first, _) = wrong.next()?;
    Some(format!("{} of {} elements differ, the first at {first}", 1 + wrong.count(), is.data.len() / size))
}

/// Whether a tensor has the expected shape. A list has none. A file may omit a leading dimension of 1.
fn has_shape(is: &Tensor, want: &Shape) -> bool {
    want.0.len() < 2 || is.shape == *want || is.shape.0.strip_prefix(&[1]) == Some(want.0.as_slice())
}

fn is_near(dtype: DataType, is: &[u8], want: &[u8], tolerance: f64) -> bool {
    if is == want {
        return true;
    }
    let number = |bytes: &[u8]| match dtype {
        DataType::Fp16 => bytes.first_chunk::<2>().map(|b| half::f16::from_le_bytes(*b).to_f64()),
        DataType::Bf16 => bytes.first_chunk::<2>().map(|b| half::bf16::from_le_bytes(*b).to_f64()),
        DataType::Fp32 => bytes.first_chunk::<4>().map(|b| f64::from(f32::from_le_bytes(*b))),
        DataType::Fp64 => bytes.first_chunk::<8>().map(|b| f64::from_le_bytes(*b)),
        _ => None,
    };
    number(is).zip(number(want)).is_some_and(|(is, want)| tolerance > 0.0 && (is - want).abs() <= tolerance)
}

/// The cases in the component's folder, sorted.
pub fn cases(component: &Path) -> std::io::Result<Vec<std::path::PathBuf>> {
    let folder = component.parent().unwrap_or(Path::new("")).join("cases");
    let mut found: Vec<_> = std::fs::read_dir(&folder)?.flatten().map(|entry| entry.path()).collect();
    found.retain(|path| path.extension().is_some_and(|e| e == "toml"));
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fp32(values: &[f32]) -> Tensor {
        let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Tensor { dtype: DataType::Fp32, shape: Shape::new(&[values.len() as u64]), data: data.into() }
    }

    #[test]
    fn differences_are_counted() {
        assert_eq!(difference(&fp32(&[1.0, 2.0]), &fp32(&[1.0, 2.0]), 0.0), None);
        let message = difference(&fp32(&[1.0, 2.0]), &fp32(&[1.5, 2.5]), 0.0);
        assert_eq!(message.as_deref(), Some("2 of 2 elements differ, the first at 0"));
        assert_eq!(difference(&fp32(&[1.0]), &fp32(&[1.25]), 0.5), None);
        assert!(difference(&fp32(&[1.0]), &fp32(&[1.0, 2.0]), 0.0).unwrap().contains("[2] is expected"));
    }

    #[test]
    fn a_tolerance_holds_for_every_floating_type() {
        fn tensor<const N: usize>(dtype: DataType, element: [u8; N]) -> Tensor {
            Tensor { dtype, shape: Shape::new(&[1]), data: element.to_vec().into() }
        }
        let half = |value: f64| tensor(DataType::Fp16, half::f16::from_f64(value).to_le_bytes());
        let brain = |value: f64| tensor(DataType::Bf16, half::bf16::from_f64(value).to_le_bytes());
        let double = |value: f64| tensor(DataType::Fp64, value.to_le_bytes());
        for make in [&half as &dyn Fn(f64) -> Tensor, &brain, &double] {
            assert_eq!(difference(&make(1.0), &make(1.25), 0.25), None);
            assert!(difference(&make(1.0), &make(1.25), 0.125).is_some());
        }
    }

    #[test]
    fn shapes_are_compared_for_arrays_but_not_for_lists() {
        let array = |shape: &[u64]| Tensor { shape: Shape::new(shape), ..fp32(&[1.0, 2.0, 3.0, 4.0]) };
        assert_eq!(difference(&array(&[2, 2]), &array(&[4]), 0.0), None);
        assert_eq!(difference(&array(&[1, 2, 2]), &array(&[2, 2]), 0.0), None);
        let message = difference(&array(&[4, 1]), &array(&[2, 2]), 0.0);
        assert_eq!(message.as_deref(), Some("it is [4,1]; [2,2] is expected"));
    }
}
