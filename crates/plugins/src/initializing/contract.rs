//! The initializer's interface as Rust types, generated from `wit/`. Tensors and calls are the types of `processing`.

wasmtime::component::bindgen!({
    path: "../../wit/0.1.0",
    world: "state-initializer-plugin",
    ownership: Borrowing { duplicate_if_necessary: true },
    // Host functions can end a call that has taken too long.
    imports: { default: trappable },
    with: {
        "sequor:plugin/host": sequor_wasm::contract::sequor::plugin::host,
        "sequor:plugin/identity": sequor_wasm::contract::sequor::plugin::identity,
        "sequor:plugin/tensors": super::contract::tensor_types,
        "sequor:plugin/calls": crate::processing::contract::sequor::plugin::calls,
    },
});

pub(super) use exports::sequor::plugin::state_initializer;

/// The types of `tensors` under the names of this world, which takes ports and never returns one.
#[allow(unreachable_pub, reason = "the generated code exports it again")]
pub mod tensor_types {
    pub use crate::processing::contract::sequor::plugin::tensors::PortParam as Port;
    pub use crate::processing::contract::sequor::plugin::tensors::*;
}

/// The version of the interface that this server offers.
pub(super) const VERSION: &str = "0.1.0";
/// The world's name in `plugin.toml`.
pub(super) const WORLD: &str = "state-initializer";
/// The interface that a component of this world exports.
pub(super) const INITIALIZER: &str = "sequor:plugin/state-initializer@0.1.0";
