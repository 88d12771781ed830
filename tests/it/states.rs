//! Tests all kinds of states, and stateless models next to them, in a real server. Each folder of `tests/cases/states` is a model: its
//! configuration, if it has one, and in `graph.txt` the name of its graph in `tests/models`.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};

use crate::server::{Call, Server, copy, get, root};

fn serve() -> Server {
    let call = Call::serve("repository");
    let repository = call.folder.path().join("repository");
    for case in fs::read_dir(root().join("tests/cases/states")).unwrap().map(|entry| entry.unwrap()) {
        let model = repository.join(case.file_name());
        copy(&case.path(), &model);
        let graph = fs::read_to_string(model.join("graph.txt")).unwrap();
        fs::create_dir(model.join("1")).unwrap();
        fs::copy(root().join("tests/models").join(graph.trim()), model.join("1/model.onnx")).unwrap();
    }
    call.start()
}

fn post(address: SocketAddr, path: &str, body: &Value) -> (u16, Value) {
    let body = body.to_string();
    let mut stream = TcpStream::connect(address).unwrap();
    let head =
        format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all((head + &body).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap())
}

/// A sequence of a model, and its progress.
struct Sequence<'a> {
    server: &'a Server,
    model: &'static str,
    id: u64,
    begun: bool,
}

impl<'a> Sequence<'a> {
    fn of(server: &'a Server, model: &'static str, id: u64) -> Sequence<'a> {
        Sequence { server, model, id, begun: false }
    }

    /// Sends a step. Returns the shapes and data of these outputs.
    fn step(&mut self, dtype: &str, shape: &[u64], data: &Value, outputs: &[&str]) -> Vec<(Value, Value)> {
        let outputs: Vec<Value> = outputs.iter().map(|name| json!({ "name": name })).collect();
        let body = json!({
            "parameters": { "sequence_id": self.id, "sequence_start": !self.begun },
            "inputs": [{ "name": "INPUT", "datatype": dtype, "shape": shape, "data": data }],
            "outputs": outputs,
        });
        self.begun = true;
        infer(self.server, self.model, &body).unwrap_or_else(|(status, message)| panic!("{status}: {message}"))
    }

    fn number(&mut self, value: f64) -> f64 {
        self.step("FP32", &[1, 1], &json!([value]), &["OUTPUT"])[0].1[0].as_f64().unwrap()
    }
}

/// Shape and data of every output, or the refusal.
pub(crate) fn infer(server: &Server, model: &str, body: &Value) -> Result<Vec<(Value, Value)>, (u16, Value)> {
    let (status, answer) = post(server.http, &format!("/v2/models/{model}/infer"), body);
    if status != 200 {
        return Err((status, answer));
    }
    let outputs = answer["outputs"].as_array().unwrap().iter();
    Ok(outputs.map(|output| (output["shape"].clone(), output["data"].clone())).collect())
}

#[test]
fn a_model_may_have_several_states_of_several_types() {
    let server = serve();
    let (mut a, mut b) = (Sequence::of(&server, "mean", 1), Sequence::of(&server, "mean", 2));
    assert_eq!(
        [a.number(1.0), b.number(10.0), a.number(3.0), a.number(5.0), b.number(20.0)],
        [1.0, 10.0, 2.0, 3.0, 15.0]
    );
}

#[test]
fn a_text_state_starts_with_the_text_of_its_data_file() {
    let server = serve();
    let say = |sequence: &mut Sequence<'_>, text: &str| {
        sequence.step("BYTES", &[1, 1], &json!([text]), &["OUTPUT"])[0].1[0].as_str().unwrap().to_owned()
    };
    let (mut a, mut b) = (Sequence::of(&server, "text", 1), Sequence::of(&server, "text", 2));
    assert_eq!(
        [say(&mut a, "one"), say(&mut b, "eins"), say(&mut a, ""), say(&mut b, "zwei")],
        ["hello", "hello", "one", "eins"]
    );
    assert_eq!([say(&mut a, "three"), say(&mut b, "drei")], ["", "zwei"]);
}

#[test]
fn requesting_a_small_integer_state_as_an_output_does_not_change_it() {
    let server = serve();
    let steps = [true, false, true, true];
    let mut asks = Sequence::of(&server, "flags", 1);
    let steps_seen: Vec<(Value, Value)> = steps
        .map(|step| {
            let answer = asks.step("BOOL", &[1, 1], &json!([step]), &["OUTPUT", "OUTPUT_STATE"]);
            (answer[0].1[0].clone(), answer[1].1[0].clone())
        })
        .into();
    assert_eq!(
        steps_seen,
        [(false, 6), (false, 6), (true, 7), (false, 8)].map(|(odd, count)| (json!(odd), json!(count)))
    );
    let mut does_not = Sequence::of(&server, "flags", 2);
    let odd = steps.map(|step| does_not.step("BOOL", &[1, 1], &json!([step]), &["OUTPUT"])[0].1[0].clone());
    assert_eq!(odd, [false, false, true, false].map(Value::from));
}

#[test]
fn a_growing_state_starts_at_one_or_at_its_initial_dims() {
    let server = serve();
    for (model, begins) in [("grow", 1), ("grow_from", 3)] {
        let (mut a, mut b) = (Sequence::of(&server, model, 1), Sequence::of(&server, model, 2));
        let take = |sequence: &mut Sequence<'_>, rows: u64, value: f64| {
            let data: Vec<f64> = vec![value; usize::try_from(rows * 4).unwrap()];
            let answer = sequence.step("FP32", &[1, rows, 4], &json!(data), &["OUTPUT", "OUTPUT_STATE"]);
            (answer[0].1[0].as_f64().unwrap(), answer[1].0[1].as_u64().unwrap())
        };
        assert_eq!(take(&mut a, 1, 1.0), (1.0, begins + 1));
        assert_eq!(take(&mut b, 2, 10.0), (20.0, begins + 2));
        assert_eq!(take(&mut a, 3, 2.0), (7.0, begins + 4));
        assert_eq!(take(&mut b, 0, 0.0), (20.0, begins + 2));
        assert_eq!(take(&mut a, 1, 1.0), (8.0, begins + 5));
    }
}

#[test]
fn two_instances_share_the_sequences_and_each_stays_where_it_began() {
    let server = serve();
    let mut sequences: Vec<Sequence<'_>> = (1..=2).map(|id| Sequence::of(&server, "apart", id)).collect();
    // Each instance has one slot, so only the other instance can answer the second sequence.
    let first: Vec<f64> = sequences.iter_mut().map(|s| s.number(1.0)).collect();
    let (_, metrics) = get(server.metrics, "/metrics");
    assert!(metrics.contains("sequor_slots{model=\"apart\",version=\"1\",state=\"used\"} 2\n"), "{metrics}");
    let second: Vec<f64> = (1..).zip(&mut sequences).map(|(n, s)| s.number(f64::from(n) * 3.0)).collect();
    let third: Vec<f64> = sequences.iter_mut().rev().map(|s| s.number(0.5)).collect();
    assert_eq!((first, second, third), (vec![1.0, 1.0], vec![2.0, 3.5], vec![2.5, 1.5]));
}

fn pick(server: &Server, model: &str, shape: &[u64], indices: &[i64]) -> Result<(Value, Value), (u16, Value)> {
    let input = json!({ "name": "INDEX", "datatype": "INT64", "shape": shape, "data": indices });
    infer(server, model, &json!({ "inputs": [input] })).map(|mut outputs| outputs.remove(0))
}

#[test]
fn stateless_models_are_served_beside_stateful_models() {
    let server = serve();
    for (indices, values) in [(vec![3], vec![40.0]), (vec![0, 2, 0], vec![10.0, 30.0, 10.0]), (vec![], vec![])] {
        let length = indices.len() as u64;
        assert_eq!(pick(&server, "pick", &[length], &indices).unwrap(), (json!([length]), json!(values)));
    }
    // A failed run is reported, and the next one runs.
    let (status, body) = pick(&server, "pick", &[1], &[9]).unwrap_err();
    assert!(status == 500 && body["reason"] == "run_failed", "{status}: {body}");
    assert_eq!(pick(&server, "pick", &[1], &[1]).unwrap().1, json!([20.0]));
}

#[test]
fn a_model_without_a_configuration_takes_batches() {
    let server = serve();
    let (_, config) = server.get("/v2/models/pick_completed/config");
    let config: Value = serde_json::from_str(&config).unwrap();
    assert_eq!((&config["max_batch_size"], &config["input"][0]["name"]), (&json!(4), &json!("INDEX")), "{config}");
    assert_eq!(
        pick(&server, "pick_completed", &[3, 1], &[0, 1, 3]).unwrap(),
        (json!([3, 1]), json!([10.0, 20.0, 40.0]))
    );
    assert_eq!(pick(&server, "pick_completed", &[5, 1], &[0; 5]).unwrap_err().0, 400);
}
