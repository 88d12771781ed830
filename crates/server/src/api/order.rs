//! The order of the requests of one connection, and work that takes too long for the connection's task.
//!
//! Requests of a connection are admitted in the order in which their messages were complete. A large message is decompressed on another
//! thread. Its request keeps its turn, and later requests of the connection wait for it.

use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::error::Failure;

/// Maximum bytes that a connection's task decompresses or copies for one message. Larger messages go to another thread.
pub(crate) const INLINE_BYTES: usize = 256 << 10;

/// The order of one connection. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct ConnectionOrder(Arc<Mutex<()>>);

/// The turn of one request. Until it is dropped, no other request of the connection is admitted.
#[derive(Debug)]
pub(crate) struct Turn(#[allow(dead_code, reason = "only its drop matters")] OwnedMutexGuard<()>);

impl ConnectionOrder {
    /// Waits until every earlier request of the connection is admitted.
    pub(crate) async fn turn(&self) -> Turn {
        match self.try_turn() {
            Some(turn) => turn,
            None => Turn(Arc::clone(&self.0).lock_owned().await),
        }
    }

    /// Takes the turn, if every earlier request is admitted.
    pub(crate) fn try_turn(&self) -> Option<Turn> {
        Arc::clone(&self.0).try_lock_owned().ok().map(Turn)
    }
}

/// Runs short work in place, and long work on a thread for blocking work. Cancel safe: work that has begun runs to its end.
pub(crate) async fn off_task<T: Send + 'static>(
    is_long: bool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    if !is_long {
        return Ok(work());
    }
    let ended = |error| Failure::Internal(format!("a request or its answer could not be processed: {error}"));
    tokio::task::spawn_blocking(work).await.map_err(ended)
}

/// Runs a future that may call [`off_task`]. Returns its output, and whether it was ready without another thread. The only other thread is
/// busy until the first poll is over.
#[cfg(test)]
pub(crate) fn run_and_see_if_inline<T>(work: impl Future<Output = T>) -> (T, bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().expect("a runtime");
    runtime.block_on(async {
        let (release, released) = std::sync::mpsc::sync_channel::<()>(0);
        let busy = tokio::task::spawn_blocking(move || released.recv());
        let mut work = std::pin::pin!(work);
        let first = futures_util::poll!(&mut work);
        drop(release);
        assert!(busy.await.expect("it ended").is_err());
        match first {
            std::task::Poll::Ready(output) => (output, true),
            std::task::Poll::Pending => (work.await, false),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn turns_are_granted_in_the_order_of_the_requests() {
        let order = ConnectionOrder::default();
        let first = order.turn().await;
        let seen = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let tasks: Vec<_> = (0..5)
            .map(|n| {
                let (order, seen) = (order.clone(), Arc::clone(&seen));
                tokio::spawn(async move {
                    let _turn = order.turn().await;
                    seen.lock().push(n);
                })
            })
            .collect();
        tokio::task::yield_now().await;
        assert!(seen.lock().is_empty());
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*seen.lock(), [0, 1, 2, 3, 4]);
    }
}
