//! `[state.X] pad`: growing states of different lengths in one batch, padded, with lengths or a mask. Each is kept without its padding.

use sequor::error::Failure;
use sequor::model::Tensor;
use sequor_core::{Id, Shape};

use crate::support::play::Answer;
use crate::support::values::tensor;
use crate::support::{Ask, Seq, Server, model};

/// Both strategies, with room for all sequences.
const BOTH: [&str; 2] = ["direct { }", "oldest { max_candidate_sequences: 16 }"];

/// Number of sequences of a test; each has another length.
const MANY: u64 = 9;

const ATTENTION: &str = r#"
    max_batch_size: 16
    instance_group { count: 1 }
    input { name: "INPUT" data_type: TYPE_FP32 dims: [ -1, 4 ] }
    output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 4 ] }
    output { name: "KEYS_OUT" data_type: TYPE_FP32 dims: [ -1, 4 ] }
    sequence_batching {
      max_sequence_idle_microseconds: 600000000
      STRATEGY
      state {
        input_name: "KEYS" output_name: "KEYS_OUT" data_type: TYPE_FP32 dims: [ -1, 4 ]
        initial_state { name: "none" data_type: TYPE_FP32 dims: [ 0, 4 ] zero_data: true }
      }
      state {
        input_name: "VALUES" output_name: "VALUES_OUT" data_type: TYPE_FP32 dims: [ -1, 4 ]
        initial_state { name: "none" data_type: TYPE_FP32 dims: [ 0, 4 ] zero_data: true }
      }
    }
"#;

const LEFT: &str = r#"
    [state.KEYS]
    pad = { side = "left", mask = "MASK", value = 7.0 }
    [state.VALUES]
    pad = { side = "left", mask = "MASK", value = 7.0 }
"#;

fn attention(strategy: &str, toml: &str) -> Server {
    model("attention").config(&ATTENTION.replace("STRATEGY", strategy)).toml(toml).onnx("attention").serve()
}

/// `rows` new rows of small integers, so that every order of adding them gives the same bits.
fn new(rows: u64, width: u64, seed: u64) -> Tensor {
    let values: Vec<f32> = (0..rows * width).map(|n| ((n * 3 + seed * 5) % 7) as f32 - 3.0).collect();
    tensor(&[1, rows, width], &values)
}

fn step<'a>(seq: &Seq<'a>, nth: u64, rows: u64) -> Ask<'a> {
    let Id::Int(number) = &seq.id else { panic!("{:?}", seq.id) };
    seq.nth(nth as usize).with("INPUT", new(rows, 4, number * 10 + nth))
}

/// Starts these sequences. Each takes as many steps as its number.
fn begun<'a>(server: &'a Server, ids: std::ops::RangeInclusive<u64>) -> Vec<Seq<'a>> {
    let all: Vec<Seq<'_>> = ids.map(|id| server.seq(id)).collect();
    for (n, seq) in (1..).zip(&all) {
        (0..n).for_each(|nth| drop(step(seq, nth, 1).answer()));
    }
    all
}

/// The last step of each sequence, run alone and without padding.
fn alone(strategy: &str) -> Vec<Answer> {
    let server = attention(strategy, LEFT);
    let all = begun(&server, 1..=MANY);
    (1..).zip(&all).map(|(n, seq)| step(seq, n, 2).answer()).collect()
}

/// Checks for the same bits in the same shape.
fn assert_same(one: &Answer, other: &Answer, outputs: &[&str]) {
    for output in outputs {
        assert_eq!(one.tensor(output), other.tensor(output), "{output}");
    }
}

#[test]
fn sequences_with_states_of_different_lengths_share_a_batch_and_answer_as_alone() {
    for strategy in BOTH {
        for (more, whole) in [("", 9), (", buckets = [4, 12, 20]", 12), (", multiple_of = 8", 16)] {
            let toml = LEFT.replace(", value = 7.0", &format!(", value = 7.0{more}"));
            let server = attention(strategy, &toml);
            let all = begun(&server, 1..=MANY);
            let before = server.runs().len();
            let held = server.hold(server.seq(100).start().with("INPUT", new(1, 4, 0)));
            let waiting: Vec<_> = (1..).zip(&all).map(|(n, seq)| step(seq, n, 2).send()).collect();
            held.release();
            let together: Vec<Answer> = waiting.into_iter().map(|waiting| waiting.answer()).collect();
            let runs = &server.runs()[before + 1..];
            let rows: u64 = runs.iter().map(|run| run.shape("MASK")[0]).sum();
            assert_eq!(runs.len(), 1, "one batch of all; {strategy} {toml}");
            assert!(rows >= MANY, "{rows}");
            let run = &runs[0];
            assert_eq!(
                (run.shape("KEYS"), run.shape("VALUES")),
                (vec![rows, whole, 4], vec![rows, whole, 4]),
                "{toml}"
            );
            let mask = run.fed::<f32>("MASK");
            assert_eq!((run.shape("MASK"), mask.iter().sum::<f32>()), (vec![rows, whole], 45.0), "{toml}");
            let keys = run.fed::<f32>("KEYS");
            for (place, real) in mask.iter().enumerate().filter(|(_, real)| **real == 0.0) {
                assert_eq!((keys[place * 4], *real), (7.0, 0.0), "the rest is the padding's value");
            }
            for (one, other) in alone(strategy).iter().zip(&together) {
                assert_same(one, other, &["OUTPUT", "KEYS_OUT"]);
            }
            // Each continues with its own state, of its own length.
            for (n, seq) in (1..).zip(&all) {
                let answer = step(seq, n + 1, 1).answer();
                assert_eq!(answer.shape("KEYS_OUT"), [1, n + 3, 4], "{strategy} {toml}");
            }
        }
    }
}

/// As in exported decoders: the mask covers the old and the new steps.
#[test]
fn a_mask_covers_the_new_steps_too() {
    for strategy in BOTH {
        let toml = LEFT.replace("mask =", "new_steps = \"INPUT\", mask =");
        let config = ATTENTION.replace("STRATEGY", strategy);
        let server = model("whole").config(&config).toml(&toml).onnx("attention_whole").serve();
        let all = begun(&server, 1..=MANY);
        let held = server.hold(server.seq(100).start().with("INPUT", new(1, 4, 0)));
        let waiting: Vec<_> = (1..).zip(&all).map(|(n, seq)| step(seq, n, 2).send()).collect();
        held.release();
        let together: Vec<Answer> = waiting.into_iter().map(|waiting| waiting.answer()).collect();
        let run = server.last_run();
        assert_eq!(
            (run.shape("MASK")[1], run.fed::<f32>("MASK").iter().sum::<f32>()),
            (11, 45.0 + 2.0 * run.rows() as f32)
        );
        for (one, other) in alone(strategy).iter().zip(&together) {
            assert_same(one, other, &["OUTPUT", "KEYS_OUT"]);
        }
    }
}

#[test]
fn a_padded_state_is_stored_without_its_padding() {
    let server = attention("oldest { max_candidate_sequences: 16 }", &LEFT.replace("value = 7.0", "buckets = [64]"));
    let all = begun(&server, 1..=3);
    let kept = |lengths: u64| lengths * 2 * 16;
    assert_eq!(server.repository.state_bytes().0, kept(1 + 2 + 3));
    let held = server.hold(server.seq(100).only().with("INPUT", new(1, 4, 0)));
    let waiting: Vec<_> = (1..).zip(&all).map(|(n, seq)| step(seq, n, 5).send()).collect();
    held.release();
    waiting.into_iter().for_each(|waiting| drop(waiting.answer()));
    assert_eq!(server.last_run().shape("KEYS"), [3, 64, 4]);
    crate::support::server::wait(
        || server.repository.state_bytes().0 == kept(6 + 7 + 8),
        || format!("{} bytes are held", server.repository.state_bytes().0),
    );
}

/// One long state among short ones. If all were padded to its length, they would exceed the limit.
#[test]
fn rows_whose_padded_states_do_not_fit_into_the_limit_run_one_by_one() {
    let config = ATTENTION.replace("STRATEGY", "oldest { max_candidate_sequences: 16 }");
    let server = model("attention").config(&config).toml(LEFT).onnx("attention").limit(40 << 10).serve();
    let (long, short) = (server.seq(100), server.seq(101));
    long.start().with("INPUT", new(600, 4, 0)).answer();
    let all = begun(&server, 1..=3);
    let before = server.runs().len();
    let held = server.hold(short.only().with("INPUT", new(1, 4, 0)));
    let waiting: Vec<_> = (1..).zip(&all).map(|(n, seq)| step(seq, n, 2).send()).collect();
    let last = long.step().with("INPUT", new(2, 4, 0)).send();
    held.release();
    for (waiting, one) in waiting.into_iter().zip(alone("direct { }")) {
        assert_same(&one, &waiting.answer(), &["OUTPUT", "KEYS_OUT"]);
    }
    assert_eq!(last.answer().shape("KEYS_OUT"), [1, 602, 4]);
    let rows: Vec<u64> = server.runs()[before + 1..].iter().map(|run| run.shape("KEYS")[0]).collect();
    assert_eq!(rows, [1; 4]);
}

/// A reload may lower the limit below the memory that live sequences use.
#[test]
fn sequences_end_and_a_step_that_grows_says_why_when_the_limit_is_below_what_is_used() {
    for strategy in BOTH {
        let server = attention(strategy, &LEFT.replace(", value", ", buckets = [4, 12, 20], value"));
        let all = begun(&server, 1..=MANY);
        server.repository.set_state_limit(1);
        let refused = step(&all[2], 3, 2).fails();
        assert!(matches!(refused, Failure::StateMemory { .. }), "{strategy}: {refused:?}");
        // The slot of one of them is behind padding rows, and the others end together.
        let alone = all[2].end().with("INPUT", new(2, 4, 0)).answer();
        assert_eq!(alone.shape("KEYS_OUT"), [1, 5, 4], "{strategy}");
        let held = server.hold(all[0].end().with("INPUT", new(1, 4, 0)));
        let rest = || (2..).zip(&all[1..]).filter(|(n, _)| *n != 3);
        let waiting: Vec<_> = rest().map(|(_, seq)| seq.end().with("INPUT", new(1, 4, 0)).send()).collect();
        held.release();
        for ((n, _), waiting) in rest().zip(waiting) {
            assert_eq!(waiting.answer().shape("KEYS_OUT"), [1, n + 1, 4], "{strategy}");
        }
    }
}

#[test]
fn a_state_on_another_axis_is_padded() {
    let config = ATTENTION
        .replace("STRATEGY", "oldest { max_candidate_sequences: 16 }")
        .replace(
            r#""INPUT" data_type: TYPE_FP32 dims: [ -1, 4 ]"#,
            r#""INPUT" data_type: TYPE_FP32 dims: [ 2, -1, 4 ]"#,
        )
        .replace(r#"output { name: "KEYS_OUT" data_type: TYPE_FP32 dims: [ -1, 4 ] }"#, "")
        .replace("TYPE_FP32 dims: [ -1, 4 ]\n        initial", "TYPE_FP32 dims: [ 2, -1, 4 ]\n        initial")
        .replace("[ 0, 4 ]", "[ 2, 0, 4 ]");
    let toml = LEFT.replace("pad =", "batch_axis = 1\n    pad =");
    let layered = |rows: u64, seed: u64| {
        let Tensor { dtype, data, .. } = new(rows * 2, 4, seed);
        Tensor { dtype, shape: Shape::new(&[1, 2, rows, 4]), data }
    };
    let run = |together: bool| {
        let server = model("layers").config(&config).toml(&toml).onnx("attention_layers").serve();
        let all: Vec<Seq<'_>> = (1..=MANY).map(|id| server.seq(id)).collect();
        for (n, seq) in (1..).zip(&all) {
            (0..n).for_each(|nth| drop(seq.nth(nth as usize).with("INPUT", layered(1, n * 10 + nth)).answer()));
        }
        let last = |(n, seq): (u64, &Seq<'_>)| seq.end().with("INPUT", layered(2, n)).send();
        let answers: Vec<Answer> = if together {
            let held = server.hold(server.seq(100).only().with("INPUT", layered(1, 0)));
            let waiting: Vec<_> = (1..).zip(&all).map(last).collect();
            held.release();
            let answers = waiting.into_iter().map(|waiting| waiting.answer()).collect();
            assert_eq!(server.last_run().shape("KEYS"), [2, MANY, MANY, 4]);
            answers
        } else {
            (1..).zip(&all).map(|of| last(of).answer()).collect()
        };
        answers
    };
    for (one, other) in run(false).iter().zip(&run(true)) {
        assert_same(one, other, &["OUTPUT"]);
    }
}

const APPENDED: &str = r#"
    max_batch_size: 16
    instance_group { count: 1 }
    input { name: "INPUT" data_type: TYPE_FP32 dims: [ -1, 2 ] }
    INPUTS
    output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 2 ] }
    output { name: "CACHE_OUT" data_type: TYPE_FP32 dims: [ -1, 2 ] }
    OUTPUTS
    sequence_batching {
      max_sequence_idle_microseconds: 600000000
      STRATEGY
      state {
        input_name: "CACHE" output_name: "CACHE_OUT" data_type: TYPE_FP32 dims: [ -1, 2 ]
        initial_state { name: "one" data_type: TYPE_FP32 dims: [ 1, 2 ] zero_data: true }
      }
    }
"#;

const RIGHT: &str = r#"
    [state.CACHE]
    pad = { side = "right", lengths = "LENS", new_lengths = "NEW_LENS", value = 9.0 }
"#;

const STEPS: &str = r#"
    [input.INPUT]
    ragged = "pad"
    value = 5.0
    lengths = "IN_LENS"
"#;

#[test]
fn states_and_requests_of_different_lengths_share_a_batch() {
    let listed = r#"output { name: "NEW_LENS" data_type: TYPE_INT64 dims: [ 1 ] }"#;
    for (strategy, outputs) in BOTH.into_iter().flat_map(|strategy| [(strategy, ""), (strategy, listed)]) {
        let config = APPENDED.replace("STRATEGY", strategy).replace("OUTPUTS", outputs).replace("INPUTS", "");
        let server = model("appended").config(&config).toml(&[RIGHT, STEPS].concat()).onnx("appended").serve();
        let all: Vec<Seq<'_>> = (1..=MANY).map(|id| server.seq(id)).collect();
        let ones = |rows: u64| tensor(&[1, rows, 2], &vec![1.0f32; rows as usize * 2]);
        for (n, seq) in (1..).zip(&all) {
            seq.start().with("INPUT", ones(n)).gives(&[n as f32; 2]);
        }
        for round in 0..2u64 {
            let before = server.runs().len();
            let held = server.hold(server.seq(100).only().with("INPUT", ones(1)));
            // The sequences with the longest states send the shortest inputs.
            let waiting: Vec<_> =
                (1..).zip(&all).map(|(n, seq)| seq.step().with("INPUT", ones(10 - n)).send()).collect();
            held.release();
            for (n, waiting) in (1..).zip(waiting) {
                let (answer, old) = (waiting.answer(), 1 + n + round * (10 - n));
                assert_eq!(answer.output::<f32>("OUTPUT"), [(old + 10 - n - 1) as f32; 2], "{strategy}");
                let cache = [vec![0.0f32; 2], vec![1.0; (old + 10 - n - 1) as usize * 2]].concat();
                assert_eq!(
                    (answer.shape("CACHE_OUT"), answer.output::<f32>("CACHE_OUT")),
                    (&[1, old + 10 - n, 2][..], cache)
                );
            }
            let runs = &server.runs()[before + 1..];
            assert_eq!(runs.len(), 1, "one batch of all; {strategy}");
            let mut lengths: Vec<i64> = runs[0].fed::<i64>("LENS").into_iter().filter(|length| *length > 0).collect();
            lengths.sort_unstable();
            let mut old: Vec<i64> = (1..=MANY as i64).map(|n| 1 + n + round as i64 * (10 - n)).collect();
            old.sort_unstable();
            assert_eq!(lengths, old, "{strategy}");
        }
    }
}

/// `rows` new rows of ones. The request says how many of them the model is to append.
fn appending<'a>(ask: Ask<'a>, length: i64, rows: u64) -> Ask<'a> {
    let ones = tensor(&[1, rows, 2], &vec![1.0f32; rows as usize * 2]);
    ask.with("INPUT", ones).with("IN_LENS", tensor(&[1, 1], &[length]))
}

/// One row that the model refuses, and one for which it reports an impossible length. Each fails alone and keeps its state.
#[test]
fn a_failed_step_of_a_padded_batch_leaves_every_state_as_it_was() {
    for strategy in BOTH {
        let inputs = r#"input { name: "IN_LENS" data_type: TYPE_INT64 dims: [ 1 ] reshape: { shape: [ ] } }"#;
        let config = APPENDED.replace("STRATEGY", strategy).replace("INPUTS", inputs).replace("OUTPUTS", "");
        let server = model("appended").config(&config).toml(RIGHT).onnx("appended").serve();
        let all: Vec<Seq<'_>> = (1..=4).map(|id| server.seq(id)).collect();
        for (n, seq) in (1..).zip(&all) {
            appending(seq.start(), n, n as u64).gives(&[n as f32; 2]);
        }
        let held = server.hold(appending(server.seq(100).only(), 1, 1));
        let lengths = [1, 60, -40, 1];
        let waiting: Vec<_> =
            all.iter().zip(lengths).map(|(seq, length)| appending(seq.step(), length, 1).send()).collect();
        held.release();
        let failed: Vec<bool> = waiting.into_iter().map(|waiting| waiting.result().is_err()).collect();
        assert_eq!(failed, [false, true, true, false], "{strategy}");
        for (seq, (old, took)) in all.iter().zip([(1, true), (2, false), (3, false), (4, true)]) {
            let now = old + u64::from(took) + 1;
            let answer = appending(seq.step(), 1, 1).answer();
            assert_eq!(answer.output::<f32>("OUTPUT"), [now as f32; 2], "{strategy}");
            assert_eq!(answer.shape("CACHE_OUT"), [1, now + 1, 2], "{strategy}");
        }
    }
}

#[test]
fn an_invalid_pad_setting_of_a_state_is_refused_with_a_reason() {
    let direct = ATTENTION.replace("STRATEGY", "direct { }");
    let refused = |config: &str, toml: &str| model("attention").config(config).toml(toml).onnx("attention").refused();
    let on_keys = |keys: &str| format!("[state.KEYS]\npad = {{ side = \"left\", {keys} }}\n");
    let cases = [
        (
            "value = 1.0",
            "sequor.toml:2:1: pad needs lengths or mask: without one, the model cannot tell a state from its padding",
        ),
        (
            "lengths = \"MASK\"",
            "pad: lengths: \"MASK\" must be [-1] of TYPE_INT32 or TYPE_INT64; in the model it is [-1,-1] of TYPE_FP32",
        ),
        ("mask = \"MASKS\"", "pad: mask: the model has no input \"MASKS\""),
        ("mask = \"MASK\", new_lengths = \"LENS\"", "pad: new_lengths: the model has no output \"LENS\""),
        (
            "mask = \"MASK\", new_lengths = \"OUTPUT\"",
            "pad: new_lengths: \"OUTPUT\" must be [-1] or [-1,1] of TYPE_INT32 or TYPE_INT64",
        ),
        ("mask = \"MASK\", buckets = [4, 2]", "pad: buckets is a list of lengths above 0, in ascending order"),
        ("lengths = \"MASK\", new_steps = \"INPUT\"", "pad: new_steps goes with mask"),
        ("mask = \"MASK\", new_steps = \"KEYS\"", "pad: new_steps: the model has no such input: \"KEYS\""),
        ("mask = \"MASK\", multiple_of = 0", "pad: multiple_of must be at least 1"),
    ];
    for (keys, sentence) in cases {
        let message = refused(&direct, &on_keys(keys));
        assert!(message.contains(sentence), "{sentence}\nnot in\n{message}");
    }
    let mask = on_keys("mask = \"MASK\"");
    let cases = [
        (direct.replace("count: 1", "count: 1 kind: KIND_GPU"), mask.clone(), "pad works on the CPU only"),
        (direct.replace("max_batch_size: 16", "max_batch_size: 0"), mask.clone(), "max_batch_size is 0, so each request runs alone"),
        (direct.replace("\"KEYS_OUT\" data_type: TYPE_FP32 dims: [ -1, 4 ]\n        initial_state { name: \"none\" data_type: TYPE_FP32 dims: [ 0, 4 ]", "\"KEYS_OUT\" data_type: TYPE_FP32 dims: [ -1, -1 ]\n        initial_state { name: \"none\" data_type: TYPE_FP32 dims: [ 0, 4 ]"), mask.clone(), "exactly one variable dimension; this one has 2"),
        (direct.clone(), mask.clone() + "[input.INPUT]\nragged = \"pad\"\n", "pad needs new_lengths: requests of different lengths share a batch too (input \"INPUT\" is padded)"),
        (direct.clone(), mask.clone() + "[output.KEYS_OUT]\ncrop = { lengths = \"OUTPUT\" }\n", "pad takes the padding off \"KEYS_OUT\" already; remove its crop"),
        (direct.clone(), mask + "[state.VALUES]\npad = { side = \"right\", mask = \"MASK\" }\n", "is the mask of state \"KEYS\" too; then side, multiple_of, buckets and new_steps must be those of that state"),
    ];
    for (config, toml, sentence) in cases {
        let message = refused(&config, &toml);
        assert!(message.contains(sentence), "{sentence}\nnot in\n{message}");
    }
}
