//! The output of a run for a state that is not in the arena, before a commit takes it.

use super::device_variable::Growth;
use super::host_variable::HostVariable;

#[derive(Debug)]
pub(super) enum Left {
    Nothing,
    /// One value for each row.
    HostVariable(Vec<HostVariable>),
    Growth(Growth),
}
