//! `ragged = "pad"` and `"bucket"`: requests of different lengths in one run, padded, with lengths and masks; outputs without the padding.

use crate::support::values::tensor;
use crate::support::{Server, both, model};

const CONFIG: &str = r#"
    max_batch_size: 4
    instance_group { count: 1 }
    input { name: "INPUT" data_type: TYPE_FP32 dims: [ -1 ] }
    output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ -1 ] }
    output { name: "HALF" data_type: TYPE_FP32 dims: [ -1 ] }
    output { name: "SUM" data_type: TYPE_FP32 dims: [ 1 ] }
    output { name: "OUT_LENS" data_type: TYPE_INT64 dims: [ 1 ] }
    dynamic_batching { }
"#;

const PAD: &str = r#"
    [input.INPUT]
    ragged = "pad"
    value = 7.0
    lengths = "LENS"
    mask = "MASK"
    [output.OUTPUT]
    crop = { lengths = "OUT_LENS" }
    [output.HALF]
    crop = { like = "INPUT", ratio = "1/2" }
"#;

fn lengths_of(server: &Server, lengths: &[usize]) -> Vec<(usize, usize, f32)> {
    let values = |length: usize| (1..=length).map(|n| n as f32).collect::<Vec<_>>();
    let ask = |length: usize| server.stateless().with("INPUT", tensor(&[1, length as u64], &values(length)));
    let held = server.hold(ask(1));
    let waiting: Vec<_> = lengths.iter().map(|length| ask(*length).send()).collect();
    held.release();
    let cut = |(answer, length): (crate::support::play::Answer, &usize)| {
        let twice: Vec<f32> = values(*length).iter().map(|v| v * 2.0).collect();
        assert_eq!(answer.output::<f32>("OUTPUT"), twice);
        let odd: Vec<f32> = values(*length).iter().step_by(2).copied().collect();
        assert_eq!(answer.output::<f32>("HALF"), odd);
        (answer.shape("OUTPUT")[1] as usize, answer.shape("HALF")[1] as usize, answer.output::<f32>("SUM")[0])
    };
    waiting.into_iter().map(|w| w.answer()).zip(lengths).map(cut).collect()
}

#[test]
fn requests_are_padded_and_their_answers_cropped() {
    for (toml, whole) in [
        (PAD.to_owned(), 5),
        (PAD.replace("\"pad\"", "\"bucket\"\n    buckets = [4, 6, 8]"), 6),
        (PAD.replace("value =", "multiple_of = 4\n    value ="), 8),
    ] {
        let server = model("padded").config(CONFIG).toml(&toml).onnx("padded").serve();
        let got = lengths_of(&server, &[2, 5, 1]);
        assert_eq!(got, [(2, 1, 3.0), (5, 3, 15.0), (1, 1, 1.0)], "{toml}");
        let run = server.last_run();
        assert_eq!((server.runs().len(), run.shape("INPUT")), (2, vec![3, whole]), "{toml}");
        assert_eq!(run.fed::<i64>("LENS"), [2, 5, 1]);
        let mask = run.fed::<f32>("MASK");
        assert_eq!(mask.iter().sum::<f32>(), 8.0);
        let input = run.fed::<f32>("INPUT");
        assert_eq!(&input[..3], [1.0, 2.0, 7.0], "the rest is the padding's value");
    }
}

/// One long request among many short ones would take its length in every row.
#[test]
fn rows_that_would_be_mostly_padding_run_alone() {
    let config = CONFIG.replace("max_batch_size: 4", "max_batch_size: 16");
    let server = model("padded").config(&config).toml(PAD).onnx("padded").serve();
    let ask = |length: u64| {
        server.stateless().with("INPUT", tensor(&[1, length], &vec![1.0f32; length as usize])).wanting(&["SUM"])
    };
    for (long, together) in [(1 << 10, true), (3 << 19, false)] {
        let before = server.runs().len();
        let held = server.hold(ask(1));
        let waiting: Vec<_> = (0..12).map(|n| ask(if n == 5 { long } else { n + 1 }).send()).collect();
        held.release();
        for (n, waiting) in waiting.into_iter().enumerate() {
            let sum = if n == 5 { long as f32 } else { n as f32 + 1.0 };
            assert_eq!(waiting.answer().output::<f32>("SUM"), [sum], "{n}");
        }
        let rows: Vec<u64> = server.runs()[before + 1..].iter().map(crate::support::watch::Run::rows).collect();
        assert_eq!(rows, if together { vec![12] } else { vec![1; 12] }, "{long}");
    }
}

#[test]
fn a_request_of_several_rows_is_padded_like_others() {
    let server = model("padded").config(CONFIG).toml(PAD).onnx("padded").serve();
    let held = server.hold(server.stateless().with("INPUT", tensor(&[1, 1], &[1.0f32])));
    let two = server.stateless().with("INPUT", tensor(&[2, 2], &[1.0f32, 2.0, 3.0, 4.0])).send();
    let one = server.stateless().with("INPUT", tensor(&[1, 3], &[5.0f32, 6.0, 7.0])).send();
    held.release();
    let (two, one) = (two.answer(), one.answer());
    assert_eq!((two.shape("OUTPUT"), two.output::<f32>("OUTPUT")), (&[2, 2][..], vec![2.0, 4.0, 6.0, 8.0]));
    assert_eq!((one.shape("OUTPUT"), one.output::<f32>("SUM")), (&[1, 3][..], vec![18.0]));
    assert_eq!(server.last_run().fed::<i64>("LENS"), [2, 2, 3]);
}

#[test]
fn sequences_send_steps_that_are_padded() {
    for strategy in both() {
        let config = CONFIG.replace(
            "dynamic_batching { }",
            &format!("sequence_batching {{ max_sequence_idle_microseconds: 600000000 {strategy} }}"),
        );
        let server = model("padded").config(&config).toml(PAD).onnx("padded").serve();
        for step in 0..3usize {
            let ask = |id: u64, length: usize| server.seq(id).nth(step).input(&vec![1.0f32; length]);
            let held = server.hold(ask(1, 4));
            let (two, three) = (ask(2, step + 1).send(), ask(3, 3).send());
            assert_eq!(held.release().shape("OUTPUT"), [1, 4]);
            assert_eq!(two.answer().output::<f32>("SUM"), [(step + 1) as f32], "{strategy}");
            assert_eq!(three.answer().shape("OUTPUT"), [1, 3], "{strategy}");
        }
    }
}

#[test]
fn an_invalid_padding_setting_of_an_input_is_refused_with_a_reason() {
    let refused = |toml: &str| model("padded").config(CONFIG).toml(toml).onnx("padded").refused();
    let cases = [
        (
            "[input.INPUT]\nlengths = \"LENS\"\n",
            "sequor.toml:2:1: lengths needs ragged = \"pad\" or \"bucket\" for the same input",
        ),
        ("[input.INPUT]\nragged = \"bucket\"\n", "ragged = \"bucket\" needs buckets = [ … ], in ascending order"),
        ("[input.INPUTS]\nragged = \"pad\"\n", "[input.INPUTS]: the model has no such input; did you mean \"INPUT\"?"),
        (
            "[input.INPUT]\nragged = \"pad\"\nlengths = \"MASK\"\n",
            "lengths: \"MASK\" must be [-1] of TYPE_INT32 or TYPE_INT64; in the model it is [-1,-1] of TYPE_FP32",
        ),
        (
            "[output.HALF]\ncrop = { like = \"INPUT\" }\n",
            "crop: \"INPUT\" is not an input with ragged = \"pad\" or \"bucket\"",
        ),
        (
            "[input.INPUT]\nragged = \"pad\"\n[output.SUM]\ncrop = { like = \"INPUT\" }\n",
            "crop needs an output with a variable dimension",
        ),
        (
            "[input.INPUT]\nragged = \"pad\"\n[output.HALF]\ncrop = { like = \"INPUT\", ratio = \"half\" }\n",
            "crop: ratio is two whole numbers above 0",
        ),
        (
            "[input.INPUT]\nragged = \"concat\"\n",
            "configuration expects model provides input with shape [-1]  for ragged input 'INPUT', model provides [-1,-1]",
        ),
    ];
    for (toml, sentence) in cases {
        let message = refused(toml);
        assert!(message.contains(sentence), "{sentence}\nnot in\n{message}");
    }
}
