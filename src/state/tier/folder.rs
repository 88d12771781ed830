//! The directory and the file of a store. They are made for the server's user. If that is impossible, the error is a sentence.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use redb::backends::FileBackend;
use redb::{Builder, Database, DatabaseError, StorageError};

use super::contract::Tier as _;
use super::disk::{DiskTier, OpenDatabase};
use super::error::TierError;

/// The store's file within the directory.
const FILE: &str = "sequences.redb";
/// Bytes of memory for pages of the file.
const CACHE: usize = 16 << 20;
/// Maximum size of a file that is checked page by page when it is opened. Checking a larger one would take too long.
const CHECKED: u64 = 256 << 20;
/// Maximum size of a file that is never compacted.
const SLACK: u64 = 64 << 20;
/// Time between two attempts to open a store that another process uses.
const LOOK: Duration = Duration::from_millis(20);

/// An opened store.
#[derive(Debug)]
pub struct OpenedStore {
    pub tier: DiskTier,
    /// A damaged file that was found, and the path that it was moved to.
    pub set_aside: Option<(TierError, PathBuf)>,
}

/// Opens the store in this directory, or makes one. Waits up to `patience` for another process that is about to stop. A damaged file is
/// moved aside, and none of its sequences is resumed.
pub fn open(directory: &Path, limit: u64, patience: Duration) -> Result<OpenedStore, TierError> {
    make_directory(directory).map_err(|e| failed(directory, &e))?;
    let file = directory.join(FILE);
    let path = file.display().to_string();
    let opens = || {
        let file = file.clone();
        let open: Box<OpenDatabase> = Box::new(move || open_file(&file));
        DiskTier::open(path.clone(), open, limit)
    };
    let until = Instant::now() + patience;
    loop {
        match opens() {
            Ok(tier) => {
                shrink(&tier, &file)?;
                return Ok(OpenedStore { tier, set_aside: None });
            }
            Err(TierError::InUse { .. }) if Instant::now() < until => std::thread::sleep(LOOK),
            Err(damage @ TierError::Damaged { .. }) => {
                let aside = set_aside(&file).map_err(|e| failed(&file, &e))?;
                return Ok(OpenedStore { tier: opens()?, set_aside: Some((damage, aside)) });
            }
            Err(error) => return Err(error),
        }
    }
}

/// Compacts a file that is much larger than its contents.
fn shrink(tier: &DiskTier, file: &Path) -> Result<(), TierError> {
    let len = std::fs::metadata(file).map_err(|e| failed(file, &e))?.len();
    if len > SLACK && tier.usage().bytes.saturating_mul(4) < len { tier.compact() } else { Ok(()) }
}

fn failed(path: &Path, error: &io::Error) -> TierError {
    TierError::Io { path: path.display().to_string(), what: error.to_string() }
}

fn make_directory(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// Moves a damaged file to a name with the time.
fn set_aside(file: &Path) -> io::Result<PathBuf> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let aside = file.with_extension(format!("redb.damaged-{}", since.as_secs()));
    std::fs::rename(file, &aside)?;
    Ok(aside)
}

fn open_file(path: &Path) -> Result<Database, TierError> {
    let io = |e: &io::Error| failed(path, e);
    let file: File = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(|e| io(&e))?;
    let found = file.metadata().map_err(|e| io(&e))?;
    if found.permissions().mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600)).map_err(|e| io(&e))?;
    }
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE).set_check_integrity_on_open(found.len() <= CHECKED);
    let backend = FileBackend::new(file).map_err(|e| of_open(path, e))?;
    builder.create_with_backend(backend).map_err(|e| of_open(path, e))
}

fn of_open(path: &Path, error: DatabaseError) -> TierError {
    let path = path.display().to_string();
    match error {
        DatabaseError::DatabaseAlreadyOpen => TierError::InUse { path },
        // The file is shorter than its own header requires, or is not a store.
        DatabaseError::Storage(StorageError::Io(e)) if !is_damage(&e) => TierError::Io { path, what: e.to_string() },
        other => TierError::Damaged { path, what: other.to_string() },
    }
}

/// Whether redb reports a file that is not a store or is incomplete.
fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}
