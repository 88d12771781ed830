//! The shared store as the server uses it: its tier, the claims, and the threads that keep the lease and hear other servers.

use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use super::claims::{ClaimTask, Claims, NextIncarnation};
use super::heartbeat::Heartbeat;
use super::host::{SharedHost, SharedUsage, StopSign};
use super::lease::LeaseClock;
use super::link::{RedisAddress, RedisLink};
use super::listing::{self, SharedSequence, UnownedSequence};
use super::rights;
use super::shared_tier::SharedTier;
use super::yields::{self, HeardKeys};
use crate::state::tier::error::TierError;
use crate::state::tier::record::TierKey;

/// How a server reaches the shared store.
#[derive(Clone)]
pub struct SharedOptions {
    pub url: String,
    /// The URL without its password.
    pub shown: String,
    /// The name of this server, for others.
    pub node: String,
    pub lease: Duration,
}

impl fmt::Debug for SharedOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedOptions").field("url", &self.shown).field("node", &self.node).finish_non_exhaustive()
    }
}

/// One Redis, as one server uses it.
#[derive(Debug)]
pub struct SharedStore {
    tier: Arc<SharedTier>,
    lease: Arc<LeaseClock>,
    claims: Claims,
    address: RedisAddress,
    node: String,
    retry: Duration,
    stop: Arc<StopSign>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl SharedStore {
    /// Connects and sends the first heartbeat. The threads start with [`Self::start`].
    pub fn open(options: SharedOptions) -> Result<SharedStore, TierError> {
        let retry = options.lease;
        SharedStore::open_with(options, retry)
    }

    /// Same as [`Self::open`]. A write without an answer is tried again for this long; a claim, for a quarter of it.
    pub(super) fn open_with(options: SharedOptions, retry: Duration) -> Result<SharedStore, TierError> {
        let SharedOptions { url, shown, node, lease } = options;
        let address = RedisAddress::new(&url, &shown)?;
        let run = new_run();
        let tier = Arc::new(SharedTier::new(run, RedisLink::new(address.clone(), retry)));
        let lease = Arc::new(LeaseClock::new(lease));
        let mut link = RedisLink::new(address.clone(), Duration::ZERO);
        // The first connection also gets the digests of the scripts.
        link.ready()?;
        rights::check(&mut link, &tier.run)?;
        Heartbeat::first(&mut link, &tier.run, &node, &lease)?;
        listing::check_policy(&mut link);
        let (claims, stop) = (Claims::default(), Arc::default());
        Ok(SharedStore { tier, lease, claims, address, node, retry, stop, threads: Mutex::default() })
    }

    pub fn tier(&self) -> &Arc<SharedTier> {
        &self.tier
    }

    /// Where Redis is, without a secret.
    pub fn address(&self) -> &str {
        &self.address.shown
    }

    pub fn lease(&self) -> &Arc<LeaseClock> {
        &self.lease
    }

    /// Starts the threads. `next` gives an incarnation that is larger than this one, for a sequence that is taken over.
    pub fn start(&self, host: Arc<dyn SharedHost>, next: Box<NextIncarnation>) -> std::io::Result<()> {
        self.tier.set_host(host);
        let mut threads = self.threads.lock();
        let mut spawn = |name: &str, run: Box<dyn FnOnce() + Send>| -> std::io::Result<()> {
            threads.push(std::thread::Builder::new().name(name.to_owned()).spawn(run)?);
            Ok(())
        };
        let lease = self.lease.lease();
        let heartbeat = self.heartbeat();
        spawn("sequor-lease", Box::new(move || heartbeat.run()))?;
        let link = RedisLink::new(self.address.clone(), self.retry / 4);
        let claims = self.claims.thread(Arc::clone(&self.tier), Arc::clone(&self.lease), link, next);
        spawn("sequor-claims", claims)?;
        let heard = Arc::<HeardKeys>::default();
        let (tier, address, stop) = (Arc::clone(&self.tier), self.address.clone(), Arc::clone(&self.stop));
        let hears = Arc::clone(&heard);
        spawn("sequor-hears", Box::new(move || yields::hear(&tier, &address, &hears, &stop)))?;
        let (tier, claims, stop) = (Arc::clone(&self.tier), self.claims.clone(), Arc::clone(&self.stop));
        spawn("sequor-yields", Box::new(move || yields::give_up(&tier, &claims, lease, &heard, &stop)))
    }

    pub(super) fn heartbeat(&self) -> Heartbeat {
        let link = RedisLink::new(self.address.clone(), Duration::ZERO);
        let (tier, lease, stop) = (Arc::clone(&self.tier), Arc::clone(&self.lease), Arc::clone(&self.stop));
        Heartbeat::new((tier, lease, self.claims.clone()), link, self.node.clone(), stop)
    }

    /// Takes a sequence over. The task's callback runs on the thread of the claims, or on this one if the store is closed.
    pub fn claim(&self, task: ClaimTask) {
        self.claims.push(task);
    }

    /// Frees a sequence that no model here has, if it belongs to this server in Redis all the same, because its release got no answer.
    pub fn disown(&self, key: TierKey) {
        self.claims.disown(key, None);
    }

    /// Whether this server owns a sequence, as far as it knows.
    pub fn holds(&self, key: &TierKey) -> bool {
        self.tier.held.contains(key)
    }

    /// Stored sequences of a model that belong to no server, at most so many, with the idle time that each has left. Reads no state.
    pub fn unowned(&self, model: &str, most: usize) -> Result<Vec<UnownedSequence>, TierError> {
        let mut link = RedisLink::new(self.address.clone(), Duration::ZERO);
        listing::unowned(&mut link, model, most)
    }

    /// Looks up one sequence that does not live here: the server that has it, and its stored state. Reads only its record.
    pub fn find(&self, key: &TierKey) -> Result<Option<SharedSequence>, TierError> {
        let mut link = RedisLink::new(self.address.clone(), Duration::ZERO);
        listing::find(&mut link, key, &self.tier.run)
    }

    pub fn usage(&self) -> SharedUsage {
        SharedUsage { lapsed: self.lease.lost(), has_lease: self.lease.holds(), ..self.tier.usage_of_servers() }
    }

    /// For how long this server has had no lease, if it has none.
    pub fn without_lease(&self) -> Option<Duration> {
        self.lease.away_for()
    }

    /// Ends the threads. The tier stays open.
    pub fn stop(&self) {
        self.claims.close();
        self.stop.set();
        for thread in self.threads.lock().drain(..) {
            // It ended early only if a callback panicked, which the panic's own message reports.
            let _ = thread.join();
        }
        if let Err(error) = self.tier.retire() {
            tracing::debug!(%error, "the heartbeat of this server stays until the end of its lease");
        }
    }
}

/// A name for this process that no other one has had.
fn new_run() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let mut hasher = std::hash::DefaultHasher::new();
    let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), since);
    std::hash::Hash::hash(&(random, std::process::id(), since), &mut hasher);
    format!("{:x}-{random:016x}{:016x}", since.as_millis(), std::hash::Hasher::finish(&hasher))
}
