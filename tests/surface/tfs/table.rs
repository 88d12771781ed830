//! The contract of OVMS's stateful serving as one table, over gRPC and HTTP. Each row names its section of the contract: 12 the special
//! inputs, 13 the sequence manager, 14 its cleaner, 15 the errors, 16 the REST formats.

use std::sync::Arc;
use std::time::Duration;

use sequor::api::ServerLimits;
use sequor::backend::mock::MockBackend;
use sequor::model::Clock;
use sequor_proto::tensorflow::TensorProto;
use sequor_proto::tensorflow::serving::PredictRequest;
use sequor_proto::tensorflow_service::prediction_service_client::PredictionServiceClient;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tonic::Code;
use tonic::transport::Channel;

use super::calls::{answer, client, control, id, number, request, shape};
use super::contract::{Act, NONE, Refused, Row, Want, rows};
use crate::gate::Gate;
use crate::rig::{Rig, SAME, SUM, exchange, write};

/// Time between two scans of the cleaner.
const SCAN: Duration = Duration::from_mins(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Grpc,
    Rest,
}

/// The outcome of a request: the sum and its sequence's id, or code, status and text.
type Outcome = Result<(i32, Option<u64>), (Option<Code>, Option<u16>, String)>;

struct Table {
    rig: Rig,
    client: PredictionServiceClient<Channel>,
    clock: Clock,
    gate: Arc<Gate>,
}

impl Table {
    /// Loads the models: `made` and `slow` are running sums, the cleaner scans `swept`, `one` may have one sequence, `same` has no state.
    async fn new() -> Table {
        let (gate, clock, folder) = (Arc::<Gate>::default(), Clock::manual(), tempfile::tempdir().unwrap());
        let of_runs = Arc::clone(&gate);
        let backend = MockBackend::with_hook(Arc::new(move |_| of_runs.pass()));
        let sum = SUM.replace("max_candidate_sequences: 4", "max_candidate_sequences: 1024");
        for (name, program, toml) in [
            ("made", "accumulate INT32 poison=-13", "idle = \"never\""),
            // Steps that take this long never run on a connection's thread, which the gate would hold.
            ("slow", "accumulate INT32 cost=2000", "idle = \"never\""),
            ("swept", "accumulate INT32 poison=-13", "idle_scan = \"5m\""),
            ("one", "accumulate INT32 poison=-13", "idle = \"never\"\nmax_live = 1"),
        ] {
            write(folder.path(), name, &sum, 1, program);
            let file = folder.path().join(name).join("sequor.toml");
            fs_err::write(file, format!("schema = 1\n[sequence]\n{toml}\n")).unwrap();
        }
        write(folder.path(), "same", SAME, 1, "identity INT32 dims=-1");
        let rig = Rig::timed(Arc::new(backend), ServerLimits::default(), clock.clone(), folder);
        rig.repository.load_all(rig.folder.path()).unwrap();
        assert!(rig.repository.ready(), "{:?}", rig.repository.statuses());
        let client = client(&rig).await;
        Table { rig, client, clock, gate }
    }

    /// Plays a row over one protocol. `base` is added to ids, so that rows do not share sequences.
    async fn play(&self, row: &Row, protocol: Protocol, base: u64) {
        let Row { section, model, acts } = row;
        let (mut made, mut pending) = (0, None);
        for (n, (act, want)) in acts.iter().enumerate() {
            let at = format!("{section}, act {n} over {protocol:?}");
            let got = match act {
                Act::Step(id, control, value) => {
                    let id = if *id == 0 { 0 } else { base + id };
                    self.step(protocol, model, id, *control, *value).await
                }
                Act::Made(control, value) => self.step(protocol, model, made, *control, *value).await,
                Act::Zero(id, value) => self.zero(protocol, model, base + id, *value).await,
                Act::Wide(id, control) => self.wide(protocol, model, base + id, *control).await,
                Act::Begin(id, control, value) => {
                    self.gate.close();
                    pending = Some(self.begin(protocol, model, base + id, *control, *value));
                    let gate = Arc::clone(&self.gate);
                    self.rig.until(move |_| gate.held() == 1).await;
                    continue;
                }
                Act::Finish => {
                    self.gate.open();
                    pending.take().unwrap().await.unwrap()
                }
                Act::Scans(count) => {
                    self.clock.advance(SCAN * *count);
                    continue;
                }
                Act::Grpc(request) => self.grpc(request.clone()).await,
                Act::Rest(path, body) => {
                    let message = self.rig.http(&format!("POST {path}"), &[], body.as_bytes()).await;
                    let Want::Body(status, want) = want else { panic!("{at}: a body is wanted") };
                    assert_eq!((message.status, message.json()), (*status, want.clone()), "{at}: {body}");
                    continue;
                }
            };
            match want {
                Want::Sum(sum) => {
                    let (number, id) = got.unwrap_or_else(|refused| panic!("{at}: {refused:?}"));
                    let id = id.unwrap_or_else(|| panic!("{at}: each answer carries the id"));
                    assert_eq!(number, *sum, "{at}");
                    match act {
                        Act::Step(0, ..) => {
                            assert!(id > 0 && id < 1 << 53 && id != made, "{at}: {id}");
                            made = id;
                        }
                        Act::Step(of, ..) | Act::Zero(of, ..) => assert_eq!(id, base + of, "{at}"),
                        _ => {}
                    }
                }
                Want::Refused(Refused { code, http, text }) => {
                    let (got_code, got_http, got_text) =
                        got.err().unwrap_or_else(|| panic!("{at}: \"{text}\" is wanted"));
                    assert!(got_code.is_none_or(|got| got == *code), "{at}: {got_code:?}");
                    assert!(got_http.is_none_or(|got| got == *http), "{at}: {got_http:?}");
                    let more = got_text.strip_prefix(text).unwrap_or_else(|| panic!("{at}: {got_text}"));
                    let is_bracket = more.starts_with(" (") && more.ends_with(')');
                    assert!(more.is_empty() || is_bracket, "{at}: {got_text}");
                }
                Want::Nothing | Want::Body(..) => panic!("{at}: the row does not say what is wanted"),
            }
        }
    }

    async fn step(&self, protocol: Protocol, model: &str, id: u64, control: u32, value: i32) -> Outcome {
        self.begin(protocol, model, id, control, value).await.unwrap()
    }

    /// Sends a step, whose answer is awaited later.
    fn begin(&self, protocol: Protocol, model: &str, id: u64, control: u32, value: i32) -> JoinHandle<Outcome> {
        match protocol {
            Protocol::Grpc => {
                let (client, request) = (self.client.clone(), step(model, id, control, number(value)));
                tokio::spawn(predict(client, request))
            }
            Protocol::Rest => {
                let body = body(id, control, &json!([[value]]));
                let (address, path) = (self.rig.addresses.http.unwrap(), format!("POST /v1/models/{model}:predict"));
                tokio::spawn(async move { rest(&exchange(address, &path, &[], body.as_bytes()).await) })
            }
        }
    }

    /// A step with an explicit control of 0.
    async fn zero(&self, protocol: Protocol, model: &str, sequence: u64, value: i32) -> Outcome {
        match protocol {
            Protocol::Grpc => {
                let inputs = [
                    ("INPUT", number(value)),
                    ("sequence_id", id(sequence)),
                    ("sequence_control_input", control(NONE)),
                ];
                self.grpc(request(model, &inputs)).await
            }
            Protocol::Rest => {
                let inputs = json!({ "INPUT": [[value]], "sequence_id": [sequence], "sequence_control_input": [NONE] });
                rest(&self.rig.post(&format!("/v1/models/{model}:predict"), json!({ "inputs": inputs })).await)
            }
        }
    }

    /// A step with an ordinary input of a shape that the model does not accept.
    async fn wide(&self, protocol: Protocol, model: &str, id: u64, control: u32) -> Outcome {
        match protocol {
            Protocol::Grpc => {
                let two = TensorProto { tensor_shape: shape(&[1, 2]), tensor_content: vec![0; 8].into(), ..number(0) };
                self.grpc(step(model, id, control, two)).await
            }
            Protocol::Rest => {
                let path = format!("POST /v1/models/{model}:predict");
                rest(&self.rig.http(&path, &[], body(id, control, &json!([[0, 0]])).as_bytes()).await)
            }
        }
    }

    async fn grpc(&self, request: PredictRequest) -> Outcome {
        predict(self.client.clone(), request).await
    }
}

async fn predict(mut client: PredictionServiceClient<Channel>, request: PredictRequest) -> Outcome {
    match client.predict(request).await {
        Ok(response) => Ok(answer(response.get_ref())),
        Err(status) => Err((Some(status.code()), None, status.message().to_owned())),
    }
}

fn rest(message: &crate::rig::Answer) -> Outcome {
    let value = message.json();
    if message.status != 200 {
        assert_eq!(value.as_object().map(serde_json::Map::len), Some(1), "OVMS has nothing but the text: {value}");
        return Err((None, Some(message.status), value["error"].as_str().unwrap().to_owned()));
    }
    let outputs = &value["outputs"];
    let number = outputs["OUTPUT"][0][0].as_i64().unwrap();
    Ok((i32::try_from(number).unwrap(), outputs["sequence_id"][0].as_u64()))
}

fn step(model: &str, sequence: u64, flag: u32, input: TensorProto) -> PredictRequest {
    let mut inputs = vec![("INPUT", input)];
    if flag != NONE {
        inputs.push(("sequence_control_input", control(flag)));
    }
    if sequence != 0 {
        inputs.push(("sequence_id", id(sequence)));
    }
    request(model, &inputs)
}

fn body(sequence: u64, flag: u32, input: &Value) -> String {
    let mut inputs = json!({ "INPUT": input });
    if flag != NONE {
        inputs["sequence_control_input"] = json!([flag]);
    }
    if sequence != 0 {
        inputs["sequence_id"] = json!([sequence]);
    }
    json!({ "inputs": inputs }).to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_row_of_the_contract_holds_over_both_protocols() {
    let table = Table::new().await;
    let rows = rows();
    for (n, row) in (1u64..).zip(&rows) {
        for (m, protocol) in [Protocol::Grpc, Protocol::Rest].into_iter().enumerate() {
            // A row with a request for one protocol runs only over that protocol.
            let alone = row.acts.iter().find_map(|(act, _)| match act {
                Act::Grpc(_) => Some(Protocol::Grpc),
                Act::Rest(..) => Some(Protocol::Rest),
                _ => None,
            });
            if alone.is_none_or(|alone| alone == protocol) {
                table.play(row, protocol, n * 1000 + m as u64 * 500).await;
            }
        }
    }
    for part in ["12", "13", "14", "15", "16"] {
        let count = rows.iter().filter(|row| row.section.starts_with(part)).count();
        assert!(count >= 4, "part {part} has {count} rows");
    }
}
