//! Faults of the server's files and the models'. Faults are collected, never stopped at the first.

pub use sequor_files::fault::{Fault, did_you_mean};

use crate::error::LoadError;

/// The kinds of faults, as `sequor check` prints them.
pub mod code {
    pub use sequor_files::fault::code::{PARSE, VALUE};

    /// The file cannot be read.
    pub const FILE: &str = "E-FILE";
    /// Understood, and not served (yet).
    pub const NOT_SERVED: &str = "E-NOT-SERVED";
    pub const NAME: &str = "E-NAME";
    pub const BACKEND: &str = "E-BACKEND";
    pub const VERSIONS: &str = "E-VERSIONS";
    pub const INPUT: &str = "E-INPUT";
    pub const OUTPUT: &str = "E-OUTPUT";
    pub const RESHAPE: &str = "E-RESHAPE";
    pub const INSTANCES: &str = "E-INSTANCES";
    pub const BATCHING: &str = "E-BATCHING";
    pub const SEQUENCE: &str = "E-SEQUENCE";
    pub const CONTROL: &str = "E-CONTROL";
    pub const STATE: &str = "E-STATE";
    pub const STATE_DIMS: &str = "E-STATE-DIMS";
    pub const STATE_AXIS: &str = "E-STATE-AXIS";
    pub const INITIAL: &str = "E-INITIAL";
    pub const CONSTANT: &str = "E-CONSTANT";
    /// The configuration and the graph do not go together.
    pub const COUNT: &str = "E-COUNT";
    pub const NO_INPUT: &str = "E-NO-INPUT";
    pub const NO_OUTPUT: &str = "E-NO-OUTPUT";
    pub const TYPE: &str = "E-TYPE";
    pub const DIMS: &str = "E-DIMS";
    pub const FEATURE: &str = "E-FEATURE";
    /// A plug-in that is missing, wrong, or another than was named.
    pub const PLUGIN: &str = "E-PLUGIN";
    /// Something of the runtime or of this machine.
    pub const RUNTIME: &str = "E-RUNTIME";
    /// A sample did not run.
    pub const RUN: &str = "E-RUN";
    /// A folder of the repository that holds no model.
    pub const NOTE_NO_MODEL: &str = "N-NO-MODEL";
    /// Full of sequences, the model needs more memory than it may have.
    pub const NOTE_MEMORY: &str = "N-MEMORY";
    /// What a sample gives depends on what else is in its batch.
    pub const NOTE_BATCH: &str = "N-BATCH";
    /// A first value of a state that is not used as it is written.
    pub const NOTE_INITIAL: &str = "N-INITIAL";
}

impl From<Fault> for LoadError {
    fn from(fault: Fault) -> Self {
        LoadError::Config { at: fault.at, code: fault.code, what: fault.what }
    }
}

/// Puts faults in the order of their files and lines; a fault said twice is said once.
pub fn in_order(mut faults: Vec<Fault>) -> Vec<Fault> {
    faults.sort_by(|a, b| (&a.at.path, a.at.line, a.at.column).cmp(&(&b.at.path, b.at.line, b.at.column)));
    let mut kept: Vec<Fault> = Vec::with_capacity(faults.len());
    for fault in faults {
        if !kept.contains(&fault) {
            kept.push(fault);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::At;

    #[test]
    fn faults_stand_in_file_order_and_once() {
        let fault = |line| Fault { at: At { line, ..At::default() }, code: code::PARSE, what: String::new() };
        let lines: Vec<u32> = in_order(vec![fault(3), fault(1), fault(3)]).iter().map(|f| f.at.line).collect();
        assert_eq!(lines, [1, 3]);
    }
}
