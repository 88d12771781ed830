//! Regions of system shared memory that clients have registered. They hold tensors in place of messages.
//!
//! A region is read and written as a file (`/dev/shm`), not mapped. The client may write during a read, or truncate the file. With a
//! mapping, the first is undefined behaviour, and the second a signal that ends the server. With a file, the first gives a torn tensor to
//! that client only, and the second an error. A tensor is copied before its request is queued.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;

use super::fault::DecodeError;
use super::refused_region::{self, RegionFault};
use crate::api::Status;
use crate::api::peers::PeerKey;
use crate::api::queued::QueuedBytesPermit;
use crate::config::server::settings::SharedMemory;

/// The directory of POSIX shared memory.
const HOME: &str = "/dev/shm";
/// Maximum number of regions in total and per peer. Each region holds a file open.
const MOST: usize = 1024;
const MOST_OF_A_PEER: usize = 256;
/// Maximum bytes of a region's name, and of its key.
const LONGEST_NAME: usize = 1024;

/// The regions of a server, by name.
#[derive(Debug)]
pub(crate) struct Regions {
    home: PathBuf,
    /// Maximum bytes of a tensor.
    limit: usize,
    policy: SharedMemory,
    regions: RwLock<BTreeMap<String, Arc<Region>>>,
}

/// A region. A request that uses it keeps it, even after it is unregistered.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) name: String,
    pub(crate) key: String,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    /// The peer that registered the region.
    peer: PeerKey,
    file: File,
}

/// The part of a region for one tensor.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    region: Arc<Region>,
    /// Offset from the start of the region.
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

impl Regions {
    pub(crate) fn new(limit: usize, policy: SharedMemory) -> Regions {
        Regions { home: PathBuf::from(HOME), limit, policy, regions: RwLock::default() }
    }

    pub(crate) fn register(
        &self,
        peer: PeerKey,
        name: &str,
        key: &str,
        (offset, size): (u64, u64),
    ) -> Result<(), Status> {
        let fault = |fault: RegionFault<'_>| Err(refused_region::region(name, &fault));
        if let Some((what, text)) = [("name", name), ("key", key)].into_iter().find(|(_, t)| t.len() > LONGEST_NAME) {
            return fault(RegionFault::LongName { what, bytes: text.len(), limit: LONGEST_NAME });
        }
        match &self.policy {
            SharedMemory::On => {}
            SharedMemory::Off => return fault(RegionFault::Off),
            SharedMemory::Prefix(prefix) if bare(key).starts_with(bare(prefix)) => {}
            SharedMemory::Prefix(prefix) => return fault(RegionFault::OtherPrefix { key, prefix }),
        }
        let mut regions = self.regions.write();
        if regions.contains_key(name) {
            return fault(RegionFault::Exists);
        }
        if name.is_empty() || size == 0 {
            return fault(RegionFault::Empty);
        }
        if regions.len() >= MOST {
            return fault(RegionFault::TooMany(MOST));
        }
        if regions.values().filter(|region| region.peer == peer).count() >= MOST_OF_A_PEER {
            return fault(RegionFault::TooManyOfAPeer(MOST_OF_A_PEER));
        }
        let file = match open(&self.home, key) {
            Ok(file) => file,
            Err(why) => return fault(RegionFault::NotOpened { key, why: &why.to_string() }),
        };
        let there = file.metadata().map_or(0, |metadata| metadata.len());
        if offset.checked_add(size).is_none_or(|end| end > there) {
            return fault(RegionFault::DoesNotFit { key, offset, size, there });
        }
        let region = Region { name: name.to_owned(), key: key.to_owned(), offset, size, peer, file };
        regions.insert(name.to_owned(), Arc::new(region));
        Ok(())
    }

    /// Removes a region, or all if the name is empty. An unknown name is not an error.
    pub(crate) fn unregister(&self, name: &str) {
        let mut regions = self.regions.write();
        if name.is_empty() {
            regions.clear();
        } else {
            regions.remove(name);
        }
    }

    /// The region with this name, or all if the name is empty.
    pub(crate) fn status(&self, name: &str) -> Result<Vec<Arc<Region>>, Status> {
        let regions = self.regions.read();
        if name.is_empty() {
            return Ok(regions.values().cloned().collect());
        }
        let region = regions.get(name).cloned();
        region.map(|region| vec![region]).ok_or_else(|| refused_region::region(name, &RegionFault::NotRegistered))
    }

    /// The part of a region for a tensor.
    pub(crate) fn window(&self, name: &str, offset: u64, size: u64) -> Result<Window, Status> {
        let fault = |fault: RegionFault<'_>| refused_region::region(name, &fault);
        let region = self.regions.read().get(name).cloned().ok_or_else(|| fault(RegionFault::Unknown))?;
        if offset > region.size {
            return Err(fault(RegionFault::BadOffset));
        }
        if offset.checked_add(size).is_none_or(|end| end > region.size) {
            return Err(fault(RegionFault::BadSize));
        }
        if usize::try_from(size).map_or(true, |size| size > self.limit) {
            return Err(fault(RegionFault::TooLarge { size, limit: self.limit }));
        }
        Ok(Window { region, offset, size })
    }

    /// Counts the bytes that one request is about to read. Their total is limited per request and by the permit.
    pub(crate) fn charge<'w>(
        &self,
        windows: impl Iterator<Item = &'w Window>,
        permit: &mut QueuedBytesPermit,
    ) -> Result<(), DecodeError> {
        let mut total = 0u64;
        for window in windows {
            total = total.saturating_add(window.size);
            if usize::try_from(total).map_or(true, |total| total > self.limit) {
                let fault = RegionFault::TooLargeInAll { size: total, limit: self.limit };
                return Err(refused_region::region(&window.region.name, &fault).into());
            }
        }
        if total > 0 {
            permit.grow(total)?;
        }
        Ok(())
    }
}

/// Opens shared memory like `shm_open`: a single name, no links.
fn open(home: &Path, key: &str) -> std::io::Result<File> {
    let name = bare(key);
    if name.is_empty() || name.contains(['/', '\0']) || name == "." || name == ".." {
        return Err(std::io::Error::other("a key is one name, perhaps with one / in front"));
    }
    // `O_NOFOLLOW` refuses a link at the open itself, so no link can replace a checked file. `O_NONBLOCK` avoids waiting for a FIFO.
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;
    let file = File::options().read(true).write(true).custom_flags(flags).open(home.join(name))?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(std::io::Error::other("it is no shared memory")) }
}

/// Removes the leading slash of a key. Both forms name the same region.
fn bare(key: &str) -> &str {
    key.strip_prefix('/').unwrap_or(key)
}

/// The server has no regions of CUDA shared memory. Only a request for all of them succeeds.
pub(crate) fn no_cuda_status(name: &str) -> Result<(), Status> {
    if name.is_empty() { Ok(()) } else { Err(refused_region::region(name, &RegionFault::NotRegisteredCuda)) }
}

pub(crate) fn no_cuda(name: &str) -> Status {
    refused_region::region(name, &RegionFault::NoCuda)
}

impl Window {
    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// Copies the current bytes of the window.
    pub(crate) fn read(&self) -> Result<Bytes, Status> {
        let mut data = vec![0; usize::try_from(self.size).unwrap_or(0)];
        let read = self.region.file.read_exact_at(&mut data, self.region.offset + self.offset);
        read.map(|()| data.into()).map_err(|error| self.broken(&error))
    }

    /// Checks that this many bytes of an output fit.
    pub(crate) fn check(&self, output: &str, bytes: u64) -> Result<(), Status> {
        if bytes <= self.size {
            return Ok(());
        }
        let fault = RegionFault::TooSmall { output, size: self.size, needed: bytes };
        Err(refused_region::region(&self.region.name, &fault))
    }

    pub(crate) fn write(&self, output: &str, data: &[u8]) -> Result<(), Status> {
        self.check(output, data.len() as u64)?;
        // Writing must not extend a file that was truncated.
        let end = self.region.offset + self.offset + data.len() as u64;
        match self.region.file.metadata() {
            Ok(metadata) if metadata.len() < end => Err(self.broken(&std::io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => {
                let written = self.region.file.write_all_at(data, self.region.offset + self.offset);
                written.map_err(|error| self.broken(&error))
            }
            Err(error) => Err(self.broken(&error)),
        }
    }

    fn broken(&self, error: &std::io::Error) -> Status {
        refused_region::region(&self.region.name, &RegionFault::Broken { why: &error.to_string() })
    }
}

impl PartialEq for Window {
    fn eq(&self, other: &Window) -> bool {
        Arc::ptr_eq(&self.region, &other.region) && (self.offset, self.size) == (other.offset, other.size)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::api::{Caller, Code};

    fn regions() -> (tempfile::TempDir, Regions) {
        let home = tempfile::tempdir().unwrap();
        fs_err::write(home.path().join("mem"), [0, 1, 2, 3, 4, 5, 6, 7]).unwrap();
        let regions = at(&home, SharedMemory::On);
        (home, regions)
    }

    fn at(home: &tempfile::TempDir, policy: SharedMemory) -> Regions {
        Regions { home: home.path().to_owned(), limit: 100, policy, regions: RwLock::default() }
    }

    fn peer(address: &str) -> PeerKey {
        PeerKey::of(&Caller { name: Caller::LOCAL.to_owned(), address: (address.parse::<IpAddr>().unwrap(), 1).into() })
    }

    impl Regions {
        fn add(&self, name: &str, key: &str, offset: u64, size: u64) -> Result<(), Status> {
            self.register(peer("127.0.0.1"), name, key, (offset, size))
        }
    }

    fn code<T: std::fmt::Debug>(outcome: Result<T, Status>) -> Code {
        outcome.unwrap_err().code
    }

    #[test]
    fn a_tensor_is_read_and_written_within_its_region() {
        let (home, regions) = regions();
        regions.add("r", "/mem", 2, 4).unwrap();
        let window = regions.window("r", 1, 3).unwrap();
        assert_eq!(window.read().unwrap()[..], [3, 4, 5]);
        window.write("y", &[9, 8]).unwrap();
        assert_eq!(fs_err::read(home.path().join("mem")).unwrap(), [0, 1, 2, 9, 8, 5, 6, 7]);
        assert_eq!(code(window.write("y", &[0; 4])), Code::InvalidArgument);
        assert_eq!(code(regions.window("r", 0, 5)), Code::InvalidArgument);
        assert_eq!(code(regions.window("r", 5, 0)), Code::InvalidArgument);
        assert_eq!(code(regions.window("r", u64::MAX, u64::MAX)), Code::InvalidArgument);
        assert_eq!(code(regions.window("q", 0, 1)), Code::NotFound);
    }

    #[test]
    fn an_absent_duplicate_or_oversized_region_is_refused() {
        let (home, regions) = regions();
        assert_eq!(code(regions.add("r", "mem", 5, 4)), Code::InvalidArgument);
        assert_eq!(code(regions.add("r", "mem", u64::MAX, 4)), Code::InvalidArgument);
        assert_eq!(code(regions.add("r", "mem", 0, 0)), Code::InvalidArgument);
        std::os::unix::fs::symlink("/etc/hostname", home.path().join("link")).unwrap();
        for key in ["", "/", "nothing", "../mem", "a/b", "..", "link"] {
            assert_eq!(code(regions.add("r", key, 0, 1)), Code::InvalidArgument, "{key}");
        }
        regions.add("r", "mem", 0, 8).unwrap();
        assert_eq!(code(regions.add("r", "mem", 0, 8)), Code::AlreadyExists);
        assert_eq!((regions.status("").unwrap().len(), code(regions.status("q"))), (1, Code::NotFound));
    }

    #[test]
    fn a_request_keeps_its_region_and_a_shrunken_file_is_an_error() {
        let (home, regions) = regions();
        regions.add("r", "mem", 0, 8).unwrap();
        let window = regions.window("r", 0, 8).unwrap();
        regions.unregister("r");
        regions.unregister("r");
        assert_eq!(window.read().unwrap().len(), 8);
        fs_err::write(home.path().join("mem"), [1, 2]).unwrap();
        assert_eq!(
            (code(window.read()), code(window.write("y", &[0; 8]))),
            (Code::InvalidArgument, Code::InvalidArgument)
        );
        assert_eq!(fs_err::read(home.path().join("mem")).unwrap(), [1, 2]);
    }

    #[test]
    fn registering_shared_memory_is_denied_unless_the_settings_allow_it() {
        let (home, _) = regions();
        let off = at(&home, SharedMemory::Off).add("r", "/mem", 0, 8).unwrap_err();
        assert_eq!((off.code, off.reason), (Code::Denied, "denied"));
        assert!(off.message.contains("shared_memory.allow"), "{}", off.message);
        let prefix = at(&home, SharedMemory::Prefix("/me".to_owned()));
        prefix.add("r", "mem", 0, 8).unwrap();
        assert_eq!(code(prefix.add("s", "/other", 0, 8)), Code::Denied);
        assert_eq!(code(at(&home, SharedMemory::Prefix("memory".to_owned())).add("r", "/mem", 0, 8)), Code::Denied);
    }

    #[test]
    fn a_peer_may_register_a_limited_number_of_regions() {
        let (_home, regions) = regions();
        for n in 0..MOST_OF_A_PEER {
            regions.add(&n.to_string(), "mem", 0, 8).unwrap();
        }
        assert_eq!(code(regions.add("more", "mem", 0, 8)), Code::Unavailable);
        regions.register(peer("127.0.0.2"), "more", "mem", (0, 8)).unwrap();
        regions.unregister("0");
        regions.add("0", "mem", 0, 8).unwrap();
    }

    #[test]
    fn regions_count_for_a_network_or_a_name() {
        let (_home, regions) = regions();
        for n in 0..MOST_OF_A_PEER {
            regions.register(peer(&format!("2001:db8::{n:x}")), &n.to_string(), "mem", (0, 8)).unwrap();
        }
        assert_eq!(code(regions.register(peer("2001:db8::ffff"), "more", "mem", (0, 8))), Code::Unavailable);
        let named = Caller { name: "anna".to_owned(), address: (IpAddr::from([127, 0, 0, 1]), 1).into() };
        regions.register(PeerKey::of(&named), "named", "mem", (0, 8)).unwrap();
        regions.register(peer("2001:db8:0:1::1"), "other", "mem", (0, 8)).unwrap();
    }

    #[test]
    fn too_long_region_names_and_keys_are_refused() {
        let (_home, regions) = regions();
        let (longest, longer) = ("n".repeat(LONGEST_NAME), "n".repeat(LONGEST_NAME + 1));
        regions.add(&longest, "mem", 0, 8).unwrap();
        for (name, key) in [(longer.as_str(), "mem"), ("r", longer.as_str())] {
            let refused = regions.add(name, key, 0, 8).unwrap_err();
            assert_eq!((refused.code, refused.message.contains(&longest)), (Code::InvalidArgument, false));
        }
        assert_eq!(regions.status("").unwrap().len(), 1);
    }

    #[test]
    fn a_fifo_is_no_shared_memory_and_is_not_waited_for() {
        let (home, regions) = regions();
        let path = home.path().join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
        assert_eq!(code(regions.add("r", "fifo", 0, 1)), Code::InvalidArgument);
    }
}
