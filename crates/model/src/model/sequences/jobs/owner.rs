//! The owner of a sequence: the client that started it, if live sequences are counted by client. Identifying clients and choosing the
//! maximum happen elsewhere.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use crate::executor::ExecutorHandle;
use crate::spans::ModelSpan;

/// The facts of a request's call that its model uses.
#[derive(Debug, Clone, Copy, Default)]
pub struct RequestOrigin<'a> {
    /// The client, if its live sequences are counted.
    pub owner: Option<&'a Arc<dyn SequenceOwner>>,
    /// The connection, if it polls the request. It may run a short step of the model itself.
    pub connection: Option<&'a ExecutorHandle>,
    /// The connection that awaits the answer, if it is a different one.
    pub awaiting: Option<&'a ExecutorHandle>,
    /// How long the client waits for the answer (gRPC's deadline). Schedulers see it; the model refuses nothing because of it.
    pub patience: Option<Duration>,
    /// The headers (or gRPC metadata) that features of models are read from, by name in lower case.
    pub headers: &'a [(String, String)],
    /// The models whose plug-ins wait for this request, if a plug-in makes it.
    pub callers: Option<&'a Arc<[String]>>,
    /// The id that the server has assigned to the sequence of this START already; 0 for none.
    pub fresh_id: u64,
    /// The span of the request, if it is traced.
    pub span: Option<&'a Arc<ModelSpan>>,
}

/// Counts the live sequences of one client.
pub trait SequenceOwner: Debug + Send + Sync {
    /// Counts one more, or returns the maximum that would be exceeded.
    fn try_add(&self) -> Result<(), u64>;

    /// Counts one more without checking the maximum.
    fn add(&self);

    fn remove(&self);
}

/// A live sequence, or a START in progress. Its owner counts it until this is dropped.
#[derive(Debug)]
pub(in crate::model::sequences) struct SequencePermit(Arc<dyn SequenceOwner>);

impl SequencePermit {
    /// A permit within the owner's maximum. The error is the maximum.
    pub(in crate::model::sequences) fn try_new(owner: &Arc<dyn SequenceOwner>) -> Result<SequencePermit, u64> {
        owner.try_add()?;
        Ok(SequencePermit(Arc::clone(owner)))
    }

    /// A permit for a sequence that replaces another one of this owner.
    pub(in crate::model::sequences) fn instead(owner: &Arc<dyn SequenceOwner>) -> SequencePermit {
        owner.add();
        SequencePermit(Arc::clone(owner))
    }

    pub(in crate::model::sequences) fn is_of(&self, owner: &Arc<dyn SequenceOwner>) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.0), Arc::as_ptr(owner))
    }
}

impl Drop for SequencePermit {
    fn drop(&mut self) {
        self.0.remove();
    }
}
