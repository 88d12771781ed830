//! Features and plug-ins of a model: checks `[[feature]]` and `[plugins.scheduler]` of sequor.toml against the model, and resolves them.

use sequor_core::DataType;

use super::dtype;
use super::report::Report;
use super::sequor_toml::{self, FeatureType, From};
use super::settings::{Feature, FeatureFrom, InitializerPlugin, ProcessorPlugin, SchedulerPlugin};
use crate::config::fault::{code, did_you_mean};

/// Checks that the inputs of features exist and have a suitable type.
pub(super) fn check(report: &mut Report<'_>) {
    for (n, feature) in report.toml.keys.feature.iter().enumerate() {
        if feature.from != From::Input {
            continue;
        }
        let n = n.to_string();
        let at = ["feature", n.as_str(), "key"];
        if !report.toml.keys.plugins.processor.is_empty() {
            let what = format!(
                "feature \"{}\": from = \"input\" is not served yet for a model with processors, which change its inputs",
                feature.name
            );
            report.toml_fault(&["feature", n.as_str(), "from"], code::NOT_SERVED, what);
            continue;
        }
        let Some(input) = report.config.input.iter().find(|i| i.name == feature.key) else {
            let near = did_you_mean(&feature.key, report.config.input.iter().map(|i| i.name.as_str()));
            let what = format!("feature \"{}\": clients send no input \"{}\"{near}", feature.name, feature.key);
            report.toml_fault(&at, code::NO_INPUT, what);
            continue;
        };
        let is_text = dtype::from_proto(input.data_type) == Some(DataType::Bytes);
        if is_text != (feature.r#type == FeatureType::Key) {
            let what = format!(
                "feature \"{}\": input \"{}\" is {}; a \"key\" comes from TYPE_STRING, a \"number\" from the others",
                feature.name,
                feature.key,
                input.data_type().as_str_name(),
            );
            report.toml_fault(&at, code::TYPE, what);
        }
    }
}

pub(super) fn features(report: &Report<'_>) -> Vec<Feature> {
    let feature = |feature: &sequor_toml::FeatureSection| {
        let from = match feature.from {
            From::Parameter => FeatureFrom::Parameter(feature.key.clone()),
            From::Header => FeatureFrom::Header(feature.key.to_ascii_lowercase()),
            From::Input => FeatureFrom::Input(report.config.input.iter().position(|i| i.name == feature.key)?),
        };
        Some(Feature { name: feature.name.clone(), from, kind: feature.kind()? })
    };
    report.toml.keys.feature.iter().filter_map(feature).collect()
}

pub(super) fn scheduler(report: &Report<'_>) -> Option<SchedulerPlugin> {
    let plugin = report.toml.keys.plugins.scheduler.as_ref()?;
    let config = plugin.config.as_ref().and_then(|table| serde_json::to_string(table).ok());
    Some(SchedulerPlugin {
        name: plugin.r#use.clone(),
        sha256: plugin.sha256.as_ref().map(|text| text.to_ascii_lowercase()),
        time: plugin.time.map(|time| time.0),
        memory: plugin.memory.map(|memory| memory.0),
        max_wait: plugin.max_wait.map(|span| span.0),
        config: config.unwrap_or_else(|| "{}".to_owned()),
        at: report.toml.at(&["plugins", "scheduler", "use"]),
    })
}

pub(super) fn processors(report: &Report<'_>) -> Vec<ProcessorPlugin> {
    let processor = |(n, plugin): (usize, &sequor_toml::ProcessorKeys)| {
        let config = plugin.config.as_ref().and_then(|table| serde_json::to_string(table).ok());
        ProcessorPlugin {
            name: plugin.r#use.clone(),
            sha256: plugin.sha256.as_ref().map(|text| text.to_ascii_lowercase()),
            time: plugin.time.map(|time| time.0),
            memory: plugin.memory.map(|memory| memory.0),
            config: config.unwrap_or_else(|| "{}".to_owned()),
            bypass: plugin.on_failure == sequor_toml::WhenProcessorFails::Bypass,
            files: plugin.files.clone(),
            is_model: false,
            parameters: Vec::new(),
            at: report.toml.at(&["plugins", "processor", &n.to_string(), "use"]),
        }
    };
    let processors = report.toml.keys.plugins.processor.iter().enumerate().map(processor);
    processors.chain(model_plugin(report)).collect()
}

/// The processor of a model without a graph.
fn model_plugin(report: &Report<'_>) -> Option<ProcessorPlugin> {
    let plugin = report.toml.keys.model.as_ref()?;
    let config = plugin.config.as_ref().and_then(|table| serde_json::to_string(table).ok());
    let parameters = report.config.parameters.iter();
    Some(ProcessorPlugin {
        name: plugin.plugin.clone(),
        sha256: plugin.sha256.as_ref().map(|text| text.to_ascii_lowercase()),
        time: plugin.time.map(|time| time.0),
        memory: plugin.memory.map(|memory| memory.0),
        config: config.unwrap_or_else(|| "{}".to_owned()),
        bypass: false,
        files: plugin.files.clone(),
        is_model: true,
        parameters: parameters.map(|(name, value)| (name.clone(), value.string_value.clone())).collect(),
        at: report.toml.at(&["model", "plugin"]),
    })
}

pub(super) fn initializer(report: &Report<'_>) -> Option<InitializerPlugin> {
    let plugin = report.toml.keys.plugins.initializer.as_ref()?;
    let config = plugin.config.as_ref().and_then(|table| serde_json::to_string(table).ok());
    Some(InitializerPlugin {
        name: plugin.r#use.clone(),
        sha256: plugin.sha256.as_ref().map(|text| text.to_ascii_lowercase()),
        time: plugin.time.map(|time| time.0),
        memory: plugin.memory.map(|memory| memory.0),
        config: config.unwrap_or_else(|| "{}".to_owned()),
        files: plugin.files.clone(),
        keep: plugin.keep.map_or(KEEP, |keep| keep.0),
        copy_if_same: plugin.copy_if_same.clone(),
        at: report.toml.at(&["plugins", "initializer", "use"]),
    })
}

/// Maximum bytes of kept states, if the model sets none.
const KEEP: u64 = 64 << 20;
