//! Real guests, written with the Rust kit and compiled. Those of `plugins/guests` decide well, and the server contains each of
//! `plugins/hostile`. `cargo xtask test` builds them and sets their folder (`SEQUOR_GUESTS`).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sequor_core::{Columns, Hooks, LoadId, Picks, PolicyAnswer, PolicyFault, PolicyQuestion, Round};
use sequor_wasm::cache::{COMPILED, Cache};
use sequor_wasm::call_error::{CallError, CallFault};
use sequor_wasm::grants::Grants;
use sequor_wasm::limits::{Limits, room};

use super::wasm::ROOMY;
use crate::config::model::LoadFacts;
use crate::scheduling::SchedulerComponent;
use crate::scheduling::SchedulerGuest;
use crate::scheduling::guest::{Events, Guest as _, Source as _};
use crate::scheduling::stand_in::StandInVersion;
use crate::scheduling::tests::rig::{Rig, plans};
use crate::scheduling::wat_fixture::SERVING;
use crate::scheduling::wat_fixture::ServiceLog;

fn folder() -> PathBuf {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.sequor/guests");
    std::env::var_os("SEQUOR_GUESTS").map_or(default, PathBuf::from)
}

fn component(name: &str) -> SchedulerComponent {
    let file = folder().join(format!("{name}.wasm"));
    let bytes = std::fs::read(&file).unwrap_or_else(|e| {
        panic!(
            "{}: {e}. `sequor plugin build --out .sequor/guests plugins/guests/*` and so on makes it",
            file.display()
        )
    });
    // Code that was compiled at the guest's build or by another test is reused.
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.sequor/tools");
    let tools = std::env::var_os("SEQUOR_CACHE").map_or(default, PathBuf::from);
    let cache = Cache::new(&tools.join(COMPILED)).unwrap();
    SchedulerComponent::new(&SERVING, &format!("{name}.wasm"), &bytes, Grants::default(), Some(&cache)).unwrap()
}

fn facts(component: &SchedulerComponent) -> LoadFacts {
    let (numbers, keys) = component.manifest().features.iter().cloned().partition(|name| name == "length");
    LoadFacts {
        name: "vad".to_owned(),
        strategy: "oldest",
        max_batch: 4,
        instances: 1,
        slots: 8,
        numbers,
        keys,
        ..LoadFacts::default()
    }
}

/// With a generous time limit: this does not test the speed of the machine, and this half of a question is not optimised.
fn start(component: &SchedulerComponent) -> (SchedulerGuest, Arc<ServiceLog>) {
    start_within(component, ROOMY)
}

fn start_within(component: &SchedulerComponent, limits: Limits) -> (SchedulerGuest, Arc<ServiceLog>) {
    let heard = Arc::new(ServiceLog::default());
    (component.guest(heard.clone(), limits).unwrap(), heard)
}

/// Six candidates of two shapes. At most four rows may run.
fn round(component: &SchedulerComponent) -> Round {
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
    Round::again(
        PolicyQuestion::Plan(sequor_core::Instance { load: LoadId::FIRST, n: 0 }),
        see,
        Hooks::default(),
        standing,
    )
}

/// Asks a started guest, and checks its answer against the core's rules.
fn ask(guest: &mut SchedulerGuest, mut round: Round) -> Result<(PolicyAnswer, Round), CallError> {
    let message = PolicyAnswer::Plan(Ok(guest.plan(0, &round.see, &Events::default(), &mut round.picks)?));
    Ok((message, round))
}

#[test]
fn well_behaved_guests_give_valid_answers() {
    for name in ["batch-key", "edf", "fair-share", "length-bucket", "lru-evict", "single", "volume"] {
        let component = component(name);
        assert_eq!(component.manifest().name, name);
        let (mut guest, heard) = start(&component);
        let config = if name == "volume" { "{\"MAX_BATCH_VOLUME_BYTES\": 250}" } else { "{}" };
        assert_eq!(guest.configure(config, &facts(&component)).unwrap(), Ok(()), "{name}");
        let events = Events { kind: vec![1, 3], sequence: vec![1, 1], amount: vec![0, 1], keys: vec![7; 2] };
        guest.observe(&events).unwrap();
        if component.manifest().hooks.plan {
            let (message, round) = ask(&mut guest, round(&component)).unwrap();
            assert_eq!(round.check(&message), Ok(()), "{name}: {message:?} {:?}", round.picks);
        }
        if component.manifest().hooks.admit {
            let round = round(&component);
            let answers = guest.admit(&round.see, &[2], &Columns::default(), &Events::default()).unwrap();
            assert!(answers.len() <= 6, "{name}");
        }
        let saved = guest.save().unwrap();
        let (mut next, _) = start(&component);
        assert_eq!(next.configure(config, &facts(&component)).unwrap(), Ok(()));
        assert_eq!(next.restore(&saved).unwrap(), Ok(()), "{name}");
        assert_eq!(heard.lines.lock().as_slice(), []);
    }
}

/// The guest's answer to its configuration.
type Configured = Result<Result<(), String>, CallError>;

/// The hostile guest with this behaviour. One component has all of them; its manifests only differ in the default.
fn hostile(component: &SchedulerComponent, does: &str, more: &str) -> (SchedulerGuest, Arc<ServiceLog>, Configured) {
    // A guest that never ends is stopped as on a server.
    let (mut guest, heard) = if does == "loop" { start_within(component, Limits::default()) } else { start(component) };
    let configured = guest.configure(&format!("{{\"do\": \"{does}\"{more}}}"), &facts(component));
    (guest, heard, configured)
}

#[test]
fn hostile_guests_are_stopped_and_the_reason_is_reported() {
    let component = component("hostile-default");
    for (does, fault, message) in [
        ("loop", CallFault::Time, "time limit 2ms in plan (6 candidates)"),
        ("trap", CallFault::Trap, "told to trap in plan"),
        ("trap-configure", CallFault::Trap, "told to trap in configure"),
        ("recursion", CallFault::Trap, "in plan"),
        ("gigabyte", CallFault::Memory, "MiB in plan: asked for 1.0 GiB"),
    ] {
        let (mut guest, _, configured) = hostile(&component, does, "");
        let failure = configured.and_then(|_| ask(&mut guest, round(&component)).map(drop)).unwrap_err();
        assert_eq!(failure.fault, fault, "{does}: {}", failure.what);
        assert!(failure.what.contains(message), "{does}: {}", failure.what);
        assert!(does != "trap" || failure.what.contains("src/lib.rs:"), "{}", failure.what);
    }
    // The core finds a wrong answer, and the instance continues.
    for (does, fault) in
        [("beyond", PolicyFault::Index), ("twice", PolicyFault::Repeat), ("shapes", PolicyFault::Shapes)]
    {
        let (mut guest, ..) = hostile(&component, does, "");
        let (text, round) = ask(&mut guest, round(&component)).unwrap();
        assert_eq!(round.check(&text), Err(fault), "{does}: {:?}", round.picks);
        assert!(ask(&mut guest, round).is_ok(), "{does}");
    }
    // Floods are limited.
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
    let (_, _, message) = hostile(&component, "refuse", "");
    assert_eq!(message.unwrap(), Err("this configuration is refused, as it was told to".to_owned()));
}

// === languages with their own run time ===

/// The hostile guest in Python with this behaviour.
fn python(does: &str, amount: u32) -> (SchedulerComponent, SchedulerGuest, Arc<ServiceLog>, Configured) {
    let component = component("hostile-python");
    let (guest, heard, configured) = hostile(&component, does, &format!(", \"amount\": {amount}"));
    (component, guest, heard, configured)
}

#[test]
fn a_python_exception_is_reported_with_its_line() {
    let (.., refused) = python("raise-configure", 0);
    assert_eq!(refused.unwrap(), Err("ValueError: told to raise at plugin.py:10".to_owned()));
    let (component, mut guest, heard, _) = python("raise", 0);
    let failure = ask(&mut guest, round(&component)).unwrap_err();
    let message = "IndexError: list index out of range at plugin.py:14";
    assert_eq!((failure.fault, failure.what), (CallFault::Trap, format!("{message}, in plan")));
    assert_eq!(*heard.lines.lock(), [(0, message.to_owned())]);
    let (_, mut guest, ..) = python("raise-observe", 0);
    let events = Events { kind: vec![3], sequence: vec![1], amount: vec![1], keys: vec![] };
    assert_eq!(guest.observe(&events).unwrap_err().what, "KeyError: 'done' at plugin.py:23, in observe");
    let (_, mut guest, ..) = python("save", 5);
    let saved = guest.save().unwrap();
    assert_eq!(
        (saved.as_slice(), guest.restore(&saved).unwrap()),
        (&b"xxxxx"[..], Err("ValueError: 5 bytes are of no use at plugin.py:29".to_owned()))
    );
    let (component, mut guest, ..) = python("loop", 0);
    let failure = ask(&mut guest, round(&component)).unwrap_err();
    assert!(
        failure.fault == CallFault::Time && failure.what.starts_with("time limit 2ms in plan (6 candidates)"),
        "{}",
        failure.what
    );
}

#[test]
fn an_interpreter_gets_the_same_memory_margin_as_other_guests() {
    let (component, mut guest, ..) = python("gather", 1 << 20);
    let at_start = guest.memory();
    assert!(
        at_start > 8 << 20 && guest.memory_limit() <= at_start + room(at_start),
        "{at_start} {}",
        guest.memory_limit()
    );
    let rounds = (0..1000).take_while(|_| ask(&mut guest, round(&component)).is_ok()).count();
    assert!((120..=128).contains(&rounds), "{rounds} MiB");
    let limits = Limits { memory: Some(8 << 20), time: Duration::from_secs(1) };
    let error = component.guest(Arc::new(ServiceLog::default()), limits).unwrap_err();
    assert_eq!(error.fault, CallFault::Memory);
    assert!(error.what.starts_with("memory limit 8 MiB in its start: asked for "), "{}", error.what);
    let (component, mut guest, ..) = python("fine", 0);
    let before = guest.memory();
    for _ in 0..200 {
        let mut round = round(&component);
        round.see.flags = vec![0; 64 << 10];
        ask(&mut guest, round).unwrap();
    }
    assert_eq!(guest.memory(), before, "what it is shown, it gives back");
}

/// A plug-in in Python that keeps 128 KiB of every round hits its limit after some hundred rounds, if it is never replaced.
#[test]
fn a_growing_python_guest_is_replaced_without_a_lost_round() {
    let starts = |rig: &Rig| {
        rig.metrics
            .encode()
            .lines()
            .filter(|l| l.contains("hook=\"configure\"") && l.contains("_count"))
            .find_map(|l| l.rsplit_once(' ')?.1.parse::<u32>().ok())
    };
    let config = "{\"do\": \"gather\", \"amount\": 131072}".to_owned();
    let mut rig = Rig::around(Arc::new(component("hostile-python")), StandInVersion::new("0", plans()), |options| {
        (options.limits, options.config) = (Limits { memory: Some(28 << 20), ..ROOMY }, config);
    });
    rig.binding.open().unwrap();
    for n in 0..300 {
        rig.submit(7, n == 0, n == 299);
        assert_eq!(rig.drain(), [1], "round {n}");
        if rig.rang() {
            rig.keep();
        }
    }
    assert!(rig.all_answered());
    let shown = rig.binding.show();
    assert_eq!((shown.calls, shown.fallbacks, shown.strikes, shown.last_fault), (300, 0, 0, None));
    let instances = starts(&rig).unwrap();
    assert!((3..=6).contains(&instances), "{instances}; {} of {} bytes", shown.memory, shown.memory_limit);
}

/// Under `cargo xtask test --all-languages`.
#[test]
fn an_exception_is_reported_with_its_line_in_javascript() {
    let component = component("fair-share-js");
    let (mut guest, heard) = start(&component);
    let refused = guest.configure("{\"weights\": {\"gold\": 0}}", &facts(&component)).unwrap().unwrap_err();
    assert_eq!(refused, "RangeError: weights.gold must be above 0 at plugin.js:19");
    assert_eq!(guest.configure("", &facts(&component)).unwrap(), Ok(()));
    let (text, round) = ask(&mut guest, round(&component)).unwrap();
    assert_eq!(round.check(&text), Ok(()), "{:?}", round.picks);
    let bare = Columns { len: 1, ..Columns::default() };
    let failure = guest.plan(0, &bare, &Events::default(), &mut Picks::default()).unwrap_err();
    let message = "Error: the server was not asked for this column; add \"arrival-us\" to `columns` of plugin.toml at plugin.js:47";
    assert_eq!((failure.fault, failure.what), (CallFault::Trap, format!("{message}, in plan")));
    assert_eq!(*heard.lines.lock(), [(0, message.to_owned())]);
}
