//! A fault of a file: where, which kind, and a sentence. Faults are collected, never stopped at the first.

use std::fmt;

use crate::error::{At, LoadError};

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub at: At,
    pub code: &'static str,
    pub what: String,
}

/// The kinds of faults, as `sequor check` prints them.
pub mod code {
    /// The file cannot be read.
    pub const FILE: &str = "E-FILE";
    /// The text does not parse, or names a field that does not exist.
    pub const PARSE: &str = "E-PARSE";
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
    /// A value of sequor.toml, of the environment or of a flag.
    pub const VALUE: &str = "E-VALUE";
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

/// `config.pbtxt:24:5: what`.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.at, self.what)
    }
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

/// `; did you mean "x_lens"?` if one of the names is close, else nothing.
pub fn did_you_mean<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let near = names.into_iter().map(|n| (strsim::damerau_levenshtein(name, n), n)).min_by_key(|(far, _)| *far);
    match near {
        Some((far, near)) if far <= (near.chars().count() / 3).max(1) && far < near.chars().count() => {
            format!("; did you mean \"{near}\"?")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_name_is_offered_and_a_far_one_is_not() {
        assert_eq!(did_you_mean("x_len", ["x", "x_lens"]), "; did you mean \"x_lens\"?");
        assert_eq!(did_you_mean("speech", ["x_lens"]), "");
        assert_eq!(did_you_mean("a", ["b"]), "");
    }

    #[test]
    fn faults_stand_in_file_order_and_once() {
        let fault = |line| Fault { at: At { line, ..At::default() }, code: code::PARSE, what: String::new() };
        let lines: Vec<u32> = in_order(vec![fault(3), fault(1), fault(3)]).iter().map(|f| f.at.line).collect();
        assert_eq!(lines, [1, 3]);
    }
}
