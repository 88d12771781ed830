//! `/v2/models/M/stream`: a WebSocket whose messages are the bodies of infer requests and answers, in order.
//!
//! A text message is JSON. A binary message is the length of its JSON in 4 bytes (little-endian), the JSON, and the tensors that the JSON
//! declares as binary. An error is the JSON of an error, with the request's `id`. As on every stream, unread answers are bounded.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::{Extension, extract::rejection::ExtensionRejection};
use bytes::Bytes;
use futures_util::SinkExt;
use serde_json::json;
use tokio::task::{JoinError, JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep, timeout};

use super::answer;
use super::body::BodyRequest;
use super::non_finite::NonFiniteWords;
use super::path::{ModelPath, Path};
use super::response_format::ResponseFormat;
use super::stream::{is_full, known_size};
use super::surface::{CallAnswer, CallNames, Kserve};
use crate::api::body::parse_object;
use crate::api::context::SEQUENCE_HEADER;
use crate::api::intake::Decoded;
use crate::api::message_meter::MessageMeter;
use crate::api::refusal::{BAD_INPUT, unsent};
use crate::api::request_count::{Receipt, RequestCount, SentAnswer};
use crate::api::{Code, RequestContext, ServerPhase, Status, Upgrades, triton};
use crate::telemetry::Surface;

/// Bytes before the JSON of a binary message.
const LENGTH: usize = 4;
/// Bytes of a client's ping or pong before its payload: head and mask.
const CONTROL_HEAD: u64 = 6;
/// Maximum time for a client to read why the server ends the connection.
const GOODBYE: Duration = Duration::from_secs(1);

pub(super) async fn open(
    State(kserve): State<Kserve>,
    Path(named): Path<ModelPath>,
    headers: HeaderMap,
    context: RequestContext,
    upgrades: Result<Extension<Upgrades>, ExtensionRejection>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Status> {
    let upgrade = upgrade.map_err(|refused| Status::new(Code::InvalidArgument, BAD_INPUT, refused.body_text()))?;
    kserve.find(&named.model, &named.version)?;
    let sequence = headers.get(SEQUENCE_HEADER).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let limit = kserve.api().limits().request();
    let keepalive = upgrades.as_ref().map(|Extension(upgrades)| upgrades.keepalive).unwrap_or_default();
    let (waiting, decoding, writing, largest) = (VecDeque::new(), None, None, None);
    // The connection's executor does not poll an upgraded connection.
    let context = RequestContext { connection: None, ..context.for_messages() };
    let meter = upgrades.as_ref().map(|Extension(upgrades)| upgrades.meter.clone()).unwrap_or_default();
    let talk = Talk { kserve, context, keepalive, meter, named, sequence, waiting, decoding, writing, largest };
    let upgrade = upgrade.max_message_size(limit).max_frame_size(limit);
    Ok(upgrade.on_upgrade(move |socket| async move {
        match upgrades {
            Ok(Extension(upgrades)) => upgrades.run(talk.run(socket)).await,
            Err(_) => talk.run(socket).await,
        }
    }))
}

struct Talk {
    kserve: Kserve,
    /// The context of each of its requests.
    context: RequestContext,
    /// The maximum silence of a client before it gets a ping, and after the ping before the server gives it up. Zero turns both off.
    keepalive: Duration,
    /// Counts the message that the client is sending.
    meter: MessageMeter,
    named: ModelPath,
    /// The sequence id from the headers.
    sequence: Option<String>,
    waiting: VecDeque<(CallAnswer, ResponseFormat)>,
    /// A large message, which another thread decodes. No other message is read meanwhile.
    decoding: Option<Decoding>,
    /// A large answer, which another thread writes. Later answers wait for it.
    writing: Option<AnswerWriter>,
    /// Size of the largest answer so far.
    largest: Option<usize>,
}

/// The requests that wait for their answers, the answer that is being written, and the size of the largest one so far.
type Answers<'t> =
    (&'t mut VecDeque<(CallAnswer, ResponseFormat)>, &'t mut Option<AnswerWriter>, &'t mut Option<usize>);

/// The thread that writes an answer, and the count of its request.
type AnswerWriter = (JoinHandle<(Message, SentAnswer)>, RequestCount);

type DecodeResult = Result<(Decoded, ResponseFormat), Status>;

/// The thread that decodes a request, and finds the request's id.
type Decoding = JoinHandle<(String, DecodeResult)>;

/// The next event of a socket.
enum SocketEvent {
    Answer(Message, Option<Receipt>),
    Message(Message),
    Decoded(String, Box<DecodeResult>),
    Gone,
    Silent,
    Closing,
}

impl Talk {
    async fn run(mut self, mut socket: WebSocket) {
        self.meter.begin(self.kserve.api().queued_permit(&self.context));
        let mut phases = self.kserve.api().phases();
        let mut is_closing = false;
        let mut is_asked = false;
        let mut silence = pin!(sleep(self.keepalive));
        loop {
            if is_closing && self.unanswered() == 0 && self.decoding.is_none() {
                return say_goodbye(&mut socket).await;
            }
            let has_room = !is_closing && self.decoding.is_none() && !self.is_full();
            let answers = (&mut self.waiting, &mut self.writing, &mut self.largest);
            let heard = tokio::select! {
                biased;
                (answer, receipt) = next_answer(answers) => SocketEvent::Answer(answer, receipt),
                (id, decoded) = decoded(&mut self.decoding) => SocketEvent::Decoded(id, Box::new(decoded)),
                message = socket.recv(), if has_room => match message {
                    Some(Ok(message)) => SocketEvent::Message(message),
                    Some(Err(_)) | None => SocketEvent::Gone,
                },
                _ = phases.wait_for(|phase| *phase == ServerPhase::Closing), if !is_closing => SocketEvent::Closing,
                // The client is not read while there is no room for answers, so its silence does not count.
                () = silence.as_mut(), if has_room && !self.keepalive.is_zero() => SocketEvent::Silent,
            };
            if matches!(heard, SocketEvent::Message(_) | SocketEvent::Answer(..) | SocketEvent::Silent) {
                silence.as_mut().reset(Instant::now() + self.keepalive);
            }
            is_asked &= !matches!(heard, SocketEvent::Message(_));
            if let SocketEvent::Message(message) = &heard {
                self.note_received(message);
            }
            let sent = match heard {
                // If the client does not read, this waits, and its messages stay unread meanwhile.
                SocketEvent::Answer(answer, receipt) => {
                    let _permit = self.kserve.api().answer_permit(&self.context, size(&answer));
                    let sent = socket.send(answer).await;
                    if let (Ok(()), Some(receipt)) = (&sent, receipt) {
                        receipt.taken();
                    }
                    sent
                }
                SocketEvent::Message(Message::Close(_)) => return return_close(&mut socket).await,
                SocketEvent::Message(message) => self.take(message, &mut socket).await,
                SocketEvent::Gone => return self.give_up(&mut socket).await,
                SocketEvent::Silent if is_asked => return,
                SocketEvent::Silent => {
                    is_asked = true;
                    socket.send(Message::Ping(Bytes::new())).await
                }
                SocketEvent::Decoded(id, decoded) => {
                    self.decoding = None;
                    self.push(id, *decoded);
                    Ok(())
                }
                SocketEvent::Closing => {
                    is_closing = true;
                    Ok(())
                }
            };
            if sent.is_err() {
                return;
            }
        }
    }

    /// Takes a message of the client. An error ends the connection.
    async fn take(&mut self, message: Message, socket: &mut WebSocket) -> Result<(), axum::Error> {
        match message {
            Message::Text(text) => self.begin(None, text.into()),
            Message::Binary(bytes) => self.begin_binary(&bytes),
            // Write the pong before reading the next message. A client that does not read its pongs is not read either.
            Message::Ping(_) => socket.flush().await?,
            Message::Pong(_) | Message::Close(_) => {}
        }
        Ok(())
    }

    /// Removes a received message from the meter. A ping may arrive between two parts of a message.
    fn note_received(&self, message: &Message) {
        match message {
            Message::Text(_) | Message::Binary(_) => self.meter.finish(),
            Message::Ping(payload) | Message::Pong(payload) => self.meter.remove(CONTROL_HEAD + payload.len() as u64),
            Message::Close(_) => {}
        }
    }

    /// If the server ended the conversation, sends the client the reason.
    async fn give_up(&self, socket: &mut WebSocket) {
        let Some(status) = self.meter.refused() else { return };
        let reason = Utf8Bytes::from_static(status.reason);
        let closes = async {
            socket.send(error(&status, "")).await?;
            socket.send(Message::Close(Some(CloseFrame { code: close_code::AGAIN, reason }))).await
        };
        // The client may not read the reason either.
        let _ = timeout(GOODBYE, closes).await;
    }

    /// Requests whose answers are not sent.
    fn unanswered(&self) -> usize {
        self.waiting.len() + usize::from(self.writing.is_some())
    }

    fn is_full(&self) -> bool {
        is_full(0, self.unanswered(), self.largest, self.kserve.api().limits().stream_unread())
    }

    fn begin_binary(&mut self, message: &Bytes) {
        let split = message.split_first_chunk::<LENGTH>().map(|(length, _)| u32::from_le_bytes(*length) as usize);
        match split.filter(|length| *length > 0) {
            Some(length) => self.begin(Some(length), message.slice(LENGTH..)),
            None => {
                let text = "a binary message begins with the length of its JSON in 4 bytes, little-endian";
                self.push(String::new(), Err(Status::new(Code::InvalidArgument, "bad_input", text)));
            }
        }
    }

    fn begin(&mut self, json_length: Option<usize>, body: Bytes) {
        let (named, sequence) = (self.named.clone(), self.sequence.clone());
        let request = BodyRequest { named, sequence, json_length, body };
        let (kserve, is_long) = (self.kserve.clone(), request.is_long());
        let permit = kserve.api().body_permit(&self.context, request.body.len());
        let decode = move || {
            let id = request_id(request.json());
            let model = kserve.find(&request.named.model, &request.named.version);
            let permit = permit.map_err(|failure| triton::status(&failure));
            (id, model.and_then(|model| request.decode(&kserve, model, permit?)))
        };
        if is_long {
            self.decoding = Some(spawn_blocking(decode));
        } else {
            let (id, decoded) = decode();
            self.push(id, decoded);
        }
    }

    fn push(&mut self, id: String, decoded: DecodeResult) {
        let ModelPath { model, version } = self.named.clone();
        let call = CallNames { surface: Surface::KserveHttp, model, version, id };
        let (request, form) = match decoded {
            Ok((decoded, form)) => {
                if self.largest.is_none() {
                    self.largest = known_size(&decoded);
                }
                (Ok(decoded), form)
            }
            Err(status) => (Err(status), ResponseFormat::default()),
        };
        self.waiting.push_back((self.kserve.begin(&self.context, call, request), form));
    }
}

/// Writes the answer to the client's Close frame, which the library has made. Without it, the client sees a broken connection (1006).
async fn return_close(socket: &mut WebSocket) {
    let _ = timeout(GOODBYE, socket.flush()).await;
}

/// Closes the socket with the reason that the server stops.
async fn say_goodbye(socket: &mut WebSocket) {
    let reason = Utf8Bytes::from_static("the server is stopping");
    let _ = socket.send(Message::Close(Some(CloseFrame { code: close_code::AWAY, reason }))).await;
}

/// Returns the next answer, in the order of the requests. If no request waits, it never completes.
/// Cancel safe: an answer that is being written stays in `writing`.
async fn next_answer((waiting, writing, largest): Answers<'_>) -> (Message, Option<Receipt>) {
    let written = match writing {
        Some((task, _)) => written(task.await),
        None => {
            let outcome = poll_fn(|cx| match waiting.front_mut() {
                Some((answer, _)) => Pin::new(answer).poll(cx),
                None => std::task::Poll::Pending,
            })
            .await;
            let Some((answer, form)) = waiting.pop_front() else { return (Message::Ping(Bytes::new()), None) };
            let CallAnswer { call, count, .. } = answer;
            let is_long = outcome.as_ref().is_ok_and(|outputs| answer::is_long(outputs, &form));
            let write = move || {
                let written = outcome.and_then(|outputs| answer::write(outputs, &form)).and_then(message);
                let outcome = SentAnswer::of(&written);
                (written.unwrap_or_else(|status| error(&status, &call.id)), outcome)
            };
            if !is_long {
                let (message, outcome) = write();
                *largest = (*largest).max(Some(size(&message)));
                return (message, Some(Receipt::new(count, outcome)));
            }
            written((&mut writing.insert((spawn_blocking(write), count)).0).await)
        }
    };
    let (message, outcome) = written;
    *largest = (*largest).max(Some(size(&message)));
    (message, writing.take().map(|(_, count)| Receipt::new(count, outcome)))
}

/// The message from the thread that wrote it, or an error if that thread panicked.
fn written(ended: Result<(Message, SentAnswer), JoinError>) -> (Message, SentAnswer) {
    ended.unwrap_or_else(|lost| {
        let text = format!("an answer could not be written: {lost}");
        let status = unsent(Status::new(Code::Internal, "internal", text));
        let message = error(&status, "");
        (message, SentAnswer::of(&Err::<(), _>(status)))
    })
}

/// The request from the thread that decodes it. If there is none, this never completes.
async fn decoded(decoding: &mut Option<Decoding>) -> (String, DecodeResult) {
    let Some(task) = decoding else { return std::future::pending().await };
    task.await.unwrap_or_else(|error| {
        let text = format!("a request could not be decoded: {error}");
        (String::new(), Err(Status::new(Code::Internal, "internal", text)))
    })
}

/// Finds the request's id, even if the rest of the request is invalid.
fn request_id(json: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct WithId {
        #[serde(default)]
        id: String,
    }
    let parse = |json: &[u8]| parse_object::<WithId>(json).map(|body| body.id);
    let id = parse(json).or_else(|error| match error.is_syntax().then(|| NonFiniteWords::find(json)).flatten() {
        Some(found) => parse(found.zeros()),
        None => Err(error),
    });
    id.unwrap_or_default()
}

fn message(body: answer::EncodedBody) -> Result<Message, Status> {
    let Some(length) = body.json_length else {
        let not_text = |_| unsent(Status::new(Code::Internal, "internal", "the answer is not UTF-8"));
        return Utf8Bytes::try_from(body.bytes).map(Message::Text).map_err(not_text);
    };
    let length = u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
    Ok(Message::Binary([length.as_slice(), &body.bytes].concat().into()))
}

fn error(status: &Status, id: &str) -> Message {
    Message::Text(json!({ "error": status.message, "reason": status.reason, "id": id }).to_string().into())
}

fn size(message: &Message) -> usize {
    match message {
        Message::Text(text) => text.len(),
        Message::Binary(bytes) => bytes.len(),
        _ => 0,
    }
}
