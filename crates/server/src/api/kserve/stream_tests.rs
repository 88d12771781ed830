//! Tests the queue between answers and their reader, and when a stream is full. `tests/surface` tests streams over sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Wake, Waker};

use sequor_core::{DataType, Shape};

use super::*;
use crate::api::kserve::reply_queue::reply_queue;
use crate::api::request_count::RequestCount;
use crate::model::{InferAnswer, NamedTensor, Tensor};
use crate::telemetry::{Metrics, Surface};

#[derive(Default)]
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Woken {
    fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn a_stream_always_accepts_one_answer_and_more_only_within_its_limit() {
    assert!(!is_full(0, 0, Some(usize::MAX), 100));
    assert!(!is_full(99, 0, Some(50), 100));
    assert!(is_full(100, 0, Some(1), 100));
    assert!(!is_full(0, 1, Some(99), 100));
    assert!(is_full(1, 1, Some(99), 100));
    assert!(is_full(0, usize::MAX, Some(2), 100));
    // Until an answer is known, a few are admitted.
    assert!(!is_full(0, UNKNOWN - 1, None, usize::MAX) && is_full(0, UNKNOWN, None, usize::MAX));
    assert!(is_full(0, 2, None, GUESS));
}

#[test]
fn a_reply_counts_its_lists_as_well_as_its_bytes() {
    let named = |dtype, data: Vec<u8>| NamedTensor {
        name: "y".to_owned(),
        tensor: Tensor { dtype, shape: Shape::new(&[1, 1]), data: data.into() },
    };
    let size = |typed: bool, output: NamedTensor| {
        let form = ResponseFormat { typed, ..ResponseFormat::default() };
        let (model, id, parameters) = ("m".to_owned(), String::new(), Vec::new());
        let answer = InferAnswer { model, version: 1, id, outputs: vec![output], parameters, held: None };
        let infer_response = Some(encode::answer(answer, &form).unwrap());
        reply_size(&ModelStreamInferResponse { error_message: String::new(), infer_response }) - FRAME
    };
    let numbers = || named(DataType::Int32, vec![0; 4000]);
    assert_eq!((size(false, numbers()), size(true, numbers())), (4000, 4000));
    // A list has four bytes for each number, also for numbers of one byte.
    assert_eq!(size(true, named(DataType::Uint8, vec![0; 1000])), 4000);
    let texts = || named(DataType::Bytes, [&5u32.to_le_bytes()[..], b"hello"].concat());
    assert!(size(false, texts()) == 9 && size(true, texts()) >= 5 + 24);
}

#[test]
fn the_sender_is_woken_when_there_is_room_or_the_reader_is_dropped() {
    let (putter, taker) = (Arc::new(Woken::default()), Arc::new(Woken::default()));
    let (wakers, (sender, mut replies)) = ([&putter, &taker].map(|w| Waker::from(Arc::clone(w))), reply_queue::<u32>());
    let [putting, mut taking] = [&wakers[0], &wakers[1]].map(Context::from_waker);
    assert!(Pin::new(&mut replies).poll_next(&mut taking).is_pending());
    assert_eq!(sender.unread(&putting), Some(0));
    for n in 0..4 {
        sender.push(n, 10, None);
    }
    assert_eq!((taker.count(), sender.unread(&putting)), (1, Some(40)));
    sender.wait_for_room(20);
    for want in 0..2 {
        assert_eq!(putter.count(), 0);
        let Poll::Ready(Some(Ok(got))) = Pin::new(&mut replies).poll_next(&mut taking) else { panic!() };
        assert_eq!(got, want);
    }
    assert_eq!((putter.count(), sender.unread(&putting)), (1, Some(20)));
    drop(replies);
    assert_eq!((putter.count(), sender.unread(&putting)), (2, None));
}

#[test]
fn queued_replies_are_delivered_before_the_end() {
    let (sender, mut replies) = reply_queue::<u32>();
    let mut cx = Context::from_waker(Waker::noop());
    sender.push(1, 1, None);
    sender.end(Some(tonic::Status::unavailable("x")));
    drop(sender);
    let mut next = || Pin::new(&mut replies).poll_next(&mut cx);
    assert!(matches!(next(), Poll::Ready(Some(Ok(1)))));
    assert!(matches!(next(), Poll::Ready(Some(Err(status))) if status.message() == "x"));
    assert!(matches!(next(), Poll::Ready(None)));
}

#[test]
fn a_reply_counts_when_taken_and_an_untaken_reply_counts_as_cancelled() {
    let metrics = Metrics::new(false);
    let counters = metrics.model("m", 1).requests.clone();
    let count = || RequestCount::new(counters.clone(), Surface::KserveGrpc, None);
    let refusal = SentAnswer::of(&Err::<(), _>(Status::new(Code::Internal, "run_failed", "no")));
    let counted = |code: &str, reason: &str| {
        let series =
            format!("sequor_requests_total{{model=\"m\",api=\"kserve_grpc\",code=\"{code}\",reason=\"{reason}\"}} ");
        metrics.encode().lines().find_map(|line| line.strip_prefix(&series).map(str::to_owned))
    };
    let (sender, mut replies) = reply_queue::<u32>();
    let mut cx = Context::from_waker(Waker::noop());
    for (n, outcome) in [(0, SentAnswer::Outputs), (1, refusal), (2, SentAnswer::Outputs)] {
        sender.push(n, 1, Some(Receipt::new(count(), outcome)));
    }
    assert_eq!(counted("OK", ""), None);
    for n in 0..2 {
        assert!(matches!(Pin::new(&mut replies).poll_next(&mut cx), Poll::Ready(Some(Ok(taken))) if taken == n));
    }
    let one = Some("1".to_owned());
    assert_eq!((counted("OK", ""), counted("INTERNAL", "run_failed")), (one.clone(), one.clone()));
    assert_eq!(counted("CANCELLED", "cancelled"), None);
    drop(replies);
    assert_eq!((counted("OK", ""), counted("CANCELLED", "cancelled")), (one.clone(), one));
}
