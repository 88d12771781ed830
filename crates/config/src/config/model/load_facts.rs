//! Facts about a load that each plug-in instance gets once.

use super::settings::{ModelSettings, Scheduling, SequenceStrategy};

/// Facts about its load that a plug-in instance gets once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoadFacts {
    pub name: String,
    pub version: u64,
    /// The built-in policy: `stateless`, `direct` or `oldest`.
    pub strategy: &'static str,
    pub max_batch: u32,
    pub instances: u32,
    /// Slots of an instance; 0 for stateless models.
    pub slots: u32,
    /// Names of the numeric features, in the order of their columns.
    pub numbers: Vec<String>,
    /// Names of the key features, in the order of their columns.
    pub keys: Vec<String>,
}

impl LoadFacts {
    pub fn new(settings: &ModelSettings, version: u64) -> LoadFacts {
        let (numbers, keys) = settings.feature_names();
        let max_batch = settings.max_batch_size.max(1);
        let (strategy, slots) = match &settings.scheduling {
            Scheduling::Sequence(sequence) => match &sequence.strategy {
                SequenceStrategy::Direct { .. } => ("direct", max_batch),
                SequenceStrategy::Oldest { slots, .. } => ("oldest", (*slots).max(1)),
            },
            Scheduling::Dynamic { .. } | Scheduling::Each => ("stateless", 0),
        };
        LoadFacts {
            name: settings.name.clone(),
            version,
            strategy,
            max_batch,
            instances: u32::from(settings.instances.max(1)),
            slots,
            numbers,
            keys,
        }
    }
}
