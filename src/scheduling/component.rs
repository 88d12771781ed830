//! A component: one version of a plug-in, compiled, its imports and exports held against the contract. What does not fit is refused here, with
//! everything that is wrong with it, and not when it is first needed.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use wasmtime::component::types::{ComponentInstance, ComponentItem};
use wasmtime::component::{ComponentNamedList, HasSelf, InstancePre, Lift, Linker, Lower};

use super::contract::sequor::plugin::host;
use super::contract::{self, SchedulerPluginIndices};
use super::grants::Grants;
use super::guest::Manifest;
use super::host::HostState;
use super::imports;
use super::manifest::{self, Declared};
use super::question::Exports;
use super::refused::Refused;
use crate::wasm::background::give_way;
use crate::wasm::cache::Cache;
use crate::wasm::engine::Engine;
use crate::wasm::outline::Outline;

/// One version of a plug-in, ready to be started.
pub struct Component {
    pub(super) engine: Arc<Engine>,
    pub(super) pre: InstancePre<HostState>,
    pub(super) indices: SchedulerPluginIndices,
    pub(super) questions: Exports,
    pub(super) declared: Declared,
    pub(super) sha256: String,
    imports: Vec<String>,
}

impl Component {
    /// Takes a component in. `file` is how it is called in what is refused. Compiling can take seconds; code that an earlier call has compiled
    /// is taken from the cache.
    pub fn new(
        engine: &Arc<Engine>,
        file: &str,
        bytes: &[u8],
        grants: Grants,
        cache: Option<&Cache>,
    ) -> Result<Component, Refused> {
        check_kind(file, bytes)?;
        let declared = declared(file, bytes)?;
        let damaged = |what: String| Refused::Damaged { file: file.to_owned(), what };
        // Whatever can be refused without compiling is: that takes seconds.
        let outline = Outline::read(bytes).map_err(damaged)?;
        let imports = imports::check(file, &outline, grants)?;
        check_world(file, &outline)?;
        give_way();
        let sha256 = hex(&Sha256::digest(bytes));
        give_way();
        let compiled = match cache {
            Some(cache) => cache.get_or_compile(engine, &hash_of_code(bytes), bytes),
            None => wasmtime::component::Component::new(engine.wasmtime(), bytes),
        };
        let compiled = compiled.map_err(|e| damaged(format!("{e:#}")))?;
        give_way();
        check_exports(file, &compiled)?;
        let misfit = |e: wasmtime::Error| Refused::Types { file: file.to_owned(), what: format!("{e:#}") };
        let pre = linker(engine, grants).and_then(|linker| linker.instantiate_pre(&compiled)).map_err(misfit)?;
        let indices = SchedulerPluginIndices::new(&pre).map_err(misfit)?;
        let questions = Exports::of(&compiled).map_err(misfit)?;
        Ok(Component { engine: Arc::clone(engine), pre, indices, questions, declared, sha256, imports })
    }

    pub fn declared(&self) -> &Declared {
        &self.declared
    }

    /// The interfaces it imports, with their versions.
    pub fn imports(&self) -> &[String] {
        &self.imports
    }
}

impl fmt::Debug for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Manifest { name, version, .. } = &self.declared.manifest;
        write!(f, "Component({name} {version} {})", self.sha256.get(..7).unwrap_or_default())
    }
}

fn check_kind(file: &str, bytes: &[u8]) -> Result<(), Refused> {
    match bytes.split_at_checked(8) {
        Some((b"\0asm\x01\0\0\0", _)) => Err(Refused::CoreModule(file.to_owned())),
        Some((b"\0asm\x0d\0\x01\0", _)) => Ok(()),
        _ if bytes.starts_with(b"\0asm") => {
            let what = "it is of a version of WebAssembly that is not known here".to_owned();
            Err(Refused::Damaged { file: file.to_owned(), what })
        }
        _ => Err(Refused::Foreign(file.to_owned())),
    }
}

/// What it says of itself; a component that says nothing is called as its file.
fn declared(file: &str, bytes: &[u8]) -> Result<Declared, Refused> {
    let section =
        manifest::section(bytes).map_err(|what| Refused::Damaged { file: file.to_owned(), what: what.to_owned() })?;
    let Some(text) = section else {
        return Ok(Declared::silent(file.strip_suffix(".wasm").unwrap_or(file)));
    };
    let declared = Declared::read(Path::new("plugin.toml"), text)
        .map_err(|fault| Refused::Manifest { file: file.to_owned(), what: fault.to_string() })?;
    if !contract::is_served(&declared.contract) {
        return Err(Refused::Contract { file: file.to_owned(), wanted: declared.contract });
    }
    Ok(declared)
}

fn is_scheduler(name: &str) -> bool {
    contract::parts(name).0 == contract::parts(contract::SCHEDULER).0
}

/// It exports the interface of a scheduler, in a version that is served.
fn check_world(file: &str, outline: &Outline) -> Result<(), Refused> {
    let Some(name) = outline.exports.iter().find(|name| is_scheduler(name)) else {
        let exports = if outline.exports.is_empty() { "nothing".to_owned() } else { outline.exports.join(", ") };
        return Err(Refused::World { file: file.to_owned(), exports });
    };
    let version = contract::parts(name).1;
    if contract::is_served(version) {
        return Ok(());
    }
    Err(Refused::Contract { file: file.to_owned(), wanted: version.to_owned() })
}

/// That interface has every function, as the contract has them.
fn check_exports(file: &str, compiled: &wasmtime::component::Component) -> Result<(), Refused> {
    let (engine, ty) = (compiled.engine(), compiled.component_type());
    let export = ty.exports(engine).find(|(name, _)| is_scheduler(name)).map(|(_, export)| export.ty);
    let Some(ComponentItem::ComponentInstance(interface)) = export else { return Ok(()) };
    let has = |function: &&str| interface.get_export(engine, function).is_some();
    let missing: Vec<&str> =
        ["configure", "plan", "admit", "observe", "save", "restore"].into_iter().filter(|f| !has(f)).collect();
    if !missing.is_empty() {
        return Err(Refused::Exports { file: file.to_owned(), missing: missing.join(", ") });
    }
    check_types(&interface, compiled).map_err(|e| Refused::Types { file: file.to_owned(), what: format!("{e:#}") })
}

/// Its functions take and give what those of the contract do. Without this, the first instance would find out.
fn check_types(interface: &ComponentInstance, compiled: &wasmtime::component::Component) -> wasmtime::Result<()> {
    use super::contract::{scheduler as s, sequor::plugin::types};
    check_type::<(&str, types::Model<'_>), (Result<(), String>,)>(interface, compiled, "configure")?;
    check_type::<(s::Round, s::Columns<'_>), (Option<s::Decision>,)>(interface, compiled, "plan")?;
    type Admit<'a> = (s::Round, s::Columns<'a>, &'a [u32], s::Columns<'a>);
    check_type::<Admit<'_>, (Vec<s::Admission>,)>(interface, compiled, "admit")?;
    check_type::<(s::Events<'_>,), ()>(interface, compiled, "observe")?;
    check_type::<(), (Vec<u8>,)>(interface, compiled, "save")?;
    check_type::<(&[u8],), (Result<(), String>,)>(interface, compiled, "restore")
}

fn check_type<Takes: ComponentNamedList + Lower, Gives: ComponentNamedList + Lift>(
    interface: &ComponentInstance,
    compiled: &wasmtime::component::Component,
    name: &str,
) -> wasmtime::Result<()> {
    match interface.get_export(compiled.engine(), name).map(|export| export.ty) {
        Some(ComponentItem::ComponentFunc(function)) => {
            let checked = function.typecheck::<Takes, Gives>(&compiled.component_type().instance_type());
            checked.map_err(|e| wasmtime::format_err!("{name}: {e:#}"))
        }
        _ => Err(wasmtime::format_err!("{name} is no function")),
    }
}

fn linker(engine: &Engine, grants: Grants) -> wasmtime::Result<Linker<HostState>> {
    let mut linker = Linker::new(engine.wasmtime());
    host::add_to_linker::<_, HasSelf<HostState>>(&mut linker, |held| held)?;
    grants.link(&mut linker)?;
    Ok(linker)
}

/// A component that only says something else of itself, a version say, is not compiled again.
fn hash_of_code(bytes: &[u8]) -> String {
    let (before, behind) = manifest::code(bytes);
    hex(&Sha256::new().chain_update(before).chain_update(behind).finalize())
}

pub(super) fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
