//! Encodes components from modules, and embeds manifests in them.

use std::path::Path;

use super::{AuthorError, encoder};

/// The custom section of a component that holds its plugin.toml.
pub const SECTION: &str = "sequor:plugin";

/// Encodes a component from a module that carries the types of its world, as all binding generators embed them.
pub fn from_module(path: &Path, module: &[u8]) -> Result<Vec<u8>, AuthorError> {
    encoder::encode(module).map_err(|what| AuthorError::Component { path: path.to_owned(), what })
}

/// The component with this plugin.toml embedded.
pub fn with_manifest(component: &[u8], text: &str) -> Vec<u8> {
    let mut made = component.to_vec();
    made.push(0);
    let name = [leb128(SECTION.len()), SECTION.as_bytes().to_vec()].concat();
    made.extend(leb128(name.len() + text.len()));
    made.extend(name);
    made.extend(text.as_bytes());
    made
}

/// An unsigned number in WebAssembly's encoding (LEB128).
pub(super) fn leb128(mut n: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while n >= 0x80 {
        bytes.push((n & 0x7f) as u8 | 0x80);
        n >>= 7;
    }
    bytes.push(n as u8);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_is_a_custom_section() {
        let made = with_manifest(b"\0asm\x0d\0\x01\0", &"x".repeat(200));
        assert_eq!(&made[8..12], b"\x00\xd6\x01\x0d", "section 0, 214 bytes, a name of 13");
        assert_eq!(&made[12..25], SECTION.as_bytes());
        assert_eq!(made.len(), 25 + 200);
    }

    #[test]
    fn an_invalid_module_is_refused_with_its_path() {
        let refused = from_module(Path::new("x.wasm"), b"nothing of the kind").unwrap_err().to_string();
        assert!(refused.starts_with("x.wasm: "), "{refused}");
    }
}
