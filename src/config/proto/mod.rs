//! The messages of `proto/`: a model's configuration and the KServe v2 protocol. Generated code and its descriptors; nothing is decided here.

use std::sync::LazyLock;

use prost_reflect::{DescriptorPool, MessageDescriptor};

#[rustfmt::skip]
#[allow(clippy::all, unreachable_pub, missing_debug_implementations, rustdoc::all)]
mod generated;

pub use generated::*;

/// The descriptors of both files, for reflection and for the text and JSON forms of [`ModelConfig`].
pub const DESCRIPTORS: &[u8] = include_bytes!("../../../proto/descriptors.bin");

static MODEL_CONFIG: LazyLock<Option<MessageDescriptor>> = LazyLock::new(|| {
    let pool = DescriptorPool::decode(DESCRIPTORS).ok()?;
    pool.get_message_by_name("inference.ModelConfig")
});

/// The descriptor of [`ModelConfig`]; a test holds that there is one.
pub(crate) fn model_config() -> Option<MessageDescriptor> {
    MODEL_CONFIG.clone()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_descriptors_know_the_configuration() {
        let fields = super::model_config().expect("inference.ModelConfig").fields().count();
        assert_eq!(fields, 25);
    }
}
