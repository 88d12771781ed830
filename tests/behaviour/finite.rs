//! Tests `[sequence] watch = "nan"`: a step whose new state has a NaN or an infinity ends its own sequence, and no other.

use sequor::error::{Failure, Refused};
use sequor_core::{EndReason, Refusal};

use crate::support::values::tensor;
use crate::support::{Seq, Server, model, sum};

const SIXTEEN: [&str; 2] = ["direct { }", "oldest { max_candidate_sequences: 16 }"];

const WATCH: &str = "[sequence]\nwatch = \"nan\"\n";

fn server(strategy: &str, toml: &str) -> Server {
    let config = sum("TYPE_FP32", strategy, "").replace("max_batch_size: 4", "max_batch_size: 16");
    model("sum").config(&config).toml(toml).onnx("sum_fp32").serve()
}

/// The step whose new state was not finite, and whether it had a NaN.
#[track_caller]
fn not_finite(failure: Failure) -> (u64, bool) {
    match failure {
        Failure::StateNotFinite { state, is_nan, step, .. } if state == "INPUT_STATE" => (step, is_nan),
        other => panic!("{other:?}"),
    }
}

/// The reason why the sequence of this id ended, from the refusal of its next step.
#[track_caller]
fn ended(seq: &Seq<'_>) -> EndReason {
    let Failure::Refused(refused) = seq.step().input(&[1.0f32]).fails() else { panic!("no refusal") };
    let Refused { refusal: Refusal::Unknown(Some(stone)), .. } = *refused else { panic!("{refused:?}") };
    stone.why
}

#[test]
fn a_state_that_becomes_nan_or_infinite_ends_its_own_sequence_alone() {
    for strategy in SIXTEEN {
        let server = server(strategy, WATCH);
        let all: Vec<_> = (1..=16).map(|id| server.seq(id)).collect();
        for (n, seq) in all.iter().enumerate() {
            let first = if n == 3 { 3.0e38f32 } else { n as f32 };
            seq.start().input(&[first]).gives(&[first]);
        }
        let held = server.hold(all[0].step().input(&[1.0f32]));
        let value = |n: usize| match n {
            3 => 3.0e38f32,
            7 => f32::NAN,
            _ => 1.0,
        };
        let waiting: Vec<_> = all.iter().enumerate().map(|(n, seq)| seq.step().input(&[value(n)]).send()).collect();
        held.release();
        for (n, waiting) in waiting.into_iter().enumerate() {
            match n {
                3 => assert_eq!(not_finite(waiting.fails()), (2, false), "{strategy}"),
                7 => assert_eq!(not_finite(waiting.fails()), (2, true), "{strategy}"),
                0 => waiting.gives(&[2.0f32]),
                _ => waiting.gives(&[n as f32 + 1.0]),
            }
        }
        assert!(server.runs().iter().any(|run| run.rows() == 16), "all sixteen were one batch");
        for (n, seq) in all.iter().enumerate() {
            match n {
                3 | 7 => assert_eq!(ended(seq), EndReason::NotFinite, "{strategy}"),
                0 => seq.step().input(&[1.0f32]).gives(&[3.0f32]),
                _ => seq.step().input(&[1.0f32]).gives(&[n as f32 + 2.0]),
            }
        }
        assert_eq!(server.repository.live(), 14);
        // The id is free, and its slot has no trace of the old state.
        all[7].start().input(&[5.0f32]).gives(&[5.0f32]);
    }
}

#[test]
fn a_start_and_an_end_are_watched_like_every_step() {
    for strategy in SIXTEEN {
        let server = server(strategy, WATCH);
        let (one, two) = (server.seq(1), server.seq(2));
        assert_eq!(not_finite(one.start().input(&[f32::INFINITY]).fails()), (1, false));
        assert_eq!(ended(&one), EndReason::NotFinite, "{strategy}");
        two.start().input(&[1.0f32]).gives(&[1.0f32]);
        assert_eq!(not_finite(two.end().input(&[f32::NAN]).fails()), (2, true));
        assert_eq!((ended(&two), server.repository.live()), (EndReason::NotFinite, 0), "{strategy}");
    }
}

#[test]
fn without_the_key_states_are_kept_as_they_are() {
    for strategy in SIXTEEN {
        let server = server(strategy, "");
        let seq = server.seq(1);
        seq.start().input(&[f32::INFINITY]).gives(&[f32::INFINITY]);
        seq.step().input(&[1.0f32]).gives(&[f32::INFINITY]);
    }
}

/// A number beyond the range of FP16 becomes infinite when the state is stored as FP16.
#[test]
fn a_state_that_is_kept_as_fp16_is_watched_as_it_is_kept() {
    for strategy in SIXTEEN {
        let server = server(strategy, &format!("{WATCH}[state.INPUT_STATE]\nstorage = \"fp16\"\n"));
        let seq = server.seq(1);
        seq.start().input(&[65504.0f32]).gives(&[65504.0f32]);
        assert_eq!(not_finite(seq.step().input(&[65504.0f32]).fails()), (2, false), "{strategy}");
    }
}

const GROWING: &str = r#"
    max_batch_size: 16
    instance_group { count: 1 }
    input { name: "INPUT" data_type: TYPE_FP32 dims: [ -1, 4 ] }
    output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 4 ] }
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

/// The padding of shorter rows is not part of their states.
#[test]
fn growing_states_are_watched_without_their_padding() {
    let pad = |side: &str| {
        let state =
            |name: &str| format!("[state.{name}]\npad = {{ side = \"{side}\", mask = \"MASK\", value = nan }}\n");
        format!("{WATCH}{}{}", state("KEYS"), state("VALUES"))
    };
    for strategy in SIXTEEN {
        let server = model("attention").config(&GROWING.replace("STRATEGY", strategy)).toml(&pad("left"));
        let server = server.onnx("attention").serve();
        let new = |n: u64, value: f32| tensor(&[1, n, 4], &vec![value; 4 * n as usize]);
        let all: Vec<_> = (1..=4).map(|id| server.seq(id)).collect();
        for (n, seq) in (1..).zip(&all) {
            seq.start().with("INPUT", new(n, 1.0)).answer();
        }
        let held = server.hold(server.seq(9).start().with("INPUT", new(1, 1.0)));
        let value = |n: usize| if n == 2 { f32::NAN } else { 1.0 };
        let ask = |(n, seq): (usize, &Seq<'_>)| seq.step().with("INPUT", new(1, value(n))).send();
        let waiting: Vec<_> = all.iter().enumerate().map(ask).collect();
        held.release();
        for (n, waiting) in waiting.into_iter().enumerate() {
            match (n, waiting.result()) {
                (2, Err(Failure::StateNotFinite { is_nan: true, step: 2, .. })) => {}
                (2, other) => panic!("{strategy}: {other:?}"),
                (_, result) => drop(result.unwrap_or_else(|failure| panic!("{strategy} {n}: {failure:?}"))),
            }
        }
        let whole = server.last_run();
        assert!(whole.rows() >= 4 && whole.fed::<f32>("KEYS").iter().any(|number| number.is_nan()), "{strategy}");
        all[3].step().with("INPUT", new(1, 1.0)).answer();
    }
}
