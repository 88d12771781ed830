//! The fields that a configuration sets, each with its path and its entry of the table.

use prost_reflect::{DynamicMessage, ReflectMessage as _, Value};
use sequor_proto::ModelConfig;

use super::{FieldStatus, status};
use crate::config::model::descriptor;

/// A field that differs from its default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::config::model) struct SetField {
    /// The path with indices: `input[1].is_shape_tensor`.
    pub(in crate::config::model) path: String,
    pub(in crate::config::model) status: FieldStatus,
}

/// All fields that are set. Leaves out fields inside a refused field, or inside a field without effect.
pub(in crate::config::model) fn set_fields(config: &ModelConfig) -> Vec<SetField> {
    let mut found = Vec::new();
    if let Some(descriptor) = descriptor::model_config() {
        let mut message = DynamicMessage::new(descriptor);
        // The descriptor is that of the same message, so this does not fail.
        if message.transcode_from(config).is_ok() {
            walk(&message, "", &mut found);
        }
    }
    found
}

fn walk(message: &DynamicMessage, prefix: &str, found: &mut Vec<SetField>) {
    let descriptor = message.descriptor();
    let of = descriptor.full_name().trim_start_matches("inference.");
    for (field, value) in message.fields() {
        let path = format!("{prefix}{}", field.name());
        let Some(status) = status(of, field.name()) else { continue };
        found.push(SetField { path: path.clone(), status });
        if matches!(status, FieldStatus::Served(_)) {
            descend(value, &path, found);
        }
    }
}

fn descend(value: &Value, path: &str, found: &mut Vec<SetField>) {
    match value {
        Value::Message(message) => walk(message, &format!("{path}."), found),
        Value::List(items) => {
            for (i, item) in items.iter().enumerate() {
                descend(item, &format!("{path}[{i}]"), found);
            }
        }
        // A map has no order, so all its entries share one path.
        Value::Map(entries) => entries.values().for_each(|entry| descend(entry, &format!("{path}.value"), found)),
        _ => {}
    }
}
