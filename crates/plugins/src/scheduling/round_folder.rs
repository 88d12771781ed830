//! The folder of failed questions: numbers its files and removes the oldest. [`super::round_file`] defines the content.

use std::fs::DirBuilder;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Maximum files of one component. The last ones are kept.
const KEPT: usize = 32;
/// Maximum files of all components. Those written longest ago are removed first.
const KEPT_IN_ALL: usize = 256;

/// Writes the next file of this component into the folder. If there are too many, older ones are removed. No file takes the name of an
/// existing one, so that a reference to a file stays valid.
pub(super) fn write(
    folder: &Path,
    component: &str,
    contents: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<PathBuf> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    let mut to = BufWriter::new(&mut file);
    contents(&mut to)?;
    to.write_all(b"\n")?;
    to.flush()?;
    drop(to);
    let numbers = numbers(folder, component)?;
    let mut next = numbers.last().map_or(1, |last| last + 1);
    let path = loop {
        let path = at(folder, component, next);
        match file.persist_noclobber(&path) {
            Ok(_) => break path,
            // Another server of this user was faster.
            Err(e) if e.error.kind() == io::ErrorKind::AlreadyExists => (file, next) = (e.file, next + 1),
            Err(e) => return Err(e.error),
        }
    };
    let before = numbers.len().saturating_sub(KEPT - 1);
    numbers.into_iter().take(before).try_for_each(|n| removed(&at(folder, component, n)))?;
    tidy(folder)?;
    Ok(path)
}

fn at(folder: &Path, component: &str, n: u64) -> PathBuf {
    folder.join(format!("{component}-{n}.json"))
}

/// The numbers of this component's files, in order.
fn numbers(folder: &Path, component: &str) -> io::Result<Vec<u64>> {
    let number = |name: &str| name.strip_prefix(component)?.strip_prefix('-')?.strip_suffix(".json")?.parse().ok();
    let names = std::fs::read_dir(folder)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut numbers: Vec<u64> = names.filter_map(|name| number(&name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Removes a file. Another server of this user may have removed it already.
fn removed(path: &Path) -> io::Result<()> {
    std::fs::remove_file(path).or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) })
}

/// Removes the files written longest ago, beyond the maximum.
fn tidy(folder: &Path) -> io::Result<()> {
    let mut files: Vec<(SystemTime, PathBuf)> = std::fs::read_dir(folder)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .filter_map(|path| Some((std::fs::symlink_metadata(&path).ok()?.modified().ok()?, path)))
        .collect();
    files.sort_unstable_by(|a, b| b.cmp(a));
    files.into_iter().skip(KEPT_IN_ALL).try_for_each(|(_, path)| removed(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(folder: &Path, component: &str, text: &str) -> PathBuf {
        write(folder, component, |to| to.write_all(text.as_bytes())).unwrap()
    }

    #[test]
    fn the_number_of_kept_round_files_is_limited() {
        let folder = tempfile::tempdir().unwrap();
        for n in 0..10 {
            for _ in 0..KEPT + 8 {
                written(folder.path(), &format!("{n:07}"), "");
            }
        }
        let names: Vec<String> =
            std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(names.len(), KEPT_IN_ALL);
        assert_eq!(names.iter().filter(|name| name.starts_with("0000000")).count(), 0);
        assert_eq!(numbers(folder.path(), "0000009").unwrap(), (9..=40).collect::<Vec<u64>>(), "the last ones");
    }

    #[test]
    fn no_round_takes_the_name_of_another() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|text| written(folder.path(), "3f2a91c", text));
        assert_eq!(
            (first.file_name().unwrap(), second.file_name().unwrap()),
            ("3f2a91c-1.json".as_ref(), "3f2a91c-2.json".as_ref())
        );
        assert_eq!(std::fs::read_to_string(first).unwrap(), "first\n");
    }
}
