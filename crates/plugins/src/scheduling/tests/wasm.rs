//! Guests in WebAssembly's text format, called as the server calls them: their answers, their failures, and refused components.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use sequor_core::{Admission, Columns, Decision, Picks, Rejection, Time};
use sequor_wasm::call_error::{CallError, CallFault};
use sequor_wasm::component_error::ComponentError;
use sequor_wasm::engine::{Engine, Mode};
use sequor_wasm::grants::Grants;
use sequor_wasm::limits::Limits;

use crate::config::model::LoadFacts;
use crate::scheduling::SchedulerComponent;
use crate::scheduling::SchedulerGuest;
use crate::scheduling::guest::{Events, Guest as _, Source as _};
use crate::scheduling::wat_fixture::SERVING;
use crate::scheduling::wat_fixture::{LOG, SchedulerWat, ServiceLog};

/// For guests that must not reach their CPU time limit, however slow the machine is.
pub(super) const ROOMY: Limits = Limits { time: Duration::from_secs(20), memory: None };

static SIMULATION: LazyLock<Arc<Engine>> = LazyLock::new(|| Arc::new(Engine::new(Mode::Simulation).unwrap()));

pub(super) fn component(guest: &SchedulerWat<'_>) -> SchedulerComponent {
    SchedulerComponent::new(&SERVING, "x.wasm", &guest.component(), Grants::default(), None).unwrap()
}

pub(super) fn start(guest: &SchedulerWat<'_>) -> SchedulerGuest {
    component(guest).guest(Arc::new(ServiceLog::default()), ROOMY).unwrap()
}

pub(super) fn see(len: u32) -> Columns {
    let arrival = (0..u64::from(len)).map(|n| n * 1000).collect();
    Columns { now: 7_000_500, max_batch: 4, len, arrival, ..Columns::default() }
}

pub(super) fn plan(guest: &mut SchedulerGuest, len: u32) -> (Result<Decision, CallError>, Picks) {
    let mut picks = Picks::default();
    (guest.plan(0, &see(len), &Events::default(), &mut picks), picks)
}

pub(super) fn failure(guest: &SchedulerWat<'_>) -> CallError {
    plan(&mut start(guest), 3).0.unwrap_err()
}

/// The same with a server's limits.
pub(super) fn failure_by_default(guest: &SchedulerWat<'_>) -> CallError {
    let mut guest = component(guest).guest(Arc::new(ServiceLog::default()), Limits::default()).unwrap();
    plan(&mut guest, 3).0.unwrap_err()
}

// === answers ===

#[test]
fn a_guest_fires_what_it_picks() {
    let mut guest = start(&SchedulerWat::default());
    for (len, fired) in [(0, 0), (1, 1), (3, 3), (1024, 4)] {
        let (message, picks) = plan(&mut guest, len);
        let decision = if fired == 0 { Decision::Wait(Time::NEVER) } else { Decision::Fire };
        assert_eq!((message, picks.fire), (Ok(decision), (0..fired).collect::<Vec<u32>>()));
    }
}

#[test]
fn columns_arrive_as_they_were_sent() {
    // It answers with the arrival of its last candidate and with `now`, both in microseconds.
    let echo = "
        (i32.store8 (i32.const 1024) (i32.const 1))
        (i32.store (i32.const 1032) (i32.const 2048)) (i32.store (i32.const 1036) (i32.const 2))
        (i32.store (i32.const 2048) (i32.load (i32.add (i32.load offset=84 (local.get 0))
            (i32.shl (i32.sub (i32.load offset=88 (local.get 0)) (i32.const 1)) (i32.const 3)))))
        (i32.store (i32.const 2052) (i32.load (local.get 0)))
        (i32.const 1024)";
    let (message, picks) = plan(&mut start(&SchedulerWat { plan: echo, ..SchedulerWat::default() }), 100);
    assert_eq!((message, picks.fire), (Ok(Decision::Fire), vec![99, 7_000]));
}

#[test]
fn plan_answers_decode_to_the_built_in_policy_or_a_wait_with_rejections() {
    let none = SchedulerWat { plan: "(i32.const 512)", ..SchedulerWat::default() };
    assert_eq!(plan(&mut start(&none), 3).0, Ok(Decision::Default));
    let wait = "
        (i32.store8 (i32.const 1024) (i32.const 1))
        (i32.store (i32.const 1040) (i32.const 2048)) (i32.store (i32.const 1044) (i32.const 1))
        (i32.store (i32.const 2048) (i32.const 2)) (i32.store (i32.const 2052) (i32.const 42))
        (i32.store8 (i32.const 2056) (i32.const 1))
        (i32.store8 (i32.const 1048) (i32.const 1)) (i64.store (i32.const 1056) (i64.const 9000))
        (i32.const 1024)";
    let (message, picks) = plan(&mut start(&SchedulerWat { plan: wait, ..SchedulerWat::default() }), 3);
    assert_eq!(message, Ok(Decision::Wait(Time(9_000_000))));
    assert_eq!(picks, Picks { fire: vec![], reject: vec![Rejection { candidate: 2, code: 42, ends: true }] });
}

#[test]
fn admission_answers_are_decoded_as_the_contract_defines() {
    // take(1), evict(0), defer, reject(9), take(70000): a tag and a number each.
    let (mut stores, answers) = (String::new(), [(0, 1), (1, 0), (2, 0), (3, 9), (0, 70_000)]);
    for (n, (tag, number)) in answers.into_iter().enumerate() {
        let at = 2048 + 8 * n;
        stores += &format!(
            "(i32.store8 (i32.const {at}) (i32.const {tag})) (i32.store (i32.const {}) (i32.const {number}))",
            at + 4
        );
    }
    let admit = format!(
        "{stores} (i32.store (i32.const 1024) (i32.const 2048)) (i32.store (i32.const 1028) (i32.const 5)) (i32.const 1024)"
    );
    let mut guest = start(&SchedulerWat { admit: &admit, ..SchedulerWat::default() });
    let message = guest.admit(&see(5), &[1, 2], &see(1), &Events::default()).unwrap();
    let take = |instance| Admission::Take { instance };
    assert_eq!(
        message,
        [take(1), Admission::Evict { victim: 0 }, Admission::Defer, Admission::Reject(9), take(u16::MAX)]
    );
}

#[test]
fn a_configuration_is_resolved_before_the_guest_gets_it() {
    // It refuses, with the configuration as its sentence.
    let refuse = "(i32.store8 (i32.const 1024) (i32.const 1))
        (i32.store (i32.const 1028) (local.get 0)) (i32.store (i32.const 1032) (local.get 1)) (i32.const 1024)";
    let manifest = "name = \"x\"\nversion = \"1\"\nworld = \"scheduler\"\ncontract = \"0.1.0\"\n[config.burst]\ntype = \"integer\"\ndefault = 4\n";
    let mut guest = start(&SchedulerWat { configure: refuse, manifest: Some(manifest), ..SchedulerWat::default() });
    let facts = LoadFacts { name: "vad".to_owned(), keys: vec!["tenant".to_owned()], ..LoadFacts::default() };
    assert_eq!(guest.configure("", &facts).unwrap(), Err("{\"burst\":4}".to_owned()));
    assert_eq!(
        guest.configure("{\"burst\":0.5}", &facts).unwrap(),
        Err("config.burst must be an integer, not 0.5".to_owned())
    );
    assert_eq!(start(&SchedulerWat::default()).configure("{}", &facts).unwrap(), Ok(()));
}

#[test]
fn saved_bytes_are_returned_up_to_a_limit() {
    let extra = "(data (i32.const 0) \"kept\")";
    let save = |bytes: u32| {
        format!(
            "(i32.store (i32.const 1024) (i32.const 0)) (i32.store (i32.const 1028) (i32.const {bytes})) (i32.const 1024)"
        )
    };
    let (kept, much) = (save(4), save(8 << 16));
    assert_eq!(start(&SchedulerWat { extra, save: &kept, ..SchedulerWat::default() }).save().unwrap(), b"kept");
    let grown = "(drop (memory.grow (i32.const 100)))";
    let much = much.replace(&(8 << 16).to_string(), &((1 << 20) + 1).to_string());
    let save = format!("{grown} {much}");
    let error = start(&SchedulerWat { save: &save, ..SchedulerWat::default() }).save().unwrap_err();
    assert_eq!(
        (error.fault, error.what.as_str()),
        (CallFault::Memory, "it saved 1048577 bytes; at most 1048576 are kept")
    );
    assert_eq!(start(&SchedulerWat::default()).restore(b"kept").unwrap(), Ok(()));
}

#[test]
fn log_lines_of_a_guest_reach_the_host() {
    let extra = format!("{LOG} (data (i32.const 0) \"hello\")");
    let guest = SchedulerWat {
        extra: &extra,
        observe: "(call $log (i32.const 2) (i32.const 0) (i32.const 5))",
        ..SchedulerWat::default()
    };
    let heard = Arc::new(ServiceLog::default());
    let mut guest = component(&guest).start(heard.clone(), ROOMY).unwrap();
    guest.observe(&Events { kind: vec![1], sequence: vec![5], amount: vec![0], keys: vec![] }).unwrap();
    assert_eq!(*heard.lines.lock(), [(2, "hello".to_owned())]);
    assert_eq!(guest.memory(), 8 << 16);
}

// === failures ===

#[test]
fn an_endless_guest_is_out_of_time() {
    let endless = SchedulerWat { plan: "(loop $l (br $l)) (i32.const 512)", ..SchedulerWat::default() };
    let error = failure_by_default(&endless);
    assert_eq!(
        (error.fault, error.what.as_str()),
        (CallFault::Time, "time limit 2ms in plan (3 candidates) (in plan)")
    );
    // A start that never ends is stopped too.
    let start = SchedulerWat { extra: "(func $s (loop $l (br $l))) (start $s)", ..SchedulerWat::default() };
    let limits = Limits { time: Duration::from_micros(10), ..ROOMY };
    let error = component(&start).guest(Arc::new(ServiceLog::default()), limits).unwrap_err();
    assert_eq!((error.fault, error.what.as_str()), (CallFault::Time, "time limit 1ms in its start (in s)"));
}

#[test]
fn a_trap_reports_its_function_or_the_logged_error() {
    let silent = failure(&SchedulerWat { plan: "(unreachable)", ..SchedulerWat::default() });
    assert_eq!((silent.fault, silent.what.as_str()), (CallFault::Trap, "it gave up (unreachable) (in plan), in plan"));
    let extra = format!("{LOG} (data (i32.const 0) \"index 83, src/lib.rs:71\") (func $deep (unreachable))");
    let plan = "(call $log (i32.const 0) (i32.const 0) (i32.const 23)) (call $deep) (i32.const 512)";
    let error = failure(&SchedulerWat { extra: &extra, plan, ..SchedulerWat::default() });
    assert_eq!((error.fault, error.what.as_str()), (CallFault::Trap, "index 83, src/lib.rs:71, in plan"));
    let far = failure(&SchedulerWat { plan: "(i32.load (i32.const -8))", ..SchedulerWat::default() });
    assert_eq!(far.what, "memory out of bounds (in plan), in plan");
    // Lists outside its memory are its fault as well.
    let outside = "(i32.store8 (i32.const 1024) (i32.const 1)) (i32.store (i32.const 1032) (i32.const 2048)) (i32.store (i32.const 1036) (i32.const -1)) (i32.const 1024)";
    let outside = failure(&SchedulerWat { plan: outside, ..SchedulerWat::default() });
    assert_eq!(outside.fault, CallFault::Trap);
}

#[test]
fn deep_recursion_ends_in_a_trap() {
    let extra = "(func $deep (param i32) (result i32) (i32.add (call $deep (local.get 0)) (i32.const 1)))";
    let error = failure(&SchedulerWat { extra, plan: "(call $deep (i32.const 0))", ..SchedulerWat::default() });
    assert_eq!((error.fault, error.what.as_str()), (CallFault::Trap, "stack overflow (in deep), in plan"));
}

#[test]
fn memory_growth_beyond_the_limit_fails_and_the_guest_may_continue() {
    let greedy = "(if (i32.eq (memory.grow (i32.const 16384)) (i32.const -1)) (then unreachable)) (i32.const 512)";
    let error = failure(&SchedulerWat { plan: greedy, ..SchedulerWat::default() });
    assert_eq!(
        (error.fault, error.what.as_str()),
        (CallFault::Memory, "memory limit 16.5 MiB in plan: asked for 1.0 GiB (in plan)")
    );
    let copes = "(drop (memory.grow (i32.const 16384))) (i32.const 512)";
    assert_eq!(plan(&mut start(&SchedulerWat { plan: copes, ..SchedulerWat::default() }), 3).0, Ok(Decision::Default));
    let limits = Limits { memory: Some(1 << 16), ..ROOMY };
    let error = component(&SchedulerWat::default()).guest(Arc::new(ServiceLog::default()), limits).unwrap_err();
    assert_eq!(
        (error.fault, error.what.as_str()),
        (CallFault::Memory, "memory limit 64 KiB in its start: asked for 512 KiB")
    );
}

#[test]
fn after_a_trap_an_instance_is_dead_and_the_next_is_not() {
    let guest = component(&SchedulerWat { plan: "(unreachable)", ..SchedulerWat::default() });
    let mut first = guest.guest(Arc::new(ServiceLog::default()), ROOMY).unwrap();
    assert!(plan(&mut first, 1).0.is_err());
    let error = first.observe(&Events::default()).unwrap_err();
    assert_eq!((error.fault, error.what.as_str()), (CallFault::Trap, "it had fallen before, in observe"));
    let mut next = guest.guest(Arc::new(ServiceLog::default()), ROOMY).unwrap();
    assert_eq!(next.observe(&Events::default()), Ok(()));
}

// === repeatable runs ===

#[test]
fn instructions_are_counted_and_repeat() {
    let bytes = SchedulerWat::default().component();
    let component = SchedulerComponent::new(&SIMULATION, "x.wasm", &bytes, Grants::default(), None).unwrap();
    let counts = || {
        let mut guest = component.guest(Arc::new(ServiceLog::default()), Limits::default()).unwrap();
        [0, 1, 64, 64].map(|len| {
            plan(&mut guest, len).0.unwrap();
            guest.fuel()
        })
    };
    let [none, one, many, again] = counts();
    assert_eq!(counts(), [none, one, many, again]);
    assert!(none > 0 && none < one && one < many && many == again, "{:?}", counts());
    let endless = SchedulerWat { plan: "(loop $l (br $l)) (i32.const 512)", ..SchedulerWat::default() }.component();
    let component = SchedulerComponent::new(&SIMULATION, "x.wasm", &endless, Grants::default(), None).unwrap();
    let mut guest = component.guest(Arc::new(ServiceLog::default()), Limits::default()).unwrap();
    assert_eq!(plan(&mut guest, 1).0.unwrap_err().fault, CallFault::Time);
}

// === refused components ===

fn refused(bytes: &[u8]) -> ComponentError {
    SchedulerComponent::new(&SERVING, "x.wasm", bytes, Grants::default(), None).unwrap_err()
}

#[test]
fn a_file_that_is_no_component_is_refused_with_the_reason() {
    let good = SchedulerWat::default().component();
    assert_eq!(refused(b"").to_string(), "x.wasm is no WebAssembly");
    assert_eq!(refused(b"\x7fELF\x02\x01\x01\0").to_string(), "x.wasm is no WebAssembly");
    let core = wat::parse_str("(module)").unwrap();
    assert_eq!(
        refused(&core).to_string(),
        "x.wasm is a core module, not a component. `sequor plugin build` makes components, and so does `wasm-tools component new`"
    );
    for cut in [9, good.len() / 2, good.len() - 1] {
        let message = refused(&good[..cut]);
        assert!(matches!(message, ComponentError::Damaged { .. }), "{message}");
    }
    assert!(refused(&good[..good.len() / 2]).to_string().starts_with("x.wasm is no valid component, or cut short: "));
}

#[test]
fn a_component_of_another_world_or_contract_is_refused_by_name() {
    let empty = wat::parse_str("(component)").unwrap();
    assert_eq!(
        refused(&empty).to_string(),
        "x.wasm exports nothing; a scheduler exports sequor:plugin/scheduler@0.1.0"
    );
    let other = wat::parse_str("(component (instance $i) (export \"wasi:http/incoming-handler@0.2.0\" (instance $i)))")
        .unwrap();
    assert_eq!(
        refused(&other).to_string(),
        "x.wasm exports wasi:http/incoming-handler@0.2.0; a scheduler exports sequor:plugin/scheduler@0.1.0"
    );
    let newer =
        wat::parse_str("(component (instance $i) (export \"sequor:plugin/scheduler@0.2.0\" (instance $i)))").unwrap();
    let message = "x.wasm is built for sequor:plugin@0.2.0 (contract of plugin.toml); this server offers 0.1.0. Build it with the kit of 0.1.0, or upgrade the server.";
    assert_eq!(refused(&newer).to_string(), message);
    let manifest = "name = \"x\"\nversion = \"1\"\nworld = \"scheduler\"\ncontract = \"0.2.0\"\n";
    assert_eq!(
        refused(&SchedulerWat { manifest: Some(manifest), ..SchedulerWat::default() }.component()).to_string(),
        message
    );
    let less =
        wat::parse_str("(component (instance $i) (export \"sequor:plugin/scheduler@0.1.0\" (instance $i)))").unwrap();
    assert_eq!(
        refused(&less).to_string(),
        "x.wasm: sequor:plugin/scheduler@0.1.0 lacks configure, plan, admit, observe, save, restore"
    );
}

#[test]
fn function_types_that_differ_from_the_contract_are_reported() {
    let wit = "package sequor:plugin@0.1.0;
        interface scheduler { configure: func(); plan: func(); admit: func(); observe: func(); save: func(); restore: func(); }
        world w { export scheduler; }";
    let mut resolve = wit_parser::Resolve::default();
    let package = resolve.push_str("t.wit", wit).unwrap();
    let world = resolve.select_world(&[package], None).unwrap();
    let functions: String = ["configure", "plan", "admit", "observe", "save", "restore"]
        .map(|f| format!("(func (export \"sequor:plugin/scheduler@0.1.0#{f}\"))"))
        .concat();
    let mut module = wat::parse_str(format!("(module {functions})")).unwrap();
    wit_component::embed_component_metadata(&mut module, &resolve, world, wit_component::StringEncoding::UTF8).unwrap();
    let encoder = wit_component::ComponentEncoder::default();
    let component = encoder.module(&module).unwrap().encode().unwrap();
    let message = refused(&component).to_string();
    assert!(message.starts_with("x.wasm does not fit the contract 0.1.0: configure: "), "{message}");
}

/// Two interfaces of WASI as far as the tests need them, and a world with these imports.
fn wasi(imports: &str) -> String {
    format!(
        "package test:t;
        world w {{ {imports} export sequor:plugin/scheduler@0.1.0; }}
        package wasi:clocks@0.2.9 {{
            interface monotonic-clock {{ now: func() -> u64; subscribe: func(); }}
            interface wall-clock {{ record datetime {{ seconds: u64, nanoseconds: u32 }} now: func() -> datetime; }}
        }}
        package wasi:random@0.2.9 {{ interface random {{ get-random-u64: func() -> u64; }} }}
        package wasi:sockets@0.2.9 {{ interface tcp {{ connect: func(); }} }}"
    )
}

const NOW: &str = "(import \"wasi:clocks/monotonic-clock@0.2.9\" \"now\" (func $now (result i64)))";

#[test]
fn imports_beyond_the_world_are_named_all_together() {
    let wit = wasi("import wasi:sockets/tcp@0.2.9; import wasi:clocks/monotonic-clock@0.2.9;");
    let extra = format!("{NOW} (import \"wasi:sockets/tcp@0.2.9\" \"connect\" (func $connect))");
    let message =
        refused(&SchedulerWat { extra: &extra, ..SchedulerWat::default() }.component_of(&wit, "w")).to_string();
    let begin = "x.wasm asks for wasi:sockets/tcp@0.2.9 and wasi:clocks/monotonic-clock@0.2.9; world scheduler 0.1.0 gives neither. \
                 Clocks can be granted (plugins.grants = [\"x=clock\"]); sockets never. `now-us` of a round may be what you need.";
    let same = message.replace(
        "wasi:clocks/monotonic-clock@0.2.9 and wasi:sockets/tcp@0.2.9",
        "wasi:sockets/tcp@0.2.9 and wasi:clocks/monotonic-clock@0.2.9",
    );
    assert!(same.starts_with(begin), "{message}");
}

/// Its code is invalid, which only a compiler can detect. Faults that need no compiler are found first.
#[test]
fn imports_and_exports_are_checked_before_compilation() {
    let of = |rest: &str| wat::parse_str(format!("(component {rest} (core module (func (result i32))))")).unwrap();
    let message = refused(&of("(import \"wasi:sockets/tcp@0.2.9\" (instance))"));
    assert!(matches!(message, ComponentError::Imports(_)), "{message}");
    let message = refused(&of("(instance $i) (export \"wasi:http/incoming-handler@0.2.0\" (instance $i))"));
    assert!(matches!(message, ComponentError::World { .. }), "{message}");
    let message = refused(&of("(instance $i) (export \"sequor:plugin/scheduler@0.1.0\" (instance $i))"));
    assert!(matches!(message, ComponentError::Damaged { .. }), "{message}");
}

#[test]
fn a_component_of_another_world_is_refused_for_that_and_not_for_its_fields() {
    let toml =
        "name = 'x'\nversion = '1'\nworld = 'processor'\ncontract = '0.1.0'\nscratch = '8B'\n".replace('\n', "\\n");
    let of = format!("(component (@custom \"sequor:plugin\" \"{toml}\"))");
    let message = refused(&wat::parse_str(of).unwrap()).to_string();
    let begin = "x.wasm is made for the world \"processor\" (plugin.toml); a scheduler is wanted here.";
    assert!(message.starts_with(begin), "{message}");
}

#[test]
fn only_granted_imports_are_provided() {
    let clock = Grants { clock: true, ..Grants::default() };
    let take = |wit: &str, extra: &str, plan: &str, grants| {
        let bytes = SchedulerWat { extra, plan, ..SchedulerWat::default() }.component_of(&wasi(wit), "w");
        SchedulerComponent::new(&SERVING, "x.wasm", &bytes, grants, None)
    };
    // It traps if its clock stands at zero.
    let plan_now = "(if (i64.eqz (call $now)) (then unreachable)) (i32.const 512)";
    let wit = "import wasi:clocks/monotonic-clock@0.2.9;";
    let given = take(wit, NOW, plan_now, clock).unwrap();
    assert!(given.imports().contains(&"wasi:clocks/monotonic-clock@0.2.9".to_owned()));
    let mut guest = given.guest(Arc::new(ServiceLog::default()), ROOMY).unwrap();
    assert_eq!(plan(&mut guest, 1).0, Ok(Decision::Default));
    let waits = "(import \"wasi:clocks/monotonic-clock@0.2.9\" \"subscribe\" (func $subscribe))";
    assert_eq!(
        take(wit, waits, "(i32.const 512)", clock).unwrap_err().to_string(),
        "x.wasm asks for wasi:clocks/monotonic-clock@0.2.9#subscribe; world scheduler 0.1.0 does not give it. Waiting never."
    );
    let random = "(import \"wasi:random/random@0.2.9\" \"get-random-u64\" (func $random (result i64)))";
    let message = take("import wasi:random/random@0.2.9;", random, "(i32.const 512)", clock).unwrap_err().to_string();
    assert!(message.contains("Random numbers can be granted (plugins.grants = [\"x=random\"])"), "{message}");
    assert!(
        take("import wasi:random/random@0.2.9;", random, "(i32.const 512)", Grants { random: true, ..clock }).is_ok()
    );
}

#[test]
fn sequence_ids_are_available_only_with_a_grant() {
    let extra = "(import \"sequor:plugin/identity@0.1.0\" \"sequence-text\" (func $text (param i64 i32)))";
    // The answer is at 1100: whether there is one, its address and its length. It traps if the text is not 7 bytes long.
    let plan_text = "(call $text (i64.const 9) (i32.const 1100))
        (if (i32.ne (i32.load (i32.const 1108)) (i32.const 7)) (then unreachable)) (i32.const 512)";
    let bytes = SchedulerWat { extra, plan: plan_text, ..SchedulerWat::default() }.component();
    assert!(
        refused(&bytes)
            .to_string()
            .contains("Ids of sequences can be granted (plugins.grants = [\"x=sequence-text\"])")
    );
    let grants = Grants { sequence_text: true, ..Grants::default() };
    let component = SchedulerComponent::new(&SERVING, "x.wasm", &bytes, grants, None).unwrap();
    let mut guest = component.guest(Arc::new(ServiceLog::default()), ROOMY).unwrap();
    assert_eq!(plan(&mut guest, 1).0, Ok(Decision::Default));
}
