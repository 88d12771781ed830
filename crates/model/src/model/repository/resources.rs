//! The resources that all models of a repository share.

use std::sync::{Arc, OnceLock};

use sequor_wasm::room::GuestRoom;

use crate::backend::Backend;
use crate::device::Pool;
use crate::initializing::InitializerRegistry;
use crate::model::load::ResponseCache;
use crate::model::request::AnswerRoom;
use crate::model::runtime::{Clock, RateLimiter, UnusedOwners, Upkeep};
use crate::state::ChunkCache;
use crate::state::budget::Budget;
use crate::telemetry::Metrics;

use super::live_options::LiveOptions;
use super::options::RepositoryOptions;
use super::processor_host::ProcessorHost;

#[derive(Debug)]
pub(in crate::model) struct Resources {
    pub(in crate::model) backend: Arc<dyn Backend>,
    pub(in crate::model) options: RepositoryOptions,
    /// The options that change while the server runs.
    pub(in crate::model) live: LiveOptions,
    pub(in crate::model) metrics: Metrics,
    pub(in crate::model) clock: Clock,
    /// The budget for bytes of state.
    pub(in crate::model) budget: Budget,
    pub(in crate::model) chunk_cache: ChunkCache,
    /// The memory pool for answers.
    pub(in crate::model) pool: Pool,
    /// The rate limiter, if the server rates runs.
    pub(in crate::model) rates: Option<RateLimiter>,
    /// The cache of answers of models without sequences, if the server has one.
    pub(in crate::model) cache: Option<Arc<ResponseCache>>,
    /// The limit on answers that clients have not taken.
    pub(in crate::model) answers: AnswerRoom,
    /// The source of processors, if the server has any.
    pub(in crate::model) processors: OnceLock<ProcessorHost>,
    /// The initializers, if the server has any.
    pub(in crate::model) initializers: OnceLock<InitializerRegistry>,
    /// Owners of plug-in instances that are kept for later requests.
    pub(in crate::model) owners: UnusedOwners,
    /// The room for plug-in instances.
    pub(in crate::model) plugin_room: GuestRoom,
}

impl Resources {
    pub(in crate::model) fn new(backend: Arc<dyn Backend>, options: RepositoryOptions, metrics: Metrics) -> Resources {
        let (clock, budget, pool) =
            (options.clock.clone(), Budget::new(options.state_limit), Pool::new(options.reply_pool));
        let reads = clock.clone();
        let chunk_cache = ChunkCache::new(budget.clone(), move || reads.now());
        let cache = ResponseCache::new(options.cache, metrics.cache());
        let rates = options.rates.clone().map(RateLimiter::new);
        let live = LiveOptions::new(&options);
        let (owners, plugin_room) = (UnusedOwners::default(), GuestRoom::default());
        let unused = owners.clone();
        plugin_room.make_room_with(move || unused.release_free());
        Resources {
            rates,
            cache,
            backend,
            options,
            live,
            metrics,
            clock,
            budget,
            chunk_cache,
            pool,
            answers: AnswerRoom::default(),
            processors: OnceLock::new(),
            initializers: OnceLock::new(),
            owners,
            plugin_room,
        }
    }

    /// The periodic maintenance of these resources.
    pub(in crate::model) fn upkeep(&self) -> Upkeep {
        let plugins = (self.owners.clone(), self.plugin_room.clone());
        Upkeep::new(self.chunk_cache.clone(), Arc::clone(&self.backend), plugins, self.metrics.clone())
    }
}
