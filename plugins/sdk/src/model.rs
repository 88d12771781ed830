//! The words that everything else uses: sequences, keys, and the load of a model that is decided for.

/// A handle of a sequence, made by the server and used once; 0 for a request without a sequence.
pub type Sequence = u64;

/// The hash of a text: its 64-bit FNV-1a. 0 is "no such text".
pub type Key = u64;

/// The key of a text.
#[must_use]
pub fn key_of(text: &str) -> Key {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// What a plug-in is told once, of the load of a model that it decides for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    pub name: String,
    pub version: u64,
    /// What decides where no plug-in does: `stateless`, `direct` or `oldest`.
    pub strategy: String,
    /// Rows a batch may have.
    pub max_batch: u32,
    pub instances: u32,
    /// Sequences an instance holds at a time; 0 where requests have none.
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
