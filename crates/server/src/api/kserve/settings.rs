//! Trace and log settings for clients. The log applies its settings. Traces are not written yet, so their settings are only stored.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::api::{Code, Status};
use crate::telemetry::log::{self, Levels};

pub(crate) type TraceSettings = BTreeMap<String, Vec<String>>;

/// Every trace setting with its default.
const TRACE: [(&str, &str); 6] = [
    ("trace_file", ""),
    ("trace_level", "OFF"),
    ("trace_rate", "1000"),
    ("trace_count", "-1"),
    ("log_frequency", "0"),
    ("trace_mode", "triton"),
];

/// Maximum bytes of the values of one setting. A value is kept until it is cleared.
const LONGEST: usize = 4096;

fn invalid(text: String) -> Status {
    Status::new(Code::InvalidArgument, "bad_input", text)
}

/// The trace settings of all models, by name. The empty name has the server's settings.
#[derive(Debug, Default)]
pub(crate) struct Traces(Mutex<BTreeMap<String, TraceSettings>>);

impl Traces {
    /// Applies all changes or none, and returns the resulting settings. An empty list resets a setting to the server's value or the
    /// default.
    pub(crate) fn update(&self, model: &str, changes: TraceSettings) -> Result<TraceSettings, Status> {
        for (key, values) in &changes {
            check_trace(key, values)?;
        }
        let mut all = self.0.lock();
        let own = all.entry(model.to_owned()).or_default();
        for (key, values) in changes {
            if values.is_empty() {
                own.remove(&key)
            } else {
                own.insert(key, values)
            };
        }
        let mut settings: TraceSettings =
            TRACE.iter().map(|(key, value)| ((*key).to_owned(), vec![(*value).to_owned()])).collect();
        for name in ["", model] {
            settings.extend(all.get(name).cloned().unwrap_or_default());
        }
        all.retain(|_, own| !own.is_empty());
        Ok(settings)
    }
}

fn check_trace(key: &str, values: &[String]) -> Result<(), Status> {
    if !TRACE.iter().any(|(known, _)| *known == key) {
        return Err(invalid(format!("Unknown trace setting: '{key}'")));
    }
    let bytes: usize = values.iter().map(|value| value.len() + 1).sum();
    if bytes > LONGEST {
        return Err(invalid(format!("the value of '{key}' has {bytes} bytes; the maximum is {LONGEST}")));
    }
    if key == "trace_level" {
        return match values.iter().find(|level| *level != "OFF") {
            None => Ok(()),
            Some(level) if level == "TIMESTAMPS" || level == "TENSORS" => Err(Status::unimplemented(format!(
                "trace_level {level}: traces are not written here yet; it stays OFF"
            ))),
            Some(level) => Err(invalid(format!("trace_level is OFF, TIMESTAMPS or TENSORS, not '{level}'"))),
        };
    }
    let is_number = matches!(key, "trace_rate" | "trace_count" | "log_frequency");
    match values {
        [] => Ok(()),
        [value] if is_number && value.parse::<i64>().is_err() => Err(invalid(format!("{key} is no number: '{value}'"))),
        [_] => Ok(()),
        _ => Err(invalid(format!("{key} takes one value, not {}", values.len()))),
    }
}

/// A log setting, in both protocols.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum LogSetting {
    Bool(bool),
    Number(u32),
    Text(String),
}

/// Applies all changes or none, and returns the resulting settings.
pub(crate) fn update_log(changes: Vec<(String, LogSetting)>) -> Result<Vec<(&'static str, LogSetting)>, Status> {
    let before = log::levels();
    let mut levels = before;
    for (key, value) in changes {
        set_log(&mut levels, &key, value)?;
    }
    if levels != before {
        log::set_levels(levels).map_err(|error| Status::new(Code::Internal, "internal", error.to_string()))?;
    }
    Ok(vec![
        ("log_file", LogSetting::Text(String::new())),
        ("log_info", LogSetting::Bool(levels.info)),
        ("log_warning", LogSetting::Bool(levels.warning)),
        ("log_error", LogSetting::Bool(levels.error)),
        ("log_verbose_level", LogSetting::Number(levels.verbose)),
        ("log_format", LogSetting::Text(FORMAT.to_owned())),
    ])
}

/// Triton's name of the log format, which is fixed when the server starts.
const FORMAT: &str = "default";

fn set_log(levels: &mut Levels, key: &str, value: LogSetting) -> Result<(), Status> {
    match (key, value) {
        ("log_info", LogSetting::Bool(on)) => levels.info = on,
        ("log_warning", LogSetting::Bool(on)) => levels.warning = on,
        ("log_error", LogSetting::Bool(on)) => levels.error = on,
        ("log_verbose_level", LogSetting::Number(level)) => levels.verbose = level,
        ("log_file", LogSetting::Text(file)) if file.is_empty() => {}
        ("log_file", LogSetting::Text(_)) => {
            let text = "log file location can not be updated through network protocol";
            return Err(Status::unimplemented(text));
        }
        ("log_format", LogSetting::Text(format)) if format == FORMAT => {}
        ("log_format", LogSetting::Text(_)) => {
            return Err(Status::unimplemented("the form of the log is settled when the server starts ([log] format)"));
        }
        ("log_info" | "log_warning" | "log_error", _) => return Err(invalid(format!("expect boolean for '{key}'"))),
        ("log_verbose_level", _) => return Err(invalid(format!("expect unsigned integer for '{key}'"))),
        ("log_file" | "log_format", _) => return Err(invalid(format!("expect string for '{key}'"))),
        _ => return Err(invalid(format!("Unknown log setting: '{key}'"))),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(key: &str, values: &[&str]) -> TraceSettings {
        [(key.to_owned(), values.iter().map(|v| (*v).to_owned()).collect())].into()
    }

    #[test]
    fn a_models_trace_settings_override_the_servers_and_fall_back_to_them() {
        let traces = Traces::default();
        let rate = |model: &str, change: TraceSettings| traces.update(model, change).unwrap()["trace_rate"].clone();
        assert_eq!(rate("", TraceSettings::new()), ["1000"]);
        assert_eq!(rate("", said("trace_rate", &["5"])), ["5"]);
        assert_eq!(rate("m", TraceSettings::new()), ["5"]);
        assert_eq!(rate("m", said("trace_rate", &["7"])), ["7"]);
        assert_eq!(rate("", TraceSettings::new()), ["5"]);
        assert_eq!(rate("m", said("trace_rate", &[])), ["5"]);
        assert_eq!(rate("", said("trace_rate", &[])), ["1000"]);
    }

    #[test]
    fn an_invalid_trace_setting_changes_no_setting() {
        let traces = Traces::default();
        let refused = |key: &str, values: &[&str]| {
            let changes = said("trace_count", &["3"]).into_iter().chain(said(key, values)).collect();
            let status = traces.update("", changes).unwrap_err();
            assert_eq!(traces.update("", TraceSettings::new()).unwrap()["trace_count"], ["-1"]);
            status.code
        };
        assert_eq!(refused("trace_level", &["TIMESTAMPS"]), Code::Unimplemented);
        assert_eq!(refused("trace_level", &["LOUD"]), Code::InvalidArgument);
        assert_eq!(refused("trace_rate", &["often"]), Code::InvalidArgument);
        assert_eq!(refused("trace_rate", &["1", "2"]), Code::InvalidArgument);
        assert_eq!(refused("bogus", &["1"]), Code::InvalidArgument);
        assert_eq!(refused("trace_file", &[&"f".repeat(LONGEST)]), Code::InvalidArgument);
        assert_eq!(refused("trace_level", &["OFF"; LONGEST]), Code::InvalidArgument);
    }

    #[test]
    fn invalid_log_settings_are_refused() {
        let refused = |key: &str, value| update_log(vec![(key.to_owned(), value)]).unwrap_err();
        assert_eq!(refused("log_info", LogSetting::Number(1)).message, "expect boolean for 'log_info'");
        assert_eq!(refused("log_verbose_level", LogSetting::Bool(true)).code, Code::InvalidArgument);
        assert_eq!(refused("log_file", LogSetting::Text("/x".to_owned())).code, Code::Unimplemented);
        assert_eq!(refused("log_format", LogSetting::Text("ISO8601".to_owned())).code, Code::Unimplemented);
        assert_eq!(refused("bogus", LogSetting::Bool(true)).message, "Unknown log setting: 'bogus'");
        assert_eq!(update_log(Vec::new()).unwrap().len(), 6);
    }
}
