//! A digest of a version's files. A stored sequence continues only with the model that made its state.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// Maximum depth of folders that are searched. Links may form a cycle.
const DEEPEST: usize = 8;

/// SHA-256 of the names and contents of all files of a version, and of the names of the processors in front of it.
pub(in crate::model) fn model_digest(folder: &Path, processors: &str) -> io::Result<[u8; 32]> {
    let mut files = Vec::new();
    list(folder, DEEPEST, &mut files)?;
    files.sort_unstable();
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    for path in files {
        let name = path.strip_prefix(folder).unwrap_or(&path).to_string_lossy().into_owned();
        digest.update((name.len() as u64).to_le_bytes());
        digest.update(name.as_bytes());
        let mut file = fs_err::File::open(&path)?;
        digest.update(file.metadata()?.len().to_le_bytes());
        loop {
            let read = file.read(&mut buffer)?;
            if read == 0 {
                break;
            }
            digest.update(buffer.get(..read).unwrap_or_default());
        }
    }
    digest.update(processors.as_bytes());
    Ok(digest.finalize().into())
}

fn list(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs_err::read_dir(folder)? {
        let path = entry?.path();
        match fs_err::metadata(&path)?.is_dir() {
            true if depth > 0 => list(&path, depth - 1, files)?,
            true => {}
            false => files.push(path),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_digest_changes_with_any_name_or_byte() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs_err::create_dir(at("weights")).unwrap();
        fs_err::write(at("model.onnx"), "graph").unwrap();
        fs_err::write(at("weights/0"), "data").unwrap();
        let first = model_digest(folder.path(), "").unwrap();
        assert_ne!(model_digest(folder.path(), "a").unwrap(), first);
        assert_eq!(model_digest(folder.path(), "").unwrap(), first);
        fs_err::write(at("weights/0"), "date").unwrap();
        let second = model_digest(folder.path(), "").unwrap();
        fs_err::rename(at("weights/0"), at("weights/1")).unwrap();
        let third = model_digest(folder.path(), "").unwrap();
        assert!(first != second && second != third && first != third);
    }
}
