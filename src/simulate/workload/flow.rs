//! The common part of all generated flows: senders, properties of requests, and where a flow adds its requests.

use std::time::Duration;

use serde::Deserialize;

use super::Workload;
use super::features::Features;
use crate::config::units::Span;
use crate::simulate::SimulateError;
use crate::simulate::random::Random;

/// Maximum number of requests. More would not fit into an ordinary memory.
pub const MOST: f64 = 50e6;

/// Defines a flow's table of the file: its own keys, and those of every flow.
macro_rules! flow {
    ($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$about])* pub $field: $type,)*
            /// Sequences that are live at the same time.
            #[serde(default = "crate::simulate::workload::flow::one")]
            pub sequences: u32,
            /// Mean number of requests of a sequence until its END. Without it a sequence never ends.
            pub steps: Option<f64>,
            /// Deadline of each request after its arrival.
            pub deadline: Option<crate::config::units::Span>,
            /// The tenant of all its sequences.
            pub tenant: Option<String>,
            /// Or the tenants among whom its sequences are distributed.
            pub tenants: Option<crate::simulate::workload::tenants::Many>,
            /// Further features of its requests, by name.
            #[serde(default)]
            pub features: crate::simulate::workload::features::FeatureValues,
            #[serde(default)]
            pub priority: u32,
            #[serde(default)]
            pub bytes: u64,
            /// Class of the shapes: only requests of one class share a batch.
            #[serde(default)]
            pub shape: u64,
        }

        impl $name {
            pub(crate) fn common(&self) -> crate::simulate::workload::flow::Common {
                crate::simulate::workload::flow::Common {
                    sequences: self.sequences,
                    steps: self.steps,
                    deadline: self.deadline.map(|d| d.0),
                    tenant: self.tenant.clone(),
                    tenants: self.tenants,
                    features: self.features.clone(),
                    priority: self.priority,
                    bytes: self.bytes,
                    shape: self.shape,
                }
            }
        }
    };
}
pub(crate) use flow;

pub(crate) const fn one() -> u32 {
    1
}

/// The keys of every flow.
#[derive(Debug, Clone, PartialEq)]
pub struct Common {
    pub sequences: u32,
    pub steps: Option<f64>,
    pub deadline: Option<Duration>,
    pub tenant: Option<String>,
    pub tenants: Option<super::tenants::Many>,
    pub features: super::features::FeatureValues,
    pub priority: u32,
    pub bytes: u64,
    pub shape: u64,
}

impl Common {
    /// The first fault of these keys, if there is one.
    pub(crate) fn check(&self) -> Result<(), (&'static str, String)> {
        if self.sequences == 0 {
            return Err(("sequences", "sequences must be 1 or more".to_owned()));
        }
        if self.steps.is_some_and(|steps| !(steps.is_finite() && steps >= 1.0)) {
            return Err(("steps", "steps must be 1 or more".to_owned()));
        }
        if self.tenant.is_some() && self.tenants.is_some() {
            return Err(("tenants", "tenant names one, tenants makes many: only one of them can be meant".to_owned()));
        }
        match self.tenants {
            Some(many) => many.check().map_err(|what| ("tenants", what)),
            None => Ok(()),
        }
    }
}

/// A flow of requests.
pub trait Flow {
    fn common(&self) -> Common;

    /// Faults of its own keys: the key and a sentence.
    fn check(&self) -> Result<(), (&'static str, String)>;

    /// The expected number of requests, so that too large a workload can be refused.
    fn expected(&self, span: Duration) -> f64;

    /// Appends its requests, in the order of their times for each sequence.
    fn arrive(&self, span: Duration, random: &mut Random, into: &mut Workload);
}

/// Makes a workload of flows. Each flow draws from its own random stream, so that a change of one leaves the others unchanged.
pub fn make(flows: &[(&str, &dyn Flow)], span: Span, seed: u64) -> Result<Workload, SimulateError> {
    let expected: f64 = flows.iter().map(|(_, flow)| flow.expected(span.0)).sum();
    if expected > MOST {
        return Err(SimulateError::Given(format!(
            "about {:.0} million requests in {span} are more than are simulated at once ({:.0} million): make `for` shorter or the rate lower",
            expected / 1e6,
            MOST / 1e6
        )));
    }
    let given: Vec<_> = flows.iter().map(|(_, flow)| flow.common().features).collect();
    let features = Features::collect(&given).map_err(SimulateError::Given)?;
    let mut workload = Workload { span: span.0, features, ..Workload::default() };
    for (n, (_, flow)) in (0u16..).zip(flows) {
        let before = workload.arrivals.len();
        flow.arrive(span.0, &mut Random::new(seed, u64::from(n) + 1), &mut workload);
        workload.arrivals.iter_mut().skip(before).for_each(|arrival| arrival.flow = n);
    }
    let mut names: Vec<&str> = flows.iter().map(|(name, _)| *name).collect();
    names.dedup();
    workload.about = names.join(" + ");
    Ok(workload.in_order())
}

/// Checks that a span is more than 0.
pub(super) fn some_time(key: &'static str, span: Span) -> Result<(), (&'static str, String)> {
    if span.0.is_zero() { Err((key, format!("{key} must be more than 0"))) } else { Ok(()) }
}

/// The value of an optional key, or its default.
pub(super) fn span_or(given: Option<Span>, default: Duration) -> Duration {
    given.map_or(default, |s| s.0)
}

/// The unit of a sequence: one spurt of talk, or the whole call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    #[default]
    Talk,
    Call,
}
