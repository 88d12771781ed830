//! How the server runs initializers: where they come from. They run on the threads of processors.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::config::fault::did_you_mean;
use crate::config::model::is_plugin_name;
use crate::initializing::{InitializerComponent, InitializerRules};

/// Compiles a component. The name is that of the plug-in.
pub type MakeInitializer = dyn Fn(&str, &[u8]) -> Result<InitializerComponent, String> + Send + Sync;

/// How the server runs initializers.
pub(in crate::model) struct InitializerHost {
    pub(super) rules: InitializerRules,
    pub(super) make: Box<MakeInitializer>,
}

impl InitializerHost {
    /// The component of a plug-in, if it is the one that the model names.
    pub(super) fn component(&self, name: &str, wanted: Option<&str>) -> Result<InitializerComponent, String> {
        let dir = self.rules.dir.as_ref().ok_or_else(|| format!("there is no plug-in {name}: set [plugins] dir"))?;
        let path: Option<PathBuf> = Some(dir.join(format!("{name}.wasm"))).filter(|_| is_plugin_name(name));
        let bytes = path.as_ref().map(fs_err::read).and_then(Result::ok).ok_or_else(|| absent(dir, name))?;
        let component = (self.make)(name, &bytes)?;
        let is = component.sha256();
        match wanted {
            Some(sha256) if sha256 != is => {
                Err(format!("{name} has the hash {is}, and sha256 = \"{sha256}\" is wanted"))
            }
            None if self.rules.require_sha256 => Err(format!("plugins.require_sha256 is set: add  sha256 = \"{is}\"")),
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

impl fmt::Debug for InitializerHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InitializerHost").field("rules", &self.rules).finish_non_exhaustive()
    }
}
