//! Which languages this machine can build plug-ins in, and what is missing for the others. It looks, and installs nothing.

use super::Machine;
use super::language::Found;
use super::languages::LANGUAGES;

/// What there is for each language.
pub fn examine(machine: &Machine) -> Vec<(&'static str, Found)> {
    LANGUAGES.into_iter().map(|language| (language.name(), language.examine(machine))).collect()
}
