//! From files to scheduler plug-ins.

use std::sync::Arc;

use sequor_wasm::loader::Loader;

use super::guest::Source;
use super::report::PluginError;
use super::world::Scheduler;

/// The plug-in `name`.wasm. Compilation can take seconds, so a thread that serves requests must not call this.
pub fn load(loader: &Loader, name: &str, component: &[u8]) -> Result<Arc<dyn Source>, PluginError> {
    let loaded = loader.load::<Scheduler>(name, component);
    Ok(Arc::new(loaded.map_err(|error| PluginError::Invalid(error.to_string()))?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduling::wat_fixture::{SchedulerWat, ServiceLog};
    use sequor_wasm::grants::GrantTable;
    use sequor_wasm::limits::Limits;
    use sequor_wasm::room::GuestRoom;

    fn at(cache: &std::path::Path) -> Loader {
        Loader::new(Some(cache), GrantTable::default(), GuestRoom::default()).unwrap()
    }

    #[test]
    fn a_scheduler_file_is_loaded_or_refused_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join("code");
        for _ in 0..2 {
            let loader = at(&cache);
            let source = load(&loader, "fair", &SchedulerWat::default().component()).unwrap();
            assert_eq!((source.manifest().name.as_str(), source.sha256().len()), ("fair", 64));
            assert!(source.start(Arc::new(ServiceLog::default()), Limits::default()).is_ok());
            let refused = load(&loader, "fair", b"nothing").unwrap_err();
            assert_eq!(refused, PluginError::Invalid("fair.wasm is no WebAssembly".to_owned()));
        }
        let loader = at(&cache);
        for version in ["0.1.0", "0.2.0"] {
            let manifest =
                format!("name = \"fair\"\nversion = \"{version}\"\nworld = \"scheduler\"\ncontract = \"0.1.0\"\n");
            let guest = SchedulerWat { manifest: Some(&manifest), ..SchedulerWat::default() };
            assert_eq!(load(&loader, "fair", &guest.component()).unwrap().manifest().version, version);
        }
        assert_eq!(std::fs::read_dir(&cache).unwrap().count(), 1, "what it says of itself is no code");
        std::fs::write(folder.path().join("file"), "").unwrap();
        let loader = at(&folder.path().join("file"));
        assert!(load(&loader, "fair", &SchedulerWat::default().component()).is_ok(), "without a cache it goes on");
    }
}
