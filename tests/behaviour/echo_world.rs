//! A second world needs only one file, such as this one: an echo guest and its world, run by the unchanged host of components.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use sequor::config::fault::Fault;
use sequor_wasm::call_error::{Call, CallError, CallFault};
use sequor_wasm::component::Component;
use sequor_wasm::component_error::ComponentError;
use sequor_wasm::counter::CounterName;
use sequor_wasm::engine::{Engine, Mode};
use sequor_wasm::grants::Grants;
use sequor_wasm::guest::WasmGuest;
use sequor_wasm::host::HostState;
use sequor_wasm::instances::GuestPool;
use sequor_wasm::limits::Limits;
use sequor_wasm::manifest::Declared;
use sequor_wasm::services::Services;
use sequor_wasm::world::{FunctionTypes, Lifecycle, World};
use wasmtime::component::{ComponentExportIndex, Instance, InstancePre, TypedFunc};
use wasmtime::{Error, Store};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

const WIT: &str = "
package test:echo@0.1.0;
interface echo {
    configure: func(config: string) -> result<_, string>;
    echo: func(bytes: list<u8>) -> list<u8>;
    save: func() -> list<u8>;
    restore: func(saved: list<u8>) -> result<_, string>;
}
world echo-plugin {
    import sequor:plugin/host@0.1.0;
    export echo;
}";

/// Answers with its input, logs it, and counts its calls. Traps on empty input.
const GUEST: &str = r#"(module
    (import "sequor:plugin/host@0.1.0" "log" (func $log (param i32 i32 i32)))
    (memory (export "memory") 2)
    (global $heap (mut i32) (i32.const 1024))
    (global $calls (mut i32) (i32.const 0))
    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
        (local $at i32)
        (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
        (global.set $heap (i32.add (local.get $at) (local.get 3)))
        (local.get $at))
    (func $list (param $at i32) (param $len i32) (result i32)
        (global.set $heap (i32.const 1024))
        (i32.store (i32.const 64) (local.get $at))
        (i32.store (i32.const 68) (local.get $len))
        (i32.const 64))
    (func (export "test:echo/echo@0.1.0#configure") (param i32 i32) (result i32)
        (global.set $heap (i32.const 1024))
        (i32.const 128))
    (func (export "test:echo/echo@0.1.0#echo") (param $at i32) (param $len i32) (result i32)
        (if (i32.eqz (local.get $len)) (then unreachable))
        (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
        (call $log (i32.const 2) (local.get $at) (local.get $len))
        (call $list (local.get $at) (local.get $len)))
    (func (export "test:echo/echo@0.1.0#save") (result i32)
        (i32.store (i32.const 256) (global.get $calls))
        (call $list (i32.const 256) (i32.const 4)))
    (func (export "test:echo/echo@0.1.0#restore") (param $at i32) (param $len i32) (result i32)
        (global.set $calls (i32.load (local.get $at)))
        (global.set $heap (i32.const 1024))
        (i32.const 128)))"#;

#[derive(Debug)]
struct Echo;

struct Functions {
    configure: TypedFunc<(String,), (Result<(), String>,)>,
    echo: TypedFunc<(Vec<u8>,), (Vec<u8>,)>,
    save: TypedFunc<(), (Vec<u8>,)>,
    restore: TypedFunc<(Vec<u8>,), (Result<(), String>,)>,
}

type Result<T, E = Error> = std::result::Result<T, E>;

impl World for Echo {
    const NAME: &'static str = "echo";
    const VERSION: &'static str = "0.1.0";
    const EXPORT: &'static str = "test:echo/echo@0.1.0";
    const FUNCTIONS: &'static [&'static str] = &["configure", "echo", "save", "restore"];

    type Manifest = ();
    type Exports = Vec<ComponentExportIndex>;
    type Bindings = Functions;

    fn declare(path: &Path, text: &str) -> Result<Declared<()>, Fault> {
        Declared::parse(path, text, Echo::NAME)
    }

    fn undeclared(_: &str) {}

    fn check(functions: &FunctionTypes<'_>) -> Result<()> {
        functions.check::<(String,), (Result<(), String>,)>("configure")?;
        functions.check::<(Vec<u8>,), (Vec<u8>,)>("echo")?;
        functions.check::<(), (Vec<u8>,)>("save")?;
        functions.check::<(Vec<u8>,), (Result<(), String>,)>("restore")
    }

    fn exports(component: &wasmtime::component::Component, _: &InstancePre<HostState>) -> Result<Self::Exports> {
        let interface = component.get_export_index(None, Echo::EXPORT);
        let index = |name| component.get_export_index(interface.as_ref(), name).ok_or_else(|| Error::msg(name));
        Echo::FUNCTIONS.iter().copied().map(index).collect()
    }

    fn bind(exports: &Self::Exports, instance: Instance, store: &mut Store<HostState>) -> Result<Functions> {
        let function = |store: &mut Store<HostState>, n: usize| {
            instance.get_func(store, exports[n]).ok_or_else(|| Error::msg(Echo::FUNCTIONS[n]))
        };
        Ok(Functions {
            configure: function(store, 0)?.typed(&*store)?,
            echo: function(store, 1)?.typed(&*store)?,
            save: function(store, 2)?.typed(&*store)?,
            restore: function(store, 3)?.typed(&*store)?,
        })
    }
}

impl Lifecycle for Echo {
    type Facts = ();

    fn configure(to: &Functions, store: &mut Store<HostState>, config: &str, (): &()) -> Result<Result<(), String>> {
        Ok(to.configure.call(store, (config.to_owned(),))?.0)
    }

    fn save(to: &Functions, store: &mut Store<HostState>) -> Result<Vec<u8>> {
        Ok(to.save.call(store, ())?.0)
    }

    fn restore(to: &Functions, store: &mut Store<HostState>, saved: &[u8]) -> Result<Result<(), String>> {
        Ok(to.restore.call(store, (saved.to_owned(),))?.0)
    }
}

fn echo(guest: &mut WasmGuest<Echo>, bytes: &[u8]) -> Result<Vec<u8>, CallError> {
    let call = Call { name: "echo", of: Some((1, "requests")) };
    guest.call(call, guest.limit(), |to, store| Ok(to.echo.call(store, (bytes.to_owned(),))?.0))
}

// === the test ===

#[derive(Debug, Default)]
struct Lines(Mutex<Vec<String>>);

impl Services for Lines {
    fn log(&self, _: u32, message: &str) {
        self.0.lock().push(message.to_owned());
    }
    fn metric_add(&self, _: &CounterName, _: f64) {}
    fn key_text(&self, _: u64) -> Option<String> {
        None
    }
    fn sequence_text(&self, _: u64) -> Option<String> {
        None
    }
}

fn component_of(wit: &str, module: &str) -> Vec<u8> {
    let mut resolve = Resolve::default();
    resolve.push_dir("wit/0.1.0").unwrap();
    let package = resolve.push_str("test.wit", wit).unwrap();
    let world = resolve.select_world(&[package], Some("echo-plugin")).unwrap();
    let mut module = wat::parse_str(module).unwrap();
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
    ComponentEncoder::default().validate(true).module(&module).unwrap().encode().unwrap()
}

#[test]
fn a_new_plugin_world_needs_only_one_file() {
    let engine = Arc::new(Engine::new(Mode::Serving).unwrap());
    let load = |bytes: &[u8]| Component::<Echo>::new(&engine, "echo.wasm", bytes, Grants::default(), None);
    let component = Arc::new(load(&component_of(WIT, GUEST)).unwrap());
    assert_eq!(component.declared().name, "echo");
    assert!(component.imports().contains(&"sequor:plugin/host@0.1.0".to_owned()), "{:?}", component.imports());

    // One guest passes its saved state to another one.
    let lines = Arc::new(Lines::default());
    let mut first = component.guest(lines.clone(), Limits::default()).unwrap();
    assert_eq!(first.configure_with("{}", &()), Ok(Ok(())));
    assert_eq!(echo(&mut first, b"one"), Ok(b"one".to_vec()));
    assert_eq!(echo(&mut first, b"two"), Ok(b"two".to_vec()));
    assert_eq!(lines.0.lock().as_slice(), ["one", "two"]);
    let saved = first.save_state().unwrap();
    let mut second = component.guest(lines.clone(), Limits::default()).unwrap();
    assert_eq!(second.restore_state(&saved), Ok(Ok(())));
    echo(&mut second, b"three").unwrap();
    assert_eq!((saved, second.save_state().unwrap()), (vec![2, 0, 0, 0], vec![3, 0, 0, 0]));
    assert_eq!(second.memory_used(), 2 << 16);

    // A pool replaces the guest that traps.
    let pool = GuestPool::new(2, move || component.guest(lines.clone(), Limits::default()));
    let trap = pool.call(|guest| echo(guest, b"")).unwrap_err();
    assert_eq!((trap.fault, pool.live()), (CallFault::Trap, 0));
    assert_eq!(pool.call(|guest| echo(guest, b"again")), Ok(b"again".to_vec()));

    // A component of another world is refused.
    let (wit, guest) = (WIT.replace("interface echo", "interface other").replace("export echo", "export other"), GUEST);
    let other = load(&component_of(&wit, &guest.replace("test:echo/echo", "test:echo/other"))).unwrap_err();
    assert!(matches!(other, ComponentError::World { world: "echo", .. }), "{other}");
}
