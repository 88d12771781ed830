//! The JSON form of a configuration, for the config endpoints and the load request.

use std::path::Path;

use prost::Message as _;
use prost_reflect::{DeserializeOptions, DynamicMessage, SerializeOptions};
use sequor_proto as proto;

use super::descriptor;
use crate::config::fault::{Fault, code};
use crate::config::place::Place;

/// The form of the config endpoints: field names as in the file, 64-bit numbers as numbers, defaults included.
pub fn to_json(config: &proto::ModelConfig) -> serde_json::Value {
    let options =
        SerializeOptions::new().use_proto_field_name(true).stringify_64_bit_integers(false).skip_default_fields(false);
    let message =
        descriptor::model_config().and_then(|d| DynamicMessage::decode(d, config.encode_to_vec().as_slice()).ok());
    message
        .and_then(|m| m.serialize_with_options(serde_json::value::Serializer, &options).ok())
        .unwrap_or(serde_json::Value::Null)
}

/// Parses the JSON form. Names may be as in the file or in camel case. `path` is the source that faults name.
pub fn from_json(path: &Path, text: &str) -> Result<proto::ModelConfig, Fault> {
    let fault = |line: usize, column: usize, what: String| {
        let place = Place { line: u32::try_from(line).unwrap_or(0), column: u32::try_from(column).unwrap_or(0) };
        Fault { at: place.at(path), code: code::PARSE, what }
    };
    let descriptor = descriptor::model_config().ok_or_else(|| fault(0, 0, "no descriptor".to_owned()))?;
    let mut json = serde_json::Deserializer::from_str(text);
    let options = DeserializeOptions::new().deny_unknown_fields(true);
    let message = DynamicMessage::deserialize_with_options(descriptor, &mut json, &options)
        .and_then(|m| json.end().map(|()| m))
        .map_err(|e| {
            let whole = e.to_string();
            let what = whole.rfind(" at line ").and_then(|end| whole.get(..end)).unwrap_or(&whole);
            fault(e.line(), e.column(), what.to_owned())
        })?;
    message.transcode_to().map_err(|e| fault(0, 0, e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::model::text;

    #[test]
    fn configuration_json_keeps_the_names_numbers_and_defaults_of_the_file() {
        let path = Path::new("config.pbtxt");
        let config =
            text::parse(path, "name: 'm' input { name: 'a' data_type: TYPE_FP32 dims: [ 2 ] } sequence_batching { }")
                .unwrap();
        let json = to_json(&config);
        assert_eq!(json["input"][0]["dims"][0], 2);
        assert_eq!(json["input"][0]["data_type"], "TYPE_FP32");
        assert_eq!(json["max_batch_size"], 0);
        assert_eq!(json["sequence_batching"]["max_sequence_idle_microseconds"], 0);
        assert_eq!(json["platform"], "");
        assert!(json.get("dynamic_batching").is_none());
        assert_eq!(from_json(path, &json.to_string()).unwrap(), config);
    }

    #[test]
    fn json_faults_have_a_line() {
        let fault = from_json(Path::new("config"), "{\n \"nmae\": 1}").unwrap_err();
        assert_eq!((fault.at.line, fault.at.column > 0), (2, true));
        assert!(fault.what.contains("nmae"), "{}", fault.what);
        assert!(from_json(Path::new("config"), "{} x").is_err());
    }
}
