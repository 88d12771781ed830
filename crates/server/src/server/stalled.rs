//! Ends answers of HTTP/2 whose clients do not take them, although they answer pings.
//!
//! A stream that waits for its client's window is reset after `connections.write`. That cannot reach an answer whose end the library has
//! already: if the client takes no byte of any answer for twice that time, the connection ends.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::Executor;
use tokio::time::{Instant, Sleep, sleep};

use super::activity::{Activity, BodyPoll};
use crate::executor::ExecutorHandle;

/// Runs the tasks of the HTTP/2 library, one for each request, within the connection's task.
#[derive(Debug, Clone)]
pub(super) struct StreamExecutor {
    pub(super) tasks: ExecutorHandle,
    pub(super) activity: Activity,
    pub(super) limit: Duration,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for StreamExecutor {
    fn execute(&self, stream: F) {
        self.tasks.spawn(until_stalled(stream, self.activity.clone(), self.limit));
    }
}

/// Runs the task of a stream. If the client's window leaves no room for the next part of the answer for this long, the task is dropped,
/// which resets the stream.
async fn until_stalled(stream: impl Future<Output = ()>, activity: Activity, limit: Duration) {
    let mut stream = pin!(stream);
    // Runs while a part waits.
    let mut stalled: Option<Pin<Box<Sleep>>> = None;
    poll_fn(|cx| {
        activity.take_poll();
        if stream.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        match (activity.take_poll(), &mut stalled) {
            (BodyPoll::Nothing, _) => {}
            (BodyPoll::Waits, stalled) => *stalled = None,
            (BodyPoll::Part, Some(stalled)) => stalled.as_mut().reset(Instant::now() + limit),
            (BodyPoll::Part, stalled) => *stalled = Some(Box::pin(sleep(limit))),
        }
        let Some(stalled) = &mut stalled else { return Poll::Pending };
        ready!(stalled.as_mut().poll(cx));
        tracing::debug!("a stream is reset: its client does not take the answer");
        Poll::Ready(())
    })
    .await;
}

/// Finds a connection whose client takes no byte of its answers.
#[derive(Debug)]
pub(super) struct StalledConnection {
    activity: Activity,
    limit: Duration,
    /// Runs while answers are being sent.
    look: Option<Pin<Box<Sleep>>>,
}

impl StalledConnection {
    pub(super) fn new(activity: Activity, limit: Duration) -> StalledConnection {
        StalledConnection { activity, limit, look: None }
    }

    /// Completes if the client has taken no byte for the limit.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.activity.has_parts() {
            self.look = None;
            return Poll::Pending;
        }
        let (limit, activity) = (self.limit, &self.activity);
        let look = self.look.get_or_insert_with(|| {
            // What was taken before does not count.
            activity.is_stalled();
            Box::pin(sleep(limit))
        });
        while look.as_mut().poll(cx).is_ready() {
            if activity.is_stalled() {
                return Poll::Ready(());
            }
            look.as_mut().reset(Instant::now() + limit);
        }
        Poll::Pending
    }
}
