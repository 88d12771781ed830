//! Writes a model of OVMS as a directory of a model repository: `config.pbtxt`, `sequor.toml`, and its versions as links or copies.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

use super::entries::{place, place_beside_graph, remove, remove_entries, write_file};
use super::model::OvmsModel;
use super::plan::{LayoutPlan, VersionGraph, VersionPlan, plan};
use crate::config::model::draft::{ConfigSource, Sources};
use crate::config::model::{Draft, Options};
use crate::config::onnx;

pub use super::entries::VersionFiles;

/// The file name of a version's graph, unless the model's own configuration names another one.
const GRAPH: &str = "model.onnx";

/// Writes these models into an empty folder. `scan_minutes` is the time between two scans for idle sequences; 0 turns scans off.
pub fn write(folder: &Path, models: &[OvmsModel], scan_minutes: u32, files: VersionFiles) -> Result<(), Vec<String>> {
    let write = |model: &OvmsModel| {
        let fault = |what: String| format!("model {}: {what}", model.name);
        write_one(folder, model, scan_minutes, files).map_err(fault)
    };
    let wrong: Vec<String> = models.iter().filter_map(|model| write(model).err()).collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

/// Checks a model as far as its files show. Returns its options without effect, or why it cannot be served.
pub fn check(model: &OvmsModel) -> Result<Vec<String>, String> {
    model.check_supported()?;
    let plan = plan(model)?;
    draft(model, &plan).map_err(|faults| faults.join("; "))?;
    let notices = plan.notices.iter().cloned().chain(too_few_slots(model, &plan));
    Ok(notices.collect())
}

/// The model's configuration, or all its faults at their places in the model's own files.
fn draft(model: &OvmsModel, plan: &LayoutPlan) -> Result<Draft, Vec<String>> {
    let has_graph = plan.versions.iter().any(|version| version.graph != VersionGraph::AsItIs);
    let sources = Sources {
        directory: model.base_path.clone(),
        name: Some(model.name.clone()),
        config: ConfigSource::Text(plan.config.clone()),
        config_path: Some(model.own_config()),
        sequor_toml: Some(sequor_toml(model, 0, plan.has_own_config)),
        files: plan.first_files.iter().cloned().chain(has_graph.then(|| GRAPH.to_owned())).collect(),
    };
    Draft::parse(sources, &Options::default()).map_err(|faults| faults.iter().map(ToString::to_string).collect())
}

/// A notice for a model whose own configuration has fewer slots than `max_sequence_number`.
fn too_few_slots(model: &OvmsModel, plan: &LayoutPlan) -> Option<String> {
    let most = model.stateful.filter(|_| plan.has_own_config)?.max_sequence_number;
    let slots = draft(model, plan).ok()?.sequence_slots().filter(|slots| *slots < u64::from(most))?;
    Some(format!(
        "max_sequence_number is {most}, but {} has {slots} slots for sequences, and a START beyond them is refused: raise \
         max_candidate_sequences of sequence_batching {{ oldest }}, or for direct max_batch_size or the count of instance_group",
        model.own_config().display()
    ))
}

/// Writes or updates the directory of a model. Unchanged files keep their modification times. Returns the model's options without effect.
pub(super) fn write_one(
    folder: &Path,
    model: &OvmsModel,
    scan_minutes: u32,
    files: VersionFiles,
) -> Result<Vec<String>, String> {
    model.check_supported()?;
    let plan = plan(model)?;
    let directory = folder.join(&model.name);
    let is_new = !directory.exists();
    let written = write_plan(&directory, model, &plan, scan_minutes, files);
    if written.is_err() && is_new {
        // A part of a model must not be served.
        let _ = remove(&directory);
    }
    written.map(|()| plan.notices.iter().cloned().chain(too_few_slots(model, &plan)).collect())
}

/// Writes the configuration last, when the files that it names are there.
fn write_plan(
    directory: &Path,
    model: &OvmsModel,
    plan: &LayoutPlan,
    scan_minutes: u32,
    files: VersionFiles,
) -> Result<(), String> {
    let as_text = |error: io::Error| error.to_string();
    let base_path = std::path::absolute(&model.base_path).map_err(as_text)?;
    fs_err::create_dir_all(directory).map_err(as_text)?;
    let mut names: BTreeSet<OsString> = ["config.pbtxt", "sequor.toml"].into_iter().map(OsString::from).collect();
    for version in &plan.versions {
        let name = version.number.to_string();
        write_version(version, &base_path.join(&name), &directory.join(&name), files)?;
        names.insert(name.into());
    }
    for name in &plan.shared {
        place(&base_path.join(name), &directory.join(name), files).map_err(as_text)?;
        names.insert(name.clone());
    }
    let toml = sequor_toml(model, scan_minutes, plan.has_own_config);
    write_file(&directory.join("sequor.toml"), toml.as_bytes()).map_err(as_text)?;
    write_file(&directory.join("config.pbtxt"), plan.config.as_bytes()).map_err(as_text)?;
    remove_entries(directory, |name| !names.contains(name)).map_err(as_text)
}

/// Creates a version's folder. A changed graph is written; every other file is linked or copied.
fn write_version(version: &VersionPlan, from: &Path, to: &Path, files: VersionFiles) -> Result<(), String> {
    let as_text = |error: io::Error| error.to_string();
    if to.is_symlink() {
        remove(to).map_err(as_text)?;
    }
    fs_err::create_dir_all(to).map_err(as_text)?;
    let mut names = BTreeSet::new();
    for entry in fs_err::read_dir(from).map_err(as_text)? {
        let entry = entry.map_err(as_text)?;
        let (name, path) = (entry.file_name(), entry.path());
        let is_graph = version.graph.file().is_some_and(|graph| name.to_str() == Some(graph));
        let name = if is_graph { GRAPH.into() } else { name };
        let to = to.join(&name);
        match &version.graph {
            VersionGraph::WithStates(_) if is_graph => {
                let graph = fs_err::read(&path).map_err(as_text)?;
                let graph = onnx::transform(&graph).map_err(|e| format!("{}: {e}", path.display()))?;
                write_file(&to, &graph.model).map_err(as_text)?;
            }
            VersionGraph::WithStates(_) => place_beside_graph(&path, &to).map_err(as_text)?,
            VersionGraph::Renamed(_) | VersionGraph::AsItIs => place(&path, &to, files).map_err(as_text)?,
        }
        names.insert(name);
    }
    remove_entries(to, |name| !names.contains(name)).map_err(as_text)
}

fn sequor_toml(model: &OvmsModel, scan_minutes: u32, has_own_config: bool) -> String {
    let mut text = "schema = 1\n".to_owned();
    if !has_own_config {
        // OVMS runs each request alone, with any number of rows that the graph takes.
        text += "default_max_batch_size = 0\n";
    }
    if let Some(stateful) = model.stateful {
        let _ = writeln!(text, "[sequence]\nrules = \"ovms\"\nmax_live = {}", stateful.max_sequence_number.max(1));
        let scan = match stateful.idle_sequence_cleanup && scan_minutes > 0 {
            true => format!("idle_scan = \"{scan_minutes}m\""),
            false => "idle = \"never\"".to_owned(),
        };
        let _ = writeln!(text, "{scan}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::model::OvmsSequences;
    use super::*;
    use crate::config::model::settings::VersionPolicy;

    const LINK: VersionFiles = VersionFiles::Link;

    fn model(base_path: &Path, stateful: Option<OvmsSequences>) -> OvmsModel {
        let (name, base_path) = ("m".to_owned(), base_path.to_owned());
        OvmsModel {
            name,
            base_path,
            nireq: Some(2),
            version_policy: Some(VersionPolicy::All),
            stateful,
            unsupported: None,
        }
    }

    /// A folder with two versions of a model.
    fn base() -> tempfile::TempDir {
        let base = tempfile::tempdir().unwrap();
        for version in ["1", "3", "notes"] {
            fs_err::create_dir(base.path().join(version)).unwrap();
            fs_err::write(base.path().join(version).join("net.onnx"), "graph").unwrap();
        }
        base
    }

    #[test]
    fn a_model_becomes_a_directory_of_a_repository() {
        let (base, folder) = (base(), tempfile::tempdir().unwrap());
        write(folder.path(), &[model(base.path(), None)], 5, VersionFiles::Link).unwrap();
        let read = |path: &str| fs_err::read_to_string(folder.path().join(path)).unwrap();
        assert_eq!((read("m/1/model.onnx"), read("m/3/model.onnx")), ("graph".to_owned(), "graph".to_owned()));
        assert!(!folder.path().join("m/notes").exists());
        let config = read("m/config.pbtxt");
        let config = crate::config::model::text::parse(Path::new("config.pbtxt"), &config).unwrap();
        assert_eq!((config.name.as_str(), config.default_model_filename.as_str()), ("m", "model.onnx"));
        assert_eq!((config.instance_group[0].count, config.version_policy.is_some()), (2, true));
        assert_eq!(read("m/sequor.toml"), "schema = 1\ndefault_max_batch_size = 0\n");
    }

    #[test]
    fn a_stateful_model_needs_the_names_of_its_states() {
        let sequences = |cleanup, low_latency| OvmsSequences {
            idle_sequence_cleanup: cleanup,
            max_sequence_number: 7,
            low_latency_transformation: low_latency,
        };
        let (base, folder) = (base(), tempfile::tempdir().unwrap());
        let refused = write(folder.path(), &[model(base.path(), Some(sequences(true, false)))], 5, LINK).unwrap_err();
        assert!(refused[0].starts_with("model m: the states of a stateful model must be named"), "{refused:?}");
        let refused = write(folder.path(), &[model(base.path(), Some(sequences(true, true)))], 5, LINK).unwrap_err();
        assert!(refused[0].contains("is not an ONNX model"), "{refused:?}");
        let own = |text: &str| fs_err::write(base.path().join("config.pbtxt"), text).unwrap();
        own("backend: \"onnxruntime\"");
        let refused = write(folder.path(), &[model(base.path(), Some(sequences(true, true)))], 5, LINK).unwrap_err();
        assert!(refused[0].contains("makes the configuration of its states itself"), "{refused:?}");
        let refused = write(folder.path(), &[model(base.path(), Some(sequences(true, false)))], 5, LINK).unwrap_err();
        assert!(refused[0].contains("has no sequence_batching"), "{refused:?}");
        own("backend: \"onnxruntime\" sequence_batching { }");
        for (cleanup, minutes, idle) in
            [(true, 5, "idle_scan = \"5m\""), (true, 0, "idle = \"never\""), (false, 5, "idle = \"never\"")]
        {
            let folder = tempfile::tempdir().unwrap();
            write(folder.path(), &[model(base.path(), Some(sequences(cleanup, false)))], minutes, LINK).unwrap();
            let toml = fs_err::read_to_string(folder.path().join("m/sequor.toml")).unwrap();
            assert_eq!(toml, format!("schema = 1\n[sequence]\nrules = \"ovms\"\nmax_live = 7\n{idle}\n"));
        }
    }

    #[test]
    fn models_of_openvino_are_refused_with_the_way_to_convert_them() {
        let (base, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs_err::create_dir(base.path().join("1")).unwrap();
        for (file, sentence) in [("net.xml", "OpenVINO IR"), ("net.nnet", "Kaldi models are not served")] {
            let path = base.path().join("1").join(file);
            fs_err::write(&path, "").unwrap();
            let refused = write(folder.path(), &[model(base.path(), None)], 5, LINK).unwrap_err();
            assert!(refused[0].contains(sentence) && refused[0].contains("to ONNX"), "{refused:?}");
            fs_err::remove_file(path).unwrap();
        }
    }

    /// A model with a configuration of its own and two versions.
    fn own(text: &str) -> (tempfile::TempDir, OvmsModel) {
        let base = base();
        fs_err::write(base.path().join("config.pbtxt"), text).unwrap();
        let model = model(base.path(), None);
        (base, model)
    }

    fn written(model: &OvmsModel) -> (tempfile::TempDir, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let notices = write_one(folder.path(), model, 5, LINK).unwrap();
        (folder, notices)
    }

    /// The names in a folder, in order.
    fn names(folder: &Path) -> Vec<String> {
        let names = fs_err::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn options_of_ovms_hold_beside_a_models_own_configuration() {
        const OWN: &str = "max_batch_size: 4";
        let (_base, mut given) = own(OWN);
        let read = |model: &OvmsModel| {
            let (folder, notices) = written(model);
            let text = fs_err::read_to_string(folder.path().join("m/config.pbtxt")).unwrap();
            assert!(text.starts_with(OWN), "the lines of its faults are those of the file: {text}");
            let config = crate::config::model::text::parse(Path::new("c"), &text).unwrap();
            let counts: Vec<i32> = config.instance_group.iter().map(|group| group.count).collect();
            (VersionPolicy::from_config(&config), counts, names(&folder.path().join("m")), notices)
        };
        let files = |versions: &[&'static str]| [versions, &["config.pbtxt", "notes", "sequor.toml"]].concat();
        let (policy, counts, there, notices) = read(&given);
        assert_eq!((policy, counts, notices), (Some(VersionPolicy::All), vec![2], vec![]));
        assert_eq!(there, files(&["1", "3"]));
        given.version_policy = Some(VersionPolicy::Specific(vec![1]));
        given.nireq = None;
        let (policy, counts, there, _) = read(&given);
        assert_eq!((policy, counts), (Some(VersionPolicy::Specific(vec![1])), vec![]));
        assert_eq!(there, files(&["1"]));
        given.version_policy = None;
        assert_eq!(read(&given).2, files(&["3"]), "the newest");
    }

    #[test]
    fn an_option_that_contradicts_a_models_own_configuration_is_named() {
        let (base, mut given) = own("version_policy { all { } } instance_group [ { count: 3 } ]");
        let path = base.path().join("config.pbtxt").display().to_string();
        let (folder, notices) = written(&given);
        assert_eq!(notices, [format!("nireq has no effect: instance_group of {path} sets the instances")]);
        assert_eq!(names(&folder.path().join("m")), ["1", "3", "config.pbtxt", "notes", "sequor.toml"]);
        given.nireq = Some(3);
        assert_eq!(written(&given).1, Vec::<String>::new());
        given.version_policy = Some(VersionPolicy::Latest(1));
        let refused = check(&given).unwrap_err();
        assert!(refused.ends_with(&format!("{path} choose different versions: remove one of them")), "{refused}");
    }

    #[test]
    fn fewer_slots_than_max_sequence_number_are_named() {
        let (_base, mut given) = own("backend: \"onnxruntime\" sequence_batching { }");
        given.stateful = Some(OvmsSequences {
            idle_sequence_cleanup: true,
            max_sequence_number: 3,
            low_latency_transformation: false,
        });
        let [notice] = &check(&given).unwrap()[..] else { panic!("one notice") };
        assert!(notice.starts_with("max_sequence_number is 3, but ") && notice.contains(" has 2 slots"), "{notice}");
        given.nireq = Some(3);
        assert_eq!(check(&given), Ok(vec![]), "three instances have three slots");
    }

    #[test]
    fn a_configuration_in_the_base_path_has_the_files_beside_it() {
        let (base, given) = own("max_batch_size: 4");
        let put = |path: &str| {
            let path = base.path().join(path);
            fs_err::create_dir_all(path.parent().unwrap()).unwrap();
            fs_err::write(path, "x").unwrap();
        };
        ["initial_state/h0.bin", "labels.txt", "sequor.toml", ".git/head"].into_iter().for_each(put);
        let (folder, _) = written(&given);
        let model = folder.path().join("m");
        let all = ["1", "3", "config.pbtxt", "initial_state", "labels.txt", "notes", "sequor.toml"];
        assert_eq!(names(&model), all);
        assert_eq!(fs_err::read_to_string(model.join("initial_state/h0.bin")).unwrap(), "x");
        assert!(fs_err::read_to_string(model.join("sequor.toml")).unwrap().starts_with("schema = 1"));
        fs_err::remove_file(base.path().join("labels.txt")).unwrap();
        write_one(folder.path(), &given, 5, LINK).unwrap();
        assert!(!names(&model).contains(&"labels.txt".to_owned()));
    }

    #[test]
    fn faults_of_a_models_own_configuration_have_its_path() {
        for (text, at) in [("max_batch_size: 4\nmax_bach_size: 1", ":2:1: "), ("\nmax_batch_size: -1", ":2:1: ")] {
            let (base, given) = own(text);
            let refused = check(&given).unwrap_err();
            let begin = base.path().join("config.pbtxt").display().to_string() + at;
            assert!(refused.starts_with(&begin), "{refused}");
        }
    }

    #[test]
    fn each_version_has_a_file_of_its_own_name() {
        let base = base();
        fs_err::rename(base.path().join("1/net.onnx"), base.path().join("1/first.onnx")).unwrap();
        let (folder, _) = written(&model(base.path(), None));
        assert_eq!(["1", "3"].map(|version| names(&folder.path().join("m").join(version))), [["model.onnx"]; 2]);
        // Also with a configuration that names no file.
        fs_err::write(base.path().join("config.pbtxt"), "max_batch_size: 4").unwrap();
        let (folder, _) = written(&model(base.path(), None));
        assert_eq!(["1", "3"].map(|version| names(&folder.path().join("m").join(version))), [["model.onnx"]; 2]);
    }

    #[test]
    fn a_version_that_the_policy_does_not_choose_is_not_looked_at() {
        let (base, mut given) = (base(), None);
        fs_err::rename(base.path().join("3/net.onnx"), base.path().join("3/net.xml")).unwrap();
        for policy in [VersionPolicy::Specific(vec![1]), VersionPolicy::All, VersionPolicy::Latest(1)] {
            let folder = tempfile::tempdir().unwrap();
            let model = given.insert(OvmsModel { version_policy: Some(policy.clone()), ..model(base.path(), None) });
            let outcome = write_one(folder.path(), model, 5, LINK);
            assert_eq!(outcome.is_ok(), policy == VersionPolicy::Specific(vec![1]), "{policy:?} {outcome:?}");
            assert_eq!(folder.path().join("m").exists(), outcome.is_ok());
        }
    }

    #[test]
    fn only_a_number_as_triton_writes_it_is_a_version() {
        let base = base();
        fs_err::rename(base.path().join("3"), base.path().join("01")).unwrap();
        let (folder, _) = written(&model(base.path(), None));
        assert_eq!(names(&folder.path().join("m")), ["1", "config.pbtxt", "sequor.toml"]);
    }

    #[test]
    fn a_name_that_is_no_folder_is_refused_before_anything_is_written() {
        for name in ["", ".", "..", "a/b", "a\nb"] {
            let base = base();
            let model = OvmsModel { name: name.to_owned(), ..model(base.path(), None) };
            assert_eq!(check(&model), Err("the name must be that of a folder".to_owned()), "{name:?}");
        }
    }
}
