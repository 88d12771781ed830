//! How a client wants its answer written, as far as that is not the protocol's only way.

/// Made with the request, kept until there is an answer.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Form {
    /// Whether the answer says that it is the last one of its request.
    pub(crate) mark_final: bool,
}
