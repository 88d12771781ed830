//! The initializer's world: the requirements on its components.

use std::any::Any;
use std::path::Path;

use sequor_wasm::component::Component;
use sequor_wasm::guest::WasmGuest;
use sequor_wasm::host::HostState;
use sequor_wasm::manifest::Declared;
use sequor_wasm::world::{FunctionTypes, World, WorldLimits};
use wasmtime::Store;
use wasmtime::component::{HasSelf, Instance, InstancePre, Linker};

use super::contract::{self, StateInitializerPlugin, StateInitializerPluginIndices};
use super::manifest::{self, InitializerManifest};
use crate::config::fault::Fault;
use crate::processing::contract::sequor::plugin::tensors;
use crate::processing::tensors::HeldTensors;

/// Plug-ins that make the first state of a sequence.
#[derive(Debug)]
pub struct InitializerWorld;

/// A compiled version of an initializer plug-in.
pub type InitializerComponent = Component<InitializerWorld>;
/// A running initializer plug-in.
pub type InitializerGuest = WasmGuest<InitializerWorld>;

impl World for InitializerWorld {
    const NAME: &'static str = contract::WORLD;
    const VERSION: &'static str = contract::VERSION;
    const EXPORT: &'static str = contract::INITIALIZER;
    const FUNCTIONS: &'static [&'static str] = &["configure", "initialize", "steps"];
    const IMPORTS: &'static [&'static str] =
        &["sequor:plugin/types", "sequor:plugin/host", "sequor:plugin/tensors", "sequor:plugin/calls"];
    // A state that is passed by value may be large. A larger one goes into a buffer in parts.
    const LIMITS: WorldLimits = WorldLimits { bytes_at_once: 16 << 20, ..WorldLimits::DEFAULT };

    type Manifest = InitializerManifest;
    type Exports = StateInitializerPluginIndices;
    type Bindings = StateInitializerPlugin;

    fn declare(path: &Path, text: &str) -> Result<Declared<InitializerManifest>, Fault> {
        manifest::parse(path, text)
    }

    fn undeclared(_: &str) -> InitializerManifest {
        manifest::undeclared()
    }

    /// The functions take handles, whose types are known only once there is an instance. The bindings check them when a guest starts. Every
    /// load starts a guest before it serves.
    fn check(_: &FunctionTypes<'_>) -> wasmtime::Result<()> {
        Ok(())
    }

    fn link(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
        tensors::add_to_linker::<_, HasSelf<HostState>>(linker, |state| state)
    }

    fn data() -> Box<dyn Any + Send> {
        HeldTensors::data()
    }

    fn exports(
        _: &wasmtime::component::Component,
        pre: &InstancePre<HostState>,
    ) -> wasmtime::Result<StateInitializerPluginIndices> {
        StateInitializerPluginIndices::new(pre)
    }

    fn bind(
        exports: &StateInitializerPluginIndices,
        instance: Instance,
        store: &mut Store<HostState>,
    ) -> wasmtime::Result<StateInitializerPlugin> {
        exports.load(store, &instance)
    }
}
