//! Encodes a core module as a component, with the tools of wasmtime's version. A build without the feature `tools` returns an error.

#[cfg(feature = "tools")]
mod tools {
    use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
    use wit_parser::Resolve;

    pub(super) fn encode(module: &[u8]) -> Result<Vec<u8>, String> {
        let encode = || ComponentEncoder::default().validate(true).module(module)?.encode();
        encode().map_err(|e| format!("{e:#}"))
    }

    pub(super) fn embed_world(module: &mut Vec<u8>, wit: &str, world: &str) -> Result<(), String> {
        let mut resolve = Resolve::default();
        let package = resolve.push_str("contract.wit", wit).map_err(|e| format!("{e:#}"))?;
        let world = resolve.select_world(&[package], Some(world)).map_err(|e| format!("{e:#}"))?;
        embed_component_metadata(module, &resolve, world, StringEncoding::UTF8).map_err(|e| format!("{e:#}"))
    }
}

#[cfg(not(feature = "tools"))]
mod tools {
    const WHY: &str = "this build of sequor makes no components (feature `tools`)";

    pub(super) fn encode(_: &[u8]) -> Result<Vec<u8>, String> {
        Err(WHY.to_owned())
    }

    pub(super) fn embed_world(_: &mut Vec<u8>, _: &str, _: &str) -> Result<(), String> {
        Err(WHY.to_owned())
    }
}

/// Encodes a component from a module that carries the types of its world.
pub(super) fn encode(module: &[u8]) -> Result<Vec<u8>, String> {
    tools::encode(module)
}

/// Embeds the types of a world of this WIT package in a module.
pub(super) fn embed_world(module: &mut Vec<u8>, wit: &str, world: &str) -> Result<(), String> {
    tools::embed_world(module, wit, world)
}
