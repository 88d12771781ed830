//! Measures speech in real time: how many streams one core serves in time, next to how many steps ONNX Runtime alone can run on it. The
//! server has a core to itself, and so has the loop; the clients use the other cores.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::process::Command;
use std::time::Duration;

use sequor::bench::{BenchPlan, BenchReport, Child, Data, Pace, Recipe, Wanted, drive};

use crate::{Options, models, sequor};

const CHUNK: Duration = Duration::from_millis(32);

pub(crate) fn figures(options: &Options) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores < 2 {
        return println!("\nspeech in real time needs two cores: one for the server, one for its clients");
    }
    let core = cores - 1;
    let bare = bare(core);
    let repository = models::only("vad");
    let mut command = on(core, sequor().as_os_str());
    command.args([OsStr::new("serve"), OsStr::new("--model-repository"), repository.path().as_os_str()]);
    command.args([
        "--http-port=0",
        "--grpc-port=0",
        "--metrics-port=0",
        "--admin-port=0",
        "--grpc-address=127.0.0.1",
        "--log-level=warn",
    ]);
    let server = Child::start(command).expect("the server");
    keep_off(core);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("threads");
    let recipe = runtime.block_on(recipe(&server));
    let (streams, report) = runtime.block_on(most(&server, &recipe, bare, options));
    let bare_again = self::bare(core);
    let alone = (bare + bare_again) / 2.0;
    let ratio = streams as f64 / alone;
    println!("\nspeech, a chunk every 32 ms a stream, on one core");
    println!("ONNX Runtime alone, at its best batch   {alone:.0} streams ({bare:.0} before, {bare_again:.0} after)");
    println!(
        "sequor, p99 within 32 ms                {streams} streams   ratio {ratio:.2}   aim 0.9   {}",
        if ratio >= 0.9 { "ok" } else { "not the aim" }
    );
    let Some(report) = report else { return };
    print!("{report}");
    drop(server);
    // The share of gRPC: the same requests at the same pace, each answered with its own tensors.
    let program = std::env::current_exe().expect("this program");
    let mut command = on(core, program.as_os_str());
    command.env(crate::ROLE, "echo");
    let echo = Child::start(command).expect("the echo");
    let echoed = runtime.block_on(try_with(&echo, &recipe, streams, CHUNK * 100));
    let cpu = |report: &BenchReport| report.server.expect("a local server").cpu_us_per_request;
    let (all, grpc, model) = (cpu(&report), cpu(&echoed), CHUNK.as_secs_f64() * 1e6 / alone);
    println!(
        "of {all:.1} us of CPU a request: ONNX Runtime alone {model:.1}, an echo at this pace {grpc:.1}, the rest {:.1}",
        all - model - grpc
    );
}

/// Number of streams whose steps ONNX Runtime alone can just run.
fn bare(core: usize) -> f64 {
    let program = std::env::current_exe().expect("this program");
    let message = on(core, program.as_os_str()).env(crate::ROLE, "vad").output().expect("the bare loop");
    let text = String::from_utf8_lossy(&message.stdout);
    let rows = text.lines().filter_map(|l| l.split_once(' ')?.1.parse::<f64>().ok());
    let best = rows.fold(f64::INFINITY, f64::min);
    assert!(best.is_finite(), "the bare loop has no figures: {}", String::from_utf8_lossy(&message.stderr));
    CHUNK.as_secs_f64() * 1e6 / best
}

/// Runs a program on one core.
fn on(core: usize, program: &OsStr) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &core.to_string()]).arg(program);
    command
}

/// Keeps this process off the server's core.
fn keep_off(core: usize) {
    let others = format!("0-{}", core - 1);
    let done = Command::new("taskset").args(["-a", "-c", "-p", &others, &std::process::id().to_string()]).output();
    assert!(done.is_ok_and(|d| d.status.success()), "taskset");
}

/// The maximum number of streams of which 99 of 100 keep their pace, found by bisection.
async fn most(server: &Child, recipe: &Recipe, bare: f64, options: &Options) -> (usize, Option<BenchReport>) {
    let (step, span) = if options.quick { (50, 3) } else { (10, 8) };
    let (mut low, mut high) = (0, (bare * 1.1) as usize / step + 1);
    let mut best = None;
    while high - low > 1 {
        let middle = (low + high) / 2;
        // A second try, because the machine may have been busy.
        let mut report = try_with(server, recipe, middle * step, Duration::from_secs(span)).await;
        if !good(&report) {
            report = try_with(server, recipe, middle * step, Duration::from_secs(span)).await;
        }
        if good(&report) {
            (low, best) = (middle, Some(report));
        } else {
            high = middle;
        }
    }
    (low * step, best)
}

fn good(report: &BenchReport) -> bool {
    report.failures() == 0 && report.latency_us.p99 <= CHUNK.as_micros() as u64
}

async fn recipe(server: &Child) -> Recipe {
    let wanted = Wanted {
        model: "vad".to_owned(),
        data: Data::Random,
        shapes: BTreeMap::new(),
        sequence_length: u32::MAX,
        variation: 0,
        check_sums: false,
        seed: 1,
    };
    Recipe::ask(drive::connect(&server.grpc).await.expect("a connection"), &wanted).await.expect("the model")
}

async fn try_with(server: &Child, recipe: &Recipe, streams: usize, span: Duration) -> BenchReport {
    let plan = BenchPlan {
        pace: Pace::Open { streams, chunk: CHUNK },
        span,
        metrics: server.metrics.clone(),
        pid: Some(server.pid()),
        ..BenchPlan::closed(server.grpc.clone(), streams)
    };
    drive::run(&plan, recipe, std::future::pending()).await.expect("a run")
}
