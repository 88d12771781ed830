//! Plug-ins at whole models: attached by file and by an operator, replaced while requests run, and across reloads. Guests are stand-ins.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use sequor_core::Hooks;
use sequor_core::policy::columns;
use sequor_wasm::room::{GuestRoom, RoomPurpose, RoomShare};

use crate::model::catalog::Availability;
use crate::model::request::Parameter;
use crate::model::sequences::RequestOrigin;
use crate::model::tests::{Fixture, load, request};
use crate::scheduling::PluginRules;
use crate::scheduling::guest::Source;
use crate::scheduling::report::{Attach, BindingState, By, PluginControl, PluginError};
use crate::scheduling::stand_in::{Does, StandInVersion};

pub(super) const BY: By<'_> = By("ops-anna");

pub(in crate::model) type Versions = Arc<Mutex<BTreeMap<String, Arc<StandInVersion>>>>;

/// A server with stand-ins for plug-ins. A component is the name of its guests' behaviour, and also its own hash.
pub(super) struct Rig {
    pub(in crate::model) fixture: Fixture,
    pub(in crate::model) versions: Versions,
    /// All the room of the versions named `full`.
    taken: Arc<Mutex<Vec<RoomShare>>>,
}

fn hooks(name: &str) -> Hooks {
    if name.starts_with("few") {
        return Hooks { plan: true, columns: columns::SEQ, ..Hooks::default() };
    }
    Hooks { plan: true, observe: true, admit: name.starts_with("admit"), columns: columns::ALL, ..Hooks::default() }
}

fn does(name: &str) -> Option<Does> {
    Some(match name.split('#').next().unwrap_or(name) {
        "first" | "few" | "full" => Does::First,
        "untold" => Does::TrapInObserve,
        "all" => Does::All,
        "trap" => Does::Trap,
        "beyond" => Does::Beyond,
        "admit" => Does::Admit,
        "admit-evict" => Does::AdmitEvict,
        "bad" => Does::TrapInConfigure,
        _ => return None,
    })
}

/// Takes all the room that is left.
fn all_of(room: &GuestRoom) -> Vec<RoomShare> {
    std::iter::from_fn(|| room.open(1, RoomPurpose::Replacement).ok()).collect()
}

impl Rig {
    /// A rig with the model's files and these files in the plug-in folder. Nothing is loaded.
    pub(in crate::model) fn empty(files: &[&str], change: impl FnOnce(&mut PluginRules)) -> Rig {
        Rig::over(Fixture::empty(u64::MAX), files, change)
    }

    /// The same over an existing fixture.
    pub(in crate::model) fn over(fixture: Fixture, files: &[&str], change: impl FnOnce(&mut PluginRules)) -> Rig {
        let dir = fixture.folder.path().join("plugins");
        fs_err::create_dir(&dir).unwrap();
        for name in files {
            fs_err::write(dir.join(format!("{name}.wasm")), name).unwrap();
        }
        let versions = Versions::default();
        let taken = Arc::<Mutex<Vec<RoomShare>>>::default();
        let (known, of_full) = (Arc::clone(&versions), Arc::clone(&taken));
        let loader = move |name: &str, bytes: &[u8]| {
            let text = String::from_utf8(bytes.to_owned()).unwrap();
            // An operator puts another file while this version is compiled.
            if let Some(file) = text.strip_prefix("all#put ") {
                fs_err::write(file, "all#9").unwrap();
            }
            let no = || PluginError::Invalid(format!("{name}.wasm is no component"));
            let version = StandInVersion::new(&text, hooks(&text));
            version.does(does(&text).ok_or_else(no)?);
            if text == "full" {
                of_full.lock().extend(all_of(&version.room));
            }
            known.lock().insert(text, Arc::clone(&version));
            Ok(version as Arc<dyn Source>)
        };
        let time = std::time::Duration::from_secs(60);
        let mut rules = PluginRules { dir: Some(dir), time, ..PluginRules::default() };
        change(&mut rules);
        fixture.repository.run_plugins(rules, Box::new(loader)).unwrap();
        Rig { fixture, versions, taken }
    }

    pub(in crate::model) fn new(files: &[&str]) -> Rig {
        let rig = Rig::empty(files, |_| {});
        rig.load();
        rig
    }

    pub(in crate::model) fn load(&self) {
        load(&self.fixture.repository, &self.fixture.model());
    }

    pub(in crate::model) fn write(&self, sequor_toml: &str) {
        fs_err::write(self.fixture.model().join("sequor.toml"), sequor_toml).unwrap();
    }

    pub(super) fn plans(&self, version: &str) -> u64 {
        self.versions.lock()[version].script.lock().plans
    }

    pub(in crate::model) fn state(&self, name: &str) -> BindingState {
        self.fixture.repository.show(name).unwrap().attached[0].state
    }

    fn refused(&self) -> String {
        self.fixture.repository.load(&self.fixture.model());
        match self.fixture.repository.statuses().remove(0).availability {
            Availability::Failed(faults) => faults[0].to_string(),
            Availability::Ready(_) => panic!("it is served"),
        }
    }

    pub(in crate::model) fn sequence(&self, id: u64) {
        assert_eq!(self.fixture.sum(id, 5, |s| s.start = true), 5);
        assert_eq!(self.fixture.sum(id, 6, |_| {}), 11);
        assert_eq!(self.fixture.sum(id, 7, |s| s.end = true), 18);
    }
}

pub(in crate::model) fn attach(plugin: &str) -> Attach {
    Attach { plugin: plugin.to_owned(), model: "sum".to_owned(), ..Attach::default() }
}

#[test]
fn a_plug_in_that_the_file_names_decides_from_the_first_request() {
    let rig = Rig::empty(&["first"], |_| {});
    rig.write("[plugins.scheduler]\nuse = \"first\"\nconfig = { burst = 4 }\n");
    rig.load();
    rig.sequence(1);
    assert_eq!(rig.plans("first"), 3);
    let shown = rig.fixture.repository.show("first").unwrap();
    assert_eq!((shown.attached[0].from_file, shown.attached[0].fallbacks, shown.attached[0].calls), (true, 0, 3));
}

#[test]
fn a_models_max_wait_is_at_most_that_of_the_server() {
    let rig = Rig::empty(&["first"], |rules| rules.max_wait = std::time::Duration::from_secs(10));
    let file = |wait: &str| format!("[plugins.scheduler]\nuse = \"first\"\nmax_wait = \"{wait}\"\n");
    rig.write(&file("11s"));
    let fault = rig.refused();
    assert!(fault.ends_with("max_wait = \"11s\" is more than plugins.max_wait of the server (10s)"), "{fault}");
    rig.write(&file("0s"));
    assert!(rig.refused().ends_with("max_wait must be more than nothing"), "{}", rig.refused());
    rig.write(&file("10s"));
    rig.load();
    rig.sequence(1);
    assert_eq!(rig.plans("first"), 3);
    // The same holds for a plug-in that an operator attaches.
    let repository: &dyn PluginControl = &rig.fixture.repository;
    let attach = |seconds| {
        let max_wait = Some(std::time::Duration::from_secs(seconds));
        repository.attach(&Attach { save: true, max_wait, ..attach("first") }, BY)
    };
    let error = attach(11).unwrap_err().to_string();
    assert_eq!(error, "max_wait = \"11s\" is more than plugins.max_wait of the server (10s)");
    assert_eq!(attach(0).unwrap_err().to_string(), "max_wait must be more than nothing");
    attach(7).unwrap();
    let text = fs_err::read_to_string(rig.fixture.model().join("sequor.toml")).unwrap();
    assert!(text.contains("max_wait = \"7s\"\n"), "{text}");
}

#[test]
fn scheduler_faults_of_sequor_toml_are_reported_at_their_line() {
    let rig = Rig::empty(&["bad", "first"], |rules| rules.require_sha256 = true);
    let message = |toml: &str| {
        rig.write(toml);
        let text = rig.refused();
        text.strip_prefix(&format!("{}/", rig.fixture.folder.path().display())).unwrap_or(&text).to_owned()
    };
    let missing = message("schema = 1\n[plugins.scheduler]\nuse = \"none\"\n");
    assert!(missing.starts_with("sum/sequor.toml:3:1: there is no plug-in \"none\": "), "{missing}");
    let to_do =
        "plugins/none.wasm does not exist. Put it there, or hand it over: sequor plugin load none --from none.wasm";
    assert!(missing.ends_with(to_do), "{missing}");
    assert_eq!(
        message("[plugins.scheduler]\nuse = \"first\"\n"),
        "sum/sequor.toml:2:1: plugins.require_sha256 is set: add  sha256 = \"first\""
    );
    let hash = "a".repeat(64);
    assert_eq!(
        message(&format!("[plugins.scheduler]\nuse = \"first\"\nsha256 = \"{hash}\"\n")),
        format!("sum/sequor.toml:2:1: first has the hash first, and sha256 = \"{hash}\" is wanted")
    );
    assert_eq!(
        message("[plugins.scheduler]\nuse = \"../first\"\n"),
        "sum/sequor.toml:2:1: use: a plug-in's name is of letters, digits, '-', '_' and '.', as its file in plugins.dir \
         without .wasm"
    );
}

#[test]
fn no_step_is_lost_while_a_plug_in_is_attached_replaced_and_detached() {
    let rig = Rig::new(&["first"]);
    let repository: &dyn PluginControl = &rig.fixture.repository;
    rig.fixture.sum(7, 1, |s| s.start = true);
    let shown = repository.attach(&attach("first"), BY).unwrap();
    assert_eq!((shown.attached[0].state, shown.attached[0].from_file), (BindingState::Active, false));
    assert_eq!(rig.fixture.sum(7, 1, |_| {}), 2);
    // The plug-in gets a notice of the sequence that lived before it was attached.
    assert_eq!(rig.versions.lock()["first"].script.lock().events.kind[..1], [1]);
    repository.replace("first", b"all".to_vec(), BY).unwrap();
    assert_eq!(rig.fixture.sum(7, 1, |_| {}), 3);
    assert_eq!((rig.plans("first"), repository.show("first").unwrap().sha256.as_str()), (1, "all"));
    let error = repository.replace("first", b"bad".to_vec(), BY).unwrap_err().to_string();
    assert_eq!(
        error,
        "not replaced: first (bad) failed its dry run on sum (configure: index out of bounds, src/lib.rs:41). all goes on \
         serving."
    );
    assert_eq!(rig.fixture.sum(7, 1, |_| {}), 4);
    repository.rollback("first", BY).unwrap();
    assert_eq!(rig.fixture.sum(7, 1, |_| {}), 5);
    assert!(rig.plans("first") >= 3, "one at least on trial");
    repository.park("first", BY).unwrap();
    assert_eq!((rig.fixture.sum(7, 1, |_| {}), rig.state("first")), (6, BindingState::Parked));
    repository.unpark("first", BY).unwrap();
    assert_eq!((rig.fixture.sum(7, 1, |_| {}), rig.state("first")), (7, BindingState::Active));
    assert!(matches!(repository.unload("first", BY), Err(PluginError::Conflict(_))));
    assert!(repository.detach("first", "sum", BY).unwrap().attached.is_empty());
    let plans = rig.plans("first");
    assert_eq!((rig.fixture.sum(7, 1, |s| s.end = true), rig.plans("first")), (8, plans));
    assert!(matches!(repository.detach("first", "sum", BY), Err(PluginError::Absent(_))));
    repository.unload("first", BY).unwrap();
    assert!(repository.list().is_empty());
}

#[test]
fn maintenance_restarts_a_plug_in_that_trapped() {
    let rig = Rig::new(&["trap"]);
    rig.fixture.repository.attach(&attach("trap"), BY).unwrap();
    assert_eq!(rig.fixture.sum(1, 5, |s| s.start = true), 5);
    rig.versions.lock()["trap"].does(Does::First);
    // The back-off of maintenance must pass. Requests do not wait for it.
    while rig.state("trap") != BindingState::Active {
        rig.fixture.sum(2, 1, |s| s.start = true);
    }
    let plans = rig.plans("trap");
    assert_eq!((rig.fixture.sum(1, 6, |s| s.end = true), rig.plans("trap")), (11, plans + 1));
}

#[test]
fn features_come_from_parameters_headers_and_inputs() {
    let feature = |name: &str, from: &str, key: &str, kind: &str, default: &str| {
        format!(
            "[[feature]]\nname = \"{name}\"\nfrom = \"{from}\"\nkey = \"{key}\"\ntype = \"{kind}\"\ndefault = {default}\n"
        )
    };
    let rig = Rig::empty(&["first"], |_| {});
    let toml = [
        feature("tenant", "parameter", "tenant", "key", "\"anonymous\""),
        feature("zone", "header", "X-Zone", "key", "\"\""),
        feature("value", "input", "INPUT", "number", "0"),
        feature("chunk", "parameter", "chunk_ms", "number", "-1.5"),
    ];
    rig.write(&format!("{}[plugins.scheduler]\nuse = \"first\"\n", toml.join("")));
    rig.load();
    assert_eq!(*rig.fixture.repository.headers(), ["x-zone"]);
    let saw = || rig.versions.lock()["first"].script.lock().saw.clone();
    let key = crate::scheduling::key_interner::key;
    let mut message = request(1, 42, |s| s.start = true);
    message.parameters = vec![
        ("tenant".to_owned(), Parameter::Text("gold".to_owned())),
        ("chunk_ms".to_owned(), Parameter::Int(320)),
        ("other".to_owned(), Parameter::Bool(true)),
    ];
    let headers = [("x-zone".to_owned(), "eu".to_owned())];
    rig.fixture.answer_from(RequestOrigin { headers: &headers, ..RequestOrigin::default() }, message).unwrap();
    assert_eq!(saw(), (vec![42.0, 320.0], vec![key("gold"), key("eu")]));
    rig.fixture.answer(request(1, 7, |_| {})).unwrap();
    assert_eq!(saw(), (vec![7.0, -1.5], vec![key("anonymous"), key("")]));
    let texts = rig.fixture.repository.registry().unwrap().texts();
    assert_eq!(texts.text(key("gold")).as_deref(), Some("gold"));
}

#[test]
fn a_changed_plug_in_file_replaces_the_version_unless_it_is_invalid() {
    let rig = Rig::new(&["first"]);
    let repository: &dyn PluginControl = &rig.fixture.repository;
    let registry = rig.fixture.repository.registry().unwrap();
    let write = |text: &str| {
        fs_err::write(registry.file("first").unwrap(), text).unwrap();
        registry.look();
        repository.show("first").unwrap().sha256
    };
    repository.attach(&attach("first"), BY).unwrap();
    registry.look();
    assert_eq!(write("all#2"), "all#2");
    assert_eq!(write("bad#33"), "all#2");
    let line = repository.logs("first", 0).unwrap().pop().unwrap();
    assert!(line.level == "error" && line.message.starts_with("not replaced: first (bad#33)"), "{line:?}");
    assert_eq!(write("garbage!"), "all#2");
    assert_eq!(write("first"), "first");
    rig.sequence(1);
    assert_eq!(rig.state("first"), BindingState::Active);
}

#[test]
fn a_changed_plug_in_file_that_finds_no_room_is_taken_once_there_is_room() {
    let rig = Rig::new(&["first"]);
    let repository: &dyn PluginControl = &rig.fixture.repository;
    let registry = rig.fixture.repository.registry().unwrap();
    repository.attach(&attach("first"), BY).unwrap();
    registry.look();
    fs_err::write(registry.file("first").unwrap(), "full").unwrap();
    (0..3).for_each(|_| registry.look());
    assert_eq!(repository.show("first").unwrap().sha256, "first");
    let lines = repository.logs("first", 0).unwrap();
    assert_eq!(lines.iter().filter(|line| line.message.starts_with("not replaced: ")).count(), 1, "{lines:?}");
    rig.taken.lock().clear();
    registry.look();
    assert_eq!(repository.show("first").unwrap().sha256, "full");
    rig.sequence(1);
}

#[test]
fn a_run_time_attachment_survives_a_reload_and_can_be_saved() {
    let rig = Rig::new(&["first", "all"]);
    let repository: &dyn PluginControl = &rig.fixture.repository;
    repository.attach(&attach("first"), BY).unwrap();
    rig.fixture.sum(7, 1, |s| s.start = true);
    rig.write("[sequence]\nidle = \"60s\"\n");
    rig.load();
    assert_eq!(repository.show("first").unwrap().attached.len(), 2, "the old load keeps its own");
    assert_eq!(rig.fixture.sum(7, 1, |s| s.end = true), 2);
    rig.sequence(8);
    assert_eq!(rig.plans("first"), 5);
    let how = Attach { save: true, config: r#"{"burst":4}"#.to_owned(), ..attach("all") };
    let shown = repository.attach(&how, BY).unwrap();
    assert!(shown.attached[0].from_file);
    let text = fs_err::read_to_string(rig.fixture.model().join("sequor.toml")).unwrap();
    assert_eq!(
        text,
        "[sequence]\nidle = \"60s\"\n\n[plugins.scheduler]\nuse = \"all\"\nsha256 = \"all\"\nconfig = { burst = 4 }\n"
    );
    assert!(repository.show("first").unwrap().attached.iter().all(|a| a.version == 1));
    rig.sequence(9);
    assert_eq!((rig.plans("all") > 0, rig.plans("first")), (true, 5));
}

#[test]
fn an_attached_plug_in_without_room_at_a_reload_decides_once_there_is_room() {
    let rig = Rig::new(&["first"]);
    let repository: &dyn PluginControl = &rig.fixture.repository;
    repository.attach(&attach("first"), BY).unwrap();
    // It keeps the old load, and its plug-in.
    rig.fixture.sum(7, 1, |s| s.start = true);
    let room = rig.versions.lock()["first"].room.clone();
    let full = all_of(&room);
    rig.write("[sequence]\nidle = \"60s\"\n");
    rig.load();
    let plans = rig.plans("first");
    rig.sequence(8);
    let refused = repository.attach(&attach("first"), BY).unwrap_err();
    assert!(matches!(&refused, PluginError::Unavailable(what) if what.contains("no room")), "{refused}");
    assert_eq!((rig.plans("first"), rig.fixture.sum(7, 1, |_| {})), (plans, 2), "the built-in policy decides");
    drop(full);
    while repository.show("first").unwrap().attached.iter().any(|at| at.state != BindingState::Active) {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let plans = rig.plans("first");
    rig.sequence(9);
    assert_eq!(rig.plans("first"), plans + 3);
}

#[test]
fn a_shadow_plug_in_decides_nothing_and_its_differences_are_counted() {
    let rig = Rig::new(&["all", "first"]);
    let repository: &dyn PluginControl = &rig.fixture.repository;
    repository.attach(&Attach { shadow: true, ..attach("all") }, BY).unwrap();
    rig.sequence(1);
    let shown = repository.show("all").unwrap().attached.remove(0);
    assert_eq!((shown.state, shown.differs), (BindingState::Shadow, Some((0, 3))));
    // A plug-in that decides replaces it, so it is no longer a shadow.
    repository.attach(&attach("first"), BY).unwrap();
    let error = repository.attach(&Attach { shadow: true, ..attach("all") }, BY).unwrap_err();
    assert_eq!(error.to_string(), "first decides for sum; detach it before another is its shadow");
    let error = repository.attach(&Attach { save: true, shadow: true, ..attach("first") }, BY).unwrap_err();
    assert_eq!(error.to_string(), "a shadow cannot be saved: sequor.toml names who decides");
}

#[test]
fn an_absent_model_plug_in_or_version_is_reported() {
    let rig = Rig::new(&["first"]);
    let repository: &dyn PluginControl = &rig.fixture.repository;
    let error = |how: &Attach| repository.attach(how, BY).unwrap_err().to_string();
    assert_eq!(error(&Attach { model: "none".to_owned(), ..attach("first") }), "no model \"none\" is served");
    assert!(error(&attach("none")).starts_with("there is no plug-in \"none\""));
    assert!(error(&Attach { config: "[]".to_owned(), ..attach("first") }).starts_with("config is no JSON table"));
    repository.load("other", b"first#2".to_vec(), BY).unwrap();
    assert_eq!(
        repository.load("other", b"first#3".to_vec(), BY).unwrap_err().to_string(),
        "other is loaded already (first#2); sequor plugin replace other"
    );
    assert_eq!(repository.rollback("other", BY).unwrap_err().to_string(), "other has no version before first#2");
    let error = repository.load("x/y", Vec::new(), BY).unwrap_err().to_string();
    assert!(error.contains("no name of a plug-in"), "{error}");
    let PluginError::Absent(absent) = repository.logs("none", 0).unwrap_err() else { panic!() };
    assert!(
        absent.ends_with("does not exist. Put it there, or hand it over: sequor plugin load none --from none.wasm"),
        "{absent}"
    );
}

#[test]
fn a_model_without_plug_ins_refuses_them_by_name() {
    let fixture = Fixture::empty(u64::MAX);
    fs_err::write(fixture.model().join("sequor.toml"), "[plugins.scheduler]\nuse = \"first\"\n").unwrap();
    fixture.repository.load(&fixture.model());
    let Availability::Failed(faults) = fixture.repository.statuses().remove(0).availability else { panic!() };
    assert!(faults[0].to_string().ends_with("sequor.toml:2:1: this server runs no plug-ins"), "{}", faults[0]);
    assert!(fixture.repository.list().is_empty());
    assert!(fixture.repository.find("sum", "").is_err());
}

/// Versions are replaced while clients send, and every sum is right.
#[test]
fn sums_stay_right_while_plug_ins_are_replaced_and_detached() {
    let rig = Rig::new(&["first", "admit"]);
    let repository: &dyn PluginControl = &rig.fixture.repository;
    for name in ["first", "admit"] {
        repository.load(name, name.as_bytes().to_vec(), BY).unwrap();
    }
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..3u64)
            .map(|client| {
                scope.spawn({
                    let rig = &rig;
                    move || (0..60).for_each(|n| rig.sequence(client * 1000 + n + 1))
                })
            })
            .collect();
        scope.spawn(|| {
            let mut n = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                n += 1;
                repository.attach(&attach(if n % 2 == 0 { "first" } else { "admit" }), BY).unwrap();
                repository.replace("first", format!("all#{n}").into_bytes(), BY).unwrap();
                repository.replace("admit", format!("admit#{n}").into_bytes(), BY).unwrap();
                if n % 3 == 0 {
                    let name = if n % 2 == 0 { "first" } else { "admit" };
                    repository.park(name, BY).unwrap();
                    repository.unpark(name, BY).unwrap();
                    repository.detach(name, "sum", BY).unwrap();
                }
            }
        });
        for client in clients {
            client.join().unwrap();
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(rig.fixture.repository.live(), 0);
}
