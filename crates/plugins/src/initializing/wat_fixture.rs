//! For tests: initializers with guests in the text format of WebAssembly.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "only tests use it"
)]

use std::sync::Arc;

use sequor_wasm::component::Component;
use sequor_wasm::grants::Grants;
use sequor_wasm::journal::Journal;
use sequor_wasm::limits::Limits;
use sequor_wasm::room::RoomPurpose;
use sequor_wasm::services::ServiceLog;

pub use super::wat::InitializerWat;
use crate::config::model::LoadFacts;
use crate::initializing::{
    Initializer, InitializerComponent, InitializerOptions, InitializerPorts, InitializerSource, KeptStates,
};
use crate::processing::wat_fixture::{SERVING, StillClock};
use crate::state::budget::Budget;
use crate::telemetry::{KeptMetrics, Metrics};

impl InitializerWat<'_> {
    /// Configures the guest for these ports.
    pub fn initializer(&self, ports: InitializerPorts) -> Result<Initializer, String> {
        let component = Component::new(&SERVING, "guest.wasm", &self.component(), Grants::default(), None);
        let component: Arc<InitializerComponent> = Arc::new(component.unwrap());
        let options = InitializerOptions {
            config: "{}".to_owned(),
            limits: Limits { time: std::time::Duration::from_secs(1), memory: None },
            files: Vec::new(),
            strikes: 1000,
        };
        let metrics = Metrics::new(false).initializer("guest");
        let services = Arc::new(ServiceLog::default());
        let clock = Arc::new(StillClock);
        let (name, journal) = ("guest".to_owned(), Arc::new(Journal::new("guest")));
        let kept = KeptStates::new(u64::MAX, Budget::new(u64::MAX), KeptMetrics::default());
        let purpose = RoomPurpose::New;
        let source = InitializerSource { name, component, options, services, metrics, journal, clock, kept, purpose };
        Initializer::new(source, &LoadFacts::default(), ports, 2).map_err(String::from)
    }
}
