//! The options of a repository that change while the server runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;

use crate::config::model::draft;

use super::options::RepositoryOptions;

#[derive(Debug)]
pub(in crate::model) struct LiveOptions {
    draft: ArcSwap<draft::Options>,
    strict_readiness: AtomicBool,
    ready_without_lease: AtomicBool,
}

impl LiveOptions {
    pub(in crate::model) fn new(options: &RepositoryOptions) -> LiveOptions {
        LiveOptions {
            draft: ArcSwap::from_pointee(options.config.clone()),
            strict_readiness: AtomicBool::new(options.strict_readiness),
            ready_without_lease: AtomicBool::new(options.ready_without_lease),
        }
    }

    /// How configurations of models are read.
    pub(in crate::model) fn draft(&self) -> Arc<draft::Options> {
        self.draft.load_full()
    }

    /// Applies to the next load of a model.
    pub(in crate::model) fn set_draft(&self, options: draft::Options) {
        self.draft.store(Arc::new(options));
    }

    pub(in crate::model) fn strict_readiness(&self) -> bool {
        self.strict_readiness.load(Ordering::Relaxed)
    }

    pub(in crate::model) fn set_strict_readiness(&self, is_strict: bool) {
        self.strict_readiness.store(is_strict, Ordering::Relaxed);
    }

    pub(in crate::model) fn ready_without_lease(&self) -> bool {
        self.ready_without_lease.load(Ordering::Relaxed)
    }

    pub(in crate::model) fn set_ready_without_lease(&self, is_ready: bool) {
        self.ready_without_lease.store(is_ready, Ordering::Relaxed);
    }
}
