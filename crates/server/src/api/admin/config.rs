//! The settings of the running server: what is in force, what waits for a restart, and the reload.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use serde::Serialize;

use crate::api::{Caller, Code, Status};
use crate::config::server::Shown;

/// The outcome of a reload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReloadReport {
    /// The keys whose values have changed.
    pub changed: Vec<&'static str>,
    /// The keys whose new values wait for a restart.
    pub pending: Vec<PendingSetting>,
}

/// A new value that waits for a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PendingSetting {
    pub key: &'static str,
    /// As a file would have it. It is empty if the setting is no longer set.
    pub value: String,
}

/// Why nothing was reloaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReloadRefusal {
    /// The new settings have faults. One line per fault, with its place.
    #[error("nothing was reloaded: {0}")]
    Invalid(String),
    #[error("nothing was reloaded: the server drains")]
    Draining,
    #[error("nothing was reloaded: {0}")]
    Failed(String),
}

pub type Reload<'r> = Pin<Box<dyn Future<Output = Result<ReloadReport, ReloadRefusal>> + Send + 'r>>;

/// The settings of a running server.
pub trait ConfigControl: fmt::Debug + Send + Sync {
    /// Reads the settings again for this caller, and applies what can change. The caller is recorded.
    fn reload<'r>(&'r self, caller: &'r Caller) -> Reload<'r>;

    /// The settings in force, with the values that wait for a restart.
    fn running(&self) -> Vec<Shown>;
}

/// What operators may see and send. A reload changes it.
#[derive(Debug, Default)]
pub struct AdminRights {
    upload: AtomicBool,
    peek: AtomicBool,
    capture: AtomicU64,
}

impl AdminRights {
    pub fn new(upload: bool, peek: bool, capture: u64) -> AdminRights {
        let rights = AdminRights::default();
        rights.set(upload, peek, capture);
        rights
    }

    pub fn set(&self, upload: bool, peek: bool, capture: u64) {
        self.upload.store(upload, Relaxed);
        self.peek.store(peek, Relaxed);
        self.capture.store(capture, Relaxed);
    }

    /// Whether clients may upload components.
    pub fn upload(&self) -> bool {
        self.upload.load(Relaxed)
    }

    /// Whether ids that are texts, and states of sequences, are shown.
    pub fn peek(&self) -> bool {
        self.peek.load(Relaxed)
    }

    /// Maximum bytes of a capture; 0 disables captures.
    pub fn capture(&self) -> u64 {
        self.capture.load(Relaxed)
    }
}

/// The refusal of a reload, in the form of all refusals.
pub fn status(refusal: &ReloadRefusal) -> Status {
    let (code, reason) = match refusal {
        ReloadRefusal::Invalid(_) => (Code::InvalidArgument, "invalid"),
        ReloadRefusal::Draining => (Code::Conflict, "conflict"),
        ReloadRefusal::Failed(_) => (Code::Internal, "internal"),
    };
    Status::new(code, reason, refusal.to_string())
}
