//! Measures what a plug-in costs a server without listeners: the accumulator, and 32 clients with one request ahead each. The server runs
//! without a plug-in, with a native policy, and with the same policy in Rust and in Python. They take turns in this process, and the
//! medians are compared.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sequor::backend::onnx::OnnxBackend;
use sequor::backend::onnx::library::{self, System};
use sequor::scheduling::guest::Source;
use sequor::scheduling::report::{Attached, PluginControl as _};
use sequor_wasm::grants::GrantTable;
use sequor_wasm::loader::Loader;
use sequor_wasm::room::GuestRoom;

use crate::fair_share::{NATIVE, Native};
use crate::in_process::{BoxResult, GRANTS, InProcess, guest, of_tenant, step};

const CLIENTS: u64 = 32;
const TURNS: usize = 7;
const TURN: Duration = Duration::from_millis(1500);
const STEPS: i32 = 20;

/// Prints the throughput. `only` selects one of the policies.
pub(crate) fn figures(only: Option<&str>) -> BoxResult<()> {
    let servers = servers(&DECIDERS, only, (64, 32))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build()?;
    let mut rates = vec![Vec::new(); servers.len()];
    for _ in 0..TURNS {
        for ((_, server), rates) in servers.iter().zip(&mut rates) {
            rates.push(turn(&runtime, server));
        }
    }
    println!("the accumulator, {CLIENTS} clients: requests a second, and for a second of CPU time");
    let middles: Vec<[f64; 2]> = rates.iter().map(|rates| [0, 1].map(|n| middle(rates, n))).collect();
    for ((plugin, _), [rate, of_cpu]) in servers.iter().zip(&middles) {
        let [first, first_of_cpu] = middles.first().copied().unwrap_or([1.0; 2]);
        let name = plugin.unwrap_or("no plug-in");
        println!("  {name:<20}{rate:>9.0} ({:.3} x){of_cpu:>9.0} ({:.3} x)", rate / first, of_cpu / first_of_cpu);
    }
    for (plugin, server) in &servers {
        if let Some(name) = plugin {
            decided(name, server)?;
        }
    }
    Ok(())
}

/// One server without a plug-in, and one for each policy.
pub(crate) type Servers = Vec<(Option<&'static str>, InProcess)>;

/// The policies, in order.
pub(crate) const DECIDERS: [&str; 3] = [NATIVE, "fair-share", "fair-share-python"];

/// Servers with this many slots and batch rows.
pub(crate) fn servers(all: &[&'static str], only: Option<&str>, size: (u32, u32)) -> BoxResult<Servers> {
    let backend = Arc::new(onnx()?);
    let graph = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models/sum_int32.onnx"))?;
    let mut servers = vec![(None, server(&backend, &graph, None, size)?)];
    for &name in all.iter().filter(|name| only.is_none_or(|only| **name == only)) {
        if name != NATIVE && guest(name).is_err() {
            println!("  {name} was not built: left out");
            continue;
        }
        servers.push((Some(name), server(&backend, &graph, Some(name), size)?));
    }
    Ok(servers)
}

/// Prints the plug-in's state, its calls, and the number of fallbacks, to show that this plug-in was measured.
pub(crate) fn decided(name: &str, server: &InProcess) -> BoxResult<()> {
    let all = server.repository.show(name)?.attached;
    let Attached { state, calls, p50_us, p99_us, fallbacks, .. } = all.first().ok_or("it is attached nowhere")?;
    println!(
        "  {name:<20}{state:?}, {calls} questions, {p50_us:.1} us (p99 {p99_us:.1}), {fallbacks} left to the server"
    );
    Ok(())
}

pub(crate) fn middle<const N: usize>(rates: &[[f64; N]], n: usize) -> f64 {
    let mut of: Vec<f64> = rates.iter().map(|rates| rates[n]).collect();
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or(0.0)
}

fn onnx() -> BoxResult<OnnxBackend> {
    let library = library::find(None, &System).map_err(|e| e.to_string())?;
    Ok(OnnxBackend::new(&library.path)?)
}

fn server(backend: &Arc<OnnxBackend>, graph: &[u8], plugin: Option<&str>, size: (u32, u32)) -> BoxResult<InProcess> {
    let loader = Loader::new(None, GrantTable::one(plugin.unwrap_or_default(), GRANTS), GuestRoom::default())?;
    let make = move |name: &str, bytes: &[u8]| match name {
        NATIVE => Ok(Arc::new(Native::default()) as Arc<dyn Source>),
        _ => sequor::scheduling::loader::load(&loader, name, bytes),
    };
    let server = InProcess::new(backend.clone(), graph, size, None, Box::new(make))?;
    server.load()?;
    if let Some(name) = plugin {
        // The maximum limit of a guest that a connection's thread may call.
        server.attach(name, Duration::from_millis(10))?;
    }
    Ok(server)
}

/// Requests a second, and requests for each second of the process's CPU time.
fn turn(runtime: &tokio::runtime::Runtime, server: &InProcess) -> [f64; 2] {
    static IDS: AtomicU64 = AtomicU64::new(1);
    let (began, cpu) = (Instant::now(), cpu());
    let until = began + TURN;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let repository = server.repository.clone();
            let tenant = format!("t{}", client % 4);
            runtime.spawn(async move {
                let mut answered = 0u64;
                while Instant::now() < until {
                    let id = IDS.fetch_add(1, Ordering::Relaxed);
                    for n in 1..=STEPS {
                        let request = of_tenant(step(id, n, n == 1, n == STEPS), &tenant);
                        let Ok(pending) = repository.submit(request) else { return answered };
                        let Ok(answer) = pending.await else { return answered };
                        let sum = answer.outputs.first().map(|output| output.tensor.data.to_vec());
                        assert_eq!(sum, Some((n * (n + 1) / 2).to_le_bytes().to_vec()));
                        answered += 1;
                    }
                }
                answered
            })
        })
        .collect();
    let answered: u64 = runtime.block_on(async {
        let mut all = 0;
        for client in clients {
            all += client.await.unwrap_or(0);
        }
        all
    });
    let took = self::cpu().saturating_sub(cpu);
    [answered as f64 / began.elapsed().as_secs_f64(), answered as f64 / took.as_secs_f64()]
}

/// CPU time of this process.
fn cpu() -> Duration {
    let time = nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID.now();
    time.map_or(Duration::ZERO, Duration::from)
}
