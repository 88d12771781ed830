//! Tests of the verdicts about models, and of the written files.

use super::*;

fn of_triton(models: Vec<MigratedModel>) -> Migration {
    Migration { models, notices: Vec::new(), written: None }
}

fn repository(configs: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, config) in configs {
        let model = directory.path().join(name);
        fs_err::create_dir_all(model.join("1")).unwrap();
        fs_err::write(model.join("1/model.onnx"), "").unwrap();
        fs_err::write(model.join("config.pbtxt"), config).unwrap();
    }
    directory
}

#[test]
fn every_model_has_its_verdict_and_what_to_do() {
    let directory = repository(&[
        ("asr", "platform: 'ensemble'\nensemble_scheduling { }"),
        ("encoder", "backend: 'onnxruntime'"),
        ("scorer", "name: 'scorer'\nbackend: 'python'"),
        ("vad", "backend: 'onnxruntime'\noptimization { cuda { graphs: true } }"),
    ]);
    fs_err::create_dir(directory.path().join("notes")).unwrap();
    let migration = of_triton(models(directory.path()).unwrap());
    let verdicts: Vec<_> = migration.models.iter().map(|model| (model.name.as_str(), model.verdict())).collect();
    assert_eq!(
        verdicts,
        [
            ("asr", MigrationVerdict::Cannot),
            ("encoder", MigrationVerdict::Unchanged),
            ("scorer", MigrationVerdict::Cannot),
            ("vad", MigrationVerdict::Changes)
        ]
    );
    insta::assert_snapshot!(migration.as_table());
    let json = migration.as_json();
    assert_eq!((json["unchanged"].as_u64(), json["cannot"].as_u64()), (Some(1), Some(2)));
    assert_eq!(json["models"][3]["changes"][0]["line"], 2);
    assert!(json["models"][2]["reasons"][0]["instead"].as_str().unwrap().contains("a plug-in takes its place"));
}

#[test]
fn the_directory_of_a_model_is_read_as_a_single_model() {
    let directory = repository(&[("one", "backend: 'onnxruntime'")]);
    assert_eq!(models(&directory.path().join("one")).unwrap().len(), 1);
}

#[test]
fn models_of_the_stateful_backend_get_their_migration_verdicts() {
    let own = include_str!("../../models/accumulate/config.pbtxt");
    let tensorrt = "parameters { key: 'ort_ep' value { string_value: 'trt' } }\nparameters { key: 'compute_precision' value { string_value: 'fp16' } }";
    let wrong = own.replace("\"512\"", "\"8\"");
    let directory = repository(&[
        ("accumulate", own),
        (
            "on_tensorrt",
            &(own.replace("\"accumulate\"", "\"on_tensorrt\"").replace("KIND_CPU", "KIND_AUTO") + tensorrt),
        ),
        ("wrong", &wrong.replace("\"accumulate\"", "\"wrong\"")),
    ]);
    let models = models(directory.path()).unwrap();
    let verdicts: Vec<_> = models.iter().map(MigratedModel::verdict).collect();
    assert_eq!(verdicts, [MigrationVerdict::Unchanged, MigrationVerdict::Changes, MigrationVerdict::Cannot]);
    assert_eq!(models[1].changes.len(), 2, "{models:?}");
    let reasons: Vec<&str> = models[2].reasons.iter().map(|line| line.text.as_str()).collect();
    assert!(
        reasons[0].starts_with("Initial buffer size must be larger than or equal to the max batch size"),
        "{reasons:?}"
    );
}

/// A model whose state has its batch on axis 1, and one without states.
fn with_moved_states() -> tempfile::TempDir {
    let state = "state { input_name: 'INPUT_STATE' output_name: 'OUTPUT_STATE' data_type: TYPE_FP32 dims: [ 2, 3 ] }";
    let config = format!("backend: 'onnxruntime'\nmax_batch_size: 4\nsequence_batching {{ {state} }}");
    let directory = repository(&[("moved", &config), ("plain", "backend: 'onnxruntime'")]);
    let graph = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models/on_axis_1.onnx");
    fs_err::copy(graph, directory.path().join("moved/1/model.onnx")).unwrap();
    directory
}

#[test]
fn migration_writes_the_keys_that_a_triton_configuration_lacks() {
    let (directory, out) = (with_moved_states(), tempfile::tempdir().unwrap());
    let found = models(directory.path()).unwrap();
    assert_eq!(found[0].changes.len(), 1, "{found:?}");
    assert!(found[0].changes[0].text.contains("on axis 1"), "{found:?}");
    let written = write_missing(out.path(), &found).unwrap();
    let file = out.path().join("moved/sequor.toml");
    assert_eq!(written, std::slice::from_ref(&file));
    let text = fs_err::read_to_string(&file).unwrap();
    assert_eq!(text, "schema = 1\n\n[state.INPUT_STATE]\nbatch_axis = 1\n");
    // An existing file stays unchanged.
    let again = format!("{:?}", write_missing(out.path(), &found).unwrap_err());
    assert!(again.contains("the file is there already; add by hand: [state.INPUT_STATE] batch_axis = 1"), "{again}");
    // Once the keys are written, none are missing. Other keys are kept.
    write_missing(directory.path(), &found).unwrap();
    let now = models(directory.path()).unwrap();
    assert_eq!(now.iter().map(MigratedModel::verdict).collect::<Vec<_>>(), [MigrationVerdict::Unchanged; 2]);
    let nothing = write_missing(out.path(), &now).unwrap();
    assert!(nothing.is_empty());
    let table = Migration { written: Some(nothing), ..of_triton(now) }.as_table();
    assert!(table.ends_with("Nothing to write: no model needs a file that it does not have.\n"));
    fs_err::write(directory.path().join("moved/sequor.toml"), "[sequence]\nidle = \"5s\"\n").unwrap();
    let other = tempfile::tempdir().unwrap();
    write_missing(other.path(), &models(directory.path()).unwrap()).unwrap();
    let text = fs_err::read_to_string(other.path().join("moved/sequor.toml")).unwrap();
    assert_eq!(text, "[sequence]\nidle = \"5s\"\n\n[state.INPUT_STATE]\nbatch_axis = 1\n");
}

#[test]
fn models_of_ovms_have_their_verdicts_and_become_a_repository() {
    let folder = tempfile::tempdir().unwrap();
    let graph = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models/recurrent.onnx");
    for (name, file) in [("speech", "net.onnx"), ("plain", "net.onnx"), ("old", "net.xml")] {
        let version = folder.path().join(name).join("1");
        fs_err::create_dir_all(&version).unwrap();
        fs_err::copy(graph, version.join(file)).unwrap();
    }
    let model = |name: &str, more: serde_json::Value| {
        let mut config = json!({ "name": name, "base_path": folder.path().join(name) });
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "config": config })
    };
    let models = [
        model("speech", json!({ "stateful": true, "low_latency_transformation": true, "target_device": "CPU" })),
        model("plain", json!({})),
        model("old", json!({ "stateful": true })),
    ];
    let file = folder.path().join("config.json");
    let monitoring = json!({ "metrics": { "enable": true } });
    fs_err::write(&file, json!({ "model_config_list": models, "monitoring": monitoring }).to_string()).unwrap();
    let out = folder.path().join("out");
    let migration = of_ovms(&file, Some(&out)).unwrap();
    let message = "config.json: monitoring has no effect: --metrics_enable turns metrics on, ";
    assert!(migration.as_table().starts_with(message), "{}", migration.as_table());
    assert!(migration.as_json()["notices"][0].as_str().unwrap().starts_with(message));
    let models = migration.models;
    let verdicts: Vec<_> = models.iter().map(MigratedModel::verdict).collect();
    assert_eq!(verdicts, [MigrationVerdict::Changes, MigrationVerdict::Unchanged, MigrationVerdict::Cannot]);
    assert_eq!(models[0].changes[0].text, "target_device has no effect");
    assert!(models[2].reasons[0].text.starts_with("OpenVINO IR"), "{models:?}");
    let read = |path: &str| fs_err::read_to_string(out.join(path)).unwrap();
    assert!(read("speech/config.pbtxt").contains("state [ { input_name: \"encoder_LSTM_h_in\""));
    assert!(read("speech/sequor.toml").contains("rules = \"ovms\"\nmax_live = 500\nidle_scan = \"5m\""));
    assert!(out.join("speech/1/model.onnx").is_file() && out.join("plain/1/model.onnx").is_file());
    assert!(!out.join("old").exists());
    assert_eq!(
        models_in_repository(&out),
        [("plain", MigrationVerdict::Unchanged), ("speech", MigrationVerdict::Unchanged)]
    );
    let again = of_ovms(&file, Some(&out)).unwrap_err();
    assert!(format!("{again:?}").contains("is not empty"), "{again:?}");
}

fn models_in_repository(folder: &Path) -> Vec<(&'static str, MigrationVerdict)> {
    let name = |name: &str| ["plain", "speech"].into_iter().find(|known| *known == name).unwrap();
    models(folder).unwrap().iter().map(|model| (name(&model.name), model.verdict())).collect()
}
