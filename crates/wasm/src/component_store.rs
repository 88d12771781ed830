//! Keeps the bytes of a component while its version is known, because an operator may save it for the next start. They are in a file
//! without a name, which the system removes with the version. They stay in memory only if there is no usable folder.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use sha2::{Digest, Sha256};

#[derive(Debug)]
pub(crate) struct Stored {
    place: StoredBytes,
    sha256: [u8; 32],
}

#[derive(Debug)]
enum StoredBytes {
    File(File, usize),
    Memory(Vec<u8>),
}

impl Stored {
    /// Stores the bytes in `folder`, which is created if it does not exist. A folder that cannot be used is logged.
    pub(crate) fn new(component: Vec<u8>, folder: Option<&Path>) -> Stored {
        let sha256 = Sha256::digest(&component).into();
        let place = match folder.map(|folder| laid_down(&component, folder).map_err(|e| (folder, e))) {
            Some(Ok(file)) => StoredBytes::File(file, component.len()),
            Some(Err((folder, e))) => {
                tracing::warn!("{}: a component stays in memory: {e}", folder.display());
                StoredBytes::Memory(component)
            }
            None => StoredBytes::Memory(component),
        };
        Stored { place, sha256 }
    }

    /// The bytes, if they are unchanged.
    pub(crate) fn read(&self) -> io::Result<Vec<u8>> {
        let bytes = match &self.place {
            StoredBytes::Memory(bytes) => bytes.clone(),
            StoredBytes::File(file, len) => {
                let mut bytes = vec![0; *len];
                file.read_exact_at(&mut bytes, 0)?;
                bytes
            }
        };
        if self.is(&bytes) {
            return Ok(bytes);
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "the component is not what was handed over"))
    }

    /// Whether these bytes are the stored ones.
    pub(crate) fn is(&self, bytes: &[u8]) -> bool {
        Sha256::digest(bytes).as_slice() == self.sha256
    }
}

fn laid_down(component: &[u8], folder: &Path) -> io::Result<File> {
    std::fs::create_dir_all(folder)?;
    let mut file = tempfile::tempfile_in(folder)?;
    file.write_all(component)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_component_is_readable_from_an_unnamed_file() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("made");
        let stored = Stored::new(b"component".to_vec(), Some(&inner));
        assert!(matches!(stored.place, StoredBytes::File(..)));
        assert_eq!(std::fs::read_dir(&inner).unwrap().count(), 0);
        assert_eq!((stored.read().unwrap(), stored.read().unwrap()), (b"component".to_vec(), b"component".to_vec()));
        assert!(stored.is(b"component") && !stored.is(b"components"));
    }

    #[test]
    fn a_damaged_stored_component_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let stored = Stored::new(b"component".to_vec(), Some(folder.path()));
        let StoredBytes::File(file, _) = &stored.place else { panic!("{stored:?}") };
        file.write_all_at(b"C", 0).unwrap();
        assert_eq!(stored.read().unwrap_err().to_string(), "the component is not what was handed over");
        file.set_len(3).unwrap();
        assert!(stored.read().is_err());
    }

    #[test]
    fn a_stored_component_stays_in_memory_without_a_usable_folder() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for folder in [None, Some(file.path())] {
            let stored = Stored::new(b"component".to_vec(), folder);
            assert!(matches!(stored.place, StoredBytes::Memory(_)));
            assert_eq!(stored.read().unwrap(), b"component");
        }
    }
}
