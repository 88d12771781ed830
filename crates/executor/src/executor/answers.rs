//! Wakes the connections of a batch's answers together, from one task of their runtime.
//!
//! If an instance's thread woke each connection, each would cost that thread a system call, and on a busy core the core as well.

use std::sync::Arc;
use std::task::Waker;

use tokio::runtime::Handle;

use super::queue::ExecutorHandle;
use crate::sync::planted::{PlantedFault, is_planted};

/// The connections of the answers that are being sent. They are woken when this is dropped.
#[derive(Debug, Default)]
pub struct AnswerBatch(Vec<ExecutorHandle>);

impl AnswerBatch {
    /// Adds a connection, whose answers may be sent from now on. Adding it again has no effect.
    pub fn hold(&mut self, connection: ExecutorHandle) {
        if self.0.iter().rev().any(|held| Arc::ptr_eq(&held.0, &connection.0)) {
            return;
        }
        connection.0.queue.lock().holds += 1;
        self.0.push(connection);
    }
}

impl Drop for AnswerBatch {
    fn drop(&mut self) {
        let mut runtime = None;
        let release = |connection: ExecutorHandle| {
            let mut queue = connection.0.queue.lock();
            queue.holds = queue.holds.saturating_sub(1);
            let host = queue.host_to_wake().filter(|_| !is_planted(PlantedFault::LeavesHostAsleep));
            drop(queue);
            if host.is_some() && runtime.is_none() {
                runtime.clone_from(&connection.0.runtime);
            }
            host
        };
        let hosts: Vec<Waker> = self.0.drain(..).filter_map(release).collect();
        match runtime {
            Some(runtime) if hosts.len() > 1 && Handle::try_current().is_err() => {
                runtime.spawn(async move { hosts.into_iter().for_each(Waker::wake) });
            }
            _ => hosts.into_iter().for_each(Waker::wake),
        }
    }
}
