//! Why a file is no plug-in of ours.

use super::contract;

/// Why a file is not taken. The sentence names the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("{0} is no WebAssembly")]
    Foreign(String),
    #[error(
        "{0} is a core module, not a component. `sequor plugin build` makes components, and so does `wasm-tools component new`"
    )]
    CoreModule(String),
    #[error("{file} is no valid component, or cut short: {what}")]
    Damaged { file: String, what: String },
    /// Its plugin.toml is wrong.
    #[error("{file}: {what}")]
    Manifest { file: String, what: String },
    #[error("{file} is built for sequor:plugin@{wanted}; this server offers {offered}. Rebuild with sdk {sdk}, or upgrade the server.", offered = contract::VERSION, sdk = sdk())]
    Contract { file: String, wanted: String },
    #[error("{0}")]
    Imports(String),
    #[error("{file} exports {exports}; a scheduler exports {wanted}", wanted = contract::SCHEDULER)]
    World { file: String, exports: String },
    #[error("{file}: {interface} lacks {missing}", interface = contract::SCHEDULER)]
    Exports { file: String, missing: String },
    /// Its types are not those of the contract.
    #[error("{file} does not fit the contract {offered}: {what}", offered = contract::VERSION)]
    Types { file: String, what: String },
}

fn sdk() -> &'static str {
    contract::VERSION.rsplit_once('.').map_or(contract::VERSION, |(minor, _)| minor)
}
