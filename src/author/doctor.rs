//! Reports the languages in which this machine can build plug-ins, and what is missing for the others. It installs nothing.

use super::Machine;
use super::language::Found;
use super::languages::LANGUAGES;

/// The state of each language on this machine.
pub fn examine(machine: &Machine) -> Vec<(&'static str, Found)> {
    LANGUAGES.into_iter().map(|language| (language.name(), language.examine(machine))).collect()
}
