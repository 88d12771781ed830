//! Checks whether a file is a usable ONNX Runtime library. It searches nothing.

use std::error::Error as _;
use std::ffi::CStr;
use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;

use libloading::Library;
use ort::sys::OrtApiBase;

/// A version of ONNX Runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuntimeVersion {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

/// The minimum version: its C API has every call that this module uses.
pub const OLDEST: RuntimeVersion = RuntimeVersion { major: 1, minor: ort::MINOR_VERSION, patch: 0 };

impl fmt::Display for RuntimeVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Parses `1.31.1`, and `1.31.1-dev` or `1.31` of custom builds.
impl FromStr for RuntimeVersion {
    type Err = ();

    fn from_str(text: &str) -> Result<RuntimeVersion, ()> {
        let mut numbers = text.split('.').map(|part| {
            let digits = part.find(|c: char| !c.is_ascii_digit()).map_or(part, |end| part.split_at(end).0);
            digits.parse::<u32>().map_err(|_| ())
        });
        let major = numbers.next().ok_or(())??;
        let minor = numbers.next().ok_or(())??;
        Ok(RuntimeVersion { major, minor, patch: numbers.next().and_then(Result::ok).unwrap_or(0) })
    }
}

/// The result for a candidate file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    Usable(RuntimeVersion),
    Absent,
    TooOld(RuntimeVersion),
    /// A major version this server does not know.
    TooNew(RuntimeVersion),
    /// The file exists but was not opened, because another user could have put it there; the reason.
    Untrusted(String),
    /// The file exists but is not a library that loads here, or is another library; the reason.
    NotALibrary(String),
}

impl Probe {
    /// The result for a library that reports this version.
    pub fn of_version(version: RuntimeVersion) -> Probe {
        match version.major.cmp(&OLDEST.major) {
            std::cmp::Ordering::Greater => Probe::TooNew(version),
            _ if version < OLDEST => Probe::TooOld(version),
            _ => Probe::Usable(version),
        }
    }

    /// The version, if it is known.
    pub fn version(&self) -> Option<RuntimeVersion> {
        match self {
            Probe::Usable(version) | Probe::TooOld(version) | Probe::TooNew(version) => Some(*version),
            Probe::Absent | Probe::Untrusted(_) | Probe::NotALibrary(_) => None,
        }
    }
}

/// A word or two, without the version.
impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Probe::Usable(_) => f.write_str("usable"),
            Probe::Absent => f.write_str("absent"),
            Probe::TooOld(_) => f.write_str("too old"),
            Probe::TooNew(_) => f.write_str("too new"),
            Probe::Untrusted(why) => write!(f, "not opened: {why}"),
            Probe::NotALibrary(why) => write!(f, "not a library: {why}"),
        }
    }
}

/// Loads the file, reads its version, and unloads it again. `dlopen` resolves a bare file name.
pub fn probe(path: &Path) -> Probe {
    let bare = path.components().count() == 1 && path.is_relative();
    if !bare && let Err(error) = fs_err::metadata(path) {
        return if error.kind() == io::ErrorKind::NotFound {
            Probe::Absent
        } else {
            Probe::NotALibrary(error.kind().to_string())
        };
    }
    // SAFETY: loading runs the library's initialisers; the operator, or the operator's search path, chose the file.
    let library = match unsafe { Library::new(path) } {
        Ok(library) => library,
        Err(error) => return not_loaded(path, &error, bare),
    };
    version_of(&library).map_or_else(Probe::NotALibrary, Probe::of_version)
}

fn not_loaded(path: &Path, error: &libloading::Error, bare: bool) -> Probe {
    let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    if bare && cause.contains("No such file") {
        return Probe::Absent;
    }
    // The caller names the file itself; the text keeps the name of a library that the file needs.
    let own = format!("{}: ", path.display());
    Probe::NotALibrary(cause.strip_prefix(&own).unwrap_or(&cause).to_owned())
}

fn version_of(library: &Library) -> Result<RuntimeVersion, String> {
    // SAFETY: a library that exports this name is ONNX Runtime, and the type is that of its header.
    let base = unsafe { library.get::<unsafe extern "C" fn() -> *const OrtApiBase>(b"OrtGetApiBase") }
        .map_err(|_| "it does not export OrtGetApiBase".to_owned())?;
    // SAFETY: the function takes no arguments and returns a pointer to a static of the library, or null.
    let base = unsafe { base().as_ref() }.ok_or("OrtGetApiBase gives nothing")?;
    // SAFETY: as above; the text is a static of the library, which is still loaded.
    let text = unsafe { (base.GetVersionString)() };
    if text.is_null() {
        return Err("it does not say its version".to_owned());
    }
    // SAFETY: not null, and a C string by the contract of GetVersionString.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    text.parse().map_err(|()| format!("its version is {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> RuntimeVersion {
        text.parse().unwrap()
    }

    #[test]
    fn versions_are_ordered_by_number() {
        assert!(version("1.9.0") < version("1.23.2"));
        assert_eq!(version("1.31").to_string(), "1.31.0");
        assert_eq!(version("1.31.1-dev"), version("1.31.1"));
        assert!("onnx".parse::<RuntimeVersion>().is_err());
    }

    #[test]
    fn a_version_is_usable_from_the_oldest_one_up_to_the_next_major() {
        assert_eq!(Probe::of_version(version("1.22.9")), Probe::TooOld(version("1.22.9")));
        assert_eq!(Probe::of_version(version("1.23.0")), Probe::Usable(version("1.23.0")));
        assert_eq!(Probe::of_version(version("1.99.0")), Probe::Usable(version("1.99.0")));
        assert_eq!(Probe::of_version(version("2.0.0")), Probe::TooNew(version("2.0.0")));
    }

    #[test]
    fn the_probe_reports_why_a_file_is_not_onnx_runtime() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(probe(&dir.path().join("none.so")), Probe::Absent);
        let text = dir.path().join("libonnxruntime.so");
        std::fs::write(&text, "not an object").unwrap();
        assert!(matches!(probe(&text), Probe::NotALibrary(why) if !why.contains("libonnxruntime.so")));
        assert_eq!(probe(Path::new("libthere-is-no-such-library.so")), Probe::Absent);
        assert_eq!(probe(Path::new("libc.so.6")), Probe::NotALibrary("it does not export OrtGetApiBase".to_owned()));
    }
}
