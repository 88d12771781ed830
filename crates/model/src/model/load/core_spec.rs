//! A load as the core sees it, and the names of strategies.

use std::time::Duration;

use sequor_core::{Expiry, LoadSpec, RowLayout, Stages, Strategy};

use crate::config::model::settings::{ModelSettings, Processor, Scheduling, SequenceStrategy};
use crate::state::Store;

use super::loaded::LoadedModel;

impl LoadedModel {
    /// Maximum number of batches that an instance may have in progress. It is 1 on the host. It is also 1 for `direct`, whose rows wait for
    /// each other.
    fn depth(&self, strategy: &Strategy) -> u8 {
        let away = self.settings.processors.iter().any(|processor| matches!(processor, Processor::Gpu(_)));
        if away && !matches!(strategy, Strategy::Direct { .. }) { self.depth.max(1) } else { 1 }
    }

    /// The load as the core sees it.
    pub(in crate::model) fn spec(&self) -> LoadSpec {
        let settings = &self.settings;
        let strategy = strategy(settings);
        let base = LoadSpec {
            instances: settings.instances.max(1),
            depth: self.depth(&strategy),
            stages: Stages {
                seal: self.tier.is_some(),
                initialize: self.initializer.is_some(),
                pre: self.processors.is_some() || self.ensemble.is_some(),
                // With processors, a state is made durable only after they have run, because its scratch is stored too.
                post: self.processors.as_ref().is_some_and(|of| of.chain.posts() || self.tier.is_some()),
                ..Stages::default()
            },
            initial_state_shape: Store::initial_shape_class(&self.states),
            hold: self.hold.filter(|_| !matches!(strategy, Strategy::Oldest { .. })),
            ..LoadSpec::new(self.version, strategy, settings.max_batch_size.max(1))
        };
        let mut spec = match &settings.scheduling {
            Scheduling::Sequence(sequence) => LoadSpec {
                limits: sequence.limits,
                expiry: match (sequence.idle_scan, sequence.idle) {
                    (Some(every), _) => Expiry::TwoScans { every },
                    (None, idle) => idle.map_or(Expiry::Never, Expiry::Idle),
                },
                idle_longest: sequence.idle_longest,
                idle_soft: sequence.idle_soft,
                cancel_ends: sequence.cancel_ends,
                ..base
            },
            Scheduling::Dynamic { .. } | Scheduling::Each => base,
        };
        spec.limits.candidates = self.candidates.max(1);
        spec
    }
}

/// A strategy's name, for operators and recordings.
pub(in crate::model) fn strategy_name(strategy: &Strategy) -> &'static str {
    match strategy {
        Strategy::Stateless { batching: false, .. } => "default",
        Strategy::Stateless { .. } => "dynamic",
        Strategy::Direct { .. } => "direct",
        Strategy::Oldest { .. } => "oldest",
        Strategy::Deadline { .. } => "deadline",
    }
}

fn strategy(settings: &ModelSettings) -> Strategy {
    match &settings.scheduling {
        Scheduling::Each => {
            Strategy::Stateless { batching: false, preferred: Vec::new(), delay: Duration::ZERO, in_order: false }
        }
        Scheduling::Dynamic { preferred, delay, in_order, .. } => {
            Strategy::Stateless { batching: true, preferred: preferred.clone(), delay: *delay, in_order: *in_order }
        }
        Scheduling::Sequence(sequence) => match &sequence.strategy {
            SequenceStrategy::Direct { compact, delay, min_use } => Strategy::Direct {
                rows: if *compact { RowLayout::Compact } else { RowLayout::Fixed },
                delay: *delay,
                min_use: *min_use,
            },
            SequenceStrategy::Oldest { slots, preferred, delay, in_order } => {
                Strategy::Oldest { slots: *slots, preferred: preferred.clone(), delay: *delay, in_order: *in_order }
            }
        },
    }
}
