//! Tests invalid gRPC calls.

use std::collections::BTreeMap;

use axum::http::Request;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use prost::Message;
use serde::Deserialize;
use tonic::body::Body;
use tonic::transport::Channel;
use tower::{Service, ServiceExt};

use super::pieces::{Piece, bytes};
use super::{Rig, begins, cases, good, same};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    what: String,
    #[serde(default = "infer")]
    path: String,
    #[serde(default)]
    head: BTreeMap<String, String>,
    /// Replaces a good step.
    body: Option<Vec<Piece>>,
    #[serde(default)]
    cut: usize,
    /// Added to the announced length.
    #[serde(default)]
    length: i64,
    #[serde(default)]
    flag: u8,
    /// Sends no frame at all.
    #[serde(default)]
    empty: bool,
    /// Sends only the beginning of a frame.
    #[serde(default)]
    half: bool,
    number: i32,
    text: String,
}

fn infer() -> String {
    "/inference.GRPCInferenceService/ModelInfer".to_owned()
}

impl Case {
    fn frame(&self, id: i64) -> Vec<u8> {
        let mut message = match &self.body {
            Some(pieces) => bytes(pieces, id),
            None => good("sum", id).encode_to_vec(),
        };
        message.truncate(message.len() - self.cut);
        let text = u32::try_from(message.len() as i64 + self.length).unwrap();
        let mut frame = [&[self.flag][..], &text.to_be_bytes(), &message].concat();
        if self.half {
            frame.truncate(3);
        }
        if self.empty { Vec::new() } else { frame }
    }

    async fn send(&self, rig: &Rig, channel: &mut Channel, id: i64) -> Result<(), String> {
        let address = rig.server.grpc;
        let mut request = Request::post(format!("http://{address}{}", self.path))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        for (key, value) in &self.head {
            request = request.header(key, value);
        }
        let request = request.body(Body::new(Full::new(Bytes::from(self.frame(id))))).unwrap();
        let answer =
            channel.ready().await.map_err(|e| e.to_string())?.call(request).await.map_err(|e| format!("{e:?}"))?;
        same("status", &answer.status().as_u16(), &200)?;
        let (parts, body) = answer.into_parts();
        let collected = body.collect().await.map_err(|e| format!("{e:?}"))?;
        let trailers = collected.trailers().cloned().unwrap_or(parts.headers);
        let status = tonic::Status::from_header_map(&trailers).ok_or("no status")?;
        if status.code() as i32 != self.number {
            return Err(format!("want {}, got {status:?}", self.number));
        }
        begins(status.message(), &self.text, id)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn frames_over_grpc_that_are_no_call_are_refused() {
    let rig = Rig::new().await;
    let address = format!("http://{}", rig.server.grpc);
    let mut channel = Channel::from_shared(address).unwrap().connect().await.unwrap();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for case in cases::<Case>("grpc") {
        count += 1;
        wrong.extend(rig.check(&case.what, "sum", async |id| case.send(&rig, &mut channel, id).await).await);
    }
    drop(channel);
    rig.assert_well(&wrong, count);
}
