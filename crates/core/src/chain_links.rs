//! The place of a sequence among those of its id. `id_chains` keeps it.

use crate::ids::Seq;

/// The neighbours of a sequence among those of its id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ChainLinks {
    /// The next older sequence of the same version. It is to end.
    pub(crate) older: Option<Seq>,
    /// The next younger sequence of the same version. The head of a chain has none.
    pub(crate) younger: Option<Seq>,
    /// Only for a head: the head of another version, and of each version once in the whole list.
    pub(crate) next_head: Option<Seq>,
}
