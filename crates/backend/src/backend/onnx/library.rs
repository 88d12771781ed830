//! Finds ONNX Runtime's library. The order of the search is a pure function of its [`Surroundings`]. [`super::probe`] checks a file.
//!
//! A path named by the setting or by `ORT_DYLIB_PATH` is used or is an error. The search never skips it.

use std::fmt;
use std::path::{Path, PathBuf};

use super::probe::{OLDEST, Probe, RuntimeVersion};
pub use super::surroundings::{Surroundings, System};

/// The library's file name, the same in all places.
pub const FILE: &str = "libonnxruntime.so";
/// The folder into which `sequor runtime install` puts the library, relative to the working directory.
pub const LOCAL: &str = ".sequor/lib";
/// The folder into which `sequor runtime install --gpu` puts the library. If both exist, this one is used: it serves the CPU as well.
pub const LOCAL_GPU: &str = ".sequor/lib-gpu";
/// ONNX Runtime's own variable that names the library.
pub const VARIABLE: &str = "ORT_DYLIB_PATH";
/// The setting's variable. Commands without settings of a server know it, too.
const SETTING: &str = "SEQUOR_RUNTIME_ONNXRUNTIME";

/// A usable library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Library {
    pub path: PathBuf,
    pub version: RuntimeVersion,
}

impl Library {
    /// Whether the provider for NVIDIA GPUs is in the library's folder.
    pub fn has_gpu_provider(&self) -> bool {
        super::cuda::is_beside(&self.path).is_ok()
    }
}

/// A place without a usable library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TriedLibrary {
    what: String,
    why: Why,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Why {
    NotSet,
    Not(Probe),
}

impl fmt::Display for TriedLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            Why::NotSet => write!(f, "{} (not set)", self.what),
            Why::Not(verdict) => match verdict.version() {
                Some(version) => write!(f, "{} {version} ({verdict})", self.what),
                None => write!(f, "{} ({verdict})", self.what),
            },
        }
    }
}

/// Why no library is usable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoLibrary {
    /// A named path is not usable.
    #[error("no usable ONNX Runtime ({}.{} or newer). {by} names {tried}. Correct it or leave it empty. To get one: sequor runtime install", OLDEST.major, OLDEST.minor)]
    Named { by: &'static str, tried: TriedLibrary },
    #[error("no usable ONNX Runtime ({}.{} or newer). Tried: {}. To get one: sequor runtime install", OLDEST.major, OLDEST.minor, list(.tried))]
    Nowhere { tried: Vec<TriedLibrary> },
}

fn list(tried: &[TriedLibrary]) -> String {
    tried.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Finds the library. `setting` is `[runtime] onnxruntime`, if it is set.
pub fn find(setting: Option<&Path>, world: &impl Surroundings) -> Result<Library, NoLibrary> {
    if let Some(path) = setting.filter(|path| !path.as_os_str().is_empty()) {
        return named("[runtime] onnxruntime", path, world);
    }
    for (variable, by) in [(SETTING, "$SEQUOR_RUNTIME_ONNXRUNTIME"), (VARIABLE, "$ORT_DYLIB_PATH")] {
        if let Some(path) = world.variable(variable).filter(|path| !path.is_empty()) {
            return named(by, Path::new(&path), world);
        }
    }
    let mut search = Search { world, tried: vec![TriedLibrary { what: format!("${VARIABLE}"), why: Why::NotSet }] };
    search
        .beside_program()
        .or_else(|| search.local())
        .or_else(|| search.python())
        .or_else(|| search.candidate(Path::new(FILE), format!("{FILE} on the system's library path")))
        .ok_or(NoLibrary::Nowhere { tried: search.tried })
}

/// Probes a named path. A relative path is tried in the program's folder first, then as `dlopen` resolves it, as in every Rust program with
/// ONNX Runtime.
fn named(by: &'static str, path: &Path, world: &impl Surroundings) -> Result<Library, NoLibrary> {
    let beside = path.is_relative().then(|| world.exe_dir().map(|dir| dir.join(path))).flatten();
    let found = beside.map(|path| (world.probe(&path), path)).filter(|(verdict, _)| *verdict != Probe::Absent);
    let (verdict, path) = found.unwrap_or_else(|| (world.probe(path), path.to_owned()));
    match verdict {
        Probe::Usable(version) => Ok(Library { path, version }),
        verdict => Err(NoLibrary::Named {
            by,
            tried: TriedLibrary { what: path.display().to_string(), why: Why::Not(verdict) },
        }),
    }
}

struct Search<'a, W> {
    world: &'a W,
    tried: Vec<TriedLibrary>,
}

impl<W: Surroundings> Search<'_, W> {
    fn beside_program(&mut self) -> Option<Library> {
        let dir = self.world.exe_dir()?;
        let lib = dir.parent().map(|prefix| prefix.join("lib").join(FILE));
        self.file(&dir.join(FILE)).or_else(|| self.file(&lib?)).or_else(|| self.same_environment(dir.parent()?))
    }

    /// The library inside the Python package of the environment in which the program itself is installed, for example from a wheel. The
    /// environment need not be activated.
    fn same_environment(&mut self, prefix: &Path) -> Option<Library> {
        let of_env = packages_below(self.world, prefix);
        let before = self.tried.len();
        let found = self.packages(&of_env);
        if found.is_none() && !of_env.is_empty() && self.tried.len() == before {
            self.missed(format!("onnxruntime in {}/lib/python3*", prefix.display()), Probe::Absent);
        }
        found
    }

    /// `.sequor/lib-gpu` or `.sequor/lib` in the working directory. Another user could have created such a folder, so its owner is checked
    /// before the library is opened: opening a library runs it.
    fn local(&mut self) -> Option<Library> {
        let dir = self.world.current_dir()?;
        for local in [LOCAL_GPU, LOCAL].map(|local| dir.join(local)) {
            let file = local.join(FILE);
            let folders = [local.parent().unwrap_or(&local), &local, &file];
            let found = match folders.iter().try_for_each(|path| self.world.check_trusted(path)) {
                Ok(()) => self.if_there(&file),
                Err(Probe::Absent) => None,
                Err(untrusted) => self.take_usable(&file, file.display().to_string(), untrusted),
            };
            if found.is_some() {
                return found;
            }
        }
        self.missed(format!("{LOCAL}/{FILE} in {}", dir.display()), Probe::Absent);
        None
    }

    /// The library inside the Python package of `$VIRTUAL_ENV` or of `python3`.
    fn python(&mut self) -> Option<Library> {
        let before = self.tried.len();
        let of_env = self.virtual_env();
        let found = self.packages(&of_env).or_else(|| {
            let mut others = self.world.python_path();
            others.retain(|dir| !of_env.contains(dir));
            self.packages(&others)
        });
        if found.is_none() && self.tried.len() == before {
            self.missed("python3 onnxruntime".to_owned(), Probe::Absent);
        }
        found
    }

    fn virtual_env(&self) -> Vec<PathBuf> {
        let Some(root) = self.world.variable("VIRTUAL_ENV").filter(|root| !root.is_empty()) else {
            return Vec::new();
        };
        packages_below(self.world, Path::new(&root))
    }

    fn packages(&mut self, dirs: &[PathBuf]) -> Option<Library> {
        dirs.iter().find_map(|dir| {
            let files = self.world.list(&dir.join("onnxruntime/capi"));
            files
                .iter()
                .filter(|file| has_prefix(file, FILE))
                .find_map(|file| self.candidate(file, "python3 onnxruntime".to_owned()))
        })
    }

    fn file(&mut self, path: &Path) -> Option<Library> {
        self.candidate(path, path.display().to_string())
    }

    /// Like [`Search::file`], but a missing file is not listed as tried.
    fn if_there(&mut self, path: &Path) -> Option<Library> {
        match self.world.probe(path) {
            Probe::Absent => None,
            verdict => self.take_usable(path, path.display().to_string(), verdict),
        }
    }

    fn candidate(&mut self, path: &Path, what: String) -> Option<Library> {
        let verdict = self.world.probe(path);
        self.take_usable(path, what, verdict)
    }

    /// Returns the library if it is usable. Otherwise adds it to the list of tried ones.
    fn take_usable(&mut self, path: &Path, what: String, verdict: Probe) -> Option<Library> {
        if let Probe::Usable(version) = verdict {
            return Some(Library { path: path.to_owned(), version });
        }
        self.missed(what, verdict);
        None
    }

    fn missed(&mut self, what: String, verdict: Probe) {
        self.tried.push(TriedLibrary { what, why: Why::Not(verdict) });
    }
}

/// The package folders of a Python environment. Outside of virtual environments, Debian calls them `dist-packages`.
fn packages_below(world: &impl Surroundings, prefix: &Path) -> Vec<PathBuf> {
    let pythons = world.list(&prefix.join("lib"));
    let pythons = pythons.into_iter().filter(|dir| has_prefix(dir, "python3"));
    pythons.flat_map(|dir| ["site-packages", "dist-packages"].map(|packages| dir.join(packages))).collect()
}

fn has_prefix(path: &Path, prefix: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::ffi::OsString;

    use super::*;

    /// A machine with a few variables and files. The program is /opt/sequor/bin/sequor, started in /srv/app.
    #[derive(Default)]
    struct Toy {
        variables: HashMap<&'static str, &'static str>,
        files: HashMap<&'static str, &'static str>,
        python: Vec<&'static str>,
        /// A path that belongs to another user.
        untrusted: Option<&'static str>,
    }

    impl Surroundings for Toy {
        fn variable(&self, name: &str) -> Option<OsString> {
            self.variables.get(name).map(OsString::from)
        }

        fn current_dir(&self) -> Option<PathBuf> {
            Some("/srv/app".into())
        }

        fn exe_dir(&self) -> Option<PathBuf> {
            Some("/opt/sequor/bin".into())
        }

        fn python_path(&self) -> Vec<PathBuf> {
            self.python.iter().map(PathBuf::from).collect()
        }

        fn list(&self, dir: &Path) -> Vec<PathBuf> {
            let below =
                self.files.keys().filter_map(|file| Path::new(file).strip_prefix(dir).ok()?.components().next());
            let mut paths: Vec<PathBuf> = below.map(|name| dir.join(name)).collect();
            paths.sort();
            paths.dedup();
            paths
        }

        fn probe(&self, path: &Path) -> Probe {
            match self.files.get(path.to_str().unwrap()) {
                None => Probe::Absent,
                Some(&"text") => Probe::NotALibrary("invalid ELF header".to_owned()),
                Some(version) => Probe::of_version(version.parse().unwrap()),
            }
        }

        fn check_trusted(&self, path: &Path) -> Result<(), Probe> {
            let untrusted = self.untrusted.is_some_and(|other| path == Path::new(other));
            if untrusted { Err(Probe::Untrusted("it belongs to another user".to_owned())) } else { Ok(()) }
        }
    }

    fn toy(files: &[(&'static str, &'static str)]) -> Toy {
        Toy { files: files.iter().copied().collect(), python: vec!["/usr/lib/python3"], ..Toy::default() }
    }

    fn found(world: &Toy) -> String {
        find(None, world).unwrap().path.display().to_string()
    }

    #[test]
    fn places_are_tried_in_order() {
        let order = [
            "/opt/sequor/bin/libonnxruntime.so",
            "/opt/sequor/lib/libonnxruntime.so",
            "/opt/sequor/lib/python3.11/site-packages/onnxruntime/capi/libonnxruntime.so.1.31.1",
            "/opt/sequor/lib/python3.12/dist-packages/onnxruntime/capi/libonnxruntime.so.1.31.1",
            "/srv/app/.sequor/lib-gpu/libonnxruntime.so",
            "/srv/app/.sequor/lib/libonnxruntime.so",
            "/venv/lib/python3.11/site-packages/onnxruntime/capi/libonnxruntime.so.1.31.1",
            "/usr/lib/python3/onnxruntime/capi/libonnxruntime.so.1.31.1",
            "libonnxruntime.so",
        ];
        for first in 0..order.len() {
            let mut world = toy(&order[first..].iter().map(|path| (*path, "1.31.1")).collect::<Vec<_>>());
            world.variables.insert("VIRTUAL_ENV", "/venv");
            assert_eq!(found(&world), order[first]);
        }
    }

    #[test]
    fn a_wheel_finds_the_library_of_its_own_environment_without_activation() {
        let own = "/opt/sequor/lib/python3.11/site-packages/onnxruntime/capi/libonnxruntime.so.1.31.1";
        // The `python3` on the path is another one, with another version.
        let world = toy(&[(own, "1.31.1"), ("/usr/lib/python3/onnxruntime/capi/libonnxruntime.so.1.30.0", "1.30.0")]);
        assert_eq!(found(&world), own);
        let empty = toy(&[("/opt/sequor/lib/python3.11/site-packages/pip/main.py", "text")]);
        let error = find(None, &empty).unwrap_err().to_string();
        assert!(error.contains("onnxruntime in /opt/sequor/lib/python3* (absent)"), "{error}");
    }

    #[test]
    fn unusable_libraries_are_skipped() {
        let world = toy(&[
            ("/opt/sequor/lib/libonnxruntime.so", "text"),
            ("/srv/app/.sequor/lib/libonnxruntime.so", "1.19.2"),
            ("/usr/lib/python3/onnxruntime/capi/libonnxruntime.so.1.23.2", "1.23.2"),
        ]);
        assert_eq!(found(&world), "/usr/lib/python3/onnxruntime/capi/libonnxruntime.so.1.23.2");
    }

    #[test]
    fn a_folder_of_another_user_or_above_the_working_directory_is_not_opened() {
        let above = ["/srv/.sequor/lib/libonnxruntime.so", "/opt/sequor/bin/.sequor/lib/libonnxruntime.so"];
        let mut world = toy(&above.map(|path| (path, "1.31.1")));
        assert!(find(None, &world).is_err());
        world.files.insert("/srv/app/.sequor/lib/libonnxruntime.so", "1.31.1");
        assert_eq!(found(&world), "/srv/app/.sequor/lib/libonnxruntime.so");
        for other in ["/srv/app/.sequor", "/srv/app/.sequor/lib", "/srv/app/.sequor/lib/libonnxruntime.so"] {
            world.untrusted = Some(other);
            let message = find(None, &world).unwrap_err().to_string();
            assert!(
                message.contains("libonnxruntime.so (not opened: it belongs to another user)"),
                "{other}: {message}"
            );
        }
    }

    #[test]
    fn other_libraries_of_the_package_are_left_alone() {
        let world = toy(&[
            ("/usr/lib/python3/onnxruntime/capi/libonnxruntime_providers_shared.so", "1.31.1"),
            ("/usr/lib/python3/onnxruntime/capi/libonnxruntime.so.1.30.0", "1.30.0"),
        ]);
        assert_eq!(found(&world), "/usr/lib/python3/onnxruntime/capi/libonnxruntime.so.1.30.0");
    }

    #[test]
    fn the_error_lists_every_place() {
        let mut world = toy(&[
            ("/opt/sequor/lib/libonnxruntime.so", "text"),
            ("/usr/lib/python3/onnxruntime/capi/libonnxruntime.so.1.19.2", "1.19.2"),
        ]);
        world.variables.insert(VARIABLE, "");
        insta::assert_snapshot!(find(None, &world).unwrap_err(), @"no usable ONNX Runtime (1.23 or newer). Tried: $ORT_DYLIB_PATH (not set); /opt/sequor/bin/libonnxruntime.so (absent); /opt/sequor/lib/libonnxruntime.so (not a library: invalid ELF header); .sequor/lib/libonnxruntime.so in /srv/app (absent); python3 onnxruntime 1.19.2 (too old); libonnxruntime.so on the system's library path (absent). To get one: sequor runtime install");
        assert!(find(None, &toy(&[])).unwrap_err().to_string().contains("python3 onnxruntime (absent)"));
    }

    #[test]
    fn a_configured_library_path_is_used_or_refused() {
        let mut world =
            toy(&[("/opt/sequor/bin/libonnxruntime.so", "1.31.1"), ("/old.so", "1.19.2"), ("/new.so", "1.24.0")]);
        insta::assert_snapshot!(find(Some(Path::new("/none.so")), &world).unwrap_err(), @"no usable ONNX Runtime (1.23 or newer). [runtime] onnxruntime names /none.so (absent). Correct it or leave it empty. To get one: sequor runtime install");
        assert_eq!(find(Some(Path::new("/new.so")), &world).unwrap().path, Path::new("/new.so"));
        world.variables.insert(VARIABLE, "/old.so");
        insta::assert_snapshot!(find(None, &world).unwrap_err(), @"no usable ONNX Runtime (1.23 or newer). $ORT_DYLIB_PATH names /old.so 1.19.2 (too old). Correct it or leave it empty. To get one: sequor runtime install");
        assert_eq!(find(Some(Path::new("/new.so")), &world).unwrap().version.minor, 24);
        world.variables.insert(VARIABLE, "libonnxruntime.so");
        assert_eq!(found(&world), "/opt/sequor/bin/libonnxruntime.so");
        world.variables.insert(SETTING, "/new.so");
        assert_eq!(found(&world), "/new.so");
    }
}
