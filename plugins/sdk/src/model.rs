//! Basic types: sequences, keys, and the load of a model that the plug-in serves.

/// The server's handle of a sequence; 0 for a request without one. No handle is used for a second sequence.
pub type Sequence = u64;

/// The 64-bit FNV-1a hash of a text. 0: no text.
pub type Key = u64;

/// The key of a text.
#[must_use]
pub fn key_of(text: &str) -> Key {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The load of a model that a plug-in serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    pub name: String,
    pub version: u64,
    /// The built-in policy: `stateless`, `direct` or `oldest`.
    pub strategy: String,
    /// Maximum number of rows of a batch.
    pub max_batch: u32,
    pub instances: u32,
    /// Maximum number of sequences that an instance holds; 0 if requests have none.
    pub slots: u32,
    /// Names of the numeric features.
    pub numbers: Vec<String>,
    /// Names of the key features.
    pub keys: Vec<String>,
}

impl Default for Model {
    /// A small model, for tests.
    fn default() -> Model {
        Model {
            name: "model".into(),
            version: 1,
            strategy: "oldest".into(),
            max_batch: 8,
            instances: 1,
            slots: 64,
            numbers: Vec::new(),
            keys: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_fnv_1a() {
        assert_eq!(key_of(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(key_of("foobar"), 0x8594_4171_f739_67e8);
    }
}
