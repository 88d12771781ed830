//! The environment that the program was started in.

/// A variable of the environment, if it is set and readable.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
