//! Caches components that take long to build, by a hash of all their inputs: sources, kit, tools. A component whose sources changed while it
//! was built is not kept: the hash is that of the sources before.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::files::place;
use super::sdk::Kit;
use super::sources::PluginSources;
use super::{AuthorError, Machine};

/// The version of the cache. Entries of another version are not used. Version 1 could keep a component under the hash of other sources.
const CACHE: &str = "2";

/// The hash of a component's inputs so far.
#[derive(Debug)]
pub struct Stamp {
    hash: Sha256,
    /// The folders that were read, as they were then.
    read: Vec<(PathBuf, PluginSources)>,
}

impl Stamp {
    /// Starts with the tool, its version and its options.
    pub fn new(tool: &str) -> Stamp {
        let mut stamp = Stamp { hash: Sha256::new(), read: Vec::new() };
        stamp.add("cache", CACHE.as_bytes());
        stamp.add("tool", tool.as_bytes());
        stamp
    }

    fn add(&mut self, name: &str, content: &[u8]) {
        for part in [name.as_bytes(), content] {
            self.hash.update((part.len() as u64).to_le_bytes());
            self.hash.update(part);
        }
    }

    pub fn kit(mut self, kit: Kit) -> Stamp {
        for (name, text) in kit {
            self.add(name, text.as_bytes());
        }
        self
    }

    /// Adds every source below a folder, of any kind: a build may read data too.
    pub fn sources(mut self, folder: &Path) -> Result<Stamp, AuthorError> {
        let sources = PluginSources::read(folder)?;
        for (name, sha256) in sources.contents() {
            self.add(&name.to_string_lossy(), sha256);
        }
        self.read.push((folder.to_owned(), sources));
        Ok(self)
    }

    /// The component with this stamp, from the cache or built now. An error if a source was written meanwhile.
    pub fn component(
        self,
        machine: &Machine,
        make: impl FnOnce() -> Result<Vec<u8>, AuthorError>,
    ) -> Result<Vec<u8>, AuthorError> {
        let hash: String = self.hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let kept = machine.cache.join("components").join(format!("{hash}.wasm"));
        if let Ok(component) = std::fs::read(&kept) {
            return Ok(component);
        }
        let component = make()?;
        self.read.iter().try_for_each(|(folder, before)| before.check_untouched(folder))?;
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
            let stamp = Stamp::new(tool).sources(&source).unwrap();
            let make = || {
                made += 1;
                Ok(vec![made])
            };
            stamp.component(&machine, make).unwrap()
        };
        assert_eq!((get("a", "1"), get("b", "1"), get("a", "2")), (vec![1], vec![2], vec![3]));
        assert_eq!((get("a", "1"), get("b", "1"), get("a", "2")), (vec![1], vec![2], vec![3]));
    }

    #[test]
    fn a_component_whose_sources_change_during_its_build_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine { cache: folder.path().join("cache"), ..Machine::new(|_| None, |_| ()) };
        let source = folder.path().join("source");
        let write = |name: &str, text: &str| std::fs::write(source.join(name), text).unwrap();
        std::fs::create_dir(&source).unwrap();
        write("plugin.py", "first");
        write("table.json", "[1]");
        let build = |during: &dyn Fn()| {
            let stamp = Stamp::new("1").sources(&source).unwrap();
            stamp.component(&machine, || {
                during();
                // The builder reads the sources late.
                Ok([
                    std::fs::read(source.join("plugin.py")).unwrap(),
                    std::fs::read(source.join("table.json")).unwrap(),
                ]
                .concat())
            })
        };
        let changed = build(&|| write("plugin.py", "second")).unwrap_err();
        assert!(matches!(&changed, AuthorError::Changed { path } if path.ends_with("plugin.py")), "{changed}");
        assert_eq!(build(&|| ()).unwrap(), b"second[1]");
        write("plugin.py", "first");
        assert_eq!(build(&|| ()).unwrap(), b"first[1]", "nothing else was kept under this hash");
        write("table.json", "[2]");
        assert_eq!(build(&|| ()).unwrap(), b"first[2]", "data of the folder count too");
        assert!(matches!(build(&|| panic!("it was kept")), Ok(kept) if kept == b"first[2]"));
    }
}
