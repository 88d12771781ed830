//! The simulated server: instances, slots, rows and limits. A caller gives some of them; the rest have defaults.

use std::time::Duration;

use sequor_core::{Expiry, LoadLimits, LoadSpec, RowLayout, Strategy};
use serde::Deserialize;

use super::compared_policy::BuiltIn;
use crate::config::model::LoadFacts;
use crate::config::units::{Span, SpanOrNever};

/// Options of the serving from flags, a file or a trace. An option that is missing is taken from the next source.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServingOptions {
    /// Numbers of instances; each is tried.
    pub instances: Option<Vec<u16>>,
    /// Slots of one instance. `direct` has as many as rows.
    pub slots: Option<u32>,
    pub max_batch: Option<u32>,
    /// Maximum time that a batch that is not full may wait.
    pub delay: Option<Span>,
    /// Idle time after which a sequence ends.
    pub idle: Option<SpanOrNever>,
    /// Maximum time that a new sequence waits for a slot.
    pub backlog_timeout: Option<Span>,
    /// Priority levels of new sequences that wait for a slot.
    pub backlog_levels: Option<u32>,
    /// Maximum wait of a ready request. After it the request runs next, against any policy.
    pub max_wait: Option<Span>,
    /// What happens to a request of a sequence with a slot once its deadline has passed while it waits.
    pub expire: Option<Expire>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Expire {
    /// The request is refused, and its sequence ends.
    Reject,
    #[default]
    Run,
}

/// Complete and checked options.
#[derive(Debug, Clone, PartialEq)]
pub struct Serving {
    pub instances: Vec<u16>,
    pub slots: u32,
    pub max_batch: u32,
    pub delay: Duration,
    pub idle: Option<Duration>,
    pub backlog_timeout: Option<Duration>,
    /// 0 means one level.
    pub backlog_levels: u32,
    pub max_wait: Duration,
    pub expire: Expire,
}

impl Default for Serving {
    fn default() -> Self {
        Serving {
            instances: vec![1],
            slots: 256,
            max_batch: 32,
            delay: Duration::ZERO,
            // Triton's default of max_sequence_idle_microseconds.
            idle: Some(Duration::from_secs(1)),
            backlog_timeout: None,
            backlog_levels: 0,
            max_wait: LoadLimits::default().max_wait,
            expire: Expire::Run,
        }
    }
}

impl ServingOptions {
    /// These options, with missing ones taken from `other`.
    #[must_use]
    pub fn or(self, other: ServingOptions) -> ServingOptions {
        ServingOptions {
            instances: self.instances.or(other.instances),
            slots: self.slots.or(other.slots),
            max_batch: self.max_batch.or(other.max_batch),
            delay: self.delay.or(other.delay),
            idle: self.idle.or(other.idle),
            backlog_timeout: self.backlog_timeout.or(other.backlog_timeout),
            backlog_levels: self.backlog_levels.or(other.backlog_levels),
            max_wait: self.max_wait.or(other.max_wait),
            expire: self.expire.or(other.expire),
        }
    }

    /// Fills in the defaults and checks the result. An error names the fault.
    pub fn resolve(self) -> Result<Serving, String> {
        let default = Serving::default();
        let serving = Serving {
            instances: self.instances.unwrap_or(default.instances),
            slots: self.slots.unwrap_or(default.slots),
            max_batch: self.max_batch.unwrap_or(default.max_batch),
            delay: self.delay.map_or(default.delay, |s| s.0),
            idle: self.idle.map_or(default.idle, |s| s.0),
            backlog_timeout: self.backlog_timeout.map(|s| s.0),
            backlog_levels: self.backlog_levels.unwrap_or(default.backlog_levels),
            max_wait: self.max_wait.map_or(default.max_wait, |s| s.0),
            expire: self.expire.unwrap_or_default(),
        };
        if serving.instances.is_empty() || serving.instances.contains(&0) {
            return Err("instances must be 1 or more".to_owned());
        }
        if serving.slots == 0 || serving.max_batch == 0 {
            return Err("slots and max_batch must be 1 or more".to_owned());
        }
        Ok(serving)
    }
}

impl Serving {
    /// The serving, as a plug-in sees it.
    pub fn facts(&self, instances: u16) -> LoadFacts {
        LoadFacts {
            name: "simulated".to_owned(),
            version: 1,
            strategy: "oldest",
            max_batch: self.max_batch,
            instances: u32::from(instances),
            slots: self.slots,
            ..LoadFacts::default()
        }
    }

    /// The backlog level of a sequence whose START has this priority. As in the server, other priorities get the last level.
    pub fn level(&self, priority: u32) -> u32 {
        if (1..=self.backlog_levels).contains(&priority) { priority } else { self.backlog_levels }
    }

    /// The serving, as the core takes it.
    pub fn spec(&self, instances: u16, built_in: BuiltIn) -> LoadSpec {
        let strategy = match built_in {
            BuiltIn::Oldest => {
                Strategy::Oldest { slots: self.slots, preferred: Vec::new(), delay: self.delay, in_order: false }
            }
            // A delay in `direct` needs a share of slots: here all of them.
            BuiltIn::Direct => Strategy::Direct {
                rows: RowLayout::Fixed,
                delay: self.delay,
                min_use: if self.delay.is_zero() { 0.0 } else { 1.0 },
            },
            BuiltIn::Deadline => Strategy::Deadline { slots: self.slots },
        };
        LoadSpec {
            instances,
            limits: LoadLimits { max_wait: self.max_wait, ..LoadLimits::default() },
            expiry: self.idle.map_or(Expiry::Never, Expiry::Idle),
            ..LoadSpec::new(1, strategy, self.max_batch)
        }
    }
}
