//! Writes a model directory, loads it over the real runtime, and inspects it.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use sequor::backend::Backend;
use sequor::backend::mock::MockBackend;
use sequor::backend::onnx::library::{self, LOCAL, System};
use sequor::backend::onnx::{OnnxBackend, install};
use sequor::device::stand_in::StandIns;
use sequor::model::repository::ReadyVersion;
use sequor::model::{Availability, Clock, Repository, RepositoryOptions};
use sequor::telemetry::Metrics;
use sequor_core::{Hold, Id};
use tempfile::TempDir;

use super::over::Over;
use super::play::{Ask, Held, Seq};
use super::watch::{HANG, Run, Watch, Watched};

/// A model that is not loaded yet.
#[derive(Debug)]
pub struct Spec {
    name: String,
    directory: TempDir,
    backend: Arc<dyn Backend>,
    state_limit: u64,
    seen: bool,
    accelerators: Option<StandIns>,
    clock: Clock,
    hold: Option<Hold>,
}

/// A model with this name, still without configuration and graph.
pub fn model(name: &str) -> Spec {
    let directory = TempDir::new().unwrap();
    fs_err::create_dir_all(directory.path().join(name).join("1")).unwrap();
    Spec {
        name: name.to_owned(),
        directory,
        backend: onnx(),
        state_limit: u64::MAX,
        seen: true,
        accelerators: None,
        clock: Clock::default(),
        hold: None,
    }
}

/// The configuration of a running sum: INPUT, OUTPUT and one state of one type, one instance, four rows. `sequence` is inserted into
/// `sequence_batching`, and `state` into the state.
pub fn sum(dtype: &str, sequence: &str, state: &str) -> String {
    format!(
        r#"
        max_batch_size: 4
        instance_group {{ count: 1 }}
        input {{ name: "INPUT" data_type: {dtype} dims: [ 1 ] }}
        output {{ name: "OUTPUT" data_type: {dtype} dims: [ -1 ] }}
        sequence_batching {{
          max_sequence_idle_microseconds: 600000000
          {sequence}
          state {{ input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: {dtype} dims: [ 1 ] {state} }}
        }}
        "#
    )
}

/// Both strategies, with room for four sequences.
pub fn both() -> [&'static str; 2] {
    ["direct { }", "oldest { max_candidate_sequences: 4 }"]
}

/// How often a state of a fixed size is kept: with `direct`, the default, a run reads one copy and writes the other.
#[allow(dead_code, reason = "for what measures memory")]
pub fn sides(strategy: &str) -> u64 {
    if strategy.is_empty() || strategy.starts_with("direct") { 2 } else { 1 }
}

impl Spec {
    pub fn config(self, text: &str) -> Spec {
        self.file("config.pbtxt", text.as_bytes())
    }

    /// Writes sequor.toml.
    pub fn toml(self, text: &str) -> Spec {
        self.file("sequor.toml", text.as_bytes())
    }

    /// Uses a graph of tests/models.
    pub fn onnx(self, graph: &str) -> Spec {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models").join(graph).with_extension("onnx");
        self.file("1/model.onnx", &fs_err::read(file).unwrap())
    }

    /// Sets the accelerators. Runs are then not recorded.
    #[allow(dead_code, reason = "for what runs on one")]
    pub fn accelerators(self, accelerators: &StandIns) -> Spec {
        Spec { accelerators: Some(accelerators.clone()), seen: false, ..self }
    }

    /// Runs the graphs on stand-ins for accelerators, as ONNX Runtime would.
    #[allow(dead_code, reason = "for what runs on one")]
    pub fn over(self, accelerators: &StandIns) -> Spec {
        let spec = self.accelerators(accelerators);
        Spec { backend: Arc::new(Over(Arc::clone(&spec.backend))), ..spec }
    }

    /// Uses a graph of the mock backend instead of the real runtime.
    pub fn mock(self, program: &str, backend: MockBackend) -> Spec {
        Spec { backend: Arc::new(backend), ..self }.file("1/model.onnx", program.as_bytes())
    }

    pub fn file(self, path: &str, bytes: &[u8]) -> Spec {
        let file = self.directory.path().join(&self.name).join(path);
        fs_err::create_dir_all(file.parent().unwrap()).unwrap();
        fs_err::write(file, bytes).unwrap();
        self
    }

    /// Sets `limits.state`.
    pub fn limit(self, bytes: u64) -> Spec {
        Spec { state_limit: bytes, ..self }
    }

    /// Sets a clock that stands still until the test advances it.
    pub fn clock(self, clock: &Clock) -> Spec {
        Spec { clock: clock.clone(), ..self }
    }

    /// Sets Triton's test aids: nothing runs until `requests` requests with a slot and `backlog` requests without one wait.
    pub fn delay(self, requests: u32, backlog: u32) -> Spec {
        Spec { hold: Some(Hold { requests, backlog }), ..self }
    }

    /// Neither records nor holds the runs.
    #[allow(dead_code, reason = "for what measures memory")]
    pub fn unseen(self) -> Spec {
        Spec { seen: false, ..self }
    }

    fn load(self) -> (Server, Availability) {
        let watch = Arc::new(Watch::default());
        let backend: Arc<dyn Backend> = match self.seen {
            true => Arc::new(Watched { backend: self.backend, watch: Arc::clone(&watch) }),
            false => self.backend,
        };
        let (state_limit, hold, clock) = (self.state_limit, self.hold, self.clock);
        let mut options =
            RepositoryOptions { state_limit, reply_pool: 1 << 20, hold, clock, ..RepositoryOptions::default() };
        if let Some(accelerators) = self.accelerators {
            options.accelerators = Arc::new(accelerators);
        }
        let metrics = Metrics::new(true);
        let repository = Repository::new(backend, options, metrics.clone()).unwrap();
        repository.load(&self.directory.path().join(&self.name));
        let status = repository.statuses().pop().unwrap();
        (Server { repository, watch, metrics, model: self.name, directory: self.directory }, status.availability)
    }

    #[track_caller]
    pub fn serve(self) -> Server {
        let (server, availability) = self.load();
        assert!(matches!(availability, Availability::Ready(_)), "{availability:?}");
        server
    }

    /// Why the model does not load, in one text.
    #[track_caller]
    pub fn refused(self) -> String {
        match self.load().1 {
            Availability::Failed(faults) => faults.iter().map(|f| format!("{f}\n")).collect(),
            ready @ Availability::Ready(_) => panic!("it loads: {ready:?}"),
        }
    }
}

/// A served model.
#[derive(Debug)]
pub struct Server {
    pub repository: Repository,
    pub watch: Arc<Watch>,
    pub metrics: Metrics,
    pub model: String,
    #[allow(dead_code, reason = "only its drop matters")]
    directory: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.watch.open();
        self.repository.stop();
    }
}

impl Server {
    pub fn seq(&self, id: u64) -> Seq<'_> {
        Seq { server: self, id: Id::Int(id) }
    }

    /// A request without a sequence.
    pub fn stateless(&self) -> Ask<'_> {
        Seq { server: self, id: Id::None }.step()
    }

    pub fn named(&self, id: &str) -> Seq<'_> {
        Seq { server: self, id: Id::Str(id.into()) }
    }

    pub fn ready(&self) -> ReadyVersion {
        match self.repository.statuses().pop().unwrap().availability {
            Availability::Ready(versions) => versions[0].clone(),
            failed @ Availability::Failed(_) => panic!("{failed:?}"),
        }
    }

    pub fn runs(&self) -> Vec<Run> {
        self.watch.runs()
    }

    pub fn last_run(&self) -> Run {
        self.runs().pop().unwrap()
    }

    /// Sends this request and holds its run. Requests sent afterwards wait, and are taken together.
    #[track_caller]
    pub fn hold<'a>(&'a self, plug: Ask<'_>) -> Held<'a> {
        let before = self.runs().len();
        self.watch.close("");
        let waiting = plug.send();
        self.watch.wait_for(before + 1);
        Held { server: self, plug: Some(waiting), before: before + 1 }
    }

    /// Waits until no sequence holds state memory. Memory of a grown state is freed with its slot, on the instance's thread.
    #[track_caller]
    pub fn wait_for_no_state(&self) {
        let used = || self.repository.state_bytes().0;
        wait(|| used() == 0, || format!("{} bytes are held", used()));
    }

    /// Waits until `live` sequences are live.
    #[track_caller]
    pub fn wait_for_live(&self, live: u64) {
        let now = || self.repository.live();
        wait(|| now() == live, || format!("{} sequences live, not {live}", now()));
    }
}

/// Polls until the condition holds. The limit only ends a test that hangs.
#[track_caller]
pub fn wait(is: impl Fn() -> bool, why: impl Fn() -> String) {
    let until = Instant::now() + HANG;
    while !is() {
        assert!(Instant::now() < until, "{}", why());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sets `limits.tensors` for this process.
#[allow(dead_code, reason = "for what measures memory")]
pub fn limit_tensors(bytes: u64) {
    runtime().limit_tensors(bytes);
}

fn onnx() -> Arc<dyn Backend> {
    runtime()
}

/// The real runtime, found like the server finds it. Installs one if there is none.
fn runtime() -> Arc<OnnxBackend> {
    static BACKEND: OnceLock<Arc<OnnxBackend>> = OnceLock::new();
    let load = || {
        let found = library::find(None, &System).unwrap_or_else(|_| {
            let target = Path::new(env!("CARGO_MANIFEST_DIR")).join(LOCAL);
            install::install(install::Package::Cpu, &target, &mut |_| {}).unwrap();
            library::find(Some(&target.join(library::FILE)), &System).unwrap()
        });
        Arc::new(OnnxBackend::new(&found.path).unwrap())
    };
    Arc::clone(BACKEND.get_or_init(load))
}
