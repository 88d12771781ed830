//! Real guests, written with the Rust kit and compiled: those of `plugins/guests` decide well, and each of `plugins/hostile` is held back from
//! what it does. `cargo xtask test` builds them and says where (`SEQUOR_GUESTS`).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use sequor_core::{Admission, Asked, Columns, Decision, Fault, Hooks, Load, Picks, Round, Said};

use crate::plugin::cache::Cache;
use crate::plugin::guest::{Events, Guest, Limits, Manifest, ModelFacts, ROOM, Services, Source, Struck};
use crate::plugin::in_text::Heard;
use crate::plugin::instance::Instance;
use crate::plugin::stand_in::Version;
use crate::plugin::tests::rig::{Rig, plans};
use crate::plugin::tests::wasm::SERVING;
use crate::plugin::{Component, Grants};

fn folder() -> PathBuf {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join(".sequor/guests");
    std::env::var_os("SEQUOR_GUESTS").map_or(default, PathBuf::from)
}

fn component(name: &str) -> Component {
    let file = folder().join(format!("{name}.wasm"));
    let bytes = std::fs::read(&file).unwrap_or_else(|e| {
        panic!(
            "{}: {e}. `sequor plugin build --out .sequor/guests plugins/guests/*` and so on makes it",
            file.display()
        )
    });
    // Tests are not optimised, and a compiler that is not takes its time: what one has compiled serves the others.
    let cache = Cache::new(&folder().with_file_name("code")).unwrap();
    Component::new(&SERVING, &format!("{name}.wasm"), &bytes, Grants::default(), Some(&cache)).unwrap()
}

fn facts(component: &Component) -> ModelFacts {
    let (numbers, keys) = component.manifest().features.iter().cloned().partition(|name| name == "length");
    ModelFacts {
        name: "vad".to_owned(),
        strategy: "oldest",
        max_batch: 4,
        instances: 1,
        slots: 8,
        numbers,
        keys,
        ..ModelFacts::default()
    }
}

fn start(component: &Component) -> (Instance, Arc<Heard>) {
    let heard = Arc::new(Heard::default());
    (component.instance(heard.clone(), Limits::default()).unwrap(), heard)
}

/// Six candidates of two shapes, of which four rows may run.
fn round(component: &Component) -> Round {
    let facts = facts(component);
    let (n, width) = (6u64, |names: &[String]| 6 * names.len());
    let see = Columns {
        now: 50_000_000,
        max_batch: 4,
        free_instances: 1,
        live: 6,
        len: 6,
        seq: (1..=n).collect(),
        step: vec![2; 6],
        slot: (0..6).collect(),
        arrival: (0..n).map(|i| i * 1_000_000).collect(),
        ready: (0..n).map(|i| i * 1_000_000).collect(),
        deadline: (0..n).map(|i| 90_000_000 - i * 1_000_000).collect(),
        priority: vec![0; 6],
        shape: (0..n).map(|i| i / 3).collect(),
        flags: vec![0; 6],
        rows: vec![1; 6],
        bytes: vec![100; 6],
        state_bytes: vec![64; 6],
        numbers: vec![10.0; width(&facts.numbers)],
        keys: vec![7; width(&facts.keys)],
        ..Columns::default()
    };
    let standing: Vec<(u32, u64)> = see.shape.iter().map(|shape| (1, *shape)).collect();
    Round::again(Asked::Plan(sequor_core::Instance { load: Load(0), n: 0 }), see, Hooks::default(), standing)
}

/// Asks a started guest, and holds what it says against the core's rules.
fn ask(guest: &mut Instance, mut round: Round) -> Result<(Said, Round), Struck> {
    let said = Said::Plan(Ok(guest.plan(0, &round.see, &mut round.picks)?));
    Ok((said, round))
}

#[test]
fn guests_that_mean_well_give_answers_that_stand() {
    for name in ["batch-key", "edf", "fair-share", "length-bucket", "lru-evict", "single", "volume"] {
        let component = component(name);
        assert_eq!(component.manifest().name, name);
        let (mut guest, heard) = start(&component);
        let config = if name == "volume" { "{\"MAX_BATCH_VOLUME_BYTES\": 250}" } else { "{}" };
        assert_eq!(guest.configure(config, &facts(&component)).unwrap(), Ok(()), "{name}");
        let events = Events { kind: vec![1, 3], sequence: vec![1, 1], amount: vec![0, 1], keys: vec![7; 2] };
        guest.observe(&events).unwrap();
        if component.manifest().hooks.plan {
            let (said, round) = ask(&mut guest, round(&component)).unwrap();
            assert_eq!(round.check(&said), Ok(()), "{name}: {said:?} {:?}", round.picks);
        }
        if component.manifest().hooks.admit {
            let round = round(&component);
            let answers = guest.admit(&round.see, &[2], &Columns::default()).unwrap();
            assert!(answers.len() <= 6, "{name}");
        }
        let saved = guest.save().unwrap();
        let (mut next, _) = start(&component);
        assert_eq!(next.configure(config, &facts(&component)).unwrap(), Ok(()));
        assert_eq!(next.restore(&saved).unwrap(), Ok(()), "{name}");
        assert_eq!(heard.lines.lock().as_slice(), []);
    }
}

/// The hostile guest, told what to do. One component does everything; its manifests only differ in the default of this.
fn hostile(
    component: &Component,
    does: &str,
    more: &str,
) -> (Instance, Arc<Heard>, Result<Result<(), String>, Struck>) {
    let (mut guest, heard) = start(component);
    let configured = guest.configure(&format!("{{\"do\": \"{does}\"{more}}}"), &facts(component));
    (guest, heard, configured)
}

#[test]
fn hostile_guests_are_stopped_and_their_authors_told_why() {
    let component = component("hostile-default");
    for (does, fault, told) in [
        ("loop", Fault::Time, "time limit 2ms in plan (6 candidates)"),
        ("trap", Fault::Trap, "told to trap in plan"),
        ("trap-configure", Fault::Trap, "told to trap in configure"),
        ("recursion", Fault::Trap, "in plan"),
        ("gigabyte", Fault::Memory, "MiB in plan: asked for 1.0 GiB"),
    ] {
        let (mut guest, _, configured) = hostile(&component, does, "");
        let struck = configured.and_then(|_| ask(&mut guest, round(&component)).map(drop)).unwrap_err();
        assert_eq!(struck.fault, fault, "{does}: {}", struck.what);
        assert!(struck.what.contains(told), "{does}: {}", struck.what);
        assert!(does != "trap" || struck.what.contains("src/lib.rs:"), "{}", struck.what);
    }
    // Nonsense is the core's to find, and costs an instance no life.
    for (does, fault) in [("beyond", Fault::Index), ("twice", Fault::Repeat), ("shapes", Fault::Shapes)] {
        let (mut guest, ..) = hostile(&component, does, "");
        let (said, round) = ask(&mut guest, round(&component)).unwrap();
        assert_eq!(round.check(&said), Err(fault), "{does}: {:?}", round.picks);
        assert!(ask(&mut guest, round).is_ok(), "{does}");
    }
    // Floods are dammed.
    let flood = |does: &str, amount: u32| {
        let (mut guest, heard, _) = hostile(&component, does, &format!(", \"amount\": {amount}"));
        ask(&mut guest, round(&component)).unwrap();
        heard
    };
    assert_eq!(flood("flood", 300).lines.lock().len(), 100);
    assert_eq!(flood("long-line", 1000).lines.lock()[0].1.len(), 4096);
    assert_eq!(flood("counters", 50).counts.lock().len(), 32);
    let (mut guest, ..) = hostile(&component, "save-much", "");
    assert!(guest.save().unwrap_err().what.starts_with("it saved 4194304 bytes"));
    let (_, _, told) = hostile(&component, "refuse", "");
    assert_eq!(told.unwrap(), Err("this configuration is refused, as it was told to".to_owned()));
}

// === a run time of its own ===

#[test]
fn what_python_raises_is_told_with_its_line() {
    let component = component("fair-share-python");
    let (mut guest, heard) = start(&component);
    let refused = guest.configure("{\"weights\": {\"gold\": 0}}", &facts(&component)).unwrap().unwrap_err();
    assert_eq!(refused, "ValueError: weights.gold must be above 0 at plugin.py:12");
    assert_eq!(guest.configure("", &facts(&component)).unwrap(), Ok(()));
    let (said, round) = ask(&mut guest, round(&component)).unwrap();
    assert_eq!(round.check(&said), Ok(()), "{:?}", round.picks);
    // It takes for granted that there is a candidate, as there is with every question of a server.
    let struck = guest.plan(0, &Columns::default(), &mut Picks::default()).unwrap_err();
    assert_eq!(struck.fault, Fault::Trap);
    assert_eq!(struck.what, "IndexError: list index out of range at plugin.py:24, in plan");
    assert_eq!(*heard.lines.lock(), [(0, "IndexError: list index out of range at plugin.py:24".to_owned())]);
}

#[test]
fn an_interpreter_has_the_room_that_others_have() {
    let component = component("fair-share-python");
    let (mut guest, _) = start(&component);
    assert_eq!(guest.configure("", &facts(&component)).unwrap(), Ok(()));
    let at_start = guest.memory();
    assert!(at_start > 8 << 20 && guest.memory_limit() <= at_start + ROOM, "{at_start} {}", guest.memory_limit());
    let limits = Limits { memory: Some(8 << 20), ..Limits::default() };
    let told = component.instance(Arc::new(Heard::default()), limits).unwrap_err();
    assert_eq!(told.fault, Fault::Memory);
    assert!(told.what.starts_with("memory limit 8 MiB in its start: asked for "), "{}", told.what);
}

/// A plug-in in Python, shown byte lists so long that what it loses of them counts.
#[derive(Debug)]
struct Loses {
    component: Component,
    starts: AtomicU32,
}

#[derive(Debug)]
struct Losing(Instance);

impl Source for Loses {
    fn manifest(&self) -> &Manifest {
        self.component.manifest()
    }

    fn sha256(&self) -> &str {
        self.component.sha256()
    }

    fn start(&self, services: Arc<dyn Services>, limits: Limits) -> Result<Box<dyn Guest>, Struck> {
        self.starts.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(Losing(self.component.instance(services, limits)?)))
    }
}

impl Guest for Losing {
    fn configure(&mut self, config: &str, model: &ModelFacts) -> Result<Result<(), String>, Struck> {
        self.0.configure(config, model)
    }

    fn plan(&mut self, instance: u32, see: &Columns, picks: &mut Picks) -> Result<Decision, Struck> {
        self.0.plan(instance, &Columns { flags: vec![0; 128 << 10], ..see.clone() }, picks)
    }

    fn admit(&mut self, see: &Columns, room: &[u32], victims: &Columns) -> Result<Vec<Admission>, Struck> {
        self.0.admit(see, room, victims)
    }

    fn observe(&mut self, events: &Events) -> Result<(), Struck> {
        self.0.observe(events)
    }

    fn save(&mut self) -> Result<Vec<u8>, Struck> {
        self.0.save()
    }

    fn restore(&mut self, saved: &[u8]) -> Result<Result<(), String>, Struck> {
        self.0.restore(saved)
    }

    fn memory(&self) -> u64 {
        self.0.memory()
    }

    fn memory_limit(&self) -> u64 {
        self.0.memory_limit()
    }
}

/// Python's run time loses the memory of byte lists. Left alone, it would fall after some two hundred of these rounds.
#[test]
fn a_python_that_loses_memory_is_replaced_and_no_round_is_lost() {
    let loses = Arc::new(Loses { component: component("fair-share-python"), starts: AtomicU32::new(0) });
    let mut rig = Rig::around(loses.clone(), Version::new("0", plans()), |terms| terms.limits = Limits::default());
    rig.attachment.open().unwrap();
    for n in 0..400 {
        rig.submit(7, n == 0, n == 399);
        assert_eq!(rig.drain(), [1], "round {n}");
        if rig.rang() {
            rig.keep();
        }
    }
    assert!(rig.all_answered());
    let shown = rig.attachment.show();
    let starts = loses.starts.load(Ordering::Relaxed);
    assert_eq!((shown.calls, shown.fallbacks, shown.strikes, shown.last_fault), (400, 0, 0, None));
    assert!((3..=6).contains(&starts), "{starts} instances; {} of {} bytes", shown.memory, shown.memory_limit);
}
