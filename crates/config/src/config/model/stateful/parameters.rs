//! The keys of `parameters` that the stateful backend reads, their defaults and their rules.

use std::str::FromStr;
use std::time::Duration;

use sequor_proto::model_sequence_batching::StrategyChoice;

use super::pairs::{self, StatePair};
use super::settings::{LineLevel, RunLogSettings, StateChunks};
use crate::config::fault::{Fault, code};
use crate::config::model::fields::FieldStatus::{self, NoEffect, Served};
use crate::config::model::report::Report;

const TENSORRT: FieldStatus =
    Served("only TensorRT uses it, which does not run here; a note names it if instances may run on a GPU");
const NEXT: &str = "subsequent_buffer_size";
const GROW: &str = "buffer_alloc_threshold";
const SHRINK: &str = "buffer_dealloc_threshold";
const FIRST: &str = "initial_buffer_size";
const RATIO: &str = "max_candidate_sequence_use_ratio";
const EVERY: &str = "metric_logging_frequency_seconds";
const DEFAULT_RATIO: f32 = 0.9;

/// All keys, and how Sequor handles them.
pub const STATEFUL_PARAMETERS: &[(&str, FieldStatus)] = &[
    ("onnx_file_name", Served("required: the file in the version directory")),
    ("state_pairs", Served("`<<<input, output>>>`, one pair a state; without it the pairs in the graph's description")),
    ("store_states_as_fp16", Served("1 keeps FP32 states of a fixed size as FP16; as `[state.X] storage = \"fp16\"`")),
    (
        "always_pad_to_max_batch",
        Served("1 pads a batch to the next preferred_batch_size; 0 does not pad, where the backend always pads"),
    ),
    (
        "max_candidate_sequence_use_ratio",
        Served("0.9 without the key; beyond this part of max_candidate_sequences a START is refused at once"),
    ),
    ("initial_buffer_size", Served("slots of the first chunk; needs the three keys below")),
    ("subsequent_buffer_size", Served("slots of every further chunk")),
    ("buffer_alloc_threshold", Served("a chunk is added when fewer slots are free")),
    ("buffer_dealloc_threshold", Served("the last chunk is dropped when it is free and more slots are free in all")),
    ("infer_end_requests", Served("0 answers an END with empty outputs and does not run it")),
    ("metric_logging_frequency_seconds", Served("0 is never")),
    ("logging_level", Served("NONE, INFO or VERBOSE, for the lines of this model")),
    (
        "batch_info_logging_level",
        Served("INFO or VERBOSE; without the key VERBOSE, where the backend logs every batch at INFO"),
    ),
    ("detailed_metrics_logging_level", Served("INFO or VERBOSE")),
    (
        "ort_ep",
        Served(
            "`cuda`: what instances on GPUs run on; `trt`: they run on CUDA all the same, and a note says so; instances on the CPU ignore it",
        ),
    ),
    ("compute_precision", TENSORRT),
    ("enable_trt_caching", TENSORRT),
    ("trt_cache_dir", TENSORRT),
    (
        "enable_cuda_graph",
        Served("0; a note names any other value if instances may run on a GPU: runs do not use CUDA graphs"),
    ),
    ("error_inject_rate", NoEffect("only debug builds of the backend make errors")),
];

/// How a key is handled, if the backend has it.
pub(in crate::config::model) fn status(key: &str) -> Option<FieldStatus> {
    STATEFUL_PARAMETERS.iter().find(|(name, _)| *name == key).map(|(_, status)| *status)
}

/// The values of the parameters.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StatefulParameters {
    /// `None` if `state_pairs` is empty.
    pub(super) pairs: Option<Vec<StatePair>>,
    pub(super) as_fp16: bool,
    /// Chunks of states; `None` with `direct`.
    pub(super) chunks: Option<StateChunks>,
    /// Whether fewer sequences can have a state than can be candidates.
    pub(super) is_prompt: bool,
    pub(super) pad: bool,
    pub(super) runs_ends: bool,
    pub(super) log: RunLogSettings,
}

/// Reports all faults. Returns a note for each value that is invalid for its key or has no effect.
pub(super) fn check(report: &mut Report<'_>, may_use_gpus: bool) -> Vec<Fault> {
    let mut reader = ParameterReader { report, notes: Vec::new(), is_silent: false };
    reader.read();
    if may_use_gpus {
        reader.accelerators();
    }
    reader.notes
}

/// Reads the parameters of a checked configuration.
pub(super) fn read(report: &mut Report<'_>) -> StatefulParameters {
    ParameterReader { report, notes: Vec::new(), is_silent: true }.read()
}

struct ParameterReader<'r, 'c> {
    report: &'r mut Report<'c>,
    notes: Vec<Fault>,
    is_silent: bool,
}

impl<'c> ParameterReader<'_, 'c> {
    fn text(&self, key: &str) -> Option<&'c str> {
        let text = self.report.config.parameters.get(key)?.string_value.trim();
        Some(text).filter(|text| !text.is_empty())
    }

    fn fault(&mut self, key: &str, what: impl Into<String>) {
        if !self.is_silent {
            let code = if key == "onnx_file_name" { code::FILE } else { code::VALUE };
            self.report.entry_fault("parameters", key, code, what);
        }
    }

    fn note(&mut self, key: &str, what: String) {
        let note = self.report.entry_note("parameters", key, what);
        self.notes.push(note);
    }

    fn read(&mut self) -> StatefulParameters {
        if self.text("onnx_file_name").is_none() {
            self.fault(
                "onnx_file_name",
                "parameter onnx_file_name is missing: it names the file in the version directory",
            );
        }
        let pairs = self.text("state_pairs").map(|text| pairs::parse(text).map(|pairs| (text, pairs)));
        let pairs = match pairs {
            None => None,
            Some(Ok((_, pairs))) if !pairs.is_empty() => Some(pairs),
            Some(Ok((text, _))) => {
                self.fault(
                    "state_pairs",
                    format!("parameter state_pairs is \"{text}\": Could not find any state tensors"),
                );
                None
            }
            Some(Err(part)) => {
                self.fault("state_pairs", format!("parameter state_pairs: \"{part}\" is not <<<input, output>>>"));
                None
            }
        };
        let (chunks, is_prompt) = self.chunks();
        StatefulParameters {
            pairs,
            as_fp16: self.switch("store_states_as_fp16", false),
            chunks,
            is_prompt,
            pad: self.switch("always_pad_to_max_batch", false),
            runs_ends: self.switch("infer_end_requests", true),
            log: self.log(),
        }
    }

    fn switch(&mut self, key: &str, without: bool) -> bool {
        match self.text(key) {
            None => without,
            Some("0") => false,
            Some("1") => true,
            Some(other) => {
                let as_if = u8::from(without);
                self.note(key, format!("parameter {key} is \"{other}\", neither 0 nor 1; {as_if} is used"));
                without
            }
        }
    }

    fn number<T: FromStr>(&mut self, key: &str, without: T) -> T {
        let Some(text) = self.text(key) else { return without };
        text.parse().unwrap_or_else(|_| {
            self.note(key, format!("Invalid value in '{key}': \"{text}\"; the default is used"));
            without
        })
    }

    // === memory of states ===

    /// The chunks, and whether they hold the states of fewer sequences than can be candidates.
    fn chunks(&mut self) -> (Option<StateChunks>, bool) {
        let ratio = self.number(RATIO, DEFAULT_RATIO);
        let strategy = self.report.sequence().and_then(|sequence| sequence.strategy_choice.as_ref());
        let Some(StrategyChoice::Oldest(oldest)) = strategy else { return (None, false) };
        let candidates = u32::try_from(oldest.max_candidate_sequences).unwrap_or(0);
        // Computed like the backend: in single precision, rounded down.
        let most = ((candidates as f32 * ratio) as u32).min(candidates);
        let is_a_part = ratio > 0.0 && ratio <= 1.0;
        if !is_a_part {
            let what = format!(
                "parameter {RATIO} is \"{ratio}\", not above 0 and at most 1: an instance keeps the states of {} sequences",
                most.max(1)
            );
            self.note(RATIO, what);
        }
        let Some(first) = self.size(FIRST) else {
            let chunks = StateChunks { first: most.max(1), next: 1, count: 1, grow_below: 0, shrink_above: u32::MAX };
            return (Some(chunks), most < candidates);
        };
        let [next, grow_below, shrink_above] = [NEXT, GROW, SHRINK].map(|key| self.required_size(key));
        self.rules(most, first, (next, grow_below, shrink_above));
        let count = 1 + most.saturating_sub(first) / next.max(1);
        let chunks = StateChunks { first: first.max(1), next, count: count.max(1), grow_below, shrink_above };
        (Some(chunks), chunks.capacity() < candidates)
    }

    fn size(&mut self, key: &str) -> Option<u32> {
        let text = self.text(key)?;
        let size = text.parse::<u32>();
        if size.is_err() {
            self.fault(key, format!("Invalid value for `{key}`: \"{text}\" is not a number of at least 0"));
        }
        Some(size.unwrap_or(0))
    }

    fn required_size(&mut self, key: &str) -> u32 {
        self.size(key).unwrap_or_else(|| {
            self.fault(FIRST, format!("parameter {FIRST} needs parameter {key}, which is missing"));
            0
        })
    }

    /// Checks the rules of the four sizes.
    fn rules(&mut self, most: u32, first: u32, (next, grow, shrink): (u32, u32, u32)) {
        let batch = u32::try_from(self.report.max_batch_size()).unwrap_or(0);
        let sizes = |a: u32, b: u32| format!(" ({a}, {b})");
        let mut rule = |key: &str, holds: bool, sentence: &str, sizes: String| {
            if !holds {
                self.fault(key, format!("{sentence}{sizes}"));
            }
        };
        let sentence = "Initial buffer size cannot be larger than maximum allowed connections.";
        rule(FIRST, first <= most, sentence, sizes(first, most));
        let sentence = "Initial buffer size must be larger than or equal to the max batch size";
        rule(FIRST, first >= batch, sentence, sizes(first, batch));
        let sentence = "Subsequent buffer size must be larger than or equal to the max batch size.";
        rule(NEXT, next >= batch, sentence, sizes(next, batch));
        let sentence = "Buffer allocation threshold size must be larger than or equal to the max batch size.";
        rule(GROW, grow >= batch, sentence, sizes(grow, batch));
        let sentence = "Initial buffer size cannot be smaller than allocation threshold.";
        rule(GROW, grow <= first, sentence, sizes(grow, first));
        if shrink <= grow {
            self.note(
                SHRINK,
                format!("Deallocation threshold should be larger than allocation threshold ({shrink}, {grow})"),
            );
        }
    }

    // === accelerators ===

    /// Adds notes about keys for TensorRT. On the CPU, the backend ignores these keys too.
    fn accelerators(&mut self) {
        let is_cuda = self.text("ort_ep") == Some("cuda");
        if self.text("ort_ep").is_some_and(|provider| provider != "cuda") {
            self.unused("ort_ep", "instances on GPUs run on ONNX Runtime's CUDA provider, never on TensorRT");
        }
        if !is_cuda && self.text("compute_precision") == Some("fp16") {
            self.unused("compute_precision", "without TensorRT a model computes in the types of its graph");
        }
        if !is_cuda && self.text("enable_trt_caching").is_some_and(|value| value != "0") {
            for key in ["enable_trt_caching", "trt_cache_dir"] {
                if self.text(key).is_some() {
                    self.unused(key, "TensorRT makes no engines here that could be cached");
                }
            }
        }
        if self.text("enable_cuda_graph").is_some_and(|value| value != "0") {
            self.unused("enable_cuda_graph", "runs on GPUs do not use CUDA graphs");
        }
    }

    fn unused(&mut self, key: &str, why: &str) {
        self.note(key, format!("parameter {key} has no effect: {why}"));
    }

    // === log lines ===

    fn log(&mut self) -> RunLogSettings {
        let seconds: i64 = self.number(EVERY, 0);
        let every = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs);
        let (is_off, is_verbose) = match self.text("logging_level") {
            Some("NONE") => (true, false),
            Some("VERBOSE") => (false, true),
            _ => (false, false),
        };
        let line = |text: Option<&str>| match text {
            _ if is_off => LineLevel::Off,
            Some("INFO") => LineLevel::Info,
            _ if is_verbose => LineLevel::Debug,
            _ => LineLevel::Off,
        };
        RunLogSettings {
            every,
            sizes: line(Some("INFO")),
            times: line(self.text("detailed_metrics_logging_level")),
            batches: line(self.text("batch_info_logging_level")),
        }
    }
}
