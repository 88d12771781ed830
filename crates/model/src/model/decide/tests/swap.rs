//! Swaps of one plug-in for another, for whole models: a swap succeeds completely or changes nothing, and loses no round.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::plugins::{BY, Rig, attach};
use crate::model::request::SequenceStep;
use crate::model::tests::{load, request};
use crate::scheduling::report::{Attach, BindingState, PluginControl, PluginError};

/// The plug-ins that decide for the model, with the number of rounds that each has lost.
fn decides(rig: &Rig) -> Vec<(String, BindingState, u64)> {
    let of = |s: crate::scheduling::report::Summary| {
        let name = s.name.clone();
        s.attached.into_iter().map(move |at| (name.clone(), at.state, at.fallbacks)).collect::<Vec<_>>()
    };
    rig.fixture.repository.list().into_iter().flat_map(of).collect()
}

#[test]
fn a_plug_in_that_fails_to_observe_does_not_replace_the_active_plug_in() {
    let rig = Rig::new(&["first", "untold"]);
    let repository: &dyn PluginControl = &rig.fixture.repository;
    rig.fixture.sum(7, 1, |s| s.start = true);
    repository.attach(&attach("first"), BY).unwrap();
    let error = repository.attach(&attach("untold"), BY).unwrap_err().to_string();
    assert_eq!(error, "untold cannot decide for sum: observe: index out of bounds, src/lib.rs:41");
    assert_eq!(rig.fixture.sum(7, 1, |_| {}), 2);
    assert_eq!((rig.plans("first"), decides(&rig)), (1, vec![("first".to_owned(), BindingState::Active, 0)]));
    // An operator's earlier choice still holds after a reload.
    rig.write("[sequence]\nidle = \"60s\"\n");
    rig.load();
    assert_eq!(decides(&rig).len(), 2, "first, at the old load and the new");
}

#[test]
fn a_plug_in_is_attached_to_all_loads_or_to_none() {
    let rig = Rig::empty(&["first", "untold"], |_| {});
    let model = rig.fixture.model();
    let config = fs_err::read_to_string(model.join("config.pbtxt")).unwrap();
    fs_err::write(model.join("config.pbtxt"), format!("{config}\nversion_policy {{ all {{ }} }}")).unwrap();
    fs_err::create_dir(model.join("2")).unwrap();
    fs_err::copy(model.join("1/model.onnx"), model.join("2/model.onnx")).unwrap();
    load(&rig.fixture.repository, &model);
    let repository: &dyn PluginControl = &rig.fixture.repository;
    let step = |version: &str, id: u64, change: fn(&mut SequenceStep)| {
        let mut request = request(id, 1, change);
        request.version = version.to_owned();
        rig.fixture.answer(request).unwrap();
    };
    // The second load has a live sequence, and the guest traps when it observes that.
    step("2", 7, |s| s.start = true);
    for before in [vec![], vec!["first"; 2]] {
        let is = || decides(&rig).into_iter().filter(|(.., fallbacks)| *fallbacks == 0).map(|(name, ..)| name);
        assert!(is().eq(before.iter().map(ToString::to_string)), "{:?}", decides(&rig));
        repository.attach(&attach("untold"), BY).unwrap_err();
        step("1", 8, |s| s.start = true);
        step("2", 7, |_| {});
        assert!(is().eq(before.iter().map(ToString::to_string)), "{:?}", decides(&rig));
        repository.attach(&attach("first"), BY).unwrap();
    }
    assert_eq!(rig.plans("first"), 2, "one for each load, while it decided");
}

#[test]
fn a_plug_in_that_cannot_be_saved_is_not_attached() {
    let rig = Rig::new(&["first"]);
    let repository: &dyn PluginControl = &rig.fixture.repository;
    repository.attach(&attach("first"), BY).unwrap();
    repository.load("up", b"all".to_vec(), BY).unwrap();
    rig.write("plugins = 3\n");
    let how = Attach { save: true, ..attach("up") };
    let error = repository.attach(&how, BY).unwrap_err().to_string();
    assert!(
        error.starts_with("not attached, because it could not be saved: ") && error.ends_with("plugins is no table"),
        "{error}"
    );
    rig.sequence(1);
    assert_eq!(decides(&rig), [("first".to_owned(), BindingState::Active, 0)]);
    rig.write("");
    repository.attach(&how, BY).unwrap();
    let kept = fs_err::read(rig.fixture.folder.path().join("plugins/up.wasm")).unwrap();
    assert_eq!((kept, decides(&rig)), (b"all".to_vec(), vec![("up".to_owned(), BindingState::Active, 0)]));
    // The files of the later version replace those of the earlier one.
    repository.replace("up", b"all#2".to_vec(), BY).unwrap();
    repository.attach(&how, BY).unwrap();
    let folder = fs_err::read_dir(rig.fixture.folder.path().join("plugins")).unwrap();
    let names: Vec<_> = folder.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(
        (fs_err::read(rig.fixture.folder.path().join("plugins/up.wasm")).unwrap(), names.len()),
        (b"all#2".to_vec(), 2)
    );
}

#[test]
fn an_uploaded_plug_in_is_saved_only_if_there_is_a_plug_in_folder() {
    let rig = Rig::empty(&[], |rules| rules.dir = None);
    rig.load();
    let repository: &dyn PluginControl = &rig.fixture.repository;
    repository.load("up", b"first".to_vec(), BY).unwrap();
    let error = repository.attach(&Attach { save: true, ..attach("up") }, BY).unwrap_err();
    let message = "not saved: the next start would not find up, which came over the wire. Set [plugins] dir to a folder that the server may write";
    assert_eq!(error, PluginError::Denied(message.to_owned()));
    assert!(decides(&rig).is_empty() && !rig.fixture.model().join("sequor.toml").exists());
    let absent = repository.show("none").unwrap_err().to_string();
    assert_eq!(absent, "there is no plug-in \"none\". To hand it over: sequor plugin load none --from none.wasm");
    drop(rig);
    let rig = Rig::new(&[]);
    fs_err::remove_dir(rig.fixture.folder.path().join("plugins")).unwrap();
    let repository: &dyn PluginControl = &rig.fixture.repository;
    repository.load("up", b"first".to_vec(), BY).unwrap();
    let error = repository.attach(&Attach { save: true, ..attach("up") }, BY).unwrap_err().to_string();
    assert!(error.contains("up.wasm cannot be written (") && error.contains("put the file there"), "{error}");
    assert!(decides(&rig).is_empty());
}

/// Plug-ins with different features replace each other while clients send. The built-in policy takes no round.
#[test]
fn swapping_plug_ins_causes_no_fallback() {
    // A thread that only waits for a CPU must not count as busy.
    let rig = Rig::empty(&["first", "admit", "few"], |rules| rules.time = Duration::from_secs(60));
    rig.load();
    let repository: &dyn PluginControl = &rig.fixture.repository;
    let done = AtomicBool::new(false);
    let swaps = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..3u64)
            .map(|client| {
                let rig = &rig;
                scope.spawn(move || (0..100).for_each(|n| rig.sequence(client * 1000 + n + 1)))
            })
            .collect();
        let swaps = scope.spawn(|| {
            let mut n = 0;
            while !done.load(Ordering::Relaxed) {
                for name in ["first", "few", "admit", "few"] {
                    n += 1;
                    repository.attach(&attach(name), BY).unwrap();
                    repository.replace(name, format!("few#{n}").into_bytes(), BY).unwrap();
                    repository.replace(name, format!("{name}#{n}").into_bytes(), BY).unwrap();
                }
                repository.attach(&Attach { shadow: false, ..attach("first") }, BY).unwrap();
            }
            n
        });
        for client in clients {
            client.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        swaps.join().unwrap()
    });
    let metrics = rig.fixture.repository.0.resources.metrics.encode();
    let lost: Vec<&str> = metrics.lines().filter(|l| l.starts_with("sequor_plugin_fallback_total{")).collect();
    assert!(lost.iter().all(|line| line.ends_with(" 0")), "{swaps} swaps: {lost:#?}");
}
