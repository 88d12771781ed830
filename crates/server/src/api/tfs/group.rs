//! Finds the endpoint group of each path of the protocol. It is the group of Triton's endpoint with the same purpose. Unknown paths have no
//! group.

use super::path::{ModelAction, PredictPath};
use crate::config::server::access::ApiGroup;

/// The group of a path over HTTP.
pub(crate) fn http(path: &str) -> Option<ApiGroup> {
    match path.strip_prefix("/v1/")? {
        "config" | "config/reload" => Some(ApiGroup::ModelRepository),
        // The router decodes the part after `models/` before it looks for the action.
        rest => match PredictPath::parse(&decoded(rest.strip_prefix("models/")?))?.action {
            ModelAction::Status => Some(ApiGroup::Health),
            ModelAction::Metadata => Some(ApiGroup::Metadata),
            ModelAction::Predict | ModelAction::NotServed => Some(ApiGroup::Inference),
        },
    }
}

/// The group of a method of `PredictionService`.
pub(crate) fn prediction(method: &str) -> Option<ApiGroup> {
    match method {
        "Predict" | "Classify" | "Regress" | "MultiInference" => Some(ApiGroup::Inference),
        "GetModelMetadata" => Some(ApiGroup::Metadata),
        _ => None,
    }
}

/// The group of a method of `ModelService`.
pub(crate) fn model(method: &str) -> Option<ApiGroup> {
    match method {
        "GetModelStatus" => Some(ApiGroup::Health),
        "HandleReloadConfigRequest" => Some(ApiGroup::ModelRepository),
        _ => None,
    }
}

/// Decodes percent escapes in a path: `%3A` is a colon.
fn decoded(path: &str) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, behind @ ..] = rest {
        let (byte, taken) = if *first == b'%' { escaped(behind) } else { None }.unwrap_or((*first, behind));
        bytes.push(byte);
        rest = taken;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The byte of a percent escape, and the bytes after it.
fn escaped(behind: &[u8]) -> Option<(u8, &[u8])> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    match behind {
        [high, low, rest @ ..] => Some((digit(*high)? << 4 | digit(*low)?, rest)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_decoded_as_the_router_decodes_it() {
        assert_eq!(decoded("m%3Apredict"), "m:predict");
        assert_eq!(decoded("%6d%2fmetadata"), "m/metadata");
        assert_eq!(decoded("100%"), "100%");
        assert_eq!(decoded("%zz%4"), "%zz%4");
        assert_eq!(http("/v1/models/m%3Apredict"), Some(ApiGroup::Inference));
        assert_eq!(http("/v1/models/m%2Fmetadata"), Some(ApiGroup::Metadata));
    }
}
