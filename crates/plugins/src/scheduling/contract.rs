//! The scheduler's interface as Rust types, generated from `wit/`.

wasmtime::component::bindgen!({
    path: "../../wit/0.1.0",
    world: "scheduler-plugin",
    ownership: Borrowing { duplicate_if_necessary: true },
    with: {
        "sequor:plugin/host": sequor_wasm::contract::sequor::plugin::host,
        "sequor:plugin/identity": sequor_wasm::contract::sequor::plugin::identity,
    },
});

pub(super) use exports::sequor::plugin::scheduler;

/// The contract version that this server offers.
pub const VERSION: &str = "0.1.0";
/// The world's name in `plugin.toml`.
pub const WORLD: &str = "scheduler";
/// The interface that a scheduler exports.
pub(super) const SCHEDULER: &str = "sequor:plugin/scheduler@0.1.0";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheduler_interface_name_ends_with_the_contract_version() {
        assert!(SCHEDULER.ends_with(VERSION));
    }
}
