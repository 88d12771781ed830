//! Counters of answered requests, by what their clients got. `names` names the metric.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::kinds::Counter;
use super::labels::{Family, Labels, label};
use super::surface::Surface;

/// Numbers of requests that were answered with an error, by model and reason. The empty name stands for models that are not served.
pub type RefusedByModel = BTreeMap<String, BTreeMap<&'static str, u64>>;

/// The counts of requests to all models. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct RequestFamily {
    shown: Family<Counter>,
    /// Requests that were answered with an error. What a family shows cannot be read back.
    refused: Arc<Mutex<RefusedByModel>>,
}

impl RequestFamily {
    pub(super) fn new(shown: Family<Counter>) -> RequestFamily {
        RequestFamily { shown, refused: Arc::default() }
    }

    pub(super) fn refused(&self) -> RefusedByModel {
        self.refused.lock().clone()
    }
}

/// The counts of requests to one model, or of all requests to models that are not served. Clones share them.
#[derive(Debug, Clone)]
pub struct RequestCounters(Arc<CountersOfModel>);

#[derive(Debug)]
struct CountersOfModel {
    family: RequestFamily,
    /// Empty for models that are not served, so that clients cannot create labels.
    model: String,
    /// Answers with outputs, the usual case: by surface, looked up once.
    succeeded: [OnceLock<Counter>; Surface::COUNT],
}

impl RequestCounters {
    pub(super) fn new(family: &RequestFamily, model: &str) -> RequestCounters {
        let succeeded = std::array::from_fn(|_| OnceLock::new());
        RequestCounters(Arc::new(CountersOfModel { family: family.clone(), model: model.to_owned(), succeeded }))
    }

    /// Counts a request that was answered with outputs.
    pub fn succeeded(&self, surface: Surface) {
        if let Some(counter) = self.0.succeeded.get(surface as usize) {
            counter.get_or_init(|| self.counter(surface, "OK", "")).add(1);
        }
    }

    /// Counts a request that was answered with an error.
    pub fn failed(&self, surface: Surface, code: &str, reason: &'static str) {
        *self.0.family.refused.lock().entry(self.0.model.clone()).or_default().entry(reason).or_default() += 1;
        self.counter(surface, code, reason).add(1);
    }

    /// Counts a request whose client has gone before its answer. It was not refused.
    pub fn gone(&self, surface: Surface, code: &str) {
        self.counter(surface, code, "cancelled").add(1);
    }

    fn counter(&self, surface: Surface, code: &str, reason: &str) -> Counter {
        let model = label("model", &self.0.model);
        let labels: Labels = vec![model, label("api", surface.name()), label("code", code), label("reason", reason)];
        self.0.family.shown.get_or_create_owned(&labels)
    }
}
