//! Checks `watch` of `[sequence]`: the model must have floating-point states, and no instance on a GPU.

use sequor_core::DataType;
use sequor_proto::model_instance_group::Kind;

use crate::config::fault::code;
use crate::config::model::report::Report;
use crate::config::model::stateful::is_stateful;
use crate::config::model::{dtype, names};

pub(super) fn check(report: &mut Report<'_>) {
    if report.toml.keys.sequence.watch.is_some()
        && let Some(what) = wrong(report)
    {
        report.toml_fault(&["sequence", "watch"], code::STATE, what);
    }
}

fn wrong(report: &Report<'_>) -> Option<&'static str> {
    if names::is_ensemble(report.config) {
        return Some("watch is for the states of a model, and an ensemble has none; set it for its members");
    }
    let sequence = report.sequence()?;
    // The graph determines the states of the stateful backend, so they are not known yet.
    let is_open = is_stateful(report.config) && sequence.state.is_empty();
    let is_float = |t: DataType| matches!(t, DataType::Fp16 | DataType::Bf16 | DataType::Fp32 | DataType::Fp64);
    let floats = || sequence.state.iter().any(|state| dtype::from_proto(state.data_type).is_some_and(is_float));
    if !is_open && !floats() {
        return Some("watch checks states of type FP16, BF16, FP32 and FP64, and this model has none");
    }
    // A group without a kind gets its place later, once the graph is known.
    let is_on_gpu = report.config.instance_group.iter().any(|group| group.kind() == Kind::Gpu);
    is_on_gpu.then_some(
        "watch works on the CPU only, for the states of a GPU stay in its memory; set KIND_CPU for instance_group, or start the \
         server with --cpu-only",
    )
}

#[cfg(test)]
mod tests {
    use sequor_core::{DataType, Dims};

    use crate::config::fault::Fault;
    use crate::config::model::settings::ModelSettings;
    use crate::config::model::{ConfigSource, Draft, Options, Port, Signature, Sources};

    const SUM: &str = r#"
        name: "m" backend: "onnxruntime" max_batch_size: 4 GROUP
        input { name: "x" data_type: TYPE_FP32 dims: [ 1 ] } output { name: "y" data_type: TYPE_FP32 dims: [ 1 ] }
        sequence_batching { state { input_name: "s" output_name: "t" data_type: TYPE dims: [ 1 ] } }
    "#;

    /// Resolves a configuration on a machine with one GPU.
    fn resolve(text: &str) -> Result<ModelSettings, Vec<String>> {
        let texts = |faults: Vec<Fault>| faults.iter().map(ToString::to_string).collect::<Vec<_>>();
        let sources = Sources {
            directory: "/models/m".into(),
            config: ConfigSource::Text(text.to_owned()),
            sequor_toml: Some("[sequence]\nwatch = \"nan\"\n".to_owned()),
            files: vec!["model.onnx".to_owned()],
            ..Sources::default()
        };
        let mut draft = Draft::parse(sources, &Options::default()).map_err(texts)?;
        draft.place(&Ok(vec![0])).map_err(texts)?;
        let port = |name: &str| Port { name: name.to_owned(), dtype: DataType::Fp32, dims: Dims::from_wire(&[-1, 1]) };
        let (inputs, outputs) = (vec![port("x"), port("s")], vec![port("y"), port("t")]);
        draft.resolve(&Signature { inputs, outputs, ..Signature::default() }).map_err(texts)
    }

    #[test]
    fn only_states_with_nan_on_the_cpu_can_be_watched() {
        let sum =
            |group: &str, dtype: &str| resolve(&SUM.replace("GROUP", group).replace("TYPE ", &format!("{dtype} ")));
        let cpu = "instance_group { kind: KIND_CPU }";
        sum(cpu, "TYPE_FP32").unwrap();
        let no_float = [
            "/models/m/sequor.toml:2:1: watch checks states of type FP16, BF16, FP32 and FP64, and this model has none",
        ];
        assert_eq!(sum(cpu, "TYPE_INT32").unwrap_err(), no_float);
        for group in ["instance_group { kind: KIND_GPU }", ""] {
            let [refused] = &sum(group, "TYPE_FP32").unwrap_err()[..] else { panic!("one fault") };
            assert!(refused.starts_with("/models/m/sequor.toml:2:1: watch works on the CPU only"), "{refused}");
        }
        let ensemble =
            r#"name: "m" platform: "ensemble" ensemble_scheduling { step { model_name: "a" model_version: -1 } }"#;
        let refused = resolve(ensemble).unwrap_err();
        assert!(
            refused.iter().any(|fault| fault.contains("sequor.toml:2:1: watch is for the states of a model")),
            "{refused:?}"
        );
    }
}
