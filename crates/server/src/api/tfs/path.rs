//! Parses a path below `/v1/models/`: a model, an optional version, and an action.

/// An action on a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ModelAction {
    Status,
    Metadata,
    Predict,
    /// `:classify` and `:regress`.
    NotServed,
}

/// A path below `/v1/models/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PredictPath {
    pub(super) model: String,
    /// Empty means that the server chooses, as does version 0.
    pub(super) version: String,
    pub(super) label: Option<String>,
    pub(super) action: ModelAction,
}

impl PredictPath {
    /// Parses `NAME[/versions/V|/labels/L][/metadata|:predict|:classify|:regress]`.
    pub(super) fn parse(path: &str) -> Option<PredictPath> {
        let (path, action) = match path.strip_suffix("/metadata") {
            Some(path) => (path, ModelAction::Metadata),
            None => match path.rsplit_once(':') {
                Some((path, "predict")) => (path, ModelAction::Predict),
                Some((path, "classify" | "regress")) => (path, ModelAction::NotServed),
                _ => (path, ModelAction::Status),
            },
        };
        let mut parts = path.split('/');
        let model = parts.next().filter(|model| !model.is_empty())?.to_owned();
        let (version, label) = match (parts.next(), parts.next(), parts.next()) {
            (None, None, None) => (String::new(), None),
            (Some("versions"), Some(version), None) if is_number(version) => {
                (version.trim_start_matches('0').to_owned(), None)
            }
            (Some("labels"), Some(label), None) if !label.is_empty() => (String::new(), Some(label.to_owned())),
            _ => return None,
        };
        Some(PredictPath { model, version, label, action })
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_a_model_a_version_and_an_action() {
        let parsed =
            |path: &str| PredictPath::parse(path).map(|p| (p.model, p.version, p.label.unwrap_or_default(), p.action));
        let named = |model: &str, version: &str, label: &str, action| {
            Some((model.to_owned(), version.to_owned(), label.to_owned(), action))
        };
        let rows = [
            ("m", named("m", "", "", ModelAction::Status)),
            ("m/metadata", named("m", "", "", ModelAction::Metadata)),
            ("m:predict", named("m", "", "", ModelAction::Predict)),
            ("m/versions/3:predict", named("m", "3", "", ModelAction::Predict)),
            ("m/versions/0/metadata", named("m", "", "", ModelAction::Metadata)),
            ("m/versions/3", named("m", "3", "", ModelAction::Status)),
            ("m/versions/3/metadata", named("m", "3", "", ModelAction::Metadata)),
            ("m/labels/stable:predict", named("m", "", "stable", ModelAction::Predict)),
            ("a:b:predict", named("a:b", "", "", ModelAction::Predict)),
            ("m:classify", named("m", "", "", ModelAction::NotServed)),
            ("m/versions/x:predict", None),
            ("m/versions", None),
            ("m/versions/3/4", None),
            ("", None),
        ];
        for (path, want) in rows {
            assert_eq!(parsed(path), want, "{path}");
        }
    }
}
