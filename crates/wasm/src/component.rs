//! A component: one version of a plug-in, compiled, with its imports and exports checked against its world. A component that does not fit
//! is refused here, with all its faults, before any guest starts.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{HasSelf, InstancePre, Linker};

use super::background::give_way;
use super::cache::{self, Cache};
use super::component_error::ComponentError;
use super::contract;
use super::contract::sequor::plugin::host;
use super::engine::{Engine, TABLES};
use super::function_limit;
use super::grants::Grants;
use super::host::HostState;
use super::imports;
use super::manifest::{self, Declared};
use super::outline::Outline;
use super::room::{NoGuestRoom, RoomPurpose, RoomShare};
use super::world::{FunctionTypes, World};

/// One version of a plug-in, ready to be started.
pub struct Component<W: World> {
    pub(crate) engine: Arc<Engine>,
    pub(crate) pre: InstancePre<HostState>,
    pub(crate) exports: W::Exports,
    pub(crate) declared: Declared<W::Manifest>,
    pub(crate) sha256: String,
    imports: Vec<String>,
}

impl<W: World> Component<W> {
    /// Compiles a component. `file` is its name in a refusal. Compilation can take seconds; the cache keeps its result.
    pub fn new(
        engine: &Arc<Engine>,
        file: &str,
        bytes: &[u8],
        grants: Grants,
        cache: Option<&Cache>,
    ) -> Result<Component<W>, ComponentError> {
        check_kind(file, bytes)?;
        let declared = declared::<W>(file, bytes)?;
        let damaged = |what: String| ComponentError::Damaged { file: file.to_owned(), what };
        // Compilation takes seconds, so every check that does not need it comes first.
        let outline = Outline::read(bytes).map_err(damaged)?;
        let imports = imports::check::<W>(file, &outline, grants)?;
        check_world::<W>(file, &outline)?;
        function_limit::check(file, bytes)?;
        give_way();
        let sha256 = hex(&Sha256::digest(bytes));
        give_way();
        let compiled = match cache {
            Some(cache) => cache.get_or_compile(engine, &hash_of_code(bytes), bytes),
            None => cache::compile(engine, bytes),
        };
        let compiled = compiled.map_err(|e| refusal(file, &e))?;
        give_way();
        check_exports::<W>(file, &compiled)?;
        let misfit = |e: wasmtime::Error| misfit::<W>(file, &e);
        let pre = linker::<W>(engine, grants).and_then(|linker| linker.instantiate_pre(&compiled)).map_err(misfit)?;
        let exports = W::exports(&compiled, &pre).map_err(misfit)?;
        Ok(Component { engine: Arc::clone(engine), pre, exports, declared, sha256, imports })
    }

    /// The contents of its `plugin.toml`.
    pub fn declared(&self) -> &Declared<W::Manifest> {
        &self.declared
    }

    /// SHA-256 of the file, in hex.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// How much of the engine's room a guest needs.
    pub fn weight(&self) -> u32 {
        weight(self.pre.component())
    }

    /// A share of the engine's room, for the guests of this version at one place.
    pub fn open_share(&self, purpose: RoomPurpose) -> Result<RoomShare, NoGuestRoom> {
        self.engine.room().open(self.weight(), purpose)
    }

    /// The interfaces it imports, with their versions.
    pub fn imports(&self) -> &[String] {
        &self.imports
    }
}

impl<W: World> fmt::Debug for Component<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Declared { name, version, .. } = &self.declared;
        write!(f, "Component({name} {version} {})", self.sha256.get(..7).unwrap_or_default())
    }
}

/// Why a file does not compile. wasmtime exports no type for a component that needs more than the engine has for an instance.
fn refusal(file: &str, error: &wasmtime::Error) -> ComponentError {
    let (file, what) = (file.to_owned(), format!("{error:#}"));
    if what.contains("pooling allocator") {
        let what = error.root_cause().to_string().replace(" in the pooling allocator", "");
        return ComponentError::TooLarge { file, what };
    }
    ComponentError::Damaged { file, what }
}

/// The engine has a memory and [`TABLES`] tables for each guest of weight 1.
fn weight(component: &wasmtime::component::Component) -> u32 {
    let needed = component.resources_required();
    needed.map_or(1, |needed| needed.num_memories.max(needed.num_tables.div_ceil(TABLES)).max(1))
}

fn misfit<W: World>(file: &str, error: &wasmtime::Error) -> ComponentError {
    ComponentError::Types { file: file.to_owned(), offered: W::VERSION, what: format!("{error:#}") }
}

fn check_kind(file: &str, bytes: &[u8]) -> Result<(), ComponentError> {
    match bytes.split_at_checked(8) {
        Some((b"\0asm\x01\0\0\0", _)) => Err(ComponentError::CoreModule(file.to_owned())),
        Some((b"\0asm\x0d\0\x01\0", _)) => Ok(()),
        _ if bytes.starts_with(b"\0asm") => {
            let what = "it is of a version of WebAssembly that is not known here".to_owned();
            Err(ComponentError::Damaged { file: file.to_owned(), what })
        }
        _ => Err(ComponentError::Foreign(file.to_owned())),
    }
}

/// The contents of its `plugin.toml`. Without one, a component has the name of its file.
fn declared<W: World>(file: &str, bytes: &[u8]) -> Result<Declared<W::Manifest>, ComponentError> {
    let section = manifest::section(bytes)
        .map_err(|what| ComponentError::Damaged { file: file.to_owned(), what: what.to_owned() })?;
    let Some(text) = section else {
        let name = file.strip_suffix(".wasm").unwrap_or(file);
        return Ok(Declared::silent(name, (W::NAME, W::VERSION), W::undeclared(name)));
    };
    if let Some(world) = manifest::world(text).filter(|world| world != W::NAME) {
        return Err(ComponentError::OtherWorld { file: file.to_owned(), world, wanted: W::NAME });
    }
    let declared = W::declare(manifest::PATH.as_ref(), text)
        .map_err(|fault| ComponentError::Manifest { file: file.to_owned(), what: fault.to_string() })?;
    if !contract::is_served(W::VERSION, &declared.contract) {
        let (file, wanted) = (file.to_owned(), declared.contract);
        return Err(ComponentError::Contract { file, wanted, offered: W::VERSION });
    }
    Ok(declared)
}

/// Whether a file exports the interface of this world, as far as is known before compilation.
pub fn is_of_world<W: World>(bytes: &[u8]) -> bool {
    Outline::read(bytes).is_ok_and(|outline| outline.exports.iter().any(|name| is_export::<W>(name)))
}

fn is_export<W: World>(name: &str) -> bool {
    contract::parts(name).0 == contract::parts(W::EXPORT).0
}

/// Checks that the component exports the interface of its world, in a version that this server runs.
fn check_world<W: World>(file: &str, outline: &Outline) -> Result<(), ComponentError> {
    let Some(name) = outline.exports.iter().find(|name| is_export::<W>(name)) else {
        let exports = if outline.exports.is_empty() { "nothing".to_owned() } else { outline.exports.join(", ") };
        return Err(ComponentError::World { file: file.to_owned(), exports, world: W::NAME, wanted: W::EXPORT });
    };
    let version = contract::parts(name).1;
    if contract::is_served(W::VERSION, version) {
        return Ok(());
    }
    Err(ComponentError::Contract { file: file.to_owned(), wanted: version.to_owned(), offered: W::VERSION })
}

/// Checks that this interface has every function, with the types of the contract. Otherwise the first guest would fail.
fn check_exports<W: World>(file: &str, component: &wasmtime::component::Component) -> Result<(), ComponentError> {
    let (engine, ty) = (component.engine(), component.component_type());
    let export = ty.exports(engine).find(|(name, _)| is_export::<W>(name)).map(|(_, export)| export.ty);
    let Some(ComponentItem::ComponentInstance(interface)) = export else { return Ok(()) };
    let missing: Vec<&str> =
        W::FUNCTIONS.iter().copied().filter(|f| interface.get_export(engine, f).is_none()).collect();
    if !missing.is_empty() {
        let missing = missing.join(", ");
        return Err(ComponentError::Exports { file: file.to_owned(), interface: W::EXPORT, missing });
    }
    W::check(&FunctionTypes { interface: &interface, component }).map_err(|e| misfit::<W>(file, &e))
}

fn linker<W: World>(engine: &Engine, grants: Grants) -> wasmtime::Result<Linker<HostState>> {
    let mut linker = Linker::new(engine.wasmtime());
    host::add_to_linker::<_, HasSelf<HostState>>(&mut linker, |state| state)?;
    grants.link(&mut linker)?;
    W::link(&mut linker)?;
    Ok(linker)
}

/// The hash of a component without its `plugin.toml`, so that a change of that alone compiles nothing again.
fn hash_of_code(bytes: &[u8]) -> String {
    let (before, behind) = manifest::code(bytes);
    hex(&Sha256::new().chain_update(before).chain_update(behind).finalize())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use super::*;
    use crate::engine::SERVING;

    /// A component with this many instances of this core module.
    fn compiled(module: &str, instances: usize) -> wasmtime::Result<wasmtime::component::Component> {
        let instances = "(core instance (instantiate $m))".repeat(instances);
        let text = format!("(component (core module $m {module}) {instances})");
        cache::compile(&SERVING, &wat::parse_str(text).unwrap())
    }

    #[test]
    fn a_guest_weighs_as_much_as_its_memories_and_tables() {
        let of = |module: &str, instances: usize| weight(&compiled(module, instances).unwrap());
        assert_eq!([of("", 64), of("(memory 1)", 1), of("(memory 1)", 8)], [1, 1, 8]);
        assert_eq!([of("(table 1 funcref)", 4), of("(table 1 funcref)", 5), of("(table 1 funcref)", 32)], [1, 2, 8]);
    }

    #[test]
    fn a_component_that_needs_more_than_the_engine_has_is_refused_with_that_reason() {
        let refused =
            |module: &str, instances: usize| match refusal("x.wasm", &compiled(module, instances).unwrap_err()) {
                ComponentError::TooLarge { what, .. } => what,
                other => panic!("{other:?}"),
            };
        let what = refused("", 65);
        assert!(what.contains("65 core module instances") && what.ends_with("maximum of 64"), "{what}");
        let what = refused("(table 100001 funcref)", 1);
        assert!(what.contains("100001"), "{what}");
    }
}
