//! The interface of an external policy in a simulation.

use sequor_core::{Policy, PolicyFault, Time};

/// An external policy, with the data that a run needs beyond its answers.
pub trait SimPolicy: Policy {
    /// Instructions since the last call of this function; `None` if they are not counted.
    fn spent(&mut self) -> Option<u64> {
        None
    }

    /// Reports that its answer was invalid.
    fn faulted(&mut self, now: Time, fault: PolicyFault) {
        let _ = (now, fault);
    }

    /// Why the next answer that is reported as invalid is so, in a sentence.
    fn explain(&mut self, what: String) {
        let _ = what;
    }

    /// Lines for the report.
    fn report_lines(&mut self) -> Vec<String> {
        Vec::new()
    }
}
