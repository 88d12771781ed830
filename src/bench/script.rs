//! One sender's requests: one sequence after the other, each with its own id.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use sequor_proto::{ModelInferRequest, ModelInferResponse};

use super::random::SplitMix64;
use super::recipe::{Recipe, StepOfSequence, holds};

/// Ids of sequences, consecutive over all senders of a run.
#[derive(Debug)]
pub(super) struct Ids(AtomicI64);

impl Ids {
    /// Starts at an id that another run against the same server has hardly used.
    pub(super) fn new() -> Ids {
        let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        let begin = (since.as_millis() as u64 & 0xF_FFFF_FFFF) << 16 | u64::from(std::process::id() & 0xFF) << 8;
        Ids(AtomicI64::new(begin.cast_signed()))
    }

    fn next(&self) -> i64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

#[derive(Debug)]
pub(super) struct RequestScript {
    recipe: Arc<Recipe>,
    ids: Arc<Ids>,
    random: SplitMix64,
    current: Option<Current>,
    sent: u64,
}

#[derive(Debug)]
struct Current {
    id: i64,
    left: u32,
    begun: bool,
    sum: i64,
}

/// The data that a sender keeps of a request until its answer arrives.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestMark {
    /// The request's number at its sender.
    pub(super) number: u64,
    pub(super) sequence: Option<i64>,
    /// The expected value of its answer.
    sum: Option<i64>,
}

impl RequestScript {
    pub(super) fn new(recipe: &Arc<Recipe>, ids: &Arc<Ids>, random: SplitMix64) -> RequestScript {
        RequestScript { recipe: Arc::clone(recipe), ids: Arc::clone(ids), random, current: None, sent: 0 }
    }

    /// The next request. `last` makes it end its sequence; without an open sequence there is then no request. `marked` numbers it on the
    /// wire.
    pub(super) fn next(&mut self, last: bool, marked: bool) -> Option<(RequestMark, ModelInferRequest)> {
        if last && self.current.is_none() {
            return None;
        }
        let recipe = Arc::clone(&self.recipe);
        let choice = usize::try_from(self.random.next() % recipe.variants.len().max(1) as u64).unwrap_or(0);
        let variant = recipe.variants.get(choice)?;
        let place = recipe.lengths.map(|lengths| self.place(lengths, variant.adds, last));
        let (place, sum) = place.map_or((None, None), |(place, sum)| (Some(place), Some(sum)));
        let number = self.sent;
        self.sent += 1;
        let wire = if marked { number.to_string() } else { String::new() };
        let sum = sum.filter(|_| recipe.check_sums);
        Some((RequestMark { number, sequence: place.map(|p| p.sequence), sum }, recipe.message(variant, place, wire)))
    }

    fn place(&mut self, (low, high): (u32, u32), adds: i64, last: bool) -> (StepOfSequence, i64) {
        let (ids, random) = (&self.ids, &mut self.random);
        let begin = || Current { id: ids.next(), left: random.between(low, high), begun: false, sum: 0 };
        let current = self.current.get_or_insert_with(begin);
        current.left = current.left.saturating_sub(1);
        current.sum += adds;
        let start = !std::mem::replace(&mut current.begun, true);
        let (place, sum) =
            (StepOfSequence { sequence: current.id, start, end: last || current.left == 0 }, current.sum);
        if place.end {
            self.current = None;
        }
        (place, sum)
    }

    /// Starts a new sequence next, if `sequence` is still the current one: a request of it has failed.
    pub(super) fn abandon(&mut self, sequence: Option<i64>) {
        if self.current.as_ref().is_some_and(|current| Some(current.id) == sequence) {
            self.current = None;
        }
    }
}

impl RequestMark {
    /// Whether an answer does not hold the expected sum.
    pub(super) fn is_wrong(&self, answer: &ModelInferResponse) -> bool {
        let Some(sum) = self.sum else { return false };
        let first = answer.outputs.first().zip(answer.raw_output_contents.first());
        !first.is_some_and(|(output, data)| holds(&output.datatype, data, sum))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::bench::recipe::{Data, SequenceIds, Wanted};
    use sequor_proto::infer_parameter::ParameterChoice;
    use sequor_proto::model_infer_response::InferOutputTensor;
    use sequor_proto::model_metadata_response::TensorMetadata;

    fn script(sequence_length: u32) -> RequestScript {
        let input = TensorMetadata { name: "x".to_owned(), datatype: "INT32".to_owned(), shape: vec![-1, 1] };
        let (model, shapes) = ("m".to_owned(), BTreeMap::new());
        let (data, variation, check_sums, seed) = (Data::Whole, 20, true, 1);
        let wanted = Wanted { model, data, shapes, sequence_length, variation, check_sums, seed };
        let recipe = Recipe::new(&[input], SequenceIds::Numbers, &wanted).expect("a recipe");
        RequestScript::new(&Arc::new(recipe), &Arc::new(Ids::new()), SplitMix64::new(1, 0))
    }

    fn flag(message: &ModelInferRequest, name: &str) -> bool {
        matches!(message.parameters[name].parameter_choice, Some(ParameterChoice::BoolParam(true)))
    }

    #[test]
    fn sequences_begin_once_end_once_and_have_the_length_wanted() {
        let mut script = script(10);
        let mut lengths = BTreeMap::<Option<i64>, u32>::new();
        for _ in 0..1000 {
            let (mark, message) = script.next(false, true).expect("a request");
            let length = lengths.entry(mark.sequence).or_default();
            assert_eq!(flag(&message, "sequence_start"), *length == 0);
            *length += 1;
            if flag(&message, "sequence_end") {
                assert!((8..=12).contains(length), "{length}");
            }
        }
        assert!(lengths.len() > 80);
    }

    #[test]
    fn the_last_request_ends_the_open_sequence() {
        let mut script = script(10);
        assert!(script.next(true, false).is_none());
        script.next(false, false).expect("a request");
        let (_, message) = script.next(true, false).expect("the end");
        assert!(flag(&message, "sequence_end") && script.next(true, false).is_none());
    }

    #[test]
    fn a_wrong_sum_is_seen() {
        let mut script = script(10);
        let mut sum = 0i32;
        for _ in 0..5 {
            let (mark, message) = script.next(false, false).expect("a request");
            sum += i32::from_le_bytes(message.raw_input_contents[0][..].try_into().expect("four bytes"));
            let answer = |value: i32| ModelInferResponse {
                outputs: vec![InferOutputTensor { datatype: "INT32".to_owned(), ..Default::default() }],
                raw_output_contents: vec![value.to_le_bytes().to_vec().into()],
                ..Default::default()
            };
            assert!(!mark.is_wrong(&answer(sum)) && mark.is_wrong(&answer(sum + 1)));
        }
    }
}
