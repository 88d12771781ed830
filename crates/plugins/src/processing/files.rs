//! The files that a model names for a processor. They are in the model's directory, and are read once when the model is loaded.

use std::path::{Component, Path};

use bytes::Bytes;
use sequor_core::{DataType, Shape};

use crate::config::units::human;
use crate::tensor::Tensor;

/// Maximum bytes of all files of one processor.
const FILES: u64 = 256 << 20;

/// A file as a processor gets it.
#[derive(Debug, Clone)]
pub struct ProcessorFile {
    /// The file's name, as the model writes it.
    pub name: String,
    content: Bytes,
}

impl ProcessorFile {
    pub(crate) fn tensor(&self) -> Tensor {
        let shape = Shape::new(&[self.content.len() as u64]);
        Tensor { dtype: DataType::Uint8, shape, data: self.content.clone() }
    }

    pub(crate) fn size(&self) -> u64 {
        self.content.len() as u64
    }
}

/// Reads the files of one processor. The error names the file that failed.
pub fn read(directory: &Path, names: &[String]) -> Result<Vec<ProcessorFile>, String> {
    let mut total = 0u64;
    let mut files = Vec::with_capacity(names.len());
    for name in names {
        let path = inside(directory, name)?;
        let file = |e: std::io::Error| format!("{name}: {e}");
        let size = std::fs::metadata(&path).map_err(file)?.len();
        total = total.saturating_add(size);
        if total > FILES {
            return Err(format!("{name}: the files of one processor may have {}", human(FILES)));
        }
        files.push(ProcessorFile { name: name.clone(), content: std::fs::read(&path).map_err(file)?.into() });
    }
    Ok(files)
}

/// Resolves the path of a file, following links. The file must be inside the directory.
fn inside(directory: &Path, name: &str) -> Result<std::path::PathBuf, String> {
    let is_plain = Path::new(name).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    let outside = || format!("{name}: a file of a plug-in must be in the model's directory");
    if name.is_empty() || !is_plain {
        return Err(outside());
    }
    let file = |e: std::io::Error| format!("{name}: {e}");
    let directory = directory.canonicalize().map_err(file)?;
    let path = directory.join(name).canonicalize().map_err(file)?;
    if !path.starts_with(&directory) {
        return Err(outside());
    }
    if !path.is_file() {
        return Err(format!("{name}: not a file"));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_outside_the_model_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("model");
        std::fs::create_dir_all(model.join("data")).unwrap();
        std::fs::write(model.join("data/tokens.txt"), "a\nb\n").unwrap();
        std::fs::write(folder.path().join("secret"), "x").unwrap();
        std::os::unix::fs::symlink(folder.path().join("secret"), model.join("link")).unwrap();
        let named = |name: &str| read(&model, &[name.to_owned()]);
        let files = named("data/tokens.txt").unwrap();
        assert_eq!((files[0].name.as_str(), files[0].size()), ("data/tokens.txt", 4));
        assert_eq!(files[0].tensor().shape, Shape::new(&[4]));
        for name in ["../secret", "/etc/passwd", "data/../../secret", "link", ""] {
            let message = named(name).unwrap_err();
            assert_eq!(message, format!("{name}: a file of a plug-in must be in the model's directory"));
        }
        assert_eq!(named("data").unwrap_err(), "data: not a file");
        assert!(named("absent").unwrap_err().starts_with("absent: No such file"));
    }
}
