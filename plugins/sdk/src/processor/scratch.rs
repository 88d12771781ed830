//! The data that a processor keeps for a sequence.

use std::ops::{Deref, DerefMut};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The data that a processor keeps for a sequence. The server keeps its bytes and commits them with the sequence's state. A sequence begins
/// with the default.
pub trait Scratch: Default {
    /// Loads the output of [`Scratch::save`], possibly of another version of the plug-in. The bytes are not empty.
    fn load(bytes: &[u8]) -> Result<Self, String>;

    /// The bytes to keep; at most `scratch` bytes of plugin.toml.
    fn save(&self) -> Vec<u8>;
}

/// Keeps nothing.
impl Scratch for () {
    fn load(_: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn save(&self) -> Vec<u8> {
        Vec::new()
    }
}

/// Keeps bytes.
impl Scratch for Vec<u8> {
    fn load(bytes: &[u8]) -> Result<Vec<u8>, String> {
        Ok(bytes.to_vec())
    }

    fn save(&self) -> Vec<u8> {
        self.clone()
    }
}

/// Keeps a value of a serde type, as JSON. Keep samples as bytes instead.
///
/// ```
/// use sequor_plugin::processor::{Json, Scratch};
///
/// let mut kept = Json::<Vec<u32>>::default();
/// kept.push(7);
/// assert_eq!(Json::<Vec<u32>>::load(&kept.save()).unwrap(), kept);
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Json<T>(pub T);

impl<T: Serialize + DeserializeOwned + Default> Scratch for Json<T> {
    fn load(bytes: &[u8]) -> Result<Json<T>, String> {
        serde_json::from_slice(bytes).map(Json).map_err(|e| format!("the scratch is not what it should be: {e}"))
    }

    fn save(&self) -> Vec<u8> {
        serde_json::to_vec(&self.0).unwrap_or_else(|e| panic!("the scratch cannot be written: {e}"))
    }
}

impl<T> Deref for Json<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Json<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
