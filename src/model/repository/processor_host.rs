//! Where processors come from: the plug-in folder, and the threads that all of them run on.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::config::fault::did_you_mean;
use crate::config::model::is_plugin_name;
use crate::config::model::settings::ProcessorPlugin;
use crate::processing::{ProcessorComponent, ProcessorPool};

/// Compiles a component. The name is that of the plug-in.
pub type MakeProcessor = dyn Fn(&str, &[u8]) -> Result<ProcessorComponent, String> + Send + Sync;

/// How the server runs processors.
pub struct ProcessorHost {
    /// The plug-in folder.
    pub dir: Option<PathBuf>,
    pub require_sha256: bool,
    /// Maximum bytes of memory of a guest, if the model names none.
    pub memory: Option<u64>,
    /// Threads that all processors share.
    pub threads: usize,
    pub make: Box<MakeProcessor>,
    pool: Mutex<Option<Arc<ProcessorPool>>>,
}

impl std::fmt::Debug for ProcessorHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProcessorHost").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl ProcessorHost {
    pub fn new(dir: Option<PathBuf>, require_sha256: bool, memory: Option<u64>, make: Box<MakeProcessor>) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).clamp(1, 16);
        ProcessorHost { dir, require_sha256, memory, threads, make, pool: Mutex::default() }
    }

    /// The threads. The first model with processors starts them.
    pub(super) fn pool(&self) -> Result<Arc<ProcessorPool>, String> {
        let mut pool = self.pool.lock();
        if let Some(pool) = &*pool {
            return Ok(Arc::clone(pool));
        }
        let started = ProcessorPool::new(self.threads).map_err(|e| format!("no threads for processors: {e}"))?;
        Ok(Arc::clone(pool.insert(Arc::new(started))))
    }

    pub(super) fn component(&self, says: &ProcessorPlugin) -> Result<ProcessorComponent, String> {
        let name = &says.name;
        let dir = self.dir.as_ref().ok_or_else(|| format!("there is no plug-in {name}: set [plugins] dir"))?;
        let path = Some(dir.join(format!("{name}.wasm"))).filter(|_| is_plugin_name(name));
        let bytes = path.as_ref().map(fs_err::read).and_then(Result::ok).ok_or_else(|| absent(dir, name))?;
        let component = (self.make)(name, &bytes)?;
        let is = component.sha256();
        match &says.sha256 {
            Some(sha256) if sha256 != is => {
                Err(format!("{name} has the hash {is}, and sha256 = \"{sha256}\" is wanted"))
            }
            None if self.require_sha256 => Err(format!("plugins.require_sha256 is set: add  sha256 = \"{is}\"")),
            _ => Ok(component),
        }
    }
}

fn absent(dir: &Path, name: &str) -> String {
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let names: Vec<String> = files.filter_map(|file| file.file_name().into_string().ok()).collect();
    let near = did_you_mean(name, names.iter().filter_map(|name| name.strip_suffix(".wasm")));
    format!("there is no {name}.wasm in {}{near}", dir.display())
}
