//! Saved settings stay correct: a hash in a model's file is that of the version that decides.

use super::plugins::{BY, Rig, attach};
use crate::model::decide::PluginTables;
use crate::scheduling::report::{Attach, PluginControl};

/// Uploads a plug-in and saves its attachment.
fn saved(rig: &Rig) -> &dyn PluginControl {
    let repository: &dyn PluginControl = &rig.fixture.repository;
    repository.load("up", b"first".to_vec(), BY).unwrap();
    let config = "{\"burst\":4}".to_owned();
    repository.attach(&Attach { save: true, config, ..attach("up") }, BY).unwrap();
    assert_eq!(names(rig), ("first".to_owned(), "first".to_owned(), "first".to_owned()));
    repository
}

/// The hash of the plug-in that decides, the hash in the model's file, and the plug-in's file in the folder.
fn names(rig: &Rig) -> (String, String, String) {
    let shown = rig.fixture.repository.show("up").unwrap();
    assert!(shown.attached[0].from_file);
    let file = fs_err::read_to_string(rig.fixture.model().join("sequor.toml")).unwrap();
    let named = PluginTables::Scheduler.pins(&file, "up").remove(0);
    assert!(file.contains("config = { burst = 4 }"), "{file}");
    let folder = rig.fixture.folder.path().join("plugins/up.wasm");
    (shown.sha256, named, fs_err::read_to_string(folder).unwrap_or_default())
}

fn all(version: &str) -> (String, String, String) {
    (version.to_owned(), version.to_owned(), version.to_owned())
}

#[test]
fn a_replaced_version_is_saved_if_the_previous_version_was_saved() {
    let rig = Rig::new(&[]);
    let repository = saved(&rig);
    repository.replace("up", b"all#2".to_vec(), BY).unwrap();
    assert_eq!(names(&rig), all("all#2"));
    rig.sequence(1);
    repository.rollback("up", BY).unwrap();
    assert_eq!(names(&rig), all("first"));
    repository.replace("up", b"bad#33".to_vec(), BY).unwrap_err();
    assert_eq!(names(&rig), all("first"), "a version that is not taken is not saved");
    // After an attachment that is not saved, a replacement does not change the hash in the file.
    repository.attach(&attach("up"), BY).unwrap();
    repository.replace("up", b"all#3".to_vec(), BY).unwrap();
    let file = fs_err::read_to_string(rig.fixture.model().join("sequor.toml")).unwrap();
    assert_eq!(PluginTables::Scheduler.pins(&file, "up"), ["first"]);
}

#[test]
fn a_version_that_cannot_be_saved_does_not_replace_a_saved_version() {
    let rig = Rig::new(&[]);
    let repository = saved(&rig);
    let folder = rig.fixture.folder.path().join("plugins");
    fs_err::remove_dir_all(&folder).unwrap();
    let error = repository.replace("up", b"all#2".to_vec(), BY).unwrap_err().to_string();
    assert!(error.starts_with("not replaced: the next start would not find up, and "), "{error}");
    assert!(error.contains("first goes on serving") && error.contains("attach it without --save"), "{error}");
    let (decides, named, _) = names(&rig);
    assert_eq!((decides.as_str(), named.as_str()), ("first", "first"));
    repository.attach(&attach("up"), BY).unwrap();
    repository.replace("up", b"all#2".to_vec(), BY).unwrap();
    assert_eq!(repository.show("up").unwrap().sha256, "all#2", "until the server ends");
}

#[test]
fn a_changed_plug_in_file_is_refused_if_its_old_hash_is_pinned() {
    let rig = Rig::new(&[]);
    let repository = saved(&rig);
    let registry = rig.fixture.repository.registry().unwrap();
    registry.look();
    fs_err::write(registry.file("up").unwrap(), "all#2").unwrap();
    for _ in 0..3 {
        registry.look();
    }
    assert_eq!(names(&rig), ("first".to_owned(), "first".to_owned(), "all#2".to_owned()));
    let lines = repository.logs("up", 0).unwrap();
    let is_reported = |of: &&sequor_wasm::journal::LogLine| {
        of.message.starts_with("not replaced: up.wasm of plugins.dir has changed (all#2), and ")
    };
    assert_eq!(lines.iter().filter(is_reported).count(), 1, "{lines:?}");
    // A hash that the operator wrote is accepted.
    let file = rig.fixture.model().join("sequor.toml");
    let text = fs_err::read_to_string(&file).unwrap();
    fs_err::write(&file, PluginTables::Scheduler.with_pin(&text, "up", "all#2").unwrap()).unwrap();
    registry.look();
    assert_eq!(names(&rig), all("all#2"));
    // A file that contains the version in use changes nothing.
    fs_err::write(registry.file("up").unwrap(), "all#3").unwrap();
    registry.look();
    fs_err::write(registry.file("up").unwrap(), "all#2 ".trim()).unwrap();
    registry.look();
    assert_eq!(names(&rig), all("all#2"));
}

#[test]
fn a_pinned_hash_holds_while_an_operator_attaches_the_same_plug_in() {
    let rig = Rig::new(&[]);
    let repository = saved(&rig);
    let registry = rig.fixture.repository.registry().unwrap();
    registry.look();
    repository.attach(&attach("up"), BY).unwrap();
    fs_err::write(registry.file("up").unwrap(), "all#2").unwrap();
    registry.look();
    assert_eq!(repository.show("up").unwrap().sha256, "first");
    repository.replace("up", b"all#3".to_vec(), BY).unwrap();
    fs_err::write(registry.file("up").unwrap(), "all#444").unwrap();
    registry.look();
    assert_eq!(repository.show("up").unwrap().sha256, "all#3");
    let line = repository.logs("up", 0).unwrap().pop().unwrap().message;
    assert!(line.contains("names first; all#3 goes on serving."), "{line}");
}

#[test]
fn an_attachment_that_cannot_be_saved_leaves_the_plug_ins_file_as_it_was() {
    let rig = Rig::new(&["up"]);
    let repository: &dyn PluginControl = &rig.fixture.repository;
    let file = rig.fixture.folder.path().join("plugins/up.wasm");
    let toml = rig.fixture.model().join("sequor.toml");
    repository.load("up", b"first".to_vec(), BY).unwrap();
    let _ = fs_err::remove_file(&toml);
    fs_err::create_dir(&toml).unwrap();
    let before = fs_err::read_to_string(&file).unwrap();
    let refused = repository.attach(&Attach { save: true, ..attach("up") }, BY).unwrap_err().to_string();
    assert!(refused.starts_with("not attached, because it could not be saved"), "{refused}");
    assert_eq!(fs_err::read_to_string(&file).unwrap(), before);
    // A file that was not there is not there afterwards.
    fs_err::remove_file(&file).unwrap();
    repository.attach(&Attach { save: true, ..attach("up") }, BY).unwrap_err();
    assert!(!file.exists());
}

#[test]
fn a_replacement_does_not_overwrite_a_file_that_was_put_there_meanwhile() {
    let rig = Rig::new(&[]);
    let repository = saved(&rig);
    let registry = rig.fixture.repository.registry().unwrap();
    registry.look();
    // The file changes while the new version is made: the loader of this test writes it.
    let file = registry.file("up").unwrap();
    let refused = repository.replace("up", format!("all#put {}", file.display()).into_bytes(), BY).unwrap_err();
    assert!(refused.to_string().contains("up.wasm was written meanwhile"), "{refused}");
    assert_eq!(names(&rig), ("first".to_owned(), "first".to_owned(), "all#9".to_owned()));
}

#[test]
fn a_plug_in_file_that_is_written_while_its_predecessor_is_made_decides_next() {
    let rig = Rig::new(&["first"]);
    let repository: &dyn PluginControl = &rig.fixture.repository;
    let registry = rig.fixture.repository.registry().unwrap();
    repository.attach(&attach("first"), BY).unwrap();
    registry.look();
    let file = registry.file("first").unwrap();
    let state = || (repository.show("first").unwrap().sha256, fs_err::read_to_string(&file).unwrap());
    // The loader of this test writes the file while it makes this version.
    fs_err::write(&file, format!("all#put {}", file.display())).unwrap();
    registry.look();
    assert_eq!(state(), ("first".to_owned(), "all#9".to_owned()));
    registry.look();
    assert_eq!(state(), ("all#9".to_owned(), "all#9".to_owned()));
}
