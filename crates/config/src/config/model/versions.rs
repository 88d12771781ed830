//! Version directories, and the selection of versions to serve.

use std::io;
use std::path::Path;

use sequor_proto::ModelConfig;
use sequor_proto::model_version_policy::PolicyChoice;

use super::settings::VersionPolicy;

impl VersionPolicy {
    /// The policy of a configuration, if it has one.
    pub fn from_config(config: &ModelConfig) -> Option<VersionPolicy> {
        Some(match config.version_policy.as_ref()?.policy_choice.as_ref()? {
            PolicyChoice::Latest(latest) => VersionPolicy::Latest(latest.num_versions.max(1)),
            PolicyChoice::All(_) => VersionPolicy::All,
            PolicyChoice::Specific(specific) => {
                VersionPolicy::Specific(specific.versions.iter().filter_map(|v| u64::try_from(*v).ok()).collect())
            }
        })
    }

    /// The versions to serve of those present, in ascending order.
    pub fn choose(&self, present: &[u64]) -> Vec<u64> {
        let mut versions = present.to_vec();
        versions.sort_unstable();
        versions.dedup();
        match self {
            VersionPolicy::All => versions,
            VersionPolicy::Latest(n) => {
                let skip = versions.len().saturating_sub(usize::try_from(*n).unwrap_or(usize::MAX));
                versions.split_off(skip)
            }
            VersionPolicy::Specific(wanted) => versions.into_iter().filter(|v| wanted.contains(v)).collect(),
        }
    }
}

/// The version of a directory with this name. Names that are not numbers, or begin with 0, have none.
pub fn version_of(directory: &str) -> Option<u64> {
    let digits = !directory.starts_with('0') && directory.bytes().all(|b| b.is_ascii_digit());
    if digits { directory.parse().ok() } else { None }
}

/// The versions in a model's directory, in ascending order.
pub fn versions_in(model: &Path) -> io::Result<Vec<u64>> {
    let mut versions = Vec::new();
    for entry in fs_err::read_dir(model)? {
        let entry = entry?;
        if entry.path().is_dir()
            && let Some(version) = entry.file_name().to_str().and_then(version_of)
        {
            versions.push(version);
        }
    }
    versions.sort_unstable();
    Ok(versions)
}

/// Whether this is a directory with a configuration or with a version directory.
pub fn is_model_directory(path: &Path) -> bool {
    path.join("config.pbtxt").is_file() || versions_in(path).is_ok_and(|versions| !versions.is_empty())
}

/// Whether a directory of a repository is a model, as far as this process can see. A directory that it may not read counts, so that it is
/// reported and not passed over.
pub fn may_be_model(path: &Path) -> bool {
    let is_locked = || std::fs::read_dir(path).is_err_and(|error| hides_a_model(path, &error));
    is_model_directory(path) || is_locked()
}

/// Whether a model may be behind this error. Directories of the file system itself are none.
fn hides_a_model(path: &Path, error: &io::Error) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    error.kind() == io::ErrorKind::PermissionDenied && name != "lost+found" && !name.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_may_not_be_read_may_be_a_model() {
        let hides = |name: &str, kind: io::ErrorKind| hides_a_model(&Path::new("/srv/models").join(name), &kind.into());
        assert!(hides("gru", io::ErrorKind::PermissionDenied));
        assert!(!hides("lost+found", io::ErrorKind::PermissionDenied));
        assert!(!hides(".snapshot", io::ErrorKind::PermissionDenied));
        assert!(!hides("notes.txt", io::ErrorKind::NotADirectory));
    }

    #[test]
    fn only_canonical_positive_numbers_are_version_directories() {
        let names = ["1", "12", "0", "01", "-1", "+1", "v2", "", "1.0", "99999999999999999999999"];
        let versions: Vec<u64> = names.into_iter().filter_map(version_of).collect();
        assert_eq!(versions, [1, 12]);
    }

    #[test]
    fn the_version_policy_selects_versions() {
        let present = [3, 1, 10];
        assert_eq!(VersionPolicy::Latest(1).choose(&present), [10]);
        assert_eq!(VersionPolicy::Latest(2).choose(&present), [3, 10]);
        assert_eq!(VersionPolicy::Latest(9).choose(&present), [1, 3, 10]);
        assert_eq!(VersionPolicy::All.choose(&present), [1, 3, 10]);
        assert_eq!(VersionPolicy::Specific(vec![1, 2]).choose(&present), [1]);
    }
}
