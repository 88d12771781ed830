//! Models of Triton's stateful backend: their configuration, the batch on any axis, pairs of states and padding. Also ENDs that do not run,
//! and the refusal when all states are in use.

use sequor::error::Failure;
use sequor::model::Tensor;
use sequor_core::Refusal;

use crate::support::play::Seq;
use crate::support::server::Spec;
use crate::support::values::tensor;
use crate::support::{Server, model};

/// The example of that backend. `sequence` is inserted into `sequence_batching`; `more` are parameters.
fn config(dims: &str, sequence: &str, more: &[(&str, &str)]) -> String {
    let parameter =
        |(key, value): &(&str, &str)| format!("parameters {{ key: '{key}' value {{ string_value: '{value}' }} }}\n");
    let parameters: String = more.iter().map(parameter).collect();
    format!(
        r#"
        backend: "stateful"
        max_batch_size: 4
        input {{ name: "Input" data_type: TYPE_FP32 dims: {dims} }}
        output {{ name: "Output" data_type: TYPE_FP32 dims: {dims} }}
        sequence_batching {{
          max_sequence_idle_microseconds: 600000000 {sequence}
          control_input {{ name: "RESETSEQUENCE" control {{ kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] }} }}
          control_input {{ name: "EndSequence" control {{ kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] }} }}
          control_input {{ name: "CORRID" control {{ kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING }} }}
        }}
        parameters {{ key: "onnx_file_name" value {{ string_value: "net.onnx" }} }}
        {parameters}"#
    )
}

const OLDEST: &str = "oldest { max_candidate_sequences: 10 }";
const PAIRS: (&str, &str) = ("state_pairs", "<<<Accumulate_In, Accumulate_Out>>>");

fn spec(sequence: &str, more: &[(&str, &str)]) -> Spec {
    let graph = concat!(env!("CARGO_MANIFEST_DIR"), "/models/accumulate/1/accumulate.onnx");
    let config = config("[ 4, -1, 5 ]", sequence, more);
    model("accumulate").config(&config).file("1/net.onnx", &fs_err::read(graph).unwrap())
}

/// An input whose element at `[x][0][y]` is `scale * (5x + y)`.
fn input(scale: f32) -> Tensor {
    let values: Vec<f32> = (0..20).map(|n| scale * n as f32).collect();
    tensor(&[1, 4, 1, 5], &values)
}

/// The model's output for an input of this scale, after inputs whose scales add up to `before`.
fn output(before: f32, scale: f32) -> Vec<f32> {
    let sum = |y: usize| (before + scale) * (30 + 4 * y) as f32;
    (0..20).map(|n| scale * n as f32 + sum(n % 5)).collect()
}

#[track_caller]
fn gives(seq: &Seq<'_>, start: bool, before: f32, scale: f32) {
    let ask = if start { seq.start() } else { seq.step() };
    let answer = ask.with("Input", input(scale)).answer();
    assert_eq!(answer.output::<f32>("Output"), output(before, scale));
    assert_eq!(answer.shape("Output"), [1, 4, 1, 5]);
}

/// Runs `count` sequences in one batch, with its rows on axis 1.
fn together(server: &Server, count: u64) {
    let (plug, all) = (server.seq(9), (1..=count).map(|id| server.seq(id)).collect::<Vec<_>>());
    gives(&plug, true, 0.0, 1.0);
    for seq in &all {
        gives(seq, true, 0.0, 2.0);
    }
    let held = server.hold(plug.step().with("Input", input(1.0)));
    let waiting: Vec<_> =
        (1u8..).zip(&all).map(|(n, seq)| (n, seq.step().with("Input", input(f32::from(n))).send())).collect();
    held.release();
    for (n, waiting) in waiting {
        assert_eq!(waiting.answer().output::<f32>("Output"), output(2.0, f32::from(n)), "sequence {n}");
    }
}

#[test]
fn the_stateful_backends_example_serves_with_its_own_configuration() {
    for sequence in [OLDEST, "direct { }"] {
        let server = spec(sequence, &[PAIRS]).serve();
        together(&server, 3);
        let run = server.last_run();
        assert_eq!(run.shape("Input")[0], 4, "{sequence}");
        assert_eq!(run.shape("Accumulate_In")[1], run.shape("Input")[1], "{sequence}");
        assert_eq!(run.shape("ResetSequence"), [run.shape("Input")[1], 1], "{sequence}");
        // START resets the sum of a live sequence.
        gives(&server.seq(1), true, 0.0, 5.0);
        gives(&server.seq(1), false, 5.0, 1.0);
        server.seq(1).end().with("Input", input(1.0)).answer();
        let refused = server.seq(1).step().with("Input", input(1.0)).fails();
        assert!(matches!(&refused, Failure::Refused(refused) if matches!(refused.refusal, Refusal::Unknown(_))));
    }
}

#[test]
fn pairs_are_found_in_the_description_of_the_graph() {
    let server = spec(OLDEST, &[]).serve();
    gives(&server.seq(1), true, 0.0, 1.0);
    gives(&server.seq(1), false, 1.0, 2.0);
}

#[test]
fn ids_may_be_numbers_and_texts() {
    let server = spec(OLDEST, &[PAIRS]).serve();
    let (number, text) = (server.seq(5), server.named("5"));
    gives(&number, true, 0.0, 1.0);
    gives(&text, true, 0.0, 2.0);
    gives(&number, false, 1.0, 1.0);
    gives(&text, false, 2.0, 1.0);
}

#[test]
fn a_request_with_a_batch_dimension_above_one_is_refused() {
    let server = spec(OLDEST, &[PAIRS]).serve();
    let two: Vec<f32> = vec![0.0; 40];
    let refused = server.seq(1).start().with("Input", tensor(&[1, 4, 2, 5], &two)).fails();
    assert!(format!("{refused:?}").contains("Shape"), "{refused:?}");
    gives(&server.seq(1), true, 0.0, 1.0);
}

#[test]
fn batches_are_padded_to_the_next_preferred_size() {
    let sequence = "oldest { max_candidate_sequences: 10 preferred_batch_size: [ 3 ] }";
    for (pad, rows) in [("1", [3, 3]), ("0", [1, 2])] {
        let server = spec(sequence, &[PAIRS, ("always_pad_to_max_batch", pad)]).serve();
        let warm = server.runs().len();
        gives(&server.seq(1), true, 0.0, 1.0);
        assert_eq!(server.runs()[warm].shape("Input")[1], rows[0]);
        together(&server, 2);
        let run = server.last_run();
        assert_eq!(run.shape("Input")[1], rows[1]);
        let reset: Vec<bool> = run.fed("ResetSequence");
        assert_eq!(reset, [&[false; 2][..], if pad == "1" { &[true] } else { &[] }].concat(), "padding is reset");
    }
}

/// A graph may be built for the padded sizes alone.
#[test]
fn rows_of_a_failed_batch_run_again_with_their_padding() {
    let sequence = "oldest { max_candidate_sequences: 10 }";
    let server = spec(sequence, &[PAIRS, ("always_pad_to_max_batch", "1")]).serve();
    let all: Vec<_> = (1..=3).map(|id| server.seq(id)).collect();
    all.iter().for_each(|seq| gives(seq, true, 0.0, 1.0));
    let before = server.runs().len();
    let held = server.hold(all[0].step().with("Input", input(1.0)));
    let waiting: Vec<_> = all[1..].iter().map(|seq| seq.step().with("Input", input(2.0)).send()).collect();
    server.watch.fail_next();
    held.release();
    for waiting in waiting {
        assert_eq!(waiting.answer().output::<f32>("Output"), output(1.0, 2.0));
    }
    let sizes: Vec<u64> = server.runs()[before..].iter().map(|run| run.shape("Input")[1]).collect();
    assert_eq!(sizes, [4, 4, 4, 4], "one, both, and each of both again");
    all.iter().skip(1).for_each(|seq| gives(seq, false, 3.0, 1.0));
}

#[test]
fn a_stateful_backend_model_is_warmed_up_with_every_batch_size() {
    let sequence = "oldest { max_candidate_sequences: 10 preferred_batch_size: [ 2 ] }";
    for (pad, sizes) in [("0", vec![1, 2, 4]), ("1", vec![2, 4])] {
        let server = spec(sequence, &[PAIRS, ("always_pad_to_max_batch", pad)]).serve();
        let runs = server.runs();
        assert_eq!(runs.iter().map(|run| run.shape("Input")[1]).collect::<Vec<_>>(), sizes);
        assert!(runs.iter().all(|run| run.fed::<bool>("ResetSequence").iter().all(|reset| *reset)));
    }
}

#[test]
fn an_end_that_is_not_run_is_answered_with_nothing() {
    let server = spec(OLDEST, &[PAIRS, ("infer_end_requests", "0")]).serve();
    let runs = server.runs().len();
    for only in [false, true] {
        let seq = server.seq(7);
        let end = if only {
            seq.only()
        } else {
            gives(&seq, true, 0.0, 1.0);
            seq.end()
        };
        let answer = end.with("Input", input(1.0)).answer();
        assert_eq!(answer.output::<f32>("Output"), [0.0f32; 0]);
        assert_eq!(answer.shape("Output"), [1, 4, 0, 5]);
        server.wait_for_live(0);
    }
    assert_eq!(server.runs().len(), runs + 1, "the START alone");
    // An END for an id without a live sequence affects no other sequence.
    gives(&server.seq(1), true, 0.0, 1.0);
    server.seq(2).end().with("Input", input(1.0)).fails();
    gives(&server.seq(3), true, 0.0, 9.0);
    gives(&server.seq(1), false, 1.0, 1.0);
}

#[test]
fn a_start_beyond_the_stored_states_is_refused_at_once() {
    let server = spec(OLDEST, &[PAIRS, ("max_candidate_sequence_use_ratio", "0.3")]).serve();
    for id in 1..=3 {
        gives(&server.seq(id), true, 0.0, id as f32);
    }
    let refused = server.seq(4).start().with("Input", input(1.0)).fails();
    assert!(
        matches!(&refused, Failure::Refused(refused) if refused.refusal == Refusal::StoreFull { limit: 3 }),
        "{refused:?}"
    );
    for id in 1..=3 {
        gives(&server.seq(id), false, id as f32, 1.0);
    }
    server.seq(2).end().with("Input", input(1.0)).answer();
    gives(&server.seq(4), true, 0.0, 1.0);
}

#[test]
fn a_start_waits_for_a_slot_if_every_candidate_has_a_stored_state() {
    let server =
        spec("oldest { max_candidate_sequences: 2 }", &[PAIRS, ("max_candidate_sequence_use_ratio", "1")]).serve();
    gives(&server.seq(1), true, 0.0, 1.0);
    gives(&server.seq(2), true, 0.0, 2.0);
    let waiting = server.seq(3).start().with("Input", input(3.0)).send();
    server.seq(1).end().with("Input", input(1.0)).answer();
    assert_eq!(waiting.answer().output::<f32>("Output"), output(0.0, 3.0));
}

#[test]
fn states_stored_as_fp16_take_half_the_memory() {
    let bytes = |half: &str| {
        let server = spec(OLDEST, &[PAIRS, ("store_states_as_fp16", half)]).serve();
        gives(&server.seq(1), true, 0.0, 1.0);
        gives(&server.seq(1), false, 1.0, 2.0);
        server.ready().state_bytes
    };
    assert_eq!((bytes("0"), bytes("1")), (20, 10));
}

/// The stored state is the sum in FP16. After every step its relative error is at most 2^-10, or its absolute error at most 2^-24. Inputs
/// are multiples of one power of two, so every sum is exact and only the stored state is rounded.
#[test]
fn states_stored_as_fp16_stay_within_rounding_error_at_every_step() {
    for unit in [2f32.powi(-8), 2f32.powi(-30)] {
        let server = spec(OLDEST, &[PAIRS, ("store_states_as_fp16", "1")]).serve();
        let seq = server.seq(1);
        let (mut kept, mut random, mut rounded) = ([0.0f32; 5], 17u32, 0);
        for step in 0..200 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let scale = ((random >> 16) % 1000) as f32 * unit - 500.0 * unit;
            let ask = if step == 0 { seq.start() } else { seq.step() };
            let answer: Vec<f32> = ask.with("Input", input(scale)).answer().output("Output");
            for (y, kept) in kept.iter_mut().enumerate() {
                let sum = *kept + scale * (30 + 4 * y) as f32;
                assert_eq!(answer[y], scale * y as f32 + sum, "step {step}");
                let stored = half::f16::from_f32(sum).to_f32();
                let off = (stored - sum).abs();
                assert!(off <= sum.abs() * 2f32.powi(-10) || off <= 2f32.powi(-24), "step {step}: {stored} for {sum}");
                rounded += u32::from(off > 0.0);
                *kept = stored;
            }
        }
        assert!(rounded > 100, "{rounded} states were rounded");
    }
}

/// The backend reserves the memory of its first chunk when it loads a model.
#[test]
fn memory_that_is_set_aside_at_load_must_fit_into_the_limit() {
    // States for 9 of 10 candidates, 20 bytes each.
    let server = spec(OLDEST, &[PAIRS]).limit(180).serve();
    gives(&server.seq(1), true, 0.0, 1.0);
    let sentence =
        "MEMORY ALLOCATION ERROR:: Please try to reduce the number of instances and/or the max_candidate_sequences. (";
    let refused = spec(OLDEST, &[PAIRS]).limit(179).refused();
    assert!(refused.contains(sentence) && refused.contains("1 x 9 slots"), "{refused}");
    // In FP16 they fit.
    let server = spec(OLDEST, &[PAIRS, ("store_states_as_fp16", "1")]).limit(179).serve();
    gives(&server.seq(1), true, 0.0, 1.0);
}

#[test]
fn a_configuration_that_the_backend_refuses_is_refused_in_its_words() {
    let sizes = |first: &'static str, next: &'static str, grow: &'static str| {
        vec![
            PAIRS,
            ("initial_buffer_size", first),
            ("subsequent_buffer_size", next),
            ("buffer_alloc_threshold", grow),
            ("buffer_dealloc_threshold", "8"),
        ]
    };
    let cases: [(Vec<(&str, &str)>, &str); 8] = [
        (sizes("10", "4", "4"), "Initial buffer size cannot be larger than maximum allowed connections."),
        (sizes("3", "4", "4"), "Initial buffer size must be larger than or equal to the max batch size"),
        (sizes("8", "3", "4"), "Subsequent buffer size must be larger than or equal to the max batch size."),
        (sizes("8", "4", "3"), "Buffer allocation threshold size must be larger than or equal to the max batch size."),
        (sizes("4", "4", "5"), "Initial buffer size cannot be smaller than allocation threshold."),
        (sizes("-1", "4", "4"), "Invalid value for `initial_buffer_size`"),
        (vec![PAIRS, ("initial_buffer_size", "8")], "needs parameter subsequent_buffer_size"),
        (vec![("state_pairs", "<<<Accumulate_In>>>")], "\"<<<Accumulate_In>>>\" is not <<<input, output>>>"),
    ];
    for (parameters, sentence) in cases {
        let refused = spec(OLDEST, &parameters).refused();
        assert!(refused.contains(sentence), "{refused}");
    }
    let cases = [
        (
            vec![("state_pairs", "<<<Input, Accumulate_Out>>>")],
            "Model configuration does not match ONNX model for tensor name: Accumulate_In",
        ),
        (vec![("state_pairs", "<<<Nope, Accumulate_Out>>>")], "state \"Nope\": the model has no such input"),
    ];
    for (parameters, sentence) in cases {
        let refused = spec(OLDEST, &parameters).refused();
        assert!(refused.contains(sentence), "{refused}");
    }
    let graph = fs_err::read(concat!(env!("CARGO_MANIFEST_DIR"), "/models/accumulate/1/accumulate.onnx")).unwrap();
    let with = |text: String| model("accumulate").config(&text).file("1/net.onnx", &graph).refused();
    let own = config("[ 4, -1, 5 ]", OLDEST, &[PAIRS]);
    for (from, to, sentence) in [
        ("[ 4, -1, 5 ]", "[ 4, 1, 5 ]", "Cannot infer the batch dimension based on the Triton model configuration"),
        ("[ 4, -1, 5 ]", "[ -1, 4, 5 ]", "takes"),
        ("RESETSEQUENCE", "Restart", "The model should include ResetSequence tensor to reset the state tensors"),
        ("onnx_file_name", "file", "parameter onnx_file_name is missing"),
    ] {
        let refused = with(own.replace(from, to));
        assert!(refused.contains(sentence), "{to}: {refused}");
    }
}

#[test]
fn clients_see_the_configuration_as_it_is_written() {
    let server = spec(OLDEST, &[PAIRS]).serve();
    let served = server.repository.find("accumulate", "").unwrap();
    let config = served.config();
    assert_eq!((config.backend.as_str(), config.input[0].dims.as_slice()), ("stateful", &[4, -1, 5][..]));
    assert!(config.parameters.contains_key("state_pairs"));
    let metadata = served.metadata();
    assert_eq!(metadata.inputs.len(), 1, "no states and no controls");
    assert_eq!(metadata.inputs[0].dims.to_wire(), [-1, 4, -1, 5]);
}
