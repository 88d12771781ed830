//! The access of the registry of plug-ins to the models that name them.

use std::fmt;

use sequor_wasm::changes::NamingFiles;

/// The models, for the registry of plug-ins.
pub trait PlaceModels: NamingFiles + fmt::Debug {
    /// Loads a model again. Live sequences finish on the old load. The error is the reason why the old load stays in service.
    fn reload(&self, model: &str) -> Result<(), String>;
}
