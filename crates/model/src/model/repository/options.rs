//! How models are loaded.

use std::sync::Arc;

use sequor_core::Hold;

use crate::backend::LoadOptions;
use crate::config::model;
use crate::config::server::rates::ResourceLimit;
use crate::device::Accelerators;
use crate::device::cuda::CudaDriver;
use crate::model::load::{SequenceStore, StateTier};
use crate::model::runtime::Clock;
use crate::model::sequences::ID_BITS;

/// How models are loaded.
#[derive(Debug, Clone)]
pub struct RepositoryOptions {
    pub config: model::draft::Options,
    pub load: LoadOptions,
    /// Maximum bytes of state over all models.
    pub state_limit: u64,
    /// The count of each resource for runs. `None`: runs wait for no resources.
    pub rates: Option<Vec<ResourceLimit>>,
    /// Maximum bytes of the response cache; 0 for no cache.
    pub cache: u64,
    /// Maximum bytes of reply memory kept for reuse.
    pub reply_pool: usize,
    /// Whether one model that is not ready makes the whole repository not ready.
    pub strict_readiness: bool,
    /// Whether the repository stays ready while this server has no lease on the sequences it shares.
    pub ready_without_lease: bool,
    /// Triton's test aid: how many requests must wait before `direct` and stateless models run for the first time.
    pub hold: Option<Hold>,
    /// Maximum number of batches in progress on an instance on an accelerator, if its strategy allows more than one.
    pub depth: u8,
    /// The accelerators for instances of KIND_GPU. They are queried only once a model wants one.
    pub accelerators: Arc<dyn Accelerators>,
    /// The clock that drives the cores.
    pub clock: Clock,
    /// Makes the states of every model durable before answers leave, even if the model does not ask for that.
    pub tier: Option<Arc<dyn StateTier>>,
    /// The first id that the server assigns to a sequence. `None`: derived from the clock.
    pub first_id: Option<u64>,
    /// Whether models may keep sequences. If not, their durability settings have no effect.
    pub keeps: bool,
    /// The store of sequences that outlive the process.
    pub store: Option<Arc<SequenceStore>>,
}

impl Default for RepositoryOptions {
    fn default() -> Self {
        RepositoryOptions {
            config: model::draft::Options::default(),
            load: LoadOptions::default(),
            state_limit: u64::MAX,
            rates: None,
            cache: 0,
            reply_pool: 0,
            strict_readiness: true,
            ready_without_lease: true,
            hold: None,
            depth: 2,
            accelerators: Arc::new(CudaDriver),
            clock: Clock::default(),
            tier: None,
            first_id: None,
            keeps: true,
            store: None,
        }
    }
}

/// The epoch of a server that starts now: milliseconds since 2025.
pub fn epoch_now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(0).saturating_sub(1_735_689_600_000)
}

/// The first id that a server of this epoch assigns. It is below 2^53, so that a JSON number can hold it. The lower 14 bits count, so ids
/// of an earlier epoch do not repeat.
pub fn first_id_of(epoch: u64) -> u64 {
    ((epoch & ((1 << 39) - 1)) << ID_BITS) + 1
}

pub(super) fn first_id_now() -> u64 {
    first_id_of(epoch_now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_the_server_makes_carry_the_time_of_their_start() {
        let [first, later] = [59_310_400_000, 59_310_400_001].map(first_id_of);
        assert!(first < later && later < 1 << 53, "{first} {later}");
        assert_eq!((later - first, first_id_of(0)), (1 << 14, 1));
    }
}
