//! Plays a simulator's workload against a repository, at the workload's times.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sequor::backend::mock::MockBackend;
use sequor::simulate::Workload;
use sequor_wasm::grants::GrantTable;
use sequor_wasm::loader::Loader;
use sequor_wasm::room::GuestRoom;

use crate::in_process::{BoxResult, InProcess, of_tenant, step};

/// The mock's runs take as long as those in cost.toml.
const GRAPH: &[u8] = b"accumulate INT32 cost=5000";

/// The outcome of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Answered {
    After(Duration),
    /// It was refused.
    Never,
}

impl Answered {
    pub(crate) fn took(self) -> Option<Duration> {
        match self {
            Answered::After(took) => Some(took),
            Answered::Never => None,
        }
    }
}

/// Sends every request when it is due, and waits for all answers. Optionally uses a plug-in, and optionally records.
pub(crate) fn play(workload: &Workload, plugin: Option<&str>, record: Option<&Path>) -> BoxResult<Vec<Answered>> {
    let loader = Loader::new(None, GrantTable::default(), GuestRoom::default())?;
    let make = move |name: &str, bytes: &[u8]| sequor::scheduling::loader::load(&loader, name, bytes);
    let server = InProcess::new(Arc::new(MockBackend::new()), GRAPH, (256, 8), plugin, Box::new(make))?;
    if let Some(file) = record {
        server.repository.record(file, 1 << 30)?;
    }
    server.load()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build()?;
    let began = Instant::now() + Duration::from_millis(20);
    let mut sent = Vec::with_capacity(workload.arrivals.len());
    for arrival in &workload.arrivals {
        let due = began + Duration::from_nanos(arrival.at.0);
        let mut request = step(u64::from(arrival.sequence) + 1, 1, arrival.start, arrival.end);
        request.timeout = arrival.within;
        if let Some(tenant) = workload.tenants.get(usize::from(arrival.tenant)) {
            request = of_tenant(request, tenant);
        }
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let pending = server.repository.submit(request);
        sent.push(runtime.spawn(async move {
            let answered = match pending {
                Ok(pending) => pending.await.is_ok(),
                Err(_) => false,
            };
            if answered { Answered::After(due.elapsed()) } else { Answered::Never }
        }));
    }
    let answers = runtime.block_on(async {
        let mut answers = Vec::with_capacity(sent.len());
        for answer in sent {
            answers.push(answer.await);
        }
        answers
    });
    // Dropping the repository writes the end of the recording.
    drop(runtime);
    drop(server);
    Ok(answers.into_iter().collect::<Result<Vec<_>, _>>()?)
}
