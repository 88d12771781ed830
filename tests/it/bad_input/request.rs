//! Tests requests that are well-formed but wrong: the same over every surface.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use sequor_proto::infer_parameter::ParameterChoice;
use sequor_proto::model_infer_request::InferRequestedOutputTensor;
use sequor_proto::{InferParameter, InferTensorContents, ModelInferRequest};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tonic::metadata::{Ascii, MetadataKey};

use super::pieces::hex;
use super::{Rig, begins, cases, good, http, same};
use crate::steps::parameter;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    what: String,
    #[serde(default = "sum")]
    model: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    id: String,
    parameters: Option<BTreeMap<String, toml::Value>>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    inputs: Option<Vec<Input>>,
    #[serde(default)]
    outputs: Vec<String>,
    /// Parameters of outputs, by output.
    #[serde(default)]
    output_parameters: BTreeMap<String, toml::Value>,
    /// Replaces the inputs' bytes.
    raw: Option<Vec<String>>,
    /// `int_contents` of the first input.
    list: Option<Vec<i32>>,
    over: Option<Vec<String>>,
    code: String,
    #[serde(default = "bad_input")]
    reason: String,
    text: String,
    http_text: Option<String>,
}

fn sum() -> String {
    "sum".to_owned()
}

fn bad_input() -> String {
    "bad_input".to_owned()
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Input {
    name: Option<String>,
    datatype: Option<String>,
    shape: Option<Vec<i64>>,
    hex: Option<String>,
}

/// The HTTP status of a gRPC code.
fn status(code: &str) -> u16 {
    match code {
        "INVALID_ARGUMENT" => 400,
        "NOT_FOUND" => 404,
        "FAILED_PRECONDITION" => 412,
        "UNIMPLEMENTED" => 501,
        other => panic!("{other}"),
    }
}

/// Converts parameters of a file of cases.
fn read(parameters: &BTreeMap<String, toml::Value>, id: i64) -> BTreeMap<String, InferParameter> {
    let choice = |value: &toml::Value| match value {
        toml::Value::String(text) if text == "$ID" => ParameterChoice::Int64Param(id),
        toml::Value::String(text) => ParameterChoice::StringParam(text.clone()),
        toml::Value::Integer(n) => ParameterChoice::Int64Param(*n),
        toml::Value::Float(x) => ParameterChoice::DoubleParam(*x),
        toml::Value::Boolean(flag) => ParameterChoice::BoolParam(*flag),
        other => panic!("{other}"),
    };
    parameters.iter().map(|(key, value)| (key.clone(), parameter(choice(value)))).collect()
}

/// Converts parameters to JSON.
fn write(parameters: &BTreeMap<String, InferParameter>) -> Value {
    let value = |p: &InferParameter| match p.parameter_choice.as_ref().unwrap() {
        ParameterChoice::Int64Param(n) => json!(n),
        ParameterChoice::StringParam(text) => json!(text),
        ParameterChoice::DoubleParam(x) => json!(x),
        ParameterChoice::BoolParam(flag) => json!(flag),
        ParameterChoice::Uint64Param(n) => json!(n),
    };
    parameters.iter().map(|(key, p)| (key.clone(), value(p))).collect::<serde_json::Map<_, _>>().into()
}

impl Case {
    fn is_over(&self, surface: &str) -> bool {
        self.over.as_ref().is_none_or(|over| over.iter().any(|name| name == surface))
    }

    fn json_text(&self) -> &str {
        self.http_text.as_ref().unwrap_or(&self.text)
    }

    fn request(&self, id: i64) -> ModelInferRequest {
        let mut request = good(&self.model, id);
        (request.model_version, request.id) = (self.version.clone(), self.id.clone());
        if let Some(parameters) = &self.parameters {
            request.parameters = read(parameters, id);
        }
        if let Some(inputs) = &self.inputs {
            let (template, data) = (request.inputs[0].clone(), request.raw_input_contents[0].clone());
            (request.inputs, request.raw_input_contents) = (Vec::new(), Vec::new());
            for input in inputs {
                let mut made = template.clone();
                made.name = input.name.clone().unwrap_or(made.name);
                made.datatype = input.datatype.clone().unwrap_or(made.datatype);
                made.shape = input.shape.clone().unwrap_or(made.shape);
                request.inputs.push(made);
                request
                    .raw_input_contents
                    .push(input.hex.as_ref().map_or_else(|| data.clone(), |text| hex(text).into()));
            }
        }
        if let Some(raw) = &self.raw {
            request.raw_input_contents = raw.iter().map(|text| Bytes::from(hex(text))).collect();
        }
        if let Some(list) = &self.list {
            request.inputs[0].contents = Some(InferTensorContents { int_contents: list.clone(), ..Default::default() });
        }
        let output = |name: &String| InferRequestedOutputTensor {
            name: name.clone(),
            parameters: read(&self.output_parameters, id),
        };
        request.outputs = self.outputs.iter().map(output).collect();
        request
    }

    /// The request as JSON with binary data behind it, and the length of the JSON.
    fn body(&self, id: i64) -> (usize, Vec<u8>) {
        let request = self.request(id);
        let parameters = write(&request.parameters);
        let inputs: Vec<Value> = request
            .inputs
            .iter()
            .zip(&request.raw_input_contents)
            .map(|(input, data)| {
                json!({ "name": input.name, "shape": input.shape, "datatype": input.datatype,
                    "parameters": { "binary_data_size": data.len() } })
            })
            .collect();
        let output = |output: &InferRequestedOutputTensor| json!({ "name": output.name, "parameters": write(&output.parameters) });
        let outputs: Vec<Value> = request.outputs.iter().map(output).collect();
        let mut value = json!({ "parameters": parameters, "inputs": inputs, "outputs": outputs });
        if !self.id.is_empty() {
            value["id"] = json!(self.id);
        }
        let json = value.to_string().into_bytes();
        (json.len(), [json, request.raw_input_contents.concat()].concat())
    }

    fn path(&self, verb: &str) -> String {
        let version = if self.version.is_empty() { String::new() } else { format!("/versions/{}", self.version) };
        format!("/v2/models/{}{version}/{verb}", self.model)
    }

    // === over each surface ===

    fn metadata<T>(&self, request: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(request);
        for (key, value) in &self.metadata {
            request.metadata_mut().insert(key.parse::<MetadataKey<Ascii>>().unwrap(), value.parse().unwrap());
        }
        request
    }

    async fn over_grpc(&self, rig: &Rig, id: i64) -> Result<(), String> {
        let answer = rig.client.clone().model_infer(self.metadata(self.request(id))).await;
        let refused = answer.err().ok_or("was taken")?;
        begins(refused.message(), &self.text, id)?;
        same("code", &format!("{:?}", refused.code()), &camel(&self.code))?;
        let reason = refused.metadata().get("sequor-reason").map(|reason| reason.to_str().unwrap().to_owned());
        same("reason", &reason, &Some(self.reason.clone()))
    }

    async fn over_stream(&self, rig: &Rig, id: i64) -> Result<(), String> {
        let requests = tokio_stream::iter([self.request(id)]);
        let answers =
            rig.client.clone().model_stream_infer(self.metadata(requests)).await.map_err(|s| s.to_string())?;
        let reply = answers.into_inner().next().await.ok_or("no reply")?.map_err(|s| s.to_string())?;
        begins(&reply.error_message, &self.text, id)?;
        let answer = reply.infer_response.ok_or("no answer beside the error")?;
        same("id", &answer.id, &self.id)?;
        let reason = answer.parameters.get("sequor_reason").and_then(|p| p.parameter_choice.clone());
        same("reason", &reason, &Some(ParameterChoice::StringParam(self.reason.clone())))
    }

    fn over_http(&self, rig: &Rig, id: i64) -> Result<(), String> {
        let (json_length, body) = self.body(id);
        let mut head = vec![format!("inference-header-content-length: {json_length}")];
        head.extend(self.metadata.iter().map(|(key, value)| format!("{key}: {value}")));
        head.push(format!("content-length: {}", body.len()));
        let sent =
            [format!("POST {} HTTP/1.1\r\n{}\r\n\r\n", self.path("infer"), head.join("\r\n")).into_bytes(), body];
        let answer = http::ask(rig.server.http, &sent.concat(), false)?;
        begins(&answer.error()?, self.json_text(), id)?;
        same("status", &answer.status, &status(&self.code))?;
        same("reason", &answer.reason, &Some(self.reason.clone()))
    }

    async fn over_websocket(&self, rig: &Rig, id: i64) -> Result<(), String> {
        let mut request = format!("ws://{}{}", rig.server.http, self.path("stream")).into_client_request().unwrap();
        for (key, value) in &self.metadata {
            let name: axum::http::HeaderName = key.parse().unwrap();
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        let stream = TcpStream::connect(rig.server.http).await.unwrap();
        let (mut socket, _) = client_async(request, stream).await.map_err(|e| e.to_string())?;
        let (json_length, body) = self.body(id);
        let message = [&u32::try_from(json_length).unwrap().to_le_bytes()[..], &body].concat();
        socket.send(Message::binary(message)).await.map_err(|e| e.to_string())?;
        let reply = socket.next().await.ok_or("no reply")?.map_err(|e| e.to_string())?;
        let object: Value = serde_json::from_slice(&reply.into_data()).map_err(|e| e.to_string())?;
        begins(object["error"].as_str().unwrap_or_default(), self.json_text(), id)?;
        same("id", &object["id"], &json!(self.id))?;
        same("reason", &object["reason"], &json!(self.reason))
    }
}

/// tonic's spelling of a code's name.
fn camel(code: &str) -> String {
    let word = |word: &str| word[..1].to_owned() + &word[1..].to_ascii_lowercase();
    code.split('_').map(word).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn requests_that_are_wrong_are_refused_alike_over_every_surface() {
    let rig = Rig::new().await;
    let (mut wrong, mut count) = (Vec::new(), 0);
    for case in cases::<Case>("request") {
        for surface in ["grpc", "stream", "http", "websocket"] {
            if !case.is_over(surface) {
                continue;
            }
            count += 1;
            let what = format!("{} over {surface}", case.what);
            let send = async |id: i64| match surface {
                "grpc" => case.over_grpc(&rig, id).await,
                "stream" => case.over_stream(&rig, id).await,
                "http" => case.over_http(&rig, id),
                _ => case.over_websocket(&rig, id).await,
            };
            wrong.extend(rig.check(&what, &case.model, send).await);
        }
    }
    rig.assert_well(&wrong, count);
}
