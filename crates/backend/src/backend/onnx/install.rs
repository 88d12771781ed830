//! Installs ONNX Runtime: `pip` downloads the pinned package and checks its pinned hashes; then the needed files are extracted.
//!
//! Sequor uses pip so that its index, proxy and certificate settings apply. Python is not needed afterwards.

use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::{NamedTempFile, TempDir};
use zip::ZipArchive;

use super::library::FILE;
use super::probe::{Probe, RuntimeVersion, probe};

/// The pinned package and its hashes, in pip's format.
pub const PIN: &str = include_str!("../../../../../third_party/onnxruntime.txt");
/// The pinned package for NVIDIA GPUs.
pub const GPU_PIN: &str = include_str!("../../../../../third_party/onnxruntime-gpu.txt");

/// The package to install.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Package {
    Cpu,
    /// Includes the provider for NVIDIA GPUs.
    Gpu,
}

impl Package {
    /// The files that are needed besides the library.
    fn beside(self) -> &'static [&'static str] {
        match self {
            Package::Cpu => &[],
            Package::Gpu => &["libonnxruntime_providers_shared.so", super::cuda::FILE],
        }
    }
}

/// The current phase of an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// pip is running. It reports no progress.
    Downloading(RuntimeVersion),
    /// Extracting from the package; `bytes` so far.
    Extracting { bytes: u64 },
}

/// The result of an installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Installed {
    Now { path: PathBuf, version: RuntimeVersion },
    Already { path: PathBuf, version: RuntimeVersion },
}

#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error(
        "ONNX Runtime was not installed: there is no python3 here to fetch it with; install Python 3 with pip, or set ORT_DYLIB_PATH to a libonnxruntime.so"
    )]
    NoPython,
    #[error(
        "ONNX Runtime was not installed: python3 has no pip; install it (python3 -m ensurepip, or the package python3-pip), or set ORT_DYLIB_PATH to a libonnxruntime.so"
    )]
    NoPip,
    #[error(
        "ONNX Runtime {0} was not installed: pip got nothing from its package index ({1}); pip's own settings for proxies and mirrors apply"
    )]
    NoNetwork(RuntimeVersion, String),
    #[error(
        "ONNX Runtime {0} was not installed: what the package index gave does not have the pinned hash; nothing of it was kept"
    )]
    WrongHash(RuntimeVersion),
    #[error(
        "ONNX Runtime {0} was not installed: {1} is not among the machines it is pinned for (x86_64 and aarch64); set ORT_DYLIB_PATH to a libonnxruntime.so"
    )]
    NoPackage(RuntimeVersion, &'static str),
    #[error("ONNX Runtime {0} for GPUs was not installed: {1} is not the machine it is pinned for (x86_64)")]
    NoGpuPackage(RuntimeVersion, &'static str),
    #[error("ONNX Runtime {0} was not installed: pip failed: {1}")]
    Pip(RuntimeVersion, String),
    #[error("ONNX Runtime {0} was not installed: {1}")]
    Package(RuntimeVersion, String),
    #[error("ONNX Runtime was not installed: {0}")]
    File(#[from] io::Error),
}

/// Installs the pinned library into the folder `target`, if it is not there yet. Several processes may call this at once; one of them
/// downloads.
pub fn install(package: Package, target: &Path, progress: &mut dyn FnMut(Progress)) -> Result<Installed, InstallError> {
    let pin = match package {
        Package::Cpu => PIN,
        Package::Gpu => GPU_PIN,
    };
    Installer { python: "python3".into(), pin, package }.install(target, progress)
}

/// The version that [`install`] installs.
pub fn pinned() -> Option<RuntimeVersion> {
    version_in(PIN)
}

struct Installer<'a> {
    python: PathBuf,
    pin: &'a str,
    package: Package,
}

impl Installer<'_> {
    fn install(&self, target: &Path, progress: &mut dyn FnMut(Progress)) -> Result<Installed, InstallError> {
        let version = version_in(self.pin).ok_or_else(|| io::Error::other("the pin names no version"))?;
        let path = target.join(FILE);
        // Sequor does not trust a folder that its group can write to.
        std::fs::DirBuilder::new().recursive(true).mode(0o755).create(target)?;
        let lock = fs_err::File::create(target.join(".lock"))?;
        lock.file().lock()?;
        let beside = || self.package.beside().iter().all(|file| target.join(file).is_file());
        if probe(&path) == Probe::Usable(version) && beside() {
            return Ok(Installed::Already { path, version });
        }
        let scratch = tempfile::Builder::new().prefix(".download").tempdir_in(target)?;
        progress(Progress::Downloading(version));
        let wheel = self.download(&scratch, version)?;
        // The library is written last: if it exists, all files do.
        for file in self.package.beside() {
            let whole = extract(&wheel, version, target, file, progress)?;
            whole.persist(target.join(file)).map_err(|error| error.error)?;
        }
        let library = extract(&wheel, version, target, FILE, progress)?;
        match probe(library.path()) {
            Probe::Usable(found) if found == version => {}
            verdict => return Err(InstallError::Package(version, format!("the library in the package is {verdict}"))),
        }
        library.persist(&path).map_err(|error| error.error)?;
        Ok(Installed::Now { path, version })
    }

    fn download(&self, scratch: &TempDir, version: RuntimeVersion) -> Result<PathBuf, InstallError> {
        let requirements = scratch.path().join("requirements.txt");
        fs_err::write(&requirements, self.pin)?;
        let mut pip = Command::new(&self.python);
        pip.args([
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-input",
            "--disable-pip-version-check",
            "--no-deps",
            "--only-binary=:all:",
        ]);
        // The library does not depend on Python, so any Python can fetch the package for Python 3.11.
        pip.args([
            "--python-version",
            "3.11",
            "--implementation",
            "cp",
            "--abi",
            "cp311",
            "--platform",
            platform(version, self.package)?,
        ]);
        pip.arg("--require-hashes").arg("-r").arg(&requirements).arg("-d").arg(scratch.path());
        let output = pip.stdin(Stdio::null()).output().map_err(|error| not_started(&error))?;
        succeeded(&output, version)?;
        let wheel = fs_err::read_dir(scratch.path())?.flatten().map(|entry| entry.path()).find(|path| is_wheel(path));
        wheel.ok_or_else(|| InstallError::Package(version, "pip succeeded but left no package".to_owned()))
    }
}

fn is_wheel(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "whl")
}

fn platform(version: RuntimeVersion, package: Package) -> Result<&'static str, InstallError> {
    match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => Ok("manylinux_2_28_x86_64"),
        ("linux", arch) if package == Package::Gpu => Err(InstallError::NoGpuPackage(version, arch)),
        ("linux", "aarch64") => Ok("manylinux_2_28_aarch64"),
        ("linux", arch) => Err(InstallError::NoPackage(version, arch)),
        (os, _) => Err(InstallError::NoPackage(version, os)),
    }
}

/// The version in a line like `onnxruntime==1.31.1 …`.
fn version_in(pin: &str) -> Option<RuntimeVersion> {
    let of = |line: &'_ str| {
        ["onnxruntime==", "onnxruntime-gpu=="].iter().find_map(|name| line.strip_prefix(name).map(str::to_owned))
    };
    let line = pin.lines().find_map(of)?;
    line.split_whitespace().next()?.parse().ok()
}

fn not_started(error: &io::Error) -> InstallError {
    if error.kind() == io::ErrorKind::NotFound {
        return InstallError::NoPython;
    }
    InstallError::File(io::Error::new(error.kind(), format!("python3 could not be started: {error}")))
}

fn succeeded(output: &Output, version: RuntimeVersion) -> Result<(), InstallError> {
    if output.status.success() {
        return Ok(());
    }
    Err(why_pip_failed(&String::from_utf8_lossy(&output.stderr), version))
}

/// Maps pip's error text to an error. pip has no exit codes or machine-readable errors for these.
fn why_pip_failed(stderr: &str, version: RuntimeVersion) -> InstallError {
    const NETWORK: [&str; 8] = [
        "NewConnectionError",
        "ConnectTimeout",
        "ReadTimeout",
        "NameResolutionError",
        "ProxyError",
        "SSLError",
        "ProtocolError",
        "Connection refused",
    ];
    if stderr.contains("No module named pip") {
        return InstallError::NoPip;
    }
    if stderr.contains("DO NOT MATCH THE HASHES") {
        return InstallError::WrongHash(version);
    }
    if let Some(cause) = NETWORK.into_iter().find(|cause| stderr.contains(cause)) {
        return InstallError::NoNetwork(version, cause.to_owned());
    }
    // If pip is set not to retry, a failed connection leaves only this text.
    if stderr.contains("(from versions: none)") {
        return InstallError::NoNetwork(version, "no version found at all".to_owned());
    }
    let lines = || stderr.lines().map(str::trim).filter(|line| !line.is_empty());
    let line =
        lines().find(|line| line.starts_with("ERROR:")).or_else(|| lines().next_back()).unwrap_or("it did not say why");
    InstallError::Pip(version, line.trim_start_matches("ERROR:").trim().to_owned())
}

/// Extracts a library into a temporary file in the target's folder, so that a rename moves it into place as a whole.
fn extract(
    wheel: &Path,
    version: RuntimeVersion,
    target: &Path,
    file: &str,
    progress: &mut dyn FnMut(Progress),
) -> Result<NamedTempFile, InstallError> {
    let broken =
        |what: &dyn std::fmt::Display| InstallError::Package(version, format!("the package cannot be read: {what}"));
    let mut archive = ZipArchive::new(fs_err::File::open(wheel)?).map_err(|error| broken(&error))?;
    let member = archive.file_names().position(|name| name.is_ok_and(|name| is_file(&name, file)));
    let member = member.ok_or_else(|| broken(&format!("there is no {file} in it")))?;
    let mut packed = archive.by_index(member).map_err(|error| broken(&error))?;
    progress(Progress::Extracting { bytes: packed.size() });
    let mut library =
        tempfile::Builder::new().prefix(".libonnxruntime").suffix(".so").permissions(readable()).tempfile_in(target)?;
    io::copy(&mut packed, &mut library).map_err(|error| broken(&error))?;
    library.as_file().sync_all()?;
    Ok(library)
}

/// Whether a member of the package is this file, with or without a version suffix: `onnxruntime/capi/libonnxruntime.so.1.31.1`, but not the
/// providers.
fn is_file(name: &str, file: &str) -> bool {
    let end = name.strip_prefix("onnxruntime/capi/").and_then(|name| name.strip_prefix(file));
    end.is_some_and(|end| end.is_empty() || end.starts_with('.'))
}

/// Permissions of an installed library: readable for all users, unlike a temporary file.
fn readable() -> std::fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    std::fs::Permissions::from_mode(0o644)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn version() -> RuntimeVersion {
        pinned().unwrap()
    }

    fn attempt(python: &Path, target: &Path) -> Result<Installed, InstallError> {
        Installer { python: python.to_owned(), pin: PIN, package: Package::Cpu }.install(target, &mut |_| {})
    }

    /// Writes a program that replaces python3.
    fn script(dir: &Path, text: &str) -> PathBuf {
        let path = dir.join("python");
        // Another process writes the file: a file that this process has open for writing cannot be run while another test forks.
        let written =
            Command::new("sh").args(["-c", "printf '%s' \"$1\" > \"$0\""]).arg(&path).arg(text).status().unwrap();
        assert!(written.success());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn the_pin_names_a_usable_version_with_its_hashes() {
        assert_eq!(Probe::of_version(version()), Probe::Usable(version()));
        assert_eq!(PIN.matches("--hash=sha256:").count(), 2);
        assert_eq!((version_in(GPU_PIN), GPU_PIN.matches("--hash=sha256:").count()), (Some(version()), 1));
    }

    #[test]
    fn a_missing_python_or_pip_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        insta::assert_snapshot!(attempt(Path::new("/no/python3"), dir.path()).unwrap_err(), @"ONNX Runtime was not installed: there is no python3 here to fetch it with; install Python 3 with pip, or set ORT_DYLIB_PATH to a libonnxruntime.so");
        let python = script(dir.path(), "#!/bin/sh\necho \"$0: No module named pip\" >&2\nexit 1\n");
        insta::assert_snapshot!(attempt(&python, dir.path()).unwrap_err(), @"ONNX Runtime was not installed: python3 has no pip; install it (python3 -m ensurepip, or the package python3-pip), or set ORT_DYLIB_PATH to a libonnxruntime.so");
    }

    #[test]
    fn pip_errors_are_summarized_in_one_sentence() {
        let say = |stderr: &str| why_pip_failed(stderr, version()).to_string();
        let retry = "WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError('<urllib3…>: Failed')'\n\
                     ERROR: Could not find a version that satisfies the requirement onnxruntime==1.31.1\n";
        insta::assert_snapshot!(say(retry), @"ONNX Runtime 1.31.1 was not installed: pip got nothing from its package index (NewConnectionError); pip's own settings for proxies and mirrors apply");
        let silent = "ERROR: Could not find a version that satisfies the requirement onnxruntime==1.31.1 (from versions: none)\n";
        assert!(say(silent).contains("(no version found at all)"));
        let hash = "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.\n    onnxruntime==1.31.1: Expected …\n";
        insta::assert_snapshot!(say(hash), @"ONNX Runtime 1.31.1 was not installed: what the package index gave does not have the pinned hash; nothing of it was kept");
        insta::assert_snapshot!(say("WARNING: old\nERROR: No matching distribution found for onnxruntime==1.31.1\n"), @"ONNX Runtime 1.31.1 was not installed: pip failed: No matching distribution found for onnxruntime==1.31.1");
        insta::assert_snapshot!(say(""), @"ONNX Runtime 1.31.1 was not installed: pip failed: it did not say why");
    }

    fn wheel(dir: &Path, members: &[(&str, &[u8])]) {
        let file = std::fs::File::create(dir.join("onnxruntime.whl")).unwrap();
        let mut archive = zip::ZipWriter::new(file);
        for (name, bytes) in members {
            // Uncompressed, because compressing a library takes long.
            let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
            archive.start_file(*name, options).unwrap();
            archive.write_all(bytes).unwrap();
        }
        archive.finish().unwrap();
    }

    #[test]
    fn the_library_is_taken_out_of_the_package() {
        let dir = tempfile::tempdir().unwrap();
        let shared: (&str, &[u8]) = ("onnxruntime/capi/libonnxruntime_providers_shared.so", b"no");
        wheel(dir.path(), &[shared, ("onnxruntime/capi/libonnxruntime.so.1.31.1", b"the library")]);
        let mut seen = Vec::new();
        let file =
            extract(&dir.path().join("onnxruntime.whl"), version(), dir.path(), FILE, &mut |step| seen.push(step))
                .unwrap();
        assert_eq!(std::fs::read(file.path()).unwrap(), b"the library");
        assert_eq!(file.as_file().metadata().unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(seen, [Progress::Extracting { bytes: 11 }]);

        wheel(dir.path(), &[shared]);
        let error = extract(&dir.path().join("onnxruntime.whl"), version(), dir.path(), FILE, &mut |_| {}).unwrap_err();
        assert!(error.to_string().contains("there is no libonnxruntime.so in it"), "{error}");
    }

    /// A script replaces pip and puts a package into the folder after `-d`. The package has a library that loads.
    #[test]
    fn the_gpu_package_installs_its_providers_too() {
        let real = crate::backend::onnx::tests::library();
        if pinned() != Some(real.version) {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let library = std::fs::read(&real.path).unwrap();
        let shared: (&str, &[u8]) = ("onnxruntime/capi/libonnxruntime_providers_shared.so", b"shared");
        let cuda: (&str, &[u8]) = ("onnxruntime/capi/libonnxruntime_providers_cuda.so", b"cuda");
        wheel(dir.path(), &[shared, cuda, ("onnxruntime/capi/libonnxruntime.so.1.31.1", &library)]);
        let copy = format!(
            "#!/bin/sh\ncase \"$*\" in *aarch64*) exit 1;; esac\nfor last; do :; done\ncp {} \"$last\"\n",
            dir.path().join("onnxruntime.whl").display()
        );
        let target = dir.path().join("lib-gpu");
        let python = script(dir.path(), &copy);
        let installer = || Installer { python: python.clone(), pin: GPU_PIN, package: Package::Gpu };
        assert!(matches!(installer().install(&target, &mut |_| {}).unwrap(), Installed::Now { .. }));
        assert_eq!(std::fs::read(target.join("libonnxruntime_providers_cuda.so")).unwrap(), b"cuda");
        assert_eq!(std::fs::read(target.join("libonnxruntime_providers_shared.so")).unwrap(), b"shared");
        assert!(matches!(installer().install(&target, &mut |_| {}).unwrap(), Installed::Already { .. }));
        std::fs::remove_file(target.join("libonnxruntime_providers_cuda.so")).unwrap();
        assert!(matches!(installer().install(&target, &mut |_| {}).unwrap(), Installed::Now { .. }));
    }

    /// A script replaces pip and puts a package into the folder after `-d`. The package's library is not a library.
    #[test]
    fn a_library_that_does_not_load_is_not_installed() {
        let dir = tempfile::tempdir().unwrap();
        wheel(dir.path(), &[("onnxruntime/capi/libonnxruntime.so.1.31.1", b"text")]);
        let copy =
            format!("#!/bin/sh\nfor last; do :; done\ncp {} \"$last\"\n", dir.path().join("onnxruntime.whl").display());
        let target = dir.path().join("lib");
        let error = attempt(&script(dir.path(), &copy), &target).unwrap_err();
        assert!(error.to_string().contains("the library in the package is not a library"), "{error}");
        let left: Vec<_> = std::fs::read_dir(&target).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, [".lock"]);
    }
}
