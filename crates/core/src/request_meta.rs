//! Facts about the contents of requests that scheduling uses.

/// Maximum number of features of each kind a model may have.
pub const FEATURES: usize = 4;

/// The facts about a request's contents that scheduling uses.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RequestMeta {
    /// Number of batch rows it takes. A request of a sequence always takes one.
    pub rows: u32,
    pub bytes: u64,
    /// Class of the shapes that must agree within a batch ([`crate::shape::Shape::class`]).
    pub shape: u64,
    /// The values of the model's numeric features.
    pub numbers: [f64; FEATURES],
    /// The values of its key features: texts, as 64-bit FNV-1a.
    pub keys: [u64; FEATURES],
}

impl Default for RequestMeta {
    fn default() -> Self {
        RequestMeta { rows: 1, bytes: 0, shape: 0, numbers: [0.0; FEATURES], keys: [0; FEATURES] }
    }
}

/// Queueing terms of a stateless request in its load, or of a START in the backlog.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueTerms {
    /// The lowest level is first.
    pub level: u32,
    /// Maximum number of requests of this level that wait; 0 means the load's maximum. For stateless requests.
    pub most: u32,
    /// Whether a request that waited for too long moves behind the others of its level, instead of being refused. For stateless requests.
    pub delays: bool,
}
