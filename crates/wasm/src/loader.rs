//! From files to components: one engine, one cache of compiled code and one table of grants for all components of a server, of every world.

use std::path::Path;
use std::sync::Arc;

use super::cache::Cache;
use super::component::Component;
use super::component_error::ComponentError;
use super::engine::{Engine, Mode, NoEngine};
use super::grants::GrantTable;
use super::room::GuestRoom;
use super::world::World;

#[derive(Debug)]
pub struct Loader {
    engine: Arc<Engine>,
    cache: Option<Cache>,
    grants: GrantTable,
}

impl Loader {
    /// A loader for components that serve in this room. The folder `cache` keeps compiled code. If it cannot be used, that is logged, and each load
    /// compiles.
    pub fn new(cache: Option<&Path>, grants: GrantTable, room: GuestRoom) -> Result<Loader, NoEngine> {
        let cache = cache.and_then(|folder| {
            let opened = Cache::new(folder);
            opened.inspect_err(|e| tracing::warn!("{}: compiled plug-ins are not kept: {e}", folder.display())).ok()
        });
        Ok(Loader { engine: Arc::new(Engine::in_room(Mode::Serving, room)?), cache, grants })
    }

    /// The component `name`.wasm. Compilation can take seconds, so a thread that serves requests must not call this.
    pub fn load<W: World>(&self, name: &str, component: &[u8]) -> Result<Component<W>, ComponentError> {
        Component::new(
            &self.engine,
            &format!("{name}.wasm"),
            component,
            self.grants.for_plugin(name),
            self.cache.as_ref(),
        )
    }
}
