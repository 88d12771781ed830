//! Caches components that take long to build, by a hash of all their inputs: sources, kit, tools.

use std::path::Path;

use sha2::{Digest, Sha256};

use super::files::{files_of, place};
use super::sdk::Kit;
use super::{AuthorError, Machine};

/// The hash of a component's inputs so far.
#[derive(Debug)]
pub struct Stamp(Sha256);

impl Stamp {
    /// Starts with the tool, its version and its options.
    pub fn new(tool: &str) -> Stamp {
        let mut stamp = Stamp(Sha256::new());
        stamp.add("tool", tool.as_bytes());
        stamp
    }

    fn add(&mut self, name: &str, content: &[u8]) {
        for part in [name.as_bytes(), content] {
            self.0.update((part.len() as u64).to_le_bytes());
            self.0.update(part);
        }
    }

    pub fn kit(mut self, kit: Kit) -> Stamp {
        for (name, text) in kit {
            self.add(name, text.as_bytes());
        }
        self
    }

    /// Adds every file below a folder with one of these extensions.
    pub fn sources(mut self, folder: &Path, extensions: &[&str]) -> Result<Stamp, AuthorError> {
        for path in files_of(folder, extensions)? {
            let content = std::fs::read(&path).map_err(|e| AuthorError::file(&path, e))?;
            let name = path.strip_prefix(folder).unwrap_or(&path).to_string_lossy().into_owned();
            self.add(&name, &content);
        }
        Ok(self)
    }

    /// The component with this stamp, from the cache or built now.
    pub fn component(
        self,
        machine: &Machine,
        make: impl FnOnce() -> Result<Vec<u8>, AuthorError>,
    ) -> Result<Vec<u8>, AuthorError> {
        let hash: String = self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let kept = machine.cache.join("components").join(format!("{hash}.wasm"));
        if let Ok(component) = std::fs::read(&kept) {
            return Ok(component);
        }
        let component = make()?;
        place(&kept, &component)?;
        Ok(component)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_is_made_once_for_each_content() {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine { cache: folder.path().join("cache"), ..Machine::new(|_| None, |_| ()) };
        let source = folder.path().join("source");
        std::fs::create_dir_all(source.join(".git")).unwrap();
        std::fs::write(source.join(".git/x.py"), "not a source").unwrap();
        let mut made = 0;
        let mut get = |text: &str, tool: &str| {
            std::fs::write(source.join("plugin.py"), text).unwrap();
            let stamp = Stamp::new(tool).sources(&source, &["py"]).unwrap();
            let make = || {
                made += 1;
                Ok(vec![made])
            };
            stamp.component(&machine, make).unwrap()
        };
        assert_eq!((get("a", "1"), get("b", "1"), get("a", "2")), (vec![1], vec![2], vec![3]));
        assert_eq!((get("a", "1"), get("b", "1"), get("a", "2")), (vec![1], vec![2], vec![3]));
    }
}
