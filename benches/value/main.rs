//! Shows the value of a plug-in, live and in the simulator. Both get the same requests at the same times. The live part is the server's own
//! repository in this process, with a mock backend whose runs take 5 ms. `tests/it/value.rs` tests the simulator's part. Run
//! `cargo bench --bench value` on a quiet machine; `-- --only live` (or deadlines, shares) runs one part, and `-- --keep FOLDER` leaves the
//! recordings in that folder.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

#[path = "../common/in_process.rs"]
mod in_process;
mod live;

use std::path::Path;
use std::time::Duration;

use sequor::config::units::Span;
use sequor::simulate::file::WorkloadFile;
use sequor::simulate::workload::replay::Replay;
use sequor::simulate::{ComparedPolicy, Costs, Experiment, PluginSpec, Workload};
use sequor_wasm::limits::Limits;

use in_process::{BoxResult, guest};
use live::Answered;

const DEADLINES: &str = include_str!("deadlines.toml");
const QUIET: &str = include_str!("quiet.toml");
const LOUD: &str = include_str!("loud.toml");
const COST: &str = include_str!("cost.toml");
/// Length of a workload's live part.
const LONG: Duration = Duration::from_secs(8);
/// Length of an overload. Beyond the capacity, most requests wait until long afterwards.
const OVERLOAD: Duration = Duration::from_secs(3);

fn main() -> BoxResult<()> {
    if std::env::args().any(|a| a == "--list") {
        return Ok(());
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let behind = |flag: &str| arguments.iter().position(|a| a == flag).and_then(|at| arguments.get(at + 1));
    let wants = |part: &str| behind("--only").is_none_or(|only| only == part);
    if wants("deadlines") {
        deadlines()?;
    }
    if wants("shares") {
        shares()?;
    }
    if wants("live") {
        like_live(behind("--keep").map(Path::new))?;
    }
    Ok(())
}

fn made(text: &str, long: Duration) -> BoxResult<(WorkloadFile, Workload)> {
    let mut file = WorkloadFile::read(Path::new("workload"), text)?;
    file.span = Some(Span(long));
    let workload = file.workload(1)?;
    Ok((file, workload))
}

/// Runs the same requests in the simulator, under `oldest` and the plug-in.
fn simulated(
    file: WorkloadFile,
    workload: Workload,
    plugin: &str,
) -> BoxResult<[sequor::simulate::outcome::Outcome; 2]> {
    let plug = PluginSpec::new(plugin, &guest(plugin)?, "{}", Limits::default(), None)?;
    let experiment = Experiment {
        workload,
        serving: file.serve.resolve()?,
        costs: Costs::read(Path::new("cost.toml"), COST)?,
        policies: vec![ComparedPolicy::named("oldest")?, ComparedPolicy::plugin(plugin, plug)],
        seed: 1,
    };
    experiment.run().runs.try_into().map_err(|_| "two were asked for".into())
}

fn deadlines() -> BoxResult<()> {
    let (file, workload) = made(DEADLINES, LONG)?;
    let of = workload.arrivals.len();
    let share = |missed: u64| format!("{missed} ({:.2} %)", missed as f64 * 100.0 / of as f64);
    let [oldest, edf] = simulated(file, workload.clone(), "edf")?.map(|run| run.deadlines.map_or(0, |d| d.missed));
    println!("deadlines missed of {of}, at nine tenths of what can be served");
    println!("  simulator   oldest {:>16}   edf {:>16}   ratio {:.2}", share(oldest), share(edf), ratio(edf, oldest));
    let missed = |plugin: Option<&str>| -> BoxResult<u64> {
        let answers = live::play(&workload, plugin, None)?;
        let late = |(answer, arrival): (&Answered, &sequor::simulate::Arrival)| match answer {
            Answered::After(took) => arrival.within.is_some_and(|within| *took > within),
            Answered::Never => true,
        };
        Ok(answers.iter().zip(&workload.arrivals).filter(|both| late(*both)).count() as u64)
    };
    let (oldest, edf) = (missed(None)?, missed(Some("edf"))?);
    println!("  live        oldest {:>16}   edf {:>16}   ratio {:.2}", share(oldest), share(edf), ratio(edf, oldest));
    Ok(())
}

fn ratio(part: u64, of: u64) -> f64 {
    part as f64 / of.max(1) as f64
}

fn shares() -> BoxResult<()> {
    println!("the quiet tenant's p99 until its answer, ms, with the loud one at ten times its share");
    let (quiet, loud) = (made(QUIET, LONG)?, made(LOUD, OVERLOAD)?);
    let p99 = |run: &sequor::simulate::outcome::Outcome| {
        let of = run.tenants.iter().find(|tenant| tenant.name == "quiet");
        // A run takes 5 ms.
        of.map_or(0.0, |tenant| tenant.wait.p99_us / 1e3 + 5.0)
    };
    let [alone, _] = simulated(quiet.0, quiet.1.clone(), "fair-share")?.map(|run| p99(&run));
    let [oldest, fair] = simulated(loud.0, loud.1.clone(), "fair-share")?.map(|run| p99(&run));
    println!("  simulator   alone {alone:.1}   fair-share {fair:.1} ({:.2} x)   oldest {oldest:.0}", fair / alone);
    let seen = |workload: &Workload, plugin: Option<&str>| -> BoxResult<f64> {
        let answers = live::play(workload, plugin, None)?;
        let of_quiet = |tenant: u16| workload.tenants.get(usize::from(tenant)).is_some_and(|name| name == "quiet");
        let took = answers.iter().zip(&workload.arrivals).filter(|(_, arrival)| of_quiet(arrival.tenant));
        let mut took: Vec<Duration> = took.filter_map(|(answer, _)| answer.took()).collect();
        took.sort_unstable();
        let at = took.len() * 99 / 100;
        Ok(took.get(at).copied().unwrap_or_default().as_secs_f64() * 1e3)
    };
    let alone = seen(&quiet.1, None)?;
    let (fair, oldest) = (seen(&loud.1, Some("fair-share"))?, seen(&loud.1, None)?);
    println!("  live        alone {alone:.1}   fair-share {fair:.1} ({:.2} x)   oldest {oldest:.0}", fair / alone);
    Ok(())
}

/// Compares the simulator with recordings at three loads. The simulator uses the run costs of a recording at another time and load, and
/// then those of the same recording with its slow moments.
fn like_live(keep: Option<&Path>) -> BoxResult<()> {
    let folder = tempfile::tempdir()?;
    let folder = keep.unwrap_or(folder.path());
    let before =
        recorded(0.6, 960, 2, folder)?.live.and_then(|seen| seen.costs).ok_or("the recording tells of no runs")?;
    println!("waits, ms: live, and the same requests in the simulator");
    println!(
        "  load   live p50      p99   by the costs of another recording, p50, p99   by its own, with its slow moments"
    );
    for (share, rate) in [(0.5, 800), (0.7, 1120), (0.9, 1440)] {
        let workload = recorded(share, rate, 1, folder)?;
        let seen = workload.live.clone().ok_or("the recording tells of nothing")?;
        let own = seen.costs.clone().ok_or("the recording tells of no runs")?;
        let live = [0.5, 0.99].map(|share| seen.waits[(seen.waits.len() as f64 * share) as usize] as f64 / 1e6);
        print!("  {share:<6} {:>8.2} {:>8.2}", live[0], live[1]);
        for costs in [before.clone().steady(), own] {
            let (serving, policies) = (seen.wishes.clone().resolve()?, vec![ComparedPolicy::named("oldest")?]);
            let workload = workload.clone();
            let run = Experiment { workload, serving, costs, policies, seed: 1 }.run().runs.remove(0);
            for (micros, live) in [run.wait.p50_us, run.wait.p99_us].into_iter().zip(live) {
                let ms = micros / 1e3;
                print!("   {ms:>8.2} ({:>+4.0} %)", (ms / live - 1.0) * 100.0);
            }
        }
        println!();
    }
    Ok(())
}

/// A recording of this load, as a workload.
fn recorded(share: f64, rate: u32, seed: u64, folder: &Path) -> BoxResult<Workload> {
    let text = format!("[[poisson]]\nrate = \"{rate}/s\"\nsequences = 192\nsteps = 100\n");
    let mut file = WorkloadFile::read(Path::new("workload"), &text)?;
    file.span = Some(Span(LONG));
    let path = folder.join(format!("load-{share}.jsonl"));
    live::play(&file.workload(seed)?, None, Some(&path))?;
    let mut replay = Replay::new(None);
    replay.file(&path, std::io::BufReader::new(std::fs::File::open(&path)?))?;
    Ok(replay.finish()?)
}
