//! Measures what a plug-in costs a whole server: its listeners are in this process, and `sequor bench` in another process sends single
//! calls, then streams. The servers take turns, and the medians are compared. With few slots, nearly every end of a sequence makes the
//! plug-in assign a slot.

use std::net::SocketAddr;
use std::process::Command;

use sequor::scheduling::report::{By, PluginControl};
use sequor::server::{self, Addresses, Listeners, RunningServer, ServerOptions, Stop};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::in_process::{BoxResult, InProcess, MODEL};
use crate::throughput::{DECIDERS, decided, middle, servers};

/// The plug-in is attached but never called.
const PARKED: &str = "fair-share, parked";

const TURNS: usize = 7;
const REQUESTS: &str = "30000";

pub(crate) fn figures(only: Option<&str>) -> BoxResult<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    for (slots, rows) in [(64, 32), (8, 8)] {
        let _runtime = runtime.enter();
        let deciding = servers(&DECIDERS, only, (slots, rows))?.into_iter();
        let mut served =
            deciding.map(|(name, server)| Served::new(name, server)).collect::<BoxResult<Vec<Served>>>()?;
        let parked: &[&str] = if only.is_none_or(|only| only == "fair-share") { &["fair-share"] } else { &[] };
        for (_, server) in servers(parked, None, (slots, rows))?.into_iter().skip(1) {
            PluginControl::park(&server.repository, "fair-share", By("bench"))?;
            served.push(Served::new(Some(PARKED), server)?);
        }
        for (how, flags) in [("call by call", &[][..]), ("streams", &["--streaming"])] {
            println!(
                "the accumulator through the server, {slots} slots, batches of at most {rows}, 32 clients, {how}:"
            );
            compare(&served, flags)?;
        }
        for served in &served {
            if let Some(name) = served.name.filter(|name| *name != PARKED) {
                decided(name, &served.server)?;
            }
        }
    }
    Ok(())
}

fn compare(served: &[Served], flags: &[&str]) -> BoxResult<()> {
    let mut turns = vec![Vec::new(); served.len()];
    for _ in 0..TURNS {
        for (served, turns) in served.iter().zip(&mut turns) {
            let report = served.asked(flags)?;
            let message = [&report["per_second"], &report["server"]["cpu_us_per_request"], &report["mean_batch"]];
            turns.push(message.map(number));
        }
    }
    let middles: Vec<[f64; 3]> = turns.iter().map(|turns| [0, 1, 2].map(|n| middle(turns, n))).collect();
    for (served, [rate, cpu, batch]) in served.iter().zip(&middles) {
        let [first, first_cpu, _] = middles[0];
        println!(
            "  {:<20}{rate:>9.0} a second ({:.3} x)  {cpu:>6.1} us of CPU a request ({:.3} x the requests for it)  batches of {batch:.1}",
            served.name.unwrap_or("no plug-in"),
            rate / first,
            first_cpu / cpu,
        );
    }
    Ok(())
}

fn number(of: &Value) -> f64 {
    of.as_f64().unwrap_or(f64::NAN)
}

/// A server with its listeners.
struct Served {
    name: Option<&'static str>,
    server: InProcess,
    running: RunningServer,
    /// It serves until this is gone.
    _stop: mpsc::Sender<Stop>,
}

impl Served {
    fn new(name: Option<&'static str>, server: InProcess) -> BoxResult<Served> {
        let any = Some(server::local(0));
        let listeners = Listeners::bind(&Addresses { http: None, grpc: any, metrics: any, admin: None })?;
        let (stop, stopped) = mpsc::channel(1);
        let (repository, metrics) = (server.repository.clone(), server.metrics.clone());
        let running = server::start(listeners, ServerOptions::default(), repository, metrics, stopped);
        Ok(Served { name, server, running, _stop: stop })
    }

    /// The report of the load generator.
    fn asked(&self, flags: &[&str]) -> BoxResult<Value> {
        let text = |address: Option<SocketAddr>| address.map(|address| address.to_string()).ok_or("no listener");
        let mut bench = Command::new(env!("CARGO_BIN_EXE_sequor"));
        bench.args(["bench", MODEL, "--warm-up", "300ms", "--requests", REQUESTS, "--output", "json"]).args(flags);
        bench.args(["--check", "accumulator"]);
        bench.args(["--server", &text(self.running.addresses.grpc)?]);
        bench.args(["--metrics", &text(self.running.addresses.metrics)?]);
        let message = bench.output()?;
        if !message.status.success() {
            return Err(String::from_utf8_lossy(&message.stderr).into_owned().into());
        }
        Ok(serde_json::from_slice(&message.stdout)?)
    }
}
