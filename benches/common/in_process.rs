//! Sets up the server's own repository in this process for benchmarks of plug-ins: a running-sum model on any backend, and requests to it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sequor::backend::Backend;
use sequor::model::repository::Availability;
use sequor::model::request::SequenceStep;
use sequor::model::{InferRequest, NamedTensor, Parameter, Repository, RepositoryOptions, Tensor};
use sequor::scheduling::report::{Attach, By, PluginControl};
use sequor::scheduling::{MakeSource, PluginRules};
use sequor::telemetry::Metrics;
use sequor_core::{DataType, Dialect, Id, Shape};
use sequor_wasm::grants::Grants;
use tempfile::TempDir;

pub(crate) type BoxResult<T> = Result<T, Box<dyn std::error::Error>>;

pub(crate) const MODEL: &str = "sum";

/// A component from Python imports all granted functions of its world.
#[allow(dead_code, reason = "not every benchmark runs Python")]
pub(crate) const GRANTS: Grants = Grants { clock: false, random: false, sequence_text: true, models: false };

/// A feature for which every request may have a value.
const TENANT: &str =
    "[[feature]]\nname = \"tenant\"\nfrom = \"parameter\"\nkey = \"tenant\"\ntype = \"key\"\ndefault = \"none\"\n";

pub(crate) struct InProcess {
    pub(crate) repository: Repository,
    #[allow(dead_code, reason = "not every benchmark has listeners")]
    pub(crate) metrics: Metrics,
    folder: TempDir,
}

impl InProcess {
    /// A repository with this graph, this many slots and batch rows, and optionally this plug-in from the loader.
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        graph: &[u8],
        (slots, rows): (u32, u32),
        plugin: Option<&str>,
        loader: Box<MakeSource>,
    ) -> BoxResult<InProcess> {
        let folder = TempDir::new()?;
        let model = folder.path().join(MODEL);
        std::fs::create_dir_all(model.join("1"))?;
        std::fs::write(model.join("1/model.onnx"), graph)?;
        std::fs::write(model.join("config.pbtxt"), config(slots, rows))?;
        let uses = plugin.map(|name| format!("[plugins.scheduler]\nuse = \"{name}\"\n")).unwrap_or_default();
        std::fs::write(model.join("sequor.toml"), format!("{TENANT}{uses}"))?;
        let metrics = Metrics::new(true);
        let repository = Repository::new(backend, RepositoryOptions::default(), metrics.clone())?;
        let rules = PluginRules { dir: Some(guests()), ..PluginRules::default() };
        repository.run_plugins(rules, loader)?;
        let server = InProcess { repository, metrics, folder };
        Ok(server)
    }

    /// Loads the model and serves it.
    pub(crate) fn load(&self) -> BoxResult<()> {
        self.repository.load(&self.folder.path().join(MODEL));
        match self.repository.statuses().pop().map(|status| status.availability) {
            Some(Availability::Ready(_)) => Ok(()),
            other => Err(format!("it does not load: {other:?}").into()),
        }
    }

    /// Attaches a plug-in with this CPU time for a call.
    #[allow(dead_code, reason = "not every benchmark does")]
    pub(crate) fn attach(&self, plugin: &str, time: Duration) -> BoxResult<()> {
        if self.repository.show(plugin).is_err() {
            // A plug-in without a component is loaded by its name alone.
            PluginControl::load(&self.repository, plugin, guest(plugin).unwrap_or_default(), By("bench"))?;
        }
        let how = Attach { plugin: plugin.to_owned(), model: MODEL.to_owned(), time: Some(time), ..Attach::default() };
        PluginControl::attach(&self.repository, &how, By("bench"))?;
        Ok(())
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.repository.stop();
    }
}

/// The configuration. It leaves out the output, which each backend's graph declares.
fn config(slots: u32, rows: u32) -> String {
    format!(
        r#"max_batch_size: {rows} instance_group {{ count: 1 kind: KIND_CPU }}
        input {{ name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] }}
        sequence_batching {{
          max_sequence_idle_microseconds: 3600000000
          oldest {{ max_candidate_sequences: {slots} }}
          state {{ input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_INT32 dims: [ 1 ] }}
        }}"#
    )
}

/// The folder of the guests' components.
pub(crate) fn guests() -> PathBuf {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join(".sequor/guests");
    std::env::var_os("SEQUOR_GUESTS").map_or(default, PathBuf::from)
}

/// The component of this guest, or an error that says how to build it.
pub(crate) fn guest(name: &str) -> BoxResult<Vec<u8>> {
    let file = guests().join(format!("{name}.wasm"));
    let how = "cargo xtask prepare, or sequor plugin build --out .sequor/guests plugins/guests/*, makes it";
    std::fs::read(&file).map_err(|e| format!("{}: {e}. {how}", file.display()).into())
}

/// One step of a running-sum sequence.
pub(crate) fn step(id: u64, value: i32, start: bool, end: bool) -> InferRequest {
    let tensor =
        Tensor { dtype: DataType::Int32, shape: Shape::new(&[1, 1]), data: value.to_le_bytes().to_vec().into() };
    InferRequest {
        model: MODEL.to_owned(),
        version: String::new(),
        id: String::new(),
        sequence: SequenceStep { id: Id::Int(id), start, end, ..SequenceStep::default() },
        priority: 0,
        timeout: None,
        inputs: vec![NamedTensor { name: "INPUT".to_owned(), tensor }],
        outputs: Vec::new(),
        parameters: Vec::new(),
        dialect: Dialect::TRITON,
    }
}

/// Sets the tenant of a request.
#[allow(dead_code, reason = "not every benchmark has tenants")]
pub(crate) fn of_tenant(mut request: InferRequest, tenant: &str) -> InferRequest {
    request.parameters.push(("tenant".to_owned(), Parameter::Text(tenant.to_owned())));
    request
}
