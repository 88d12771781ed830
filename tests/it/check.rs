//! Tests `sequor check` on good and broken repositories: it reports all faults that `serve` would report, and scripts can use its exit
//! code.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::python::prepared;
use crate::server::{Call, copy, models, root};

fn check(repository: &Path) -> (Option<i32>, Value) {
    let ended = Call::sequor().arguments(["check", "--output", "json"]).arguments([repository]).end();
    (ended.code, serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {ended:?}")))
}

fn found<'a>(json: &'a Value, severity: &str) -> Vec<&'a Value> {
    json["findings"].as_array().unwrap().iter().filter(|f| f["severity"] == severity).collect()
}

#[test]
fn good_models_are_run() {
    let ended = Call::sequor().arguments(["check"]).arguments([models()]).end();
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
    // The rounding of a row in a batch depends on the machine; the independence of rows does not.
    let steady = ended.stdout.lines().map(|line| match line.split_once("dry run: ") {
        Some((before, after)) => {
            assert!(after.contains("bit for bit") || after.contains("but for rounding"), "{line}");
            format!("{before}dry run: [...]\n")
        }
        None => format!("{line}\n"),
    });
    insta::assert_snapshot!(steady.collect::<String>());
}

#[test]
fn a_model_whose_sequences_have_text_ids_is_run() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("accumulate");
    copy(&models().join("accumulate"), &model);
    let config = fs::read_to_string(model.join("config.pbtxt")).unwrap();
    assert!(config.contains("TYPE_UINT64"));
    fs::write(model.join("config.pbtxt"), config.replace("TYPE_UINT64", "TYPE_STRING")).unwrap();
    let (code, message) = check(&model);
    assert_eq!((code, found(&message, "ok").len()), (Some(0), 1), "{message:#}");
}

#[test]
fn check_finds_integer_outputs_equal_bit_for_bit() {
    let (code, message) = check(&models().join("accumulator_int32"));
    assert_eq!(code, Some(0));
    let good = found(&message, "ok");
    assert_eq!(good.len(), 1, "one model may be checked as well");
    assert_eq!(good[0]["facts"]["dry_run"]["compared"], "same", "{message}");
}

#[test]
fn check_reports_every_fault_of_every_model_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let repository = folder.path().join("repository");
    let good = models().join("accumulator_fp32");
    copy(&good, &repository.join("accumulator_fp32"));
    fs::create_dir(repository.join("notes")).unwrap();
    let mut cases = Vec::new();
    for case in fs::read_dir(root().join("tests/cases/refused")).unwrap().map(|entry| entry.unwrap().path()) {
        let name = case.file_name().unwrap().to_str().unwrap().to_owned();
        copy(&good, &repository.join(&name));
        copy(&case, &repository.join(&name));
        cases.extend(fs::read_to_string(case.join("refused.txt")).unwrap().lines().map(str::to_owned));
    }
    assert!(cases.len() >= 6);
    let (code, json) = check(&repository);
    assert_eq!(code, Some(3), "{json:#}");
    let errors = found(&json, "error");
    assert_eq!((errors.len(), &json["errors"]), (cases.len(), &Value::from(cases.len())), "{json:#}");
    let message: Vec<String> = errors
        .iter()
        .map(|f| format!("repository/{}: {}", f["place"].as_str().unwrap(), f["text"].as_str().unwrap()))
        .collect();
    for case in cases {
        assert!(message.iter().any(|line| line.starts_with(&case)), "{case}\nis none of\n{}", message.join("\n"));
    }
    for error in errors {
        assert!(error["code"].as_str().unwrap().starts_with("E-"), "{error}");
        assert!(error["file"].is_string(), "{error}");
    }
    assert_eq!(found(&json, "note")[0]["place"], "notes");
    assert_eq!(found(&json, "ok")[0]["place"], "accumulator_fp32");
}

#[test]
fn an_absent_model_file_is_explained_by_the_files_of_its_version() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("repository/accumulator_fp32");
    copy(&models().join("accumulator_fp32"), &model);
    fs::rename(model.join("1/model.onnx"), model.join("1/sums.onnx")).unwrap();
    let (code, json) = check(&folder.path().join("repository"));
    let errors = found(&json, "error");
    assert_eq!((code, errors.len(), &errors[0]["code"]), (Some(3), 1, &Value::from("E-FILE")), "{json:#}");
    assert_eq!(errors[0]["file"], "accumulator_fp32/1/model.onnx");
    let text = errors[0]["text"].as_str().unwrap();
    assert!(text.contains("has \"sums.onnx\": set default_model_filename in config.pbtxt to it"), "{text}");
}

#[test]
fn a_cut_model_file_has_another_code_than_an_absent_one() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("repository/accumulator_fp32");
    copy(&models().join("accumulator_fp32"), &model);
    let graph = fs::read(model.join("1/model.onnx")).unwrap();
    for wrong in [&graph[..graph.len() / 2], b"no graph"] {
        fs::write(model.join("1/model.onnx"), wrong).unwrap();
        let (code, json) = check(&folder.path().join("repository"));
        let errors = found(&json, "error");
        assert_eq!((code, errors.len(), &errors[0]["code"]), (Some(3), 1, &Value::from("E-GRAPH")), "{json:#}");
        assert_eq!(errors[0]["file"], "accumulator_fp32/1/model.onnx", "{json:#}");
    }
}

#[test]
fn a_folder_without_a_model_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let ended = Call::sequor().arguments(["check"]).arguments([folder.path()]).end();
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.stderr.contains("no model in "), "{ended:?}");
}

#[test]
fn a_name_in_two_repositories_is_one_error() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    for repository in [&first, &second] {
        copy(&models().join("accumulator_fp32"), &repository.join("accumulator_fp32"));
    }
    copy(&models().join("accumulator_int32"), &second.join("accumulator_int32"));
    let ended = Call::sequor().arguments(["check", "--output", "json"]).arguments([&first, &second]).end();
    let body: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((ended.code, &body["errors"]), (Some(3), &Value::from(1)), "{body:#}");
    let errors = found(&body, "error");
    assert_eq!((&errors[0]["place"], &errors[0]["code"]), (&"accumulator_fp32".into(), &"E-NAME".into()));
    let sentence = "failed to poll model 'accumulator_fp32': not unique across all model repositories [found as ";
    assert!(errors[0]["text"].as_str().unwrap().starts_with(sentence), "{body:#}");
    assert_eq!(found(&body, "ok")[0]["place"], "accumulator_int32");
}

#[test]
fn a_model_that_needs_a_directory_for_states_is_checked_with_the_servers_settings() {
    let folder = tempfile::tempdir().unwrap();
    let (model, settings) = (folder.path().join("models/accumulator_int32"), folder.path().join("server.toml"));
    copy(&models().join("accumulator_int32"), &model);
    fs::write(model.join("sequor.toml"), "[durability]\nwhen = \"drain\"\n").unwrap();
    let check = |text: &str| {
        fs::write(&settings, text).unwrap();
        let call = Call::sequor().arguments(["check".as_ref(), folder.path().join("models").as_os_str()]);
        call.arguments(["--config".as_ref(), settings.as_os_str()]).end()
    };
    let refused = check("schema = 1\n");
    assert_eq!(refused.code, Some(3), "{refused:?}");
    let place = "accumulator_int32/sequor.toml:2:1  error  [durability] needs a place for states";
    assert!(refused.stdout.contains(place) && refused.stdout.contains(" E-STORE\n"), "{refused:?}");
    let good = check("[state]\ndir = \"states\"\n");
    assert!(good.code == Some(0) && !good.stdout.contains("N-STORE"), "{good:?}");
    let (code, json) = self::check(&folder.path().join("models"));
    let notes = found(&json, "note");
    assert_eq!((code, notes.len(), &notes[0]["code"]), (Some(0), 1, &Value::from("N-STORE")), "{json:#}");
}

#[test]
fn a_text_file_that_is_not_in_the_bytes_layout_is_a_note() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("repository/text");
    copy(&root().join("tests/cases/states/text"), &model);
    let graph = fs::read_to_string(model.join("graph.txt")).unwrap();
    fs::create_dir_all(model.join("1")).unwrap();
    fs::copy(root().join("tests/models").join(graph.trim()), model.join("1/model.onnx")).unwrap();
    let (code, message) = check(&folder.path().join("repository"));
    assert_eq!((code, found(&message, "note").len()), (Some(0), 0), "{message:#}");
    fs::write(model.join("initial_state/greeting"), [9, 0, 0, 0, b'h', b'i']).unwrap();
    let (code, message) = check(&folder.path().join("repository"));
    let notes = found(&message, "note");
    assert_eq!((code, notes.len(), &notes[0]["code"]), (Some(0), 1, &Value::from("N-INITIAL")), "{message:#}");
    assert_eq!(notes[0]["file"], "text/initial_state/greeting");
    assert!(notes[0]["text"].as_str().unwrap().contains("element 0 of 1 at byte 0"), "{message:#}");
}

#[test]
fn a_model_whose_answers_depend_on_padding_is_a_note() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("repository/padded");
    fs::create_dir_all(model.join("1")).unwrap();
    fs::copy(root().join("tests/models/padded.onnx"), model.join("1/model.onnx")).unwrap();
    let output =
        |name: &str, dtype: &str, dims: i8| format!("output {{ name: '{name}' data_type: {dtype} dims: {dims} }}\n");
    let config = [
        "max_batch_size: 4 instance_group { count: 1 kind: KIND_CPU } dynamic_batching { max_queue_delay_microseconds: 20000 }\n".to_owned(),
        "input { name: 'INPUT' data_type: TYPE_FP32 dims: -1 }\n".to_owned(),
        output("OUTPUT", "TYPE_FP32", -1),
        output("HALF", "TYPE_FP32", -1),
        output("SUM", "TYPE_FP32", 1),
        output("OUT_LENS", "TYPE_INT64", 1),
    ];
    fs::write(model.join("config.pbtxt"), config.concat()).unwrap();
    let padded = "[input.INPUT]\nragged = \"pad\"\nlengths = \"LENS\"\nmask = \"MASK\"\n";
    let half = "[output.HALF]\ncrop = { like = \"INPUT\", ratio = \"1/2\" }\n";
    let whole = "[output.OUTPUT]\ncrop = { lengths = \"OUT_LENS\" }\n";
    for (crops, notes) in [(format!("{half}{whole}"), 0), (half.to_owned(), 1)] {
        fs::write(model.join("sequor.toml"), format!("{padded}{crops}")).unwrap();
        let (code, message) = check(&folder.path().join("repository"));
        let found = found(&message, "note");
        assert_eq!((code, found.len()), (Some(0), notes), "{message:#}");
        for note in found {
            assert_eq!(note["code"], "N-PADDING", "{message:#}");
            assert!(note["text"].as_str().unwrap().contains("output \"OUTPUT\" of a sample differs"), "{message:#}");
        }
    }
}

/// The model appends at the end of its caches, so the padding must be in front.
#[test]
fn a_model_whose_answers_depend_on_the_padding_of_its_state_is_a_note() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("repository/attention");
    fs::create_dir_all(model.join("1")).unwrap();
    fs::copy(root().join("tests/models/attention.onnx"), model.join("1/model.onnx")).unwrap();
    let state = |name: &str| {
        format!(
            "state {{ input_name: '{name}' output_name: '{name}_OUT' data_type: TYPE_FP32 dims: [ -1, 4 ]
               initial_state {{ name: 'none' data_type: TYPE_FP32 dims: [ 0, 4 ] zero_data: true }} }}\n"
        )
    };
    let config = [
        "max_batch_size: 4 instance_group { count: 1 kind: KIND_CPU }\n".to_owned(),
        "input { name: 'INPUT' data_type: TYPE_FP32 dims: [ -1, 4 ] }\n".to_owned(),
        "output { name: 'OUTPUT' data_type: TYPE_FP32 dims: 4 }\n".to_owned(),
        "output { name: 'KEYS_OUT' data_type: TYPE_FP32 dims: [ -1, 4 ] }\n".to_owned(),
        "sequence_batching { max_sequence_idle_microseconds: 600000000\n".to_owned(),
        "oldest { max_candidate_sequences: 4 max_queue_delay_microseconds: 20000 }\n".to_owned(),
        state("KEYS"),
        state("VALUES"),
        "}\n".to_owned(),
    ];
    fs::write(model.join("config.pbtxt"), config.concat()).unwrap();
    for (side, notes) in [("left", 0), ("right", 1)] {
        let pad = |name: &str| format!("[state.{name}]\npad = {{ side = \"{side}\", mask = \"MASK\" }}\n");
        fs::write(model.join("sequor.toml"), [pad("KEYS"), pad("VALUES")].concat()).unwrap();
        let (code, message) = check(&folder.path().join("repository"));
        let found_notes = found(&message, "note");
        assert_eq!((code, found_notes.len()), (Some(0), notes), "{message:#}");
        for note in found_notes {
            assert_eq!(note["code"], "N-PADDING", "{message:#}");
            let text = note["text"].as_str().unwrap();
            assert!(text.contains("output \"KEYS_OUT\"") && text.contains("a sequence with a longer state"), "{text}");
        }
        assert_ne!(found(&message, "ok")[0]["facts"]["dry_run"]["state_padding"], "never_met", "{message:#}");
    }
}

#[test]
fn models_that_are_wrong_in_batches_get_a_note() {
    let config = "max_batch_size: 4 instance_group { count: 1 kind: KIND_CPU }
        input { name: 'INPUT' data_type: TYPE_FP32 dims: 4 } output { name: 'OUTPUT' data_type: TYPE_FP32 dims: 4 }
        sequence_batching { max_sequence_idle_microseconds: 600000000
          oldest { max_candidate_sequences: 4 max_queue_delay_microseconds: 20000 }
          state { input_name: 'STATE' output_name: 'STATE_OUT' data_type: TYPE_FP32 dims: 4 } }";
    for (graph, why) in
        [("mixed_rows", "when another sample is in its batch"), ("one_row", "a batch of several samples fails")]
    {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("repository/m");
        fs::create_dir_all(model.join("1")).unwrap();
        fs::copy(root().join("tests/models").join(graph).with_extension("onnx"), model.join("1/model.onnx")).unwrap();
        fs::write(model.join("config.pbtxt"), config).unwrap();
        let (code, message) = check(&folder.path().join("repository"));
        let notes = found(&message, "note");
        assert_eq!((code, notes.len()), (Some(0), 1), "{message:#}");
        assert_eq!(notes[0]["code"], "N-BATCH", "{message:#}");
        assert!(notes[0]["text"].as_str().unwrap().contains(why), "{message:#}");
    }
}

#[test]
fn check_reports_the_cheaper_rows_setting_of_a_direct_model() {
    let (code, message) = check(&models().join("accumulator_fp32"));
    assert_eq!(code, Some(0));
    let rows = &found(&message, "ok")[0]["facts"]["dry_run"]["rows"];
    assert_eq!(rows["set"], "fixed", "{message}");
    // The smallest figures of several measurements, each of which has to agree with the advice.
    let [padding, moving] = ["padding_us", "moving_us"].map(|cost| rows[cost].as_f64().expect("a figure"));
    match &rows["cheaper"] {
        Value::Null => {}
        cheaper if cheaper == "fixed" => assert!(moving > padding, "{message}"),
        cheaper if cheaper == "compact" => assert!(padding > moving, "{message}"),
        other => panic!("{other}: {message}"),
    }
}

#[test]
fn a_models_plug_in_is_tried_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("repository/accumulator_int32");
    copy(&models().join("accumulator_int32"), &model);
    fs::write(model.join("sequor.toml"), "schema = 1\n[plugins.scheduler]\nuse = \"edf\"\n").unwrap();
    let check = |settings: &str| {
        let config = folder.path().join("sequor.toml");
        fs::write(&config, settings).unwrap();
        let call = Call::sequor().environment("SEQUOR_CACHE", prepared("SEQUOR_CACHE"));
        call.arguments(["check", "--config"]).arguments([config, folder.path().join("repository")]).end()
    };
    let ended = check(&format!("[plugins]\ndir = \"{}\"\n", prepared("SEQUOR_GUESTS").display()));
    let line = ended.stdout.lines().find(|line| line.starts_with("edf.wasm ")).unwrap_or_else(|| panic!("{ended:?}"));
    assert!(line.contains("  ok     scheduler 0.1.0, ") && line.contains(" KB, plan of 64: "), "{line}");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let ended = check("");
    let message = "there is no plug-in \"edf\": name its folder with --plugins-dir DIR, or with [plugins] dir in the settings of --config FILE";
    assert!(ended.code == Some(3) && ended.stdout.contains(message), "{ended:?}");
}

/// The report of `sequor check` about a sample model with this `sequor.toml` and the tree's plug-ins.
fn check_with_guests(model: &str, toml: &str) -> (Option<i32>, Value) {
    let folder = tempfile::tempdir().unwrap();
    let copied = folder.path().join("repository").join(model);
    copy(&models().join(model), &copied);
    fs::write(copied.join("sequor.toml"), format!("schema = 1\n{toml}")).unwrap();
    let call = Call::sequor().environment("SEQUOR_CACHE", prepared("SEQUOR_CACHE"));
    let call = call.arguments(["check", "--output", "json", "--plugins-dir"]).arguments([prepared("SEQUOR_GUESTS")]);
    let ended = call.arguments([folder.path().join("repository")]).end();
    (ended.code, serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {ended:?}")))
}

/// A processor has no scheduler hooks. Loading its model has already tested it.
#[test]
fn a_models_processor_is_not_tried_as_a_scheduler() {
    let toml = "[[plugins.processor]]\nuse = \"redact\"\nconfig = { fields = [\"email\"] }\n";
    let (code, message) = check_with_guests("gru", toml);
    assert_eq!((code, found(&message, "ok").len(), found(&message, "note").len()), (Some(0), 1, 0), "{message:#}");
}

#[test]
fn an_initializer_of_a_model_that_sees_start_is_a_note() {
    let feature = "[[feature]]\nname = \"parent\"\nfrom = \"parameter\"\nkey = \"parent\"\ntype = \"key\"\n";
    let toml = format!("{feature}[plugins.initializer]\nuse = \"fork\"\ncopy_if_same = [\"parent\"]\n");
    for (model, notes) in [("accumulator_fp32", vec!["N-INITIALIZER"]), ("gru", Vec::new())] {
        let (code, message) = check_with_guests(model, &toml);
        let codes: Vec<&str> = found(&message, "note").iter().filter_map(|note| note["code"].as_str()).collect();
        assert_eq!((code, codes), (Some(0), notes), "{message:#}");
    }
}

#[test]
fn a_repository_that_is_not_there_is_an_error() {
    let ended = Call::sequor().arguments(["check", "/nowhere"]).end();
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(3), ""));
    assert!(ended.stderr.starts_with("sequor: there is no file or directory /nowhere"), "{ended:?}");
}

#[test]
fn the_servers_settings_are_checked_as_well() {
    let call = Call::sequor().arguments(["check", "--config", "here.toml"]).arguments([models()]);
    fs::write(call.folder.path().join("here.toml"), "[http]\nprot = 1\n").unwrap();
    let ended = call.end();
    assert_eq!(ended.code, Some(3));
    assert!(ended.stderr.starts_with("sequor: here.toml:2:1: unknown field `prot`"), "{ended:?}");
}
