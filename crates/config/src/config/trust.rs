//! Checks that only this user and root can change a file or folder, before this process runs code from it.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Why a path is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Untrusted {
    #[error("it belongs to another user")]
    Owner,
    #[error("its group or others can write to it")]
    Writable,
}

/// Checks owner and mode; `user` is this process's user id.
pub fn check(of: &Metadata, user: u32) -> Result<(), Untrusted> {
    if of.uid() != user && of.uid() != 0 {
        return Err(Untrusted::Owner);
    }
    // The mode of a link allows everyone to write, but has no effect.
    if !of.is_symlink() && of.mode() & 0o022 != 0 { Err(Untrusted::Writable) } else { Ok(()) }
}

/// Checks a path: the path itself, even if it is a link, and its target.
pub fn check_path(path: &Path) -> io::Result<()> {
    let user = nix::unistd::geteuid().as_raw();
    let untrusted = |why: Untrusted| io::Error::new(io::ErrorKind::PermissionDenied, why);
    check(&std::fs::symlink_metadata(path)?, user).map_err(untrusted)?;
    check(&std::fs::metadata(path)?, user).map_err(untrusted)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_file_that_other_users_can_change_is_not_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("f"), folder.path().join("l"));
        std::fs::write(&file, "").unwrap();
        symlink(&file, &link).unwrap();
        for (mode, trusted) in [(0o644, true), (0o755, true), (0o664, false), (0o646, false)] {
            std::fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            assert_eq!((check_path(&file).is_ok(), check_path(&link).is_ok()), (trusted, trusted), "{mode:o}");
        }
        std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        let of = std::fs::metadata(&file).unwrap();
        assert_eq!(check(&of, of.uid()), Ok(()));
        let other = check(&of, of.uid() + 1);
        assert_eq!(other, if of.uid() == 0 { Ok(()) } else { Err(Untrusted::Owner) });
    }
}
