//! The files that sequor.toml names for a plug-in.

use serde::de::DeserializeOwned;

use super::tensor::Tensor;

/// The files that sequor.toml names for this plug-in.
#[derive(Debug, Clone, Default)]
pub struct Files(Vec<(String, Tensor)>);

impl Files {
    #[must_use]
    pub fn new(files: Vec<(String, Tensor)>) -> Files {
        Files(files)
    }

    /// Names of the files, in the order of sequor.toml.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// A file as a tensor of type `UINT8`. The error lists the known files.
    pub fn get(&self, name: &str) -> Result<&Tensor, String> {
        let found = self.0.iter().find(|(known, _)| known == name).map(|(_, content)| content);
        found.ok_or_else(|| {
            let names = self.names().collect::<Vec<_>>().join(", ");
            let names = if names.is_empty() { "none".to_owned() } else { names };
            format!("there is no file \"{name}\"; `files` in sequor.toml names {names}")
        })
    }

    /// The bytes of a file.
    pub fn bytes(&self, name: &str) -> Result<Vec<u8>, String> {
        Ok(self.get(name)?.bytes().into_owned())
    }

    /// A file in UTF-8.
    pub fn text(&self, name: &str) -> Result<String, String> {
        String::from_utf8(self.bytes(name)?).map_err(|e| format!("{name}: {e}"))
    }

    /// The lines of a file in UTF-8.
    pub fn lines(&self, name: &str) -> Result<Vec<String>, String> {
        Ok(self.text(name)?.lines().map(str::to_owned).collect())
    }

    /// A JSON file.
    pub fn json<T: DeserializeOwned>(&self, name: &str) -> Result<T, String> {
        serde_json::from_slice(&self.bytes(name)?).map_err(|e| format!("{name}: {e}"))
    }
}
