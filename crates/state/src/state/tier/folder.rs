//! The directory and the file of a store. They are made for the server's user. If that is impossible, the error is a sentence.

use std::fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use redb::backends::FileBackend;
use redb::{Builder, DatabaseError};

use super::contract::Tier as _;
use super::disk::{DiskTier, OpenStoreFile, StoreFile, tier_error};
use super::error::TierError;
use super::file_user;

/// The store's file within the directory.
const FILE: &str = "sequences.redb";
/// The file whose lock a server holds, within the directory.
const LOCK: &str = "sequences.lock";
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
    open_with(directory, limit, patience, open_file)
}

/// As [`open`], with the function that opens the file.
pub(super) fn open_with(
    directory: &Path,
    limit: u64,
    patience: Duration,
    open_file: impl Fn(&Path) -> Result<StoreFile, TierError> + Clone + Send + Sync + 'static,
) -> Result<OpenedStore, TierError> {
    make_directory(directory).map_err(|e| failed(directory, &e))?;
    let file = directory.join(FILE);
    let path = file.display().to_string();
    let opens = || {
        let (file, open_file) = (file.clone(), open_file.clone());
        let open: Box<OpenStoreFile> = Box::new(move || open_file(&file));
        DiskTier::open(path.clone(), open, limit)
    };
    let until = Instant::now() + patience;
    let folder = waiting_for(until, || lock(directory))?;
    // A server of a version without that lock may still have the file.
    let (tier, set_aside) = match waiting_for(until, opens) {
        Err(damage @ TierError::Damaged { .. }) => {
            let aside = set_aside(&file).map_err(|e| failed(&file, &e))?;
            (opens()?, Some((damage, aside)))
        }
        opened => (opened?, None),
    };
    tier.hold(folder);
    shrink(&tier, std::fs::metadata(&file).map_or(0, |file| file.len()));
    Ok(OpenedStore { tier, set_aside })
}

/// Tries again until another process no longer uses the store, or the time is over.
fn waiting_for<T>(until: Instant, attempt: impl Fn() -> Result<T, TierError>) -> Result<T, TierError> {
    let mut has_said = false;
    loop {
        match attempt() {
            Err(TierError::InUse { path, by }) if Instant::now() < until => {
                if !std::mem::replace(&mut has_said, true) {
                    let left = until.saturating_duration_since(Instant::now()).as_secs_f64().ceil();
                    tracing::warn!("waiting up to {left} s for {path}: {by} has it open");
                }
                std::thread::sleep(LOOK);
            }
            done => return done,
        }
    }
}

/// Takes the lock on the directory, which one server holds as long as it uses the store. The lock file stays: a server that removed it
/// could remove that of the next one.
fn lock(directory: &Path) -> Result<File, TierError> {
    let path = directory.join(LOCK);
    let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = opened.map_err(|e| failed(&path, &e))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let (by, path) = (file_user::user_of(&path), directory.join(FILE).display().to_string());
            Err(TierError::InUse { path, by })
        }
        Err(TryLockError::Error(error)) => Err(failed(&path, &error)),
    }
}

/// Compacts a file of this size if it is much larger than its contents. Without that, the store works as well.
pub(super) fn shrink(tier: &DiskTier, len: u64) {
    if len > SLACK
        && tier.usage().bytes.saturating_mul(4) < len
        && let Err(error) = tier.compact()
    {
        tracing::warn!(%error, bytes = len, "the store of sequences was not compacted, and goes on with the larger file");
    }
}

fn failed(path: &Path, error: &io::Error) -> TierError {
    TierError::io(path.display().to_string(), error)
}

fn make_directory(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// Moves a damaged file to a name with the time that no other file has. The caller holds the lock on the directory.
pub(super) fn set_aside(file: &Path) -> io::Result<PathBuf> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let named = |more: String| file.with_extension(format!("redb.damaged-{since}{more}"));
    let mut names = std::iter::once(named(String::new())).chain((2_u32..).map(|n| named(format!("-{n}"))));
    let is_free = |path: &PathBuf| matches!(path.symlink_metadata(), Err(e) if e.kind() == io::ErrorKind::NotFound);
    let aside = names.find(is_free).ok_or(io::ErrorKind::AlreadyExists)?;
    std::fs::rename(file, &aside)?;
    Ok(aside)
}

fn open_file(path: &Path) -> Result<StoreFile, TierError> {
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
    let database = builder.create_with_backend(backend).map_err(|e| of_open(path, e))?;
    Ok(StoreFile { database, len: found.len() })
}

pub(super) fn of_open(path: &Path, error: DatabaseError) -> TierError {
    tier_error(&path.display().to_string(), error.into())
}
