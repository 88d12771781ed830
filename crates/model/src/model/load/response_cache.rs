//! Answers of models without sequences, kept for requests that bring the same inputs. All models share one cache, bounded in bytes.
//!
//! An answer is found by the load that gave it and by the SHA-256 of the inputs: their order, types, shapes and bytes. So neither another
//! version nor a reload finds it. A load takes its answers with it. All outputs are kept, whichever the request asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, OptionsBuilder, Weighter};
use sha2::{Digest as _, Sha256};

use crate::telemetry::CacheUsage;
use crate::tensor::Tensor;

/// Number of parts. Each part has its own lock and holds at most its share of the bytes.
const PARTS: u64 = 4;
/// `ENTRY_BYTES`: overhead of an entry beside the data of its tensors. `TENSOR_BYTES`: overhead of a tensor. `USUAL_BYTES`: assumed size of
/// an answer, to estimate the number of entries.
const ENTRY_BYTES: u64 = 256;
const TENSOR_BYTES: u64 = 128;
const USUAL_BYTES: u64 = 4096;
/// With fewer estimated entries, the cache would make fewer parts.
const FEWEST_ENTRIES: u64 = 32 * PARTS;
/// Maximum bytes of the inputs of a request that is looked up. The lookup reads them all, on a connection's thread.
pub(in crate::model) const MOST_INPUT_BYTES: usize = 4 << 20;

/// The answers of all models.
#[derive(Debug)]
pub(in crate::model) struct ResponseCache {
    answers: Cache<CacheKey, CachedAnswer, AnswerWeight, DefaultHashBuilder, CountEvictions>,
    /// Maximum bytes of one answer.
    most: u64,
    loads: AtomicU64,
    usage: CacheUsage,
}

/// The key of an answer: a load and a digest of the inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct CacheKey {
    load: u64,
    inputs: [u8; 32],
}

/// The outputs of a load, in the order of its settings.
#[derive(Debug, Clone)]
struct CachedAnswer(Arc<[Option<Tensor>]>);

/// The answers of one load.
#[derive(Debug)]
pub(in crate::model) struct LoadCache {
    cache: Arc<ResponseCache>,
    load: u64,
}

/// The result of a lookup, and the time that it took.
#[derive(Debug)]
pub(in crate::model) enum CacheLookup {
    Hit(Vec<Option<Tensor>>, Duration),
    Miss(CacheMiss, Duration),
}

/// A request without a cached answer. Its answer will be kept.
#[derive(Debug)]
pub(in crate::model) struct CacheMiss(CacheKey);

#[derive(Debug, Clone)]
struct AnswerWeight;

impl Weighter<CacheKey, CachedAnswer> for AnswerWeight {
    fn weight(&self, _: &CacheKey, answer: &CachedAnswer) -> u64 {
        weight(&answer.0)
    }
}

fn weight(outputs: &[Option<Tensor>]) -> u64 {
    ENTRY_BYTES + outputs.iter().flatten().map(|tensor| TENSOR_BYTES + tensor.data.len() as u64).sum::<u64>()
}

#[derive(Debug, Clone)]
struct CountEvictions(CacheUsage);

impl Lifecycle<CacheKey, CachedAnswer> for CountEvictions {
    type RequestState = ();

    fn begin_request(&self) {}

    fn on_evict(&self, (): &mut (), _: CacheKey, _: CachedAnswer) {
        self.0.evicted();
    }
}

impl ResponseCache {
    /// Creates a cache of this many bytes; `None` if each part would have none.
    pub(in crate::model) fn new(bytes: u64, usage: CacheUsage) -> Option<Arc<ResponseCache>> {
        let part = bytes / PARTS;
        let entries = usize::try_from((bytes / USUAL_BYTES).max(FEWEST_ENTRIES)).unwrap_or(usize::MAX);
        let mut options = OptionsBuilder::new();
        options.shards(PARTS as usize).weight_capacity(part * PARTS).estimated_items_capacity(entries);
        // It fails only if one of these two numbers is missing.
        let options = options.build().ok().filter(|_| part > 0)?;
        let evictions = CountEvictions(usage.clone());
        let answers = Cache::with_options(options, AnswerWeight, DefaultHashBuilder::default(), evictions);
        // The cache reserves the rest of a part for entries that were not requested again.
        let most = part / 100 * 95;
        Some(Arc::new(ResponseCache { answers, most, loads: AtomicU64::new(0), usage }))
    }

    /// The answers of a new load.
    pub(in crate::model) fn for_load(self: &Arc<Self>) -> LoadCache {
        LoadCache { cache: Arc::clone(self), load: self.loads.fetch_add(1, Ordering::Relaxed) }
    }
}

impl LoadCache {
    /// Looks up a request. `None` if its inputs are too large for a lookup.
    pub(in crate::model) fn look_up(&self, inputs: &[Option<Tensor>]) -> Option<CacheLookup> {
        let began = Instant::now();
        if inputs.iter().flatten().map(|tensor| tensor.data.len()).sum::<usize>() > MOST_INPUT_BYTES {
            return None;
        }
        let key = CacheKey { load: self.load, inputs: digest(inputs) };
        let found = self.cache.answers.get(&key);
        let took = began.elapsed();
        Some(match found {
            Some(answer) => CacheLookup::Hit(answer.0.to_vec(), took),
            None => CacheLookup::Miss(CacheMiss(key), took),
        })
    }

    /// Keeps the answer to a request that was not found, unless the answer is too large. Returns the time that this took.
    pub(in crate::model) fn keep(&self, CacheMiss(key): &CacheMiss, outputs: &[Option<Tensor>]) -> Duration {
        let began = Instant::now();
        if weight(outputs) <= self.cache.most {
            // Outputs are parts of pooled memory, which is used again.
            let own = |tensor: &Tensor| Tensor { data: Bytes::copy_from_slice(&tensor.data), ..tensor.clone() };
            let answer = outputs.iter().map(|output| output.as_ref().map(own)).collect();
            self.cache.answers.insert(*key, CachedAnswer(answer));
            self.cache.usage.set_bytes(self.cache.answers.weight());
        }
        began.elapsed()
    }
}

impl Drop for LoadCache {
    fn drop(&mut self) {
        self.cache.answers.retain(|key, _| key.load != self.load);
        self.cache.usage.set_bytes(self.cache.answers.weight());
    }
}

/// A digest of each input's place, type, shape and bytes.
fn digest(inputs: &[Option<Tensor>]) -> [u8; 32] {
    let mut digest = Sha256::new();
    for input in inputs {
        let Some(Tensor { dtype, shape, data }) = input else {
            digest.update([0]);
            continue;
        };
        let name = dtype.name();
        digest.update([1, u8::try_from(name.len()).unwrap_or(u8::MAX)]);
        digest.update(name);
        digest.update((shape.0.len() as u64).to_le_bytes());
        for dim in &shape.0 {
            digest.update(dim.to_le_bytes());
        }
        digest.update((data.len() as u64).to_le_bytes());
        digest.update(data);
    }
    digest.finalize().into()
}

#[cfg(test)]
#[path = "tests/response_cache.rs"]
mod tests;
