//! Why a file is refused as a component.

/// Why a file is refused. The sentence names the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ComponentError {
    #[error("{0} is no WebAssembly")]
    Foreign(String),
    #[error(
        "{0} is a core module, not a component. `sequor plugin build` makes components, and so does `wasm-tools component new`"
    )]
    CoreModule(String),
    #[error("{file} is no valid component, or cut short: {what}")]
    Damaged { file: String, what: String },
    /// It is valid, and needs more than the engine has for one instance.
    #[error("{file} is too large for this server: {what}")]
    TooLarge { file: String, what: String },
    #[error(
        "{file}: its function {number} has {size} bytes of code, and {most} are the limit, because a larger one takes many seconds and much memory to compile. Split that function, or keep its constants in data instead of code"
    )]
    LargeFunction { file: String, number: usize, size: usize, most: usize },
    /// Its plugin.toml is wrong.
    #[error("{file}: {what}")]
    Manifest { file: String, what: String },
    #[error(
        "{file} is built for sequor:plugin@{wanted} (contract of plugin.toml); this server offers {offered}. Build it with the kit of {offered}, or upgrade the server."
    )]
    Contract { file: String, wanted: String, offered: &'static str },
    #[error("{0}")]
    Imports(String),
    /// Its plugin.toml names another world, whose fields differ.
    #[error(
        "{file} is made for the world \"{world}\" (plugin.toml); a {wanted} is wanted here. Each world has a key of its own in a model's sequor.toml"
    )]
    OtherWorld { file: String, world: String, wanted: &'static str },
    #[error("{file} exports {exports}; a {world} exports {wanted}")]
    World { file: String, exports: String, world: &'static str, wanted: &'static str },
    #[error("{file}: {interface} lacks {missing}")]
    Exports { file: String, interface: &'static str, missing: String },
    /// Its types differ from the contract's.
    #[error("{file} does not fit the contract {offered}: {what}")]
    Types { file: String, offered: &'static str, what: String },
}
