//! The interfaces of wasi-nn as Rust traits, generated from `wit/wasi-nn/`.

wasmtime::component::bindgen!({
    path: "../../wit/wasi-nn/0.2.0-rc-2024-10-28",
    world: "ml",
    imports: {
        "wasi:nn/inference.[method]graph-execution-context.compute": async | trappable,
        default: trappable,
    },
    with: {
        "wasi:nn/tensor.tensor": crate::tensor::Tensor,
        "wasi:nn/graph.graph": super::graphs::NamedGraph,
        "wasi:nn/inference.graph-execution-context": super::graphs::GraphContext,
        "wasi:nn/errors.error": super::graphs::GraphError,
    },
});

pub(super) use wasi::nn::{errors, graph, inference, tensor};
