//! Tests `ModelStreamInfer`.

use sequor::api::ServerLimits;
use sequor::config::units::Size;
use sequor::server::Drained;
use sequor_proto::infer_parameter::ParameterChoice;
use sequor_proto::{InferTensorContents, ModelInferRequest, ModelInferResponse, ModelStreamInferResponse};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Streaming};

use crate::rig::{END, Rig, START, parameter, request, step, values};

type Sender = mpsc::Sender<ModelInferRequest>;

async fn open(rig: &Rig, metadata: Option<&'static str>) -> (Sender, Streaming<ModelStreamInferResponse>) {
    let (sender, receiver) = mpsc::channel(4096);
    let mut request = Request::new(ReceiverStream::new(receiver));
    if let Some(key) = metadata {
        request.metadata_mut().insert(key, "true".parse().unwrap());
    }
    let replies = rig.client().await.model_stream_infer(request).await.unwrap().into_inner();
    (sender, replies)
}

async fn next(replies: &mut Streaming<ModelStreamInferResponse>) -> Result<ModelInferResponse, (String, String)> {
    let reply = replies.next().await.expect("a reply").expect("no end");
    let answer = reply.infer_response.expect("an answer, also to what failed");
    if reply.error_message.is_empty() { Ok(answer) } else { Err((answer.id, reply.error_message)) }
}

#[tokio::test]
async fn stream_replies_keep_the_order_of_their_requests_across_models() {
    let slow = ("slow", crate::rig::SAME, "identity INT32 dims=-1 cost=200000");
    let rig = Rig::with(ServerLimits::default(), &[slow]);
    let (sender, mut replies) = open(&rig, None).await;
    for n in 0..300 {
        let model = if n % 100 == 0 { "slow" } else { "same" };
        sender.send(request(model, &n.to_string(), &[n])).await.unwrap();
    }
    for n in 0..300 {
        let answer = next(&mut replies).await.unwrap();
        assert_eq!((answer.id.as_str(), values(&answer)), (n.to_string().as_str(), vec![n]));
        assert!(answer.parameters.is_empty());
    }
    drop(sender);
    assert!(replies.next().await.is_none());
}

#[tokio::test]
async fn steps_sent_ahead_are_run_in_their_order() {
    let rig = Rig::new();
    let (sender, mut replies) = open(&rig, None).await;
    for n in 0..100 {
        for sequence in [7, 8, 9] {
            let flags: &[&str] = if n == 0 { &[START] } else { &[] };
            sender.send(step(sequence, "", n, flags)).await.unwrap();
        }
    }
    for n in 0..100 {
        for _ in 0..3 {
            assert_eq!(values(&next(&mut replies).await.unwrap()), [n * (n + 1) / 2]);
        }
    }
}

#[tokio::test]
async fn errors_are_replies_and_the_stream_continues() {
    let rig = Rig::new();
    let (sender, mut replies) = open(&rig, None).await;
    let mut odd = request("same", "odd", &[1]);
    odd.inputs[0].datatype = "FLOAT".to_owned();
    let wrong = [step(5, "no start", 1, &[]), request("nope", "no model", &[1]), odd, step(6, "run", -13, &[START])];
    for request in wrong {
        sender.send(request).await.unwrap();
    }
    sender.send(request("same", "good", &[1])).await.unwrap();
    let beginnings = [
        ("no start", "inference request for sequence 5 to model 'sum' must specify the START flag", "never_started"),
        ("no model", "Request for unknown model: 'nope' is not found", "not_served"),
        ("odd", "[request id: odd] inference input 'INPUT' data-type is '<invalid>', but model 'same'", "bad_input"),
        ("run", "", "run_failed"),
    ];
    for (id, text, reason) in beginnings {
        let reply = replies.next().await.unwrap().unwrap();
        let answer = reply.infer_response.unwrap();
        assert_eq!(answer.id, id);
        assert!(reply.error_message.starts_with(text) && !reply.error_message.is_empty(), "{}", reply.error_message);
        let message = answer.parameters["sequor_reason"].parameter_choice.clone();
        assert_eq!(message, Some(ParameterChoice::StringParam(reason.to_owned())));
    }
    assert_eq!(next(&mut replies).await.unwrap().id, "good");
    let counted = rig.metrics.encode();
    let line =
        r#"sequor_requests_total{model="sum",api="kserve_grpc",code="INVALID_ARGUMENT",reason="never_started"} 1"#;
    assert!(counted.contains(line), "{counted}");
}

#[tokio::test]
async fn a_strict_stream_ends_with_its_first_error() {
    let rig = Rig::new();
    let (sender, mut replies) = open(&rig, Some("triton_grpc_error")).await;
    sender.send(request("same", "a", &[1])).await.unwrap();
    sender.send(request("nope", "b", &[1])).await.unwrap();
    assert_eq!(next(&mut replies).await.unwrap().id, "a");
    let status = replies.next().await.unwrap().unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::NotFound, "Request for unknown model: 'nope' is not found"));
    assert_eq!(status.metadata().get("sequor-reason").unwrap(), "not_served");
}

#[tokio::test]
async fn the_last_answer_of_a_request_is_marked_as_final_if_requested() {
    let rig = Rig::new();
    let (sender, mut replies) = open(&rig, None).await;
    let mut asked = request("same", "", &[1]);
    let flag = parameter(ParameterChoice::BoolParam(true));
    asked.parameters.insert("triton_enable_empty_final_response".to_owned(), flag.clone());
    sender.send(asked).await.unwrap();
    assert_eq!(next(&mut replies).await.unwrap().parameters["triton_final_response"], flag);
}

#[tokio::test]
async fn a_dropped_stream_cancels_its_requests_in_flight() {
    // As many as a stream admits before it knows the size of an answer.
    const OF_STREAM: i32 = 8;
    const STREAMS: i32 = 6;
    let (rig, gate) = Rig::slow().await;
    gate.close();
    let mut streams = Vec::new();
    for stream in 0..STREAMS {
        let (sender, replies) = open(&rig, None).await;
        for n in stream * OF_STREAM..(stream + 1) * OF_STREAM {
            // Different lengths do not batch, so each request is a separate run.
            sender.send(request("slow", "", &vec![n; usize::try_from(n).unwrap() + 1])).await.unwrap();
        }
        streams.push((sender, replies));
    }
    rig.until(|rig| rig.metrics.in_flight().get() == i64::from(STREAMS * OF_STREAM)).await;
    rig.until(|_| gate.held() == 1).await;
    drop(streams);
    rig.until(|rig| rig.metrics.model("slow", 1).statistics().fail.count >= 43).await;
    gate.open();
    rig.until(|rig| rig.metrics.in_flight().get() == 0).await;
    let statistics = rig.metrics.model("slow", 1).statistics();
    assert!(statistics.success.count <= 6, "{statistics:?}");
}

#[tokio::test]
async fn a_stream_admits_few_requests_before_the_size_of_an_answer_is_known() {
    const FEW: i64 = 8;
    let (rig, gate) = Rig::slow().await;
    gate.close();
    let (sender, mut replies) = open(&rig, None).await;
    for n in 0..100 {
        sender.send(request("slow", &n.to_string(), &[n])).await.unwrap();
    }
    rig.until(|rig| rig.metrics.in_flight().get() >= FEW).await;
    // Meanwhile, the server answers another stream many times.
    let (other, mut refusals) = open(&rig, None).await;
    for _ in 0..50 {
        other.send(request("nope", "", &[1])).await.unwrap();
        next(&mut refusals).await.unwrap_err();
    }
    assert_eq!(rig.metrics.in_flight().get(), FEW);
    gate.open();
    for n in 0..100 {
        assert_eq!(next(&mut replies).await.unwrap().id, n.to_string());
    }
}

/// Sends `count` requests with answers of 256 KiB each, and reads no answers for a while.
async fn does_not_read(metadata: Option<&'static str>, count: u64, large: ModelInferRequest) {
    let limits = ServerLimits { stream_unread: Size(1 << 20), ..ServerLimits::default() };
    let rig = Rig::with(limits, &[]);
    let (sender, mut replies) = open(&rig, metadata).await;
    // The sockets can take some hundred KiB of the answers.
    let sends = tokio::spawn(async move {
        for n in 0..count {
            if sender.send(ModelInferRequest { id: n.to_string(), ..large.clone() }).await.is_err() {
                return;
            }
        }
    });
    let ran = |rig: &Rig| rig.metrics.model("same", 1).statistics().success.count;
    rig.until(|rig| ran(rig) >= 4).await;
    // Meanwhile, many requests of another client run.
    let mut other = rig.client().await;
    for n in 0..200 {
        let answer = other.model_infer(step(1, "", n, if n == 0 { &[START] } else { &[] })).await.unwrap();
        assert_eq!(values(answer.get_ref()), [n * (n + 1) / 2]);
    }
    let held = ran(&rig);
    assert!(held < count / 2, "{held} of {count} were run though the client does not read");
    for n in 0..count {
        assert_eq!(next(&mut replies).await.unwrap().id, n.to_string());
    }
    sends.await.unwrap();
}

#[tokio::test]
async fn unread_replies_of_a_client_are_limited_and_affect_no_other_client() {
    does_not_read(None, 100, request("same", "", &vec![1; 64 << 10])).await;
}

#[tokio::test]
async fn unread_typed_replies_of_a_client_are_limited() {
    let numbers = vec![i32::MAX; 64 << 10];
    let mut typed = request("same", "", &numbers);
    typed.raw_input_contents.clear();
    typed.inputs[0].contents = Some(InferTensorContents { int_contents: numbers, ..Default::default() });
    does_not_read(Some("x-typed-contents"), 40, typed).await;
}

#[tokio::test]
async fn a_stopping_server_answers_what_it_has_and_ends_the_stream() {
    let (rig, gate) = Rig::slow().await;
    let (sender, mut replies) = open(&rig, None).await;
    sender.send(step(3, "first", 1, &[START])).await.unwrap();
    assert_eq!(next(&mut replies).await.unwrap().id, "first");
    gate.close();
    sender.send(request("slow", "second", &[1])).await.unwrap();
    rig.until(|_| gate.held() == 1).await;
    let reads = tokio::spawn(async move {
        assert_eq!(next(&mut replies).await.unwrap().id, "second");
        replies.next().await.unwrap().unwrap_err()
    });
    assert_eq!(rig.drain_while(|| gate.open()).await, Drained::Clean);
    let status = reads.await.unwrap();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(status.metadata().get("sequor-reason").unwrap(), "draining");
    drop(sender);
}

#[tokio::test]
async fn a_sequence_outlives_its_stream() {
    let rig = Rig::new();
    let (sender, mut replies) = open(&rig, None).await;
    sender.send(step(4, "", 40, &[START])).await.unwrap();
    assert_eq!(values(&next(&mut replies).await.unwrap()), [40]);
    drop((sender, replies));
    let (sender, mut replies) = open(&rig, None).await;
    sender.send(step(4, "", 2, &[END])).await.unwrap();
    assert_eq!(values(&next(&mut replies).await.unwrap()), [42]);
}
