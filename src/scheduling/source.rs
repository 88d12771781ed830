//! A component as a source of guests: each that it starts is an instance of its own.

use std::sync::Arc;

use super::component::Component;
use super::guest::{CallError, Guest, Manifest, Services, Source};
use super::instance::WasmGuest;
use crate::wasm::limits::Limits;

impl Component {
    /// Starts an instance, as [`Source::start`] does, and gives it as what it is.
    pub fn instance(&self, services: Arc<dyn Services>, limits: Limits) -> Result<WasmGuest, CallError> {
        WasmGuest::start(self, services, limits)
    }
}

impl Source for Component {
    fn manifest(&self) -> &Manifest {
        &self.declared.manifest
    }

    fn sha256(&self) -> &str {
        &self.sha256
    }

    fn start(&self, services: Arc<dyn Services>, limits: Limits) -> Result<Box<dyn Guest>, CallError> {
        Ok(Box::new(self.instance(services, limits)?))
    }
}
