//! Keeps compiled code on disk. A file is named by the SHA-256 of the component (without its `plugin.toml`, which is not code) and by the
//! engine's fingerprint. Compiled code runs with all rights of the server. So a file is used only if this user owns it, no other user can
//! write it, and its checksum matches. In any other case the component is compiled again.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use wasmtime::component::Component;

use super::background::give_way;
use super::engine::Engine;
use sequor_files::atomic_file::{self, SyncMode};

/// Name of the folder for compiled code among a machine's other kept files. Authors' tools and servers share it.
pub const COMPILED: &str = "compiled";
/// The first bytes of a file. The SHA-256 of its name and of the rest follows.
const MAGIC: &[u8; 16] = b"sequor-cwasm-02\n";
const HEAD: usize = MAGIC.len() + 32;
/// Maximum number of files, and of their bytes. Those used longest ago are removed first. A component with an interpreter is 50 MB of code.
const KEPT: usize = 64;
const KEPT_BYTES: u64 = 2 << 30;

/// One component is compiled at a time in this process: compilers take much memory, and the cores are for requests.
static COMPILING: Mutex<()> = Mutex::new(());

/// Compiles a component whose code is not kept.
pub(crate) fn compile(engine: &Engine, bytes: &[u8]) -> wasmtime::Result<Component> {
    let _compiling = COMPILING.lock();
    Component::new(engine.wasmtime(), bytes)
}

/// A folder of compiled code.
#[derive(Debug)]
pub struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// Uses this folder, which is created if it does not exist.
    pub fn new(folder: &Path) -> io::Result<Cache> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        Ok(Cache { folder: folder.to_owned() })
    }

    /// The code of this component for this engine: the kept one, or compiled now and kept. If it cannot be kept, that is logged.
    pub(crate) fn get_or_compile(&self, engine: &Engine, sha256: &str, bytes: &[u8]) -> wasmtime::Result<Component> {
        let path = self.path(engine, sha256);
        if let Some(kept) = self.get(engine, &path) {
            return Ok(kept);
        }
        let _compiling = COMPILING.lock();
        // Another thread may have compiled it meanwhile.
        if let Some(kept) = self.get(engine, &path) {
            return Ok(kept);
        }
        let compiled = Component::new(engine.wasmtime(), bytes)?;
        let code = compiled.serialize()?;
        if let Err(e) = self.keep(&path, &code) {
            tracing::warn!("compiled code of a plug-in is not kept: {}: {e}", path.display());
            return Ok(compiled);
        }
        // The compiled code is in memory as a whole. The kept file is mapped and needs less.
        drop(code);
        Ok(self.get(engine, &path).unwrap_or(compiled))
    }

    fn path(&self, engine: &Engine, sha256: &str) -> PathBuf {
        self.folder.join(format!("{sha256}-{:016x}.cwasm", engine.fingerprint()))
    }

    fn get(&self, engine: &Engine, path: &Path) -> Option<Component> {
        let code = match self.read(path) {
            Ok(code) => code,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return None,
            Err(e) => {
                tracing::warn!("compiled code of a plug-in is not used: {}: {e}", path.display());
                return None;
            }
        };
        give_way();
        let made = match &code {
            // SAFETY: the bytes are code that an engine of this fingerprint produced and `keep` wrote. This user owns the folder and the
            // file, and no other user can write either. Their SHA-256 is the one written with them. They were read once and written to a
            // file without a name, so no process can change them any more. Wasmtime itself checks that they are for this compiler and
            // processor.
            CompiledCode::Apart(_, at) => unsafe { Component::deserialize_file(engine.wasmtime(), at) },
            // SAFETY: the same holds for the bytes in memory.
            CompiledCode::Memory(code) => unsafe { Component::deserialize(engine.wasmtime(), code) },
        };
        match made {
            Ok(component) => Some(component),
            Err(e) => {
                tracing::warn!("compiled code of a plug-in is not used: {}: {e:#}", path.display());
                None
            }
        }
    }

    /// The code of a file, if it can be trusted.
    fn read(&self, path: &Path) -> io::Result<CompiledCode> {
        check_ours(&std::fs::metadata(&self.folder)?)?;
        // A link could lead to another file of this user.
        let flags = nix::libc::O_NOFOLLOW | nix::libc::O_CLOEXEC;
        let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        check_ours(&file.metadata()?)?;
        let (mut head, mut code, mut chunk) = ([0; HEAD], self.apart(), vec![0; 1 << 16]);
        file.read_exact(&mut head).map_err(|_| invalid_data("it is cut short"))?;
        let mut seal = begun_seal(path);
        loop {
            let n = file.read(&mut chunk)?;
            let Some(some) = chunk.get(..n).filter(|some| !some.is_empty()) else { break };
            seal.update(some);
            code.add(some)?;
            give_way();
        }
        if head.strip_prefix(MAGIC) != Some(seal.finalize().as_slice()) {
            return Err(invalid_data("its contents are not what was written"));
        }
        // Marks the file as used, so that it is not the first to be removed. If that fails, it may be removed.
        let _ = file.set_modified(SystemTime::now());
        Ok(code)
    }

    /// A place for code: a file without a name, so that only used pages of the code take memory. The system removes it with the last map.
    /// If no such file can be created, the place is memory.
    fn apart(&self) -> CompiledCode {
        let made = || {
            let file = tempfile::tempfile_in(&self.folder).ok()?;
            let at = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
            at.exists().then_some(CompiledCode::Apart(file, at))
        };
        made().unwrap_or(CompiledCode::Memory(Vec::new()))
    }

    fn keep(&self, path: &Path, code: &[u8]) -> io::Result<()> {
        check_ours(&std::fs::metadata(&self.folder)?)?;
        let seal = begun_seal(path).chain_update(code).finalize();
        atomic_file::replace(path, &[MAGIC, &seal, code], Some(0o600), SyncMode::Later)?;
        self.tidy()
    }

    /// Removes the files used longest ago, beyond the maximum.
    fn tidy(&self) -> io::Result<()> {
        let of = |path: PathBuf| {
            let data = std::fs::symlink_metadata(&path).ok()?;
            Some((data.modified().ok()?, data.len(), path))
        };
        let mut files: Vec<(SystemTime, u64, PathBuf)> = std::fs::read_dir(&self.folder)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|e| e == "cwasm"))
            .filter_map(of)
            .collect();
        files.sort_unstable_by(|a, b| b.cmp(a));
        let mut bytes = 0;
        for (n, (_, size, path)) in files.into_iter().enumerate() {
            bytes += size;
            if n >= KEPT || bytes > KEPT_BYTES {
                remove(&path)?;
            }
        }
        Ok(())
    }
}

/// Removes a file. Another process that tidies the same folder may have removed it already.
fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Code that was read from the cache.
#[derive(Debug)]
enum CompiledCode {
    /// In a file, with a path that opens it.
    Apart(File, PathBuf),
    Memory(Vec<u8>),
}

impl CompiledCode {
    fn add(&mut self, some: &[u8]) -> io::Result<()> {
        match self {
            CompiledCode::Apart(file, _) => file.write_all(some),
            CompiledCode::Memory(code) => {
                code.extend_from_slice(some);
                Ok(())
            }
        }
    }
}

/// Begins the checksum with the file's name, so that code of one component is not accepted for another.
fn begun_seal(path: &Path) -> Sha256 {
    Sha256::new_with_prefix(path.file_name().unwrap_or_default().as_encoded_bytes())
}

/// Checks that a folder or file belongs to this user and that no other user can write it.
fn check_ours(of: &std::fs::Metadata) -> io::Result<()> {
    if of.uid() != nix::unistd::geteuid().as_raw() {
        return Err(invalid_data("it belongs to another user"));
    }
    if of.mode() & 0o022 != 0 {
        return Err(invalid_data("others can write it"));
    }
    Ok(())
}

fn invalid_data(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::engine::{Mode, SERVING};

    const COMPONENT: &str =
        "(component (core module $m (func (export \"f\") (result i32) i32.const 7)) (core instance (instantiate $m)))";

    /// A folder with the compiled code of one component.
    fn kept() -> (tempfile::TempDir, Cache, PathBuf, Vec<u8>) {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(&folder.path().join("code")).unwrap();
        let bytes = wat::parse_str(COMPONENT).unwrap();
        cache.get_or_compile(&SERVING, "5ha", &bytes).unwrap();
        let path = cache.path(&SERVING, "5ha");
        (folder, cache, path, bytes)
    }

    fn invalid_data(cache: &Cache, path: &Path) -> String {
        cache.read(path).unwrap_err().to_string()
    }

    #[test]
    fn a_compiled_component_is_read_from_the_cache() {
        let (_folder, cache, path, _) = kept();
        assert!(cache.get(&SERVING, &path).is_some());
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        // Nothing else is needed: these bytes would not compile.
        assert!(cache.get_or_compile(&SERVING, "5ha", b"").is_ok());
        assert!(cache.get_or_compile(&SERVING, "other", b"").is_err());
    }

    #[test]
    fn a_damaged_cache_file_is_refused_and_compiled_again() {
        let (_folder, cache, path, bytes) = kept();
        let good = std::fs::read(&path).unwrap();
        for place in [0, 20, HEAD + 100, good.len() - 1] {
            let mut bad = good.clone();
            bad[place] ^= 1;
            std::fs::write(&path, &bad).unwrap();
            assert_eq!(invalid_data(&cache, &path), "its contents are not what was written");
        }
        std::fs::write(&path, &good[..30]).unwrap();
        assert_eq!(invalid_data(&cache, &path), "it is cut short");
        cache.get_or_compile(&SERVING, "5ha", &bytes).unwrap();
        assert_eq!(std::fs::read(&path).unwrap().len(), good.len());
        // Code of another engine, or of another component, under this name.
        let simulation = Engine::new(Mode::Simulation).unwrap();
        cache.get_or_compile(&simulation, "5ha", &bytes).unwrap();
        let other = cache.path(&simulation, "5ha");
        assert_ne!(other, path);
        std::fs::copy(&other, &path).unwrap();
        assert_eq!(invalid_data(&cache, &path), "its contents are not what was written");
        // Even with the right checksum, wasmtime refuses it.
        cache.keep(&path, std::fs::read(&other).unwrap().split_off(HEAD).as_slice()).unwrap();
        assert!(cache.read(&path).is_ok() && cache.get(&SERVING, &path).is_none());
        cache.get_or_compile(&SERVING, "5ha", &bytes).unwrap();
        assert!(cache.get(&SERVING, &path).is_some());
    }

    #[test]
    fn a_cache_file_that_other_users_could_write_is_refused() {
        let (folder, cache, path, _) = kept();
        std::fs::set_permissions(&path, Permissions::from_mode(0o622)).unwrap();
        assert_eq!(invalid_data(&cache, &path), "others can write it");
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        std::fs::set_permissions(&cache.folder, Permissions::from_mode(0o777)).unwrap();
        assert_eq!(invalid_data(&cache, &path), "others can write it");
        std::fs::set_permissions(&cache.folder, Permissions::from_mode(0o700)).unwrap();
        let elsewhere = folder.path().join("elsewhere");
        std::fs::rename(&path, &elsewhere).unwrap();
        symlink(&elsewhere, &path).unwrap();
        assert!(cache.read(&path).is_err());
        assert!(cache.get(&SERVING, &path).is_none());
    }

    #[test]
    fn the_least_recently_used_entry_is_evicted_first() {
        let (_folder, cache, path, _) = kept();
        for n in 0..KEPT + 3 {
            let file = std::fs::File::create(cache.folder.join(format!("{n}.cwasm"))).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(n as u64)).unwrap();
        }
        cache.tidy().unwrap();
        let left: Vec<_> = std::fs::read_dir(&cache.folder).unwrap().map(|e| e.unwrap().path()).collect();
        assert_eq!(left.len(), KEPT);
        assert!(
            left.contains(&path)
                && !left.contains(&cache.folder.join("3.cwasm"))
                && left.contains(&cache.folder.join("4.cwasm"))
        );
    }

    #[test]
    fn a_file_that_another_server_has_removed_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1.cwasm");
        std::fs::write(&path, "").unwrap();
        assert!(remove(&path).is_ok() && !path.exists());
        assert!(remove(&path).is_ok());
        assert!(remove(folder.path()).is_err());
    }
}
