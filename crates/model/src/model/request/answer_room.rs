//! The limit on answers that clients have not taken. The server's entry sets it. A run whose answers would find no room is refused before it
//! begins, so that answers which were computed need not be dropped.

use std::fmt::Debug;
use std::sync::{Arc, OnceLock};

use crate::error::ExceededLimit;

/// Answers below this size do not count before the connection has them.
const SMALL: u64 = 64 << 10;

/// The counter of the bytes of answers.
pub trait AnswerLimit: Debug + Send + Sync {
    /// The limit, if it is exceeded.
    fn exceeded(&self) -> Option<ExceededLimit>;

    /// Counts bytes of an answer, even beyond the limit.
    fn add_answer(&self, bytes: u64);

    fn remove_answer(&self, bytes: u64);
}

/// The limit of a repository, once it is set. Clones share it.
#[derive(Debug, Clone, Default)]
pub(in crate::model) struct AnswerRoom(Arc<OnceLock<Arc<dyn AnswerLimit>>>);

/// A large answer on its way to its connection, counted until this is dropped.
#[derive(Debug)]
pub struct CountedAnswer {
    limit: Arc<dyn AnswerLimit>,
    bytes: u64,
}

impl AnswerRoom {
    /// Sets the limit. Only the first call has an effect.
    pub(in crate::model) fn set(&self, limit: Arc<dyn AnswerLimit>) {
        let _ = self.0.set(limit);
    }

    pub(in crate::model) fn exceeded(&self) -> Option<ExceededLimit> {
        self.0.get()?.exceeded()
    }

    /// Counts an answer, if it is large.
    pub(in crate::model) fn hold(&self, bytes: usize) -> Option<CountedAnswer> {
        let (limit, bytes) = (self.0.get()?, bytes as u64);
        (bytes > SMALL).then(|| CountedAnswer::new(limit, bytes))
    }
}

impl CountedAnswer {
    fn new(limit: &Arc<dyn AnswerLimit>, bytes: u64) -> CountedAnswer {
        limit.add_answer(bytes);
        CountedAnswer { limit: Arc::clone(limit), bytes }
    }
}

impl Clone for CountedAnswer {
    fn clone(&self) -> CountedAnswer {
        CountedAnswer::new(&self.limit, self.bytes)
    }
}

impl Drop for CountedAnswer {
    fn drop(&mut self) {
        self.limit.remove_answer(self.bytes);
    }
}
