//! The protobuf descriptor of a model's configuration, for parsing its text and JSON forms.

use std::sync::LazyLock;

use prost_reflect::{DescriptorPool, MessageDescriptor};

static MODEL_CONFIG: LazyLock<Option<MessageDescriptor>> = LazyLock::new(|| {
    let pool = DescriptorPool::decode(sequor_proto::DESCRIPTORS).ok()?;
    pool.get_message_by_name("inference.ModelConfig")
});

/// The descriptor of [`sequor_proto::ModelConfig`]; a test checks that it exists.
pub(super) fn model_config() -> Option<MessageDescriptor> {
    MODEL_CONFIG.clone()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_descriptors_contain_all_fields_of_the_configuration() {
        let fields = super::model_config().expect("inference.ModelConfig").fields().count();
        assert_eq!(fields, 25);
    }
}
