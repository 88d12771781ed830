//! The processor's interface as Rust types, generated from `wit/`.

wasmtime::component::bindgen!({
    path: "../../wit/0.1.0",
    world: "processor-plugin",
    ownership: Borrowing { duplicate_if_necessary: true },
    // Host functions can end a call that has taken too long. A call to another model waits for its answer.
    imports: {
        "sequor:plugin/models.infer": async | trappable,
        default: trappable,
    },
    exports: { default: async },
    with: {
        "sequor:plugin/host": sequor_wasm::contract::sequor::plugin::host,
        "sequor:plugin/identity": sequor_wasm::contract::sequor::plugin::identity,
        "sequor:plugin/tensors.tensor": crate::tensor::Tensor,
        "sequor:plugin/tensors.buffer": super::buffer::TensorBuffer,
    },
});

pub(super) use exports::sequor::plugin::processor;

/// The version of the interface that this server offers.
pub(super) const VERSION: &str = "0.1.0";
/// The world's name in `plugin.toml`.
pub(super) const WORLD: &str = "processor";
/// The interface that a component of this world exports.
pub(super) const PROCESSOR: &str = "sequor:plugin/processor@0.1.0";
