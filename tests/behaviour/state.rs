//! States: their round trip, names, types, dims, growth, and access to them.

use sequor_core::{DataType, Shape};

use crate::support::server::sides;
use crate::support::values::{self, row, tensor};
use crate::support::{Server, both, model, sum};

/// A running sum in INT32 without START or an initial state.
fn int_sum(strategy: &str) -> Server {
    model("sum").config(&sum("TYPE_INT32", strategy, "")).onnx("sum_int32").serve()
}

#[test]
fn onnx_runtime_keeps_state_from_request_to_request() {
    for strategy in both() {
        let server = int_sum(strategy);
        let (a, b) = (server.seq(1), server.seq(2));
        a.start().input(&[5]).gives(&[5]);
        b.start().input(&[100]).gives(&[100]);
        for (sum, value) in [(7, 2), (4, -3), (4, 0)] {
            a.step().input(&[value]).gives(&[sum]);
            b.step().input(&[value]).gives(&[sum + 95]);
        }
        a.end().input(&[1]).gives(&[5]);
        b.end().input(&[1]).gives(&[100]);
        assert_eq!(server.repository.live(), 0);
    }
}

#[test]
fn a_requests_state_output_is_the_next_ones_state_input() {
    for strategy in both() {
        let listed = r#" output { name: "OUTPUT_STATE" data_type: TYPE_INT32 dims: [ -1 ] }"#;
        let config = sum("TYPE_INT32", strategy, "") + listed;
        let server = model("sum").config(&config).onnx("sum_int32").serve();
        let a = server.seq(1);
        let mut before = a.start().input(&[3]).answer().output::<i32>("OUTPUT_STATE");
        for value in [4, -11, 1 << 30] {
            let after = a.step().input(&[value]).answer().output::<i32>("OUTPUT_STATE");
            assert_eq!(server.last_run().fed::<i32>("INPUT_STATE"), before, "{strategy}");
            assert_eq!(after, [before[0].wrapping_add(value)]);
            before = after;
        }
    }
}

#[test]
fn three_crossed_states_of_two_types_are_paired_by_their_entries() {
    // The inputs' names in order are a, b, c. The outputs' names in order are x, y, z, which belong to b, c, a.
    let config = |strategy: &str| {
        format!(
            r#"
            max_batch_size: 4
            instance_group {{ count: 1 }}
            input {{ name: "INPUT" data_type: TYPE_FP32 dims: [ 1 ] }}
            output {{ name: "OUTPUT" data_type: TYPE_FP32 dims: [ 3 ] }}
            sequence_batching {{
              {strategy}
              state {{ input_name: "c" output_name: "y" data_type: TYPE_FP32 dims: [ 1 ] }}
              state {{ input_name: "a" output_name: "z" data_type: TYPE_FP32 dims: [ 1 ] }}
              state {{ input_name: "b" output_name: "x" data_type: TYPE_INT32 dims: [ 1 ] }}
            }}
            "#
        )
    };
    for strategy in both() {
        let server = model("crossed").config(&config(strategy)).onnx("crossed").serve();
        assert_eq!(server.ready().state_bytes, sides(strategy) * 12);
        let (one, two) = (server.seq(1), server.seq(2));
        // a sums the inputs, b counts requests, c doubles itself and adds the input.
        one.start().input(&[1.0f32]).gives(&[1.0f32, 1.0, 1.0]);
        two.start().input(&[10.0f32]).gives(&[10.0f32, 1.0, 10.0]);
        one.step().input(&[2.0f32]).gives(&[3.0f32, 2.0, 4.0]);
        two.step().input(&[0.0f32]).gives(&[10.0f32, 2.0, 20.0]);
        one.step().input(&[3.0f32]).gives(&[6.0f32, 3.0, 11.0]);
        // The same if the state outputs are listed as outputs too.
        let listed = [("y", "TYPE_FP32"), ("x", "TYPE_INT32"), ("z", "TYPE_FP32")]
            .map(|(name, dtype)| format!("output {{ name: \"{name}\" data_type: {dtype} dims: [ 1 ] }}\n"));
        let server = model("crossed").config(&(config(strategy) + &listed.concat())).onnx("crossed").serve();
        let one = server.seq(1);
        for (step, (a, b, c)) in [(1.0f32, 1, 1.0f32), (2.0, 2, 3.0), (3.0, 3, 7.0)].into_iter().enumerate() {
            let answer = one.nth(step).input(&[1.0f32]).answer();
            assert_eq!(answer.output::<f32>("OUTPUT"), [a, b as f32, c]);
            assert_eq!((answer.output("z"), answer.output("x"), answer.output("y")), (vec![a], vec![b], vec![c]));
        }
    }
}

/// Two elements of this type that are neither equal nor zero.
fn sample(dtype: DataType) -> Vec<u8> {
    match dtype {
        DataType::Bytes => values::bytes(&values::texts(&["a\0b\0", "zwei"])),
        DataType::Bool => vec![1, 0],
        dtype => (1..=2 * dtype.size().unwrap() as u8).collect(),
    }
}

#[test]
fn states_of_every_type_are_preserved_bit_for_bit() {
    let types = DataType::ALL;
    let name = |t: DataType| t.config_name().trim_start_matches("TYPE_").to_lowercase();
    let port = |what: &str, prefix: &str, t: DataType| {
        format!("{what} {{ name: \"{prefix}_{}\" data_type: {} dims: [ 2 ] }}\n", name(t), t.config_name())
    };
    let state = |t: DataType| {
        let (n, t) = (name(t), t.config_name());
        format!("state {{ input_name: \"IN_{n}\" output_name: \"NEW_{n}\" data_type: {t} dims: [ 2 ] }}\n")
    };
    let ports: String = types.iter().map(|t| port("input", "X", *t) + &port("output", "OUT", *t)).collect();
    let states: String = types.iter().copied().map(state).collect();
    for strategy in both() {
        let head = "max_batch_size: 2\ninstance_group { count: 1 }\n";
        let config = format!("{head}{ports}sequence_batching {{ {strategy}\n{states} }}");
        let server = model("delay").config(&config).onnx("delay_all").serve();
        let send = |ask, reverse: bool| {
            types.iter().fold(ask, |ask: crate::support::Ask<'_>, t| {
                let (mut data, shape) = (sample(*t), Shape::new(&[1, 2]));
                if reverse && *t != DataType::Bytes {
                    data.reverse();
                }
                ask.with(&format!("X_{}", name(*t)), sequor::model::Tensor { dtype: *t, shape, data: data.into() })
            })
        };
        let (a, b) = (server.seq(1), server.seq(2));
        send(a.start(), false).answer();
        send(b.start(), true).answer();
        let answer = send(a.step(), true).answer();
        for t in types {
            let out = answer.tensor(&format!("OUT_{}", name(t)));
            assert_eq!((out.dtype, &out.data[..]), (t, &sample(t)[..]), "{strategy} {t}");
        }
    }
}

#[test]
fn dims_leave_the_batch_dimension_out() {
    for strategy in both() {
        let config = sum("TYPE_INT32", strategy, "").replace("dims: [ 1 ]", "dims: [ 3 ]");
        let server = model("sum").config(&config).onnx("sum_int32").serve();
        let a = server.seq(1);
        a.start().input(&[1, 2, 3]).gives(&[1, 2, 3]);
        a.step().input(&[1, 1, 1]).gives(&[2, 3, 4]);
        assert_eq!(server.last_run().shape("INPUT_STATE"), [1, 3]);
        assert_eq!(server.ready().state_bytes, sides(strategy) * 12);
    }
}

#[test]
fn state_dims_are_the_full_shape_without_a_batch_dimension() {
    let config = sum("TYPE_INT32", "", "")
        .replace("max_batch_size: 4", "max_batch_size: 0")
        .replace("dims: [ 1 ]", "dims: [ 3 ]")
        .replace("dims: [ -1 ]", "dims: [ 3 ]");
    for strategy in ["direct { }", "oldest { }", "oldest { max_candidate_sequences: 2 }"] {
        let config = config.replace("max_sequence_idle_microseconds: 600000000", strategy);
        let server = model("whole").config(&config).onnx("whole_int32").serve();
        let (a, input) = (server.seq(1), |v: [i32; 3]| tensor(&[3], &v));
        let answer = a.start().with("INPUT", input([1, 2, 3])).answer();
        assert_eq!((answer.shape("OUTPUT"), answer.output::<i32>("OUTPUT")), (&[3][..], vec![1, 2, 3]));
        a.step().with("INPUT", input([10, 0, 0])).gives(&[11, 2, 3]);
        assert_eq!(server.last_run().shape("INPUT_STATE"), [3]);
        a.end().with("INPUT", input([0, 0, -3])).gives(&[11, 2, 0]);
        assert_eq!(server.repository.live(), 0);
    }
}

#[test]
fn a_state_may_batch_on_its_second_axis() {
    let config = |strategy: &str| {
        format!(
            r#"
            max_batch_size: 4
            instance_group {{ count: 1 }}
            input {{ name: "INPUT" data_type: TYPE_FP32 dims: [ 3 ] }}
            output {{ name: "OUTPUT" data_type: TYPE_FP32 dims: [ 2, 3 ] }}
            sequence_batching {{
              {strategy}
              state {{ input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_FP32 dims: [ 2, 3 ] }}
            }}
            "#
        )
    };
    for strategy in both() {
        let server = model("axis")
            .config(&config(strategy))
            .toml("[state.INPUT_STATE]\nbatch_axis = 1\n")
            .onnx("on_axis_1")
            .serve();
        let all = [1u64, 2, 3].map(|id| server.seq(id));
        for (n, seq) in (0u8..).zip(&all) {
            let at = f32::from(n);
            seq.start().input(&[at, at + 0.5, 9.0]).gives(&[at, at + 0.5, 9.0, 2.0 * at, 2.0 * at + 1.0, 18.0]);
        }
        // All three in one batch, so that the sides of the states are apart in memory.
        let held = server.hold(all[0].step().input(&[0.0f32; 3]));
        let waiting = all.clone().map(|seq| seq.step().input(&[1.0f32, 1.0, 1.0]).send());
        held.release();
        for (n, answer) in (0u8..).zip(waiting) {
            let at = f32::from(n);
            answer.gives(&[at + 1.0, at + 1.5, 10.0, 2.0 * at + 2.0, 2.0 * at + 3.0, 20.0]);
        }
        assert_eq!(server.last_run().shape("INPUT_STATE"), [2, 3, 3], "{strategy}");
    }
}

pub const GROW: &str = r#"
    max_batch_size: 4
    instance_group { count: 1 }
    input { name: "INPUT" data_type: TYPE_FP32 dims: [ -1, 4 ] }
    output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 4 ] }
    output { name: "OUTPUT_STATE" data_type: TYPE_FP32 dims: [ -1, 4 ] }
    sequence_batching {
      STRATEGY
      state {
        input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_FP32 dims: [ -1, 4 ]
        initial_state { name: "one" data_type: TYPE_FP32 dims: [ 1, 4 ] zero_data: true }
      }
    }
"#;

#[test]
fn a_growing_state_shares_batches_only_with_states_of_equal_length() {
    for strategy in both() {
        let server = model("grow").config(&GROW.replace("STRATEGY", strategy)).onnx("grow_fp32").serve();
        let [a, b, c] = [1u64, 2, 3].map(|id| server.seq(id));
        let new = |rows: u64, v: f32| tensor(&[1, rows, 4], &vec![v; rows as usize * 4]);
        assert_eq!(a.start().with("INPUT", new(2, 1.0)).answer().shape("OUTPUT_STATE"), [1, 3, 4]);
        assert_eq!(b.start().with("INPUT", new(5, 1.0)).answer().shape("OUTPUT_STATE"), [1, 6, 4]);
        assert_eq!(c.start().with("INPUT", new(2, 3.0)).answer().shape("OUTPUT_STATE"), [1, 3, 4]);
        // a and c have the same length, b does not: two batches.
        let held = server.hold(b.step().with("INPUT", new(1, 0.0)));
        let waiting = [&a, &b, &c].map(|seq| seq.step().with("INPUT", new(1, 2.0)).send());
        held.release();
        let answers = waiting.map(|w| w.answer());
        let sums = answers.each_ref().map(|answer| answer.output::<f32>("OUTPUT")[0]);
        let lengths = answers.each_ref().map(|answer| answer.shape("OUTPUT_STATE")[1]);
        assert_eq!((sums, lengths), ([4.0, 7.0, 8.0], [4, 8, 4]), "{strategy}");
        let runs = server.runs();
        let together: Vec<u64> = runs[4..].iter().map(|run| run.shape("INPUT_STATE")[1]).collect();
        assert_eq!(together.len(), 2, "{strategy}: {together:?}");
        assert!(together.contains(&3) && together.contains(&7), "{strategy}: {together:?}");
        a.step().with("INPUT", new(1, 1.0)).gives(&[5.0f32; 4]);
    }
}

#[test]
fn a_state_whose_shape_breaks_its_dims_is_not_taken() {
    let config = GROW.replace("STRATEGY", "direct { }").replace(
        r#"TYPE_FP32 dims: [ -1, 4 ]
        initial_state { name: "one" data_type: TYPE_FP32 dims: [ 1, 4 ]"#,
        r#"TYPE_FP32 dims: [ 2, 4 ]
        initial_state { name: "one" data_type: TYPE_FP32 dims: [ 2, 4 ]"#,
    );
    let server = model("grow").config(&config).onnx("grow_fp32").serve();
    let a = server.seq(1);
    let new = |rows: u64| tensor(&[1, rows, 4], &vec![1.0f32; rows as usize * 4]);
    for ask in [a.start(), a.step(), a.step()] {
        let failure = ask.with("INPUT", new(1)).fails();
        assert!(format!("{failure}").contains("OUTPUT_STATE"), "{failure}");
        assert_eq!(server.last_run().shape("INPUT_STATE"), [1, 2, 4]);
    }
    assert_eq!(server.repository.live(), 1);
}

#[test]
fn a_state_listed_as_an_output_can_be_read_without_changing_it() {
    let listed = r#" output { name: "OUTPUT_STATE" data_type: TYPE_INT32 dims: [ -1 ] }"#;
    for strategy in both() {
        let server = model("sum").config(&(sum("TYPE_INT32", strategy, "") + listed)).onnx("sum_int32").serve();
        let (read, blind) = (server.seq(1), server.seq(2));
        for (n, value) in [4, 5, -6, 7].into_iter().enumerate() {
            let with = read.nth(n).input(&[value]).wanting(&["OUTPUT_STATE", "OUTPUT"]).answer();
            let without = blind.nth(n).input(&[value]).wanting(&["OUTPUT"]).answer();
            assert_eq!(with.output::<i32>("OUTPUT"), without.output::<i32>("OUTPUT"));
            assert_eq!(with.output::<i32>("OUTPUT_STATE"), with.output::<i32>("OUTPUT"));
            assert_eq!((with.0.outputs.len(), without.0.outputs.len()), (2, 1));
            // The graph got the same state in both runs.
            let runs = server.runs();
            let fed = |at: usize| runs[runs.len() - at].inputs["INPUT_STATE"].1.chunks(4).last().unwrap().to_vec();
            assert_eq!(fed(2), fed(1), "{strategy}");
        }
    }
}

#[test]
fn a_state_that_is_not_listed_is_no_output() {
    let server = int_sum("");
    let a = server.seq(1);
    a.start().input(&[1]).gives(&[1]);
    let failure = a.step().input(&[1]).wanting(&["OUTPUT", "OUTPUT_STATE"]).fails();
    assert!(
        format!("{failure:?}").contains(r#"UnknownOutput { output: "OUTPUT_STATE", known: ["OUTPUT"] }"#),
        "{failure:?}"
    );
    // A client cannot send it either.
    let failure = a.step().input(&[1]).with("INPUT_STATE", row(&[9])).fails();
    assert!(format!("{failure:?}").contains("InputCount"), "{failure:?}");
    a.step().input(&[1]).gives(&[2]);
}

#[test]
fn an_fp32_state_can_be_kept_as_fp16() {
    for strategy in both() {
        let server = model("sum")
            .config(&sum("TYPE_FP32", strategy, ""))
            .toml("[state.INPUT_STATE]\nstorage = \"fp16\"\n")
            .onnx("sum_fp32")
            .serve();
        assert_eq!(server.ready().state_bytes, sides(strategy) * 2);
        let a = server.seq(1);
        // 2049 needs 12 bits: the answer has them, the stored state does not.
        a.start().input(&[2049.0f32]).gives(&[2049.0f32]);
        a.step().input(&[0.0f32]).gives(&[2048.0f32]);
        a.step().input(&[0.25f32]).gives(&[2048.25f32]);
        a.step().input(&[-2047.5f32]).gives(&[0.5f32]);
        a.step().input(&[0.0f32]).gives(&[0.5f32]);
    }
}
