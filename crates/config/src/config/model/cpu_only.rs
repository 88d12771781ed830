//! `cpu_only` of the server's settings: instances that ask for a GPU run on the CPU.

use sequor_proto::ModelConfig;
use sequor_proto::model_instance_group::Kind;

use super::report::Report;
use crate::config::fault::Fault;

/// Why the server does not look for GPUs.
pub const CPU_ONLY: &str = "cpu_only is set in the server's settings";

/// Moves every group of KIND_GPU to the CPU. Returns the index of the first of them.
pub(super) fn move_to_cpu(config: &mut ModelConfig) -> Option<usize> {
    let mut first = None;
    for (n, group) in config.instance_group.iter_mut().enumerate().filter(|(_, group)| group.kind() == Kind::Gpu) {
        group.set_kind(Kind::Cpu);
        group.gpus.clear();
        // The number of instances on one GPU.
        group.count = group.count.max(1);
        first.get_or_insert(n);
    }
    first
}

/// The note for a model that asks for a GPU and runs on the CPU.
pub(super) fn note(report: &Report<'_>, group: usize) -> Fault {
    report.note(&format!("instance_group[{group}].kind"), format!("KIND_GPU runs on the CPU: {CPU_ONLY}"))
}

#[cfg(test)]
mod tests {
    use crate::config::model::settings::Processor;
    use crate::config::model::{ConfigSource, Draft, Options, Sources};

    #[test]
    fn with_cpu_only_every_group_runs_on_the_cpu_and_the_model_has_one_note() {
        let text = "backend: 'onnxruntime' max_batch_size: 4 instance_group [ { kind: KIND_GPU count: 2 gpus: [ 1 ] }, { kind: KIND_GPU } ]";
        let sources = Sources {
            directory: "/models/m".into(),
            config: ConfigSource::Text(text.to_owned()),
            sequor_toml: None,
            files: vec!["model.onnx".to_owned()],
            ..Sources::default()
        };
        let draft = Draft::parse(sources, &Options { cpu_only: true, ..Options::default() }).unwrap();
        assert!(!draft.may_use_gpus());
        assert_eq!(draft.processors(), [Processor::Cpu; 3]);
        let notes: Vec<String> = draft.notes().iter().map(ToString::to_string).collect();
        insta::assert_snapshot!(notes.join("\n"), @"/models/m/config.pbtxt:1:61: KIND_GPU runs on the CPU: cpu_only is set in the server's settings");
    }
}
