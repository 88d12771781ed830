//! A fault of a file: its place, its kind, and a sentence.

use std::fmt;

use super::place::At;

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub at: At,
    /// The kind, as `sequor check` prints it.
    pub code: &'static str,
    pub what: String,
}

/// The kinds of faults that every file can have.
pub mod code {
    /// The text does not parse, or names a field that does not exist.
    pub const PARSE: &str = "E-PARSE";
    /// A value that is not allowed.
    pub const VALUE: &str = "E-VALUE";
}

/// `config.pbtxt:24:5: what`.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.at, self.what)
    }
}

/// `; did you mean "x_lens"?` if one of the names is close, otherwise an empty text.
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
}
