//! How models are loaded.

use std::sync::Arc;

use sequor_core::Hold;

use crate::backend::LoadOptions;
use crate::config::model;
use crate::device::Accelerators;
use crate::device::cuda::CudaDriver;
use crate::model::load::StateTier;
use crate::model::runtime::Clock;

/// How models are to be loaded.
#[derive(Debug, Clone)]
pub struct RepositoryOptions {
    pub config: model::draft::Options,
    pub load: LoadOptions,
    /// Bytes of state over all models.
    pub state_limit: u64,
    /// Bytes of answers' memory kept for use again.
    pub reply_pool: usize,
    /// Whether a model that is not ready makes the whole repository so.
    pub strict_readiness: bool,
    /// Triton's test aid: how much must wait before `direct` and stateless models run for the first time.
    pub hold: Option<Hold>,
    /// Batches that an instance on an accelerator may have under way, where its strategy allows more than one.
    pub depth: u8,
    /// What instances of KIND_GPU run on. It is not asked for anything before a model wants some.
    pub accelerators: Arc<dyn Accelerators>,
    /// What drives the cores.
    pub clock: Clock,
    /// Where states are made durable, so that sequences outlive the process.
    pub tier: Option<Arc<dyn StateTier>>,
}

impl Default for RepositoryOptions {
    fn default() -> Self {
        RepositoryOptions {
            config: model::draft::Options::default(),
            load: LoadOptions::default(),
            state_limit: u64::MAX,
            reply_pool: 0,
            strict_readiness: true,
            hold: None,
            depth: 2,
            accelerators: Arc::new(CudaDriver),
            clock: Clock::default(),
            tier: None,
        }
    }
}
