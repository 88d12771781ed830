//! The processor's world: the requirements on its components.

use std::any::Any;
use std::path::Path;

use sequor_wasm::component::Component;
use sequor_wasm::guest::WasmGuest;
use sequor_wasm::host::HostState;
use sequor_wasm::manifest::Declared;
use sequor_wasm::world::{FunctionTypes, World, WorldLimits};
use wasmtime::Store;
use wasmtime::component::{HasSelf, Instance, InstancePre, Linker};

use super::contract::sequor::plugin::{models, tensors};
use super::contract::{self, ProcessorPlugin, ProcessorPluginIndices};
use super::manifest::{self, ProcessorManifest};
use super::tensors::HeldTensors;
use super::wasi_nn_contract::{errors, graph, inference, tensor};
use crate::config::fault::Fault;

/// Plug-ins that prepare a model's inputs and finish its outputs.
#[derive(Debug)]
pub struct ProcessorWorld;

/// A compiled version of a processor plug-in.
pub type ProcessorComponent = Component<ProcessorWorld>;
/// A running processor plug-in.
pub type ProcessorGuest = WasmGuest<ProcessorWorld>;

impl World for ProcessorWorld {
    const NAME: &'static str = contract::WORLD;
    const VERSION: &'static str = contract::VERSION;
    const EXPORT: &'static str = contract::PROCESSOR;
    const FUNCTIONS: &'static [&'static str] = &["configure", "pre", "post"];
    const IMPORTS: &'static [&'static str] =
        &["sequor:plugin/types", "sequor:plugin/host", "sequor:plugin/tensors", "sequor:plugin/calls"];
    const GRANTED: &'static [&'static str] =
        &["sequor:plugin/models", "wasi:nn/tensor", "wasi:nn/graph", "wasi:nn/inference", "wasi:nn/errors"];
    const SUSPENDS: bool = true;
    // A tensor that is passed by value may be large. A larger one goes into a buffer in parts.
    const LIMITS: WorldLimits = WorldLimits { bytes_at_once: 16 << 20, ..WorldLimits::DEFAULT };

    type Manifest = ProcessorManifest;
    type Exports = ProcessorPluginIndices;
    type Bindings = ProcessorPlugin;

    fn declare(path: &Path, text: &str) -> Result<Declared<ProcessorManifest>, Fault> {
        manifest::parse(path, text)
    }

    fn undeclared(_: &str) -> ProcessorManifest {
        manifest::undeclared()
    }

    /// The functions take handles, whose types are known only once there is an instance. The bindings check them when a guest starts. Every
    /// load starts a guest before it serves.
    fn check(_: &FunctionTypes<'_>) -> wasmtime::Result<()> {
        Ok(())
    }

    fn link(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
        tensors::add_to_linker::<_, HasSelf<HostState>>(linker, |state| state)?;
        models::add_to_linker::<_, HasSelf<HostState>>(linker, |state| state)?;
        tensor::add_to_linker::<_, HasSelf<HostState>>(linker, |state| state)?;
        graph::add_to_linker::<_, HasSelf<HostState>>(linker, |state| state)?;
        inference::add_to_linker::<_, HasSelf<HostState>>(linker, |state| state)?;
        errors::add_to_linker::<_, HasSelf<HostState>>(linker, |state| state)
    }

    fn data() -> Box<dyn Any + Send> {
        HeldTensors::data()
    }

    fn exports(
        _: &wasmtime::component::Component,
        pre: &InstancePre<HostState>,
    ) -> wasmtime::Result<ProcessorPluginIndices> {
        ProcessorPluginIndices::new(pre)
    }

    fn bind(
        exports: &ProcessorPluginIndices,
        instance: Instance,
        store: &mut Store<HostState>,
    ) -> wasmtime::Result<ProcessorPlugin> {
        exports.load(store, &instance)
    }
}
