//! The queue of one stream's replies, between the task that answers and the socket that sends.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio_stream::Stream;

use crate::api::request_count::Receipt;

/// The end of the queue that takes replies in.
#[derive(Debug)]
pub(crate) struct Sender<T>(Arc<Mutex<ReplyQueue<T>>>);

/// The end of the queue that hands replies out. Dropping it notifies the sender.
#[derive(Debug)]
pub struct Replies<T>(Arc<Mutex<ReplyQueue<T>>>);

#[derive(Debug)]
struct ReplyQueue<T> {
    replies: VecDeque<(T, usize, Option<Receipt>)>,
    /// Size of the replies in the queue.
    bytes: usize,
    /// Set once no more replies come, with the status that ends the stream, if there is one.
    ended: Option<Option<tonic::Status>>,
    /// Whether the reader has gone.
    deserted: bool,
    taker: Option<Waker>,
    putter: Option<Waker>,
    /// The sender wakes once the queue holds at most this many bytes.
    room_at: Option<usize>,
}

pub(crate) fn reply_queue<T>() -> (Sender<T>, Replies<T>) {
    let queue = Arc::new(Mutex::new(ReplyQueue {
        replies: VecDeque::new(),
        bytes: 0,
        ended: None,
        deserted: false,
        taker: None,
        putter: None,
        room_at: None,
    }));
    (Sender(Arc::clone(&queue)), Replies(queue))
}

impl<T> Sender<T> {
    /// Appends a reply of this many bytes. Its receipt counts once the reply is taken.
    pub(crate) fn push(&self, reply: T, bytes: usize, receipt: Option<Receipt>) {
        let mut queue = self.0.lock();
        queue.bytes = queue.bytes.saturating_add(bytes);
        queue.replies.push_back((reply, bytes, receipt));
        wake(&mut queue.taker);
    }

    /// Size of the replies in the queue; `None` once the reader has gone. Registers the task to be woken by [`Sender::wait_for_room`], or
    /// when the reader goes.
    pub(crate) fn unread(&self, cx: &Context<'_>) -> Option<usize> {
        let mut queue = self.0.lock();
        if !queue.putter.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            queue.putter = Some(cx.waker().clone());
        }
        (!queue.deserted).then_some(queue.bytes)
    }

    /// Wakes the last task that called [`Sender::unread`] once the queue holds at most this many bytes.
    pub(crate) fn wait_for_room(&self, bytes: usize) {
        let mut queue = self.0.lock();
        if queue.bytes > bytes {
            queue.room_at = Some(bytes);
        } else {
            wake(&mut queue.putter);
        }
    }

    /// Ends the stream after the replies in the queue.
    pub(crate) fn end(&self, status: Option<tonic::Status>) {
        let mut queue = self.0.lock();
        queue.ended.get_or_insert(status);
        wake(&mut queue.taker);
    }
}

/// Ends the stream with an error if its task ended early, so that the reader wakes.
impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.end(Some(tonic::Status::unavailable("the connection has ended")));
    }
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

impl<T> Stream for Replies<T> {
    type Item = Result<T, tonic::Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut queue = self.0.lock();
        if let Some((reply, bytes, receipt)) = queue.replies.pop_front() {
            queue.bytes = queue.bytes.saturating_sub(bytes);
            if queue.room_at.is_some_and(|at| queue.bytes <= at) {
                queue.room_at = None;
                wake(&mut queue.putter);
            }
            drop(queue);
            if let Some(receipt) = receipt {
                receipt.taken();
            }
            return Poll::Ready(Some(Ok(reply)));
        }
        if queue.ended.is_none() {
            queue.taker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(queue.ended.as_mut().and_then(Option::take).map(Err))
    }
}

impl<T> Drop for Replies<T> {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.deserted = true;
        queue.replies.clear();
        wake(&mut queue.putter);
    }
}
