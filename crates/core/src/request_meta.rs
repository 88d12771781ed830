//! What scheduling knows of the contents of requests.

/// Features of each kind a model may have.
pub const FEATURES: usize = 4;

/// What scheduling knows of a request's contents.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RequestMeta {
    /// Rows of the batch it takes. Requests of sequences always take one.
    pub rows: u32,
    pub bytes: u64,
    /// Class of the shapes that must agree within a batch ([`crate::shape::Shape::class`]).
    pub shape: u64,
    /// The model's numeric features, as many as it has.
    pub numbers: [f64; FEATURES],
    /// Its key features: texts, as 64-bit FNV-1a.
    pub keys: [u64; FEATURES],
}

impl Default for RequestMeta {
    fn default() -> Self {
        RequestMeta { rows: 1, bytes: 0, shape: 0, numbers: [0.0; FEATURES], keys: [0; FEATURES] }
    }
}

/// How a request waits in the queue of its load, or its START in the backlog.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueTerms {
    /// The lowest is first.
    pub level: u32,
    /// Maximum number of requests of this level that wait; 0 is no maximum but that of the load. For requests without a sequence.
    pub most: u32,
    /// Whether a request that waited for too long goes behind the others of its level, instead of being refused. For requests without a sequence.
    pub delays: bool,
}
