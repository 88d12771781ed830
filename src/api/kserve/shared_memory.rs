//! Regions of system shared memory that clients have registered: tensors lie there instead of in messages.
//!
//! A region is read and written as the file that it is (`/dev/shm`), not mapped. The client may write while we read, or cut the file short:
//! through a mapping the one would be undefined, the other a signal that ends the server; through a file the one is a torn tensor, the
//! client's own, and the other an error. What is read is a copy, made before the request is queued.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;

use super::refusal::{self, RegionFault};
use crate::api::Status;

/// Where POSIX shared memory lies.
const HOME: &str = "/dev/shm";
/// Regions at most: each holds a file open.
const MOST: usize = 1024;

/// The regions of a server, by name.
#[derive(Debug)]
pub(crate) struct Regions {
    home: PathBuf,
    /// Bytes a tensor may have at most.
    limit: usize,
    regions: RwLock<BTreeMap<String, Arc<Region>>>,
}

/// A region. Requests that use it keep it, also when it is unregistered.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) name: String,
    pub(crate) key: String,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    file: File,
}

/// The part of a region that holds a tensor.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    region: Arc<Region>,
    /// From the beginning of the region.
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

impl Regions {
    pub(crate) fn new(limit: usize) -> Regions {
        Regions { home: PathBuf::from(HOME), limit, regions: RwLock::default() }
    }

    pub(crate) fn register(&self, name: &str, key: &str, offset: u64, size: u64) -> Result<(), Status> {
        let fault = |fault: RegionFault<'_>| Err(refusal::region(name, &fault));
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
        let file = match open(&self.home, key) {
            Ok(file) => file,
            Err(why) => return fault(RegionFault::NotOpened { key, why: &why.to_string() }),
        };
        let there = file.metadata().map_or(0, |metadata| metadata.len());
        if offset.checked_add(size).is_none_or(|end| end > there) {
            return fault(RegionFault::DoesNotFit { key, offset, size, there });
        }
        let region = Region { name: name.to_owned(), key: key.to_owned(), offset, size, file };
        regions.insert(name.to_owned(), Arc::new(region));
        Ok(())
    }

    /// Forgets a region, or all where the name is empty. One that is not there is forgotten already.
    pub(crate) fn unregister(&self, name: &str) {
        let mut regions = self.regions.write();
        if name.is_empty() {
            regions.clear();
        } else {
            regions.remove(name);
        }
    }

    /// The region of this name, or all where the name is empty.
    pub(crate) fn status(&self, name: &str) -> Result<Vec<Arc<Region>>, Status> {
        let regions = self.regions.read();
        if name.is_empty() {
            return Ok(regions.values().cloned().collect());
        }
        let region = regions.get(name).cloned();
        region.map(|region| vec![region]).ok_or_else(|| refusal::region(name, &RegionFault::NotRegistered))
    }

    /// A part of a region, for a tensor.
    pub(crate) fn window(&self, name: &str, offset: u64, size: u64) -> Result<Window, Status> {
        let fault = |fault: RegionFault<'_>| refusal::region(name, &fault);
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
}

/// Opens shared memory as `shm_open` would: one name, no links.
fn open(home: &Path, key: &str) -> std::io::Result<File> {
    let name = key.strip_prefix('/').unwrap_or(key);
    if name.is_empty() || name.contains(['/', '\0']) || name == "." || name == ".." {
        return Err(std::io::Error::other("a key is one name, perhaps with one / in front"));
    }
    let path = home.join(name);
    if !std::fs::symlink_metadata(&path)?.is_file() {
        return Err(std::io::Error::other("it is no shared memory"));
    }
    File::options().read(true).write(true).open(path)
}

/// There are no regions of CUDA shared memory, so that only all of them can be told of.
pub(crate) fn no_cuda_status(name: &str) -> Result<(), Status> {
    if name.is_empty() { Ok(()) } else { Err(refusal::region(name, &RegionFault::NotRegisteredCuda)) }
}

pub(crate) fn no_cuda(name: &str) -> Status {
    refusal::region(name, &RegionFault::NoCuda)
}

impl Window {
    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// A copy of what lies there now.
    pub(crate) fn read(&self) -> Result<Bytes, Status> {
        let mut data = vec![0; usize::try_from(self.size).unwrap_or(0)];
        let read = self.region.file.read_exact_at(&mut data, self.region.offset + self.offset);
        read.map(|()| data.into()).map_err(|error| self.broken(&error))
    }

    /// Whether so many bytes of an output fit.
    pub(crate) fn check(&self, output: &str, bytes: u64) -> Result<(), Status> {
        if bytes <= self.size {
            return Ok(());
        }
        let fault = RegionFault::TooSmall { output, size: self.size, needed: bytes };
        Err(refusal::region(&self.region.name, &fault))
    }

    pub(crate) fn write(&self, output: &str, data: &[u8]) -> Result<(), Status> {
        self.check(output, data.len() as u64)?;
        // A file that was cut short is not to be made longer again.
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
        refusal::region(&self.region.name, &RegionFault::Broken { why: &error.to_string() })
    }
}

impl PartialEq for Window {
    fn eq(&self, other: &Window) -> bool {
        Arc::ptr_eq(&self.region, &other.region) && (self.offset, self.size) == (other.offset, other.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Code;

    fn regions() -> (tempfile::TempDir, Regions) {
        let home = tempfile::tempdir().unwrap();
        fs_err::write(home.path().join("mem"), [0, 1, 2, 3, 4, 5, 6, 7]).unwrap();
        let regions = Regions { home: home.path().to_owned(), limit: 100, regions: RwLock::default() };
        (home, regions)
    }

    fn code<T: std::fmt::Debug>(outcome: Result<T, Status>) -> Code {
        outcome.unwrap_err().code
    }

    #[test]
    fn a_tensor_is_read_and_written_within_its_region() {
        let (home, regions) = regions();
        regions.register("r", "/mem", 2, 4).unwrap();
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
    fn a_region_must_be_there_once_and_fit() {
        let (home, regions) = regions();
        assert_eq!(code(regions.register("r", "mem", 5, 4)), Code::InvalidArgument);
        assert_eq!(code(regions.register("r", "mem", u64::MAX, 4)), Code::InvalidArgument);
        assert_eq!(code(regions.register("r", "mem", 0, 0)), Code::InvalidArgument);
        std::os::unix::fs::symlink("/etc/hostname", home.path().join("link")).unwrap();
        for key in ["", "/", "nothing", "../mem", "a/b", "..", "link"] {
            assert_eq!(code(regions.register("r", key, 0, 1)), Code::InvalidArgument, "{key}");
        }
        regions.register("r", "mem", 0, 8).unwrap();
        assert_eq!(code(regions.register("r", "mem", 0, 8)), Code::AlreadyExists);
        assert_eq!((regions.status("").unwrap().len(), code(regions.status("q"))), (1, Code::NotFound));
    }

    #[test]
    fn a_request_keeps_its_region_and_a_shrunken_file_is_an_error() {
        let (home, regions) = regions();
        regions.register("r", "mem", 0, 8).unwrap();
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
}
