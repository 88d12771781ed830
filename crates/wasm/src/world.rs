//! A world: the purpose of one kind of components. A kind is one type that implements [`World`], in one file outside this crate.

use std::any::Any;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use wasmtime::Store;
use wasmtime::component::types::{ComponentInstance, ComponentItem};
use wasmtime::component::{Component, ComponentNamedList, Instance, InstancePre, Lift, Linker, Lower};

use super::host::HostState;
use super::manifest::Declared;
use sequor_files::fault::Fault;

/// One kind of components.
pub trait World: fmt::Debug + Sized + Send + Sync + 'static {
    /// The value of `world` in `plugin.toml`.
    const NAME: &'static str;
    /// The version of the contract that this server offers.
    const VERSION: &'static str;
    /// The interface that a component must export, with its version.
    const EXPORT: &'static str;
    /// The functions of that interface.
    const FUNCTIONS: &'static [&'static str];
    /// Interfaces that need no grant, without their versions.
    const IMPORTS: &'static [&'static str] = &["sequor:plugin/types", "sequor:plugin/host"];
    /// Interfaces that only some worlds have, and that need a grant. Without their versions.
    const GRANTED: &'static [&'static str] = &[];
    const LIMITS: WorldLimits = WorldLimits::DEFAULT;
    /// Whether a host function of this world may wait. Then every function of a guest is called with [`super::guest::WasmGuest::begin`].
    const SUSPENDS: bool = false;
    /// Added to the refusal of a component that imports a clock without the grant.
    const CLOCK_HINT: &'static str = "";

    /// The fields of a `plugin.toml` beyond those that all worlds share.
    type Manifest: Clone + fmt::Debug + PartialEq + Send + Sync;
    /// The places of the functions in a component. Looked up once per component.
    type Exports: Send + Sync;
    /// The functions of one guest.
    type Bindings: Send;

    /// Parses a `plugin.toml`. `path` names it in a fault.
    fn declare(path: &Path, text: &str) -> Result<Declared<Self::Manifest>, Fault>;

    /// The manifest of a component without a `plugin.toml`.
    fn undeclared(name: &str) -> Self::Manifest;

    /// Checks the types of the functions against the contract, before any guest runs.
    fn check(functions: &FunctionTypes<'_>) -> wasmtime::Result<()>;

    /// Links imports that only this world has.
    fn link(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
        let _ = linker;
        Ok(())
    }

    /// The data that the host keeps for one guest of this world ([`HostState::world_data`]).
    fn data() -> Box<dyn Any + Send> {
        Box::new(())
    }

    fn exports(component: &Component, pre: &InstancePre<HostState>) -> wasmtime::Result<Self::Exports>;

    fn bind(
        exports: &Self::Exports,
        instance: Instance,
        store: &mut Store<HostState>,
    ) -> wasmtime::Result<Self::Bindings>;
}

/// A world whose guests outlive one call: they are configured once, and hand their state to their successor. The host measures their memory
/// (`guest::WasmGuest::memory_used`).
pub trait Lifecycle: World {
    /// Facts that a guest gets once, beside its settings.
    type Facts: ?Sized;

    /// Configures a guest. An error of the inner result is the guest's own sentence.
    fn configure(
        bindings: &Self::Bindings,
        store: &mut Store<HostState>,
        config: &str,
        facts: &Self::Facts,
    ) -> wasmtime::Result<Result<(), String>>;

    fn save(bindings: &Self::Bindings, store: &mut Store<HostState>) -> wasmtime::Result<Vec<u8>>;

    /// Restores a saved state. An error of the inner result is the guest's own sentence.
    fn restore(
        bindings: &Self::Bindings,
        store: &mut Store<HostState>,
        saved: &[u8],
    ) -> wasmtime::Result<Result<(), String>>;
}

/// Limits that hold for all guests of a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorldLimits {
    /// Factor of the CPU time limit for calls off the request path (start, configure, save, restore).
    pub off_path_factor: u32,
    /// Maximum bytes that a guest may hand over at once, to a host function or as an answer. The copy takes a fraction of the time limit.
    pub bytes_at_once: usize,
    /// Maximum bytes of a saved state.
    pub saved: usize,
    /// Maximum bytes of a saved state that the host still reads, so that the error can report its size.
    pub saved_at_once: usize,
}

impl WorldLimits {
    pub const DEFAULT: WorldLimits =
        WorldLimits { off_path_factor: 100, bytes_at_once: 2 << 20, saved: 1 << 20, saved_at_once: 8 << 20 };

    /// The limit of a call off the request path, from the limit of another call.
    pub(crate) fn off_path_limit(self, limit: Duration) -> Duration {
        limit * self.off_path_factor
    }
}

/// The functions of the exported interface, as a component declares them.
pub struct FunctionTypes<'a> {
    pub(crate) interface: &'a ComponentInstance,
    pub(crate) component: &'a Component,
}

impl fmt::Debug for FunctionTypes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FunctionTypes")
    }
}

impl FunctionTypes<'_> {
    /// Checks that the function takes and returns these types.
    pub fn check<Takes, Returns>(&self, name: &str) -> wasmtime::Result<()>
    where
        Takes: ComponentNamedList + Lower,
        Returns: ComponentNamedList + Lift,
    {
        match self.interface.get_export(self.component.engine(), name).map(|export| export.ty) {
            Some(ComponentItem::ComponentFunc(function)) => {
                let checked = function.typecheck::<Takes, Returns>(&self.component.component_type().instance_type());
                checked.map_err(|e| wasmtime::format_err!("{name}: {e:#}"))
            }
            _ => Err(wasmtime::format_err!("{name} is no function")),
        }
    }
}
