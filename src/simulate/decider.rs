//! A policy from outside of the core, as a run asks it.

use sequor_core::{Policy, PolicyFault, Time};

/// A policy from outside of the core, and what a run wants to know of it besides its answers.
pub trait SimPolicy: Policy {
    /// Instructions it has taken since this was asked last; none where they are not counted.
    fn spent(&mut self) -> Option<u64> {
        None
    }

    /// Its answer was no good.
    fn faulted(&mut self, now: Time, fault: PolicyFault) {
        let _ = (now, fault);
    }

    /// Lines about it for the report.
    fn report_lines(&mut self) -> Vec<String> {
        Vec::new()
    }
}
