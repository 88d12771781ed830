//! The directory and the file of a store. They are made for the server's user. If that is impossible, the error is a sentence.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
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
    let (until, mut has_said) = (Instant::now() + patience, false);
    loop {
        match opens() {
            Ok(tier) => {
                shrink(&tier, &file)?;
                return Ok(OpenedStore { tier, set_aside: None });
            }
            Err(TierError::InUse { by, .. }) if Instant::now() < until => {
                if !std::mem::replace(&mut has_said, true) {
                    let seconds = patience.as_secs();
                    tracing::warn!("waiting up to {seconds} s for {path}: {by} has it open");
                }
                std::thread::sleep(LOOK);
            }
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
    TierError::io(path.display().to_string(), error)
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
    let by = || user_of(path).unwrap_or_else(|| "another process".to_owned());
    let path = path.display().to_string();
    match error {
        DatabaseError::DatabaseAlreadyOpen => TierError::InUse { by: by(), path },
        // The file is shorter than its own header requires, or is not a store.
        DatabaseError::Storage(StorageError::Io(e)) if !is_damage(&e) => TierError::io(path, &e),
        other => TierError::Damaged { path, what: other.to_string() },
    }
}

/// Whether redb reports a file that is not a store or is incomplete.
fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

/// The process that has locked a file, as far as /proc says.
fn user_of(path: &Path) -> Option<String> {
    let inode = std::fs::metadata(path).ok()?.ino();
    let pid = locker(&std::fs::read_to_string("/proc/locks").ok()?, inode)?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(format!("pid {pid} ({})", name.trim()))
}

/// The process that has a lock on this inode, from a table like /proc/locks. The kernel gives 0 or less for one that it may not name.
fn locker(table: &str, inode: u64) -> Option<u32> {
    let of_line = |line: &str| {
        let mut words = line.split_whitespace().skip(4);
        let (pid, file) = (words.next()?, words.next()?);
        let is_it = file.rsplit(':').next()?.parse() == Ok(inode);
        pid.parse().ok().filter(|pid| is_it && *pid > 0)
    };
    table.lines().filter(|line| !line.contains("->")).find_map(of_line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_that_locks_a_file_is_found_in_the_table_of_locks() {
        let table = "1: POSIX  ADVISORY  WRITE 812 fe:00:77 0 EOF\n2: FLOCK  ADVISORY  WRITE 26356 fe:00:1311 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 9 fe:00:1400 0 EOF\n3: FLOCK  ADVISORY  WRITE -1 fe:00:88 0 EOF\n";
        assert_eq!(
            [1311, 77, 88, 1400, 5].map(|inode| locker(table, inode)),
            [Some(26356), Some(812), None, None, None]
        );
    }

    #[test]
    fn a_store_in_use_names_its_user_and_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let held = open(folder.path(), 1 << 20, Duration::ZERO).unwrap();
        let error = open(folder.path(), 1 << 20, Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains("sequences.redb is in use by ") && error.contains("--state-dir of its own"), "{error}");
        #[cfg(target_os = "linux")]
        assert!(error.contains(&format!("pid {} (", std::process::id())), "{error}");
        drop(held);
    }

    #[test]
    fn an_error_of_the_system_has_no_number() {
        let full = io::Error::from_raw_os_error(28);
        let TierError::Io { what, .. } = failed(Path::new("st"), &full) else { panic!("it is of the disk") };
        assert_eq!(what, "No space left on device");
    }
}
