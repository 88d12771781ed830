//! What the errors of the embedded store mean. Only corruption is damage: a damaged file is moved aside.

use std::io;
use std::path::Path;

use crate::state::tier::error::TierError;
use crate::state::tier::file_user::user_of;

/// Begins the store's text about a file whose format it does not know.
const UNKNOWN_FORMAT: &str = "Expected file format version";

pub(in crate::state::tier) fn tier_error(path: &str, error: redb::Error) -> TierError {
    let (path, what) = (path.to_owned(), error.to_string());
    match error {
        // The second: another process has it open, with another version of the store.
        redb::Error::DatabaseAlreadyOpen | redb::Error::LockProtocolMismatch => {
            TierError::InUse { by: user_of(Path::new(&path)), path }
        }
        redb::Error::UpgradeRequired(_) => TierError::OtherVersion { path, what },
        redb::Error::Corrupted(what) if what.starts_with(UNKNOWN_FORMAT) => TierError::OtherVersion { path, what },
        redb::Error::Corrupted(what) => TierError::Damaged { path, what },
        // The file is shorter than its own header requires, or is not a store.
        redb::Error::Io(error) if is_damage(&error) => TierError::Damaged { path, what: error.to_string() },
        redb::Error::Io(error) => TierError::io(path, &error),
        _ => TierError::io(path, &what),
    }
}

/// Whether redb reports a file that is not a store or is incomplete.
fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}
