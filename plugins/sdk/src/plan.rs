//! What to do with the candidates.

/// An answer, put together by hand: `Plan::fire(order).reject(3, 1)`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan(Option<Parts>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Parts {
    fire: Vec<u32>,
    reject: Vec<u32>,
    code: u32,
    wake: Wake,
}

/// When the server asks again although nothing has come or gone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Wake {
    #[default]
    Never,
    /// So many microseconds from now.
    In(u64),
    /// At this time of `now_us`.
    At(u64),
}

/// The answer in the words of the contract. None: what the server would do without a plug-in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    pub fire: Vec<u32>,
    pub reject: Vec<u32>,
    pub reject_code: u32,
    pub wake_us: Option<u64>,
}

impl Plan {
    /// These run now, as one batch, in this order.
    #[must_use]
    pub fn fire(order: impl IntoIterator<Item = u32>) -> Plan {
        Plan(Some(Parts { fire: order.into_iter().collect(), ..Parts::default() }))
    }

    /// Nothing runs until something comes or completes.
    #[must_use]
    pub fn wait() -> Plan {
        Plan(Some(Parts::default()))
    }

    /// Nothing runs until something comes or completes, or so many microseconds have passed.
    #[must_use]
    pub fn wait_us(micros: u64) -> Plan {
        Plan(Some(Parts { wake: Wake::In(micros), ..Parts::default() }))
    }

    /// Nothing runs until something comes or completes, or this time of `now_us` has come.
    #[must_use]
    pub fn wait_until_us(at: u64) -> Plan {
        Plan(Some(Parts { wake: Wake::At(at), ..Parts::default() }))
    }

    /// This one is refused now, and its sequence ends. `code` is the plug-in's own number for why; one answer has one, the last that is given.
    /// A plan that rejects is an answer of its own: what it does not fire waits, even if it began as the default.
    #[must_use]
    pub fn reject(mut self, candidate: u32, code: u32) -> Plan {
        let parts = self.0.get_or_insert_default();
        parts.reject.push(candidate);
        parts.code = code;
        self
    }

    /// Rejects all of these.
    #[must_use]
    pub fn reject_all(self, candidates: impl IntoIterator<Item = u32>, code: u32) -> Plan {
        candidates.into_iter().fold(self, |plan, i| plan.reject(i, code))
    }

    /// In the words of the contract, at this time.
    #[must_use]
    pub fn decide(self, now_us: u64) -> Option<Decision> {
        let Parts { fire, reject, code, wake } = self.0?;
        let wake_us = match wake {
            Wake::Never => None,
            Wake::In(micros) => Some(now_us.saturating_add(micros)),
            Wake::At(at) => Some(at),
        };
        Some(Decision { fire, reject, reject_code: code, wake_us })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_says_what_it_is_made_of() {
        assert_eq!(Plan::default().decide(5), None);
        let decision = Plan::fire([2, 0]).reject(1, 7).decide(5).unwrap();
        assert_eq!(decision, Decision { fire: vec![2, 0], reject: vec![1], reject_code: 7, wake_us: None });
        assert_eq!(Plan::wait_us(10).decide(5).unwrap().wake_us, Some(15));
        assert_eq!(Plan::wait_until_us(10).decide(5).unwrap().wake_us, Some(10));
        assert_eq!(Plan::wait().decide(5), Some(Decision::default()));
    }
}
