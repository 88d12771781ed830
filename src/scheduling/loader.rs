//! Files in, plug-ins out: one engine, the cache of compiled code and what the operator grants, for all plug-ins of a server.

use std::path::Path;
use std::sync::Arc;

use super::component::Component;
use super::grants::Grants;
use super::guest::Source;
use super::report::PluginError;
use crate::wasm::cache::Cache;
use crate::wasm::engine::{Engine, Mode};

#[derive(Debug)]
pub struct Loader {
    engine: Arc<Engine>,
    cache: Option<Cache>,
    grants: Grants,
}

impl Loader {
    /// For plug-ins that serve. Compiled code is kept in `cache`; a folder that cannot be used is logged, and code is then compiled each time.
    pub fn new(cache: Option<&Path>, grants: Grants) -> Result<Loader, PluginError> {
        let engine = Engine::new(Mode::Serving).map_err(|e| PluginError::Internal(e.to_string()))?;
        let cache = cache.and_then(|folder| {
            let opened = Cache::new(folder);
            opened.inspect_err(|e| tracing::warn!("{}: compiled plug-ins are not kept: {e}", folder.display())).ok()
        });
        Ok(Loader { engine: Arc::new(engine), cache, grants })
    }

    /// The plug-in `name`.wasm. Compiling can take seconds: not for a thread that serves.
    pub fn load(&self, name: &str, component: &[u8]) -> Result<Arc<dyn Source>, PluginError> {
        let file = format!("{name}.wasm");
        let loaded = Component::new(&self.engine, &file, component, self.grants, self.cache.as_ref());
        Ok(Arc::new(loaded.map_err(|refused| PluginError::Invalid(refused.to_string()))?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduling::wat_fixture::{Guest, Heard};
    use crate::wasm::limits::Limits;

    #[test]
    fn a_file_becomes_a_plug_in_or_a_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join("code");
        for _ in 0..2 {
            let loader = Loader::new(Some(&cache), Grants::default()).unwrap();
            let source = loader.load("fair", &Guest::default().component()).unwrap();
            assert_eq!((source.manifest().name.as_str(), source.sha256().len()), ("fair", 64));
            assert!(source.start(Arc::new(Heard::default()), Limits::default()).is_ok());
            let refused = loader.load("fair", b"nothing").unwrap_err();
            assert_eq!(refused, PluginError::Invalid("fair.wasm is no WebAssembly".to_owned()));
        }
        let loader = Loader::new(Some(&cache), Grants::default()).unwrap();
        for version in ["0.1.0", "0.2.0"] {
            let manifest =
                format!("name = \"fair\"\nversion = \"{version}\"\nworld = \"scheduler\"\ncontract = \"0.1.0\"\n");
            let guest = Guest { manifest: Some(&manifest), ..Guest::default() };
            assert_eq!(loader.load("fair", &guest.component()).unwrap().manifest().version, version);
        }
        assert_eq!(std::fs::read_dir(&cache).unwrap().count(), 1, "what it says of itself is no code");
        std::fs::write(folder.path().join("file"), "").unwrap();
        let loader = Loader::new(Some(&folder.path().join("file")), Grants::default()).unwrap();
        assert!(loader.load("fair", &Guest::default().component()).is_ok(), "without a cache it goes on");
    }
}
