//! The answer to a planning round.

/// A plan: `Plan::fire(order).reject(3, 1)`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan(Option<Parts>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Parts {
    fire: Vec<u32>,
    reject: Vec<Rejection>,
    wake: Wake,
}

/// The latest time of the next question, if nothing runs now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Wake {
    #[default]
    Never,
    /// This many microseconds from now.
    In(u64),
    /// At this value of `now_us`.
    At(u64),
}

/// A refused candidate. Has the contract's memory layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Rejection {
    pub candidate: u32,
    /// The plug-in's code for the reason.
    pub code: u32,
    /// Whether its sequence ends too.
    pub ends: bool,
}

/// The answer in the contract's form.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    pub fire: Vec<u32>,
    pub reject: Vec<Rejection>,
    pub wake_us: Option<u64>,
}

impl Plan {
    /// Runs these candidates now as one batch, in this order.
    #[must_use]
    pub fn fire(order: impl IntoIterator<Item = u32>) -> Plan {
        Plan(Some(Parts { fire: order.into_iter().collect(), ..Parts::default() }))
    }

    /// Runs nothing until a request arrives or completes.
    #[must_use]
    pub fn wait() -> Plan {
        Plan(Some(Parts::default()))
    }

    /// Runs nothing for this many microseconds, or until a request arrives or completes.
    #[must_use]
    pub fn wait_us(micros: u64) -> Plan {
        Plan(Some(Parts { wake: Wake::In(micros), ..Parts::default() }))
    }

    /// Runs nothing until this value of `now_us`, or until a request arrives or completes.
    #[must_use]
    pub fn wait_until_us(at: u64) -> Plan {
        Plan(Some(Parts { wake: Wake::At(at), ..Parts::default() }))
    }

    /// Refuses a candidate, and ends its sequence. Clients get `code`, and its text from plugin.toml. A plan that refuses a candidate
    /// decides the whole round: candidates that it does not fire wait, even if it began as the default.
    #[must_use]
    pub fn reject(self, candidate: u32, code: u32) -> Plan {
        self.refuse(Rejection { candidate, code, ends: true })
    }

    /// Refuses this step of a candidate; its sequence continues. A refused START ends its sequence anyway.
    #[must_use]
    pub fn shed(self, candidate: u32, code: u32) -> Plan {
        self.refuse(Rejection { candidate, code, ends: false })
    }

    /// Rejects all of these candidates.
    #[must_use]
    pub fn reject_all(self, candidates: impl IntoIterator<Item = u32>, code: u32) -> Plan {
        candidates.into_iter().fold(self, |plan, i| plan.reject(i, code))
    }

    /// Sheds all of these candidates.
    #[must_use]
    pub fn shed_all(self, candidates: impl IntoIterator<Item = u32>, code: u32) -> Plan {
        candidates.into_iter().fold(self, |plan, i| plan.shed(i, code))
    }

    fn refuse(mut self, rejection: Rejection) -> Plan {
        self.0.get_or_insert_default().reject.push(rejection);
        self
    }

    /// The answer in the contract's form at this time. `None` leaves the round to the built-in policy.
    #[must_use]
    pub fn decide(self, now_us: u64) -> Option<Decision> {
        let Parts { fire, reject, wake } = self.0?;
        let wake_us = match wake {
            Wake::Never => None,
            Wake::In(micros) => Some(now_us.saturating_add(micros)),
            Wake::At(at) => Some(at),
        };
        Some(Decision { fire, reject, wake_us })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_converts_to_the_decision_it_describes() {
        assert_eq!(Plan::default().decide(5), None);
        let decision = Plan::fire([2, 0]).reject(1, 7).shed(3, 8).decide(5).unwrap();
        let reject =
            vec![Rejection { candidate: 1, code: 7, ends: true }, Rejection { candidate: 3, code: 8, ends: false }];
        assert_eq!(decision, Decision { fire: vec![2, 0], reject, wake_us: None });
        assert_eq!(Plan::wait_us(10).decide(5).unwrap().wake_us, Some(15));
        assert_eq!(Plan::wait_until_us(10).decide(5).unwrap().wake_us, Some(10));
        assert_eq!(Plan::wait().decide(5), Some(Decision::default()));
    }
}
