//! `sequor simulate`: runs the same requests under several policies, in virtual time.

mod files;
pub(super) mod policies;
mod replay;

use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, value_parser};

use super::{Failed, stdout};
use crate::config::units::{Size, Span, SpanOrNever};
use crate::simulate::file::WorkloadFile;
use crate::simulate::rate::Rate;
use crate::simulate::serving::Expire;
use crate::simulate::workload::bursts::Bursts;
use crate::simulate::workload::features::FeatureValues;
use crate::simulate::workload::poisson::Poisson;
use crate::simulate::workload::replay::Replay;
use crate::simulate::workload::talkers::Talkers;
use crate::simulate::workload::tenants::Many;
use crate::simulate::{Costs, Experiment, ServingOptions, SimulateError, SimulationReport, Workload};
use files::{text, unreadable};
use sequor_wasm::limits::Limits;

/// Flags for the single flow that flags can describe.
const OF_A_FLOW: [&str; 6] = ["sequences", "steps", "deadline", "tenants", "zipf", "step"];

pub(super) fn command() -> Command {
    Command::new("simulate")
        .about("Run recorded or made-up requests under several policies, in virtual time")
        .args(arrivals())
        .group(
            ArgGroup::new("arrivals")
                .args(["load", "trace", "poisson", "bursts", "talkers", "replay-round"])
                .required(true),
        )
        .args(serving())
        .args(output())
}

fn arrivals() -> Vec<Arg> {
    let file = || value_parser!(PathBuf);
    let flag = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help).help_heading("arrivals")
    };
    let mut args = vec![
        flag("load", "FILE", "Workload described in a TOML file (docs/reference/simulate.md)").value_parser(file()),
        flag("trace", "FILE", "Trace recorded by sequor serve --record; several are read one after the other")
            .value_parser(file())
            .action(ArgAction::Append),
        flag("model", "NAME", "Replay the requests of this model only").requires("trace"),
        flag("poisson", "RATE", "Requests at random, as 2000/s").value_parser(value_parser!(Rate)),
        flag("bursts", "SIZE/EVERY", "Requests in bursts, as 64/500ms").value_parser(value_parser!(Rate)),
        flag("talkers", "N", "People who talk and listen: a step every 32 ms of speech")
            .value_parser(value_parser!(u32).range(1..)),
        flag("sequences", "N", "Sequences that live at the same time [default: 100]")
            .value_parser(value_parser!(u32).range(1..)),
        flag("steps", "N", "Requests of a sequence, on average; without this flag sequences never end")
            .value_parser(value_parser!(f64)),
        flag("step", "DURATION", "From one step of a talker to the next [default: 32ms]")
            .value_parser(value_parser!(Span)),
        flag("deadline", "DURATION", "How long after its arrival a request is to be answered")
            .value_parser(value_parser!(Span)),
        flag("tenants", "N", "Tenants that the sequences belong to").value_parser(value_parser!(u16).range(1..)),
        flag("zipf", "EXPONENT", "How unevenly: the n-th tenant has 1/n^EXPONENT of the first [default: 1]")
            .value_parser(value_parser!(f64))
            .requires("tenants"),
        flag("for", "DURATION", "How long requests arrive [default: 60s]")
            .value_parser(value_parser!(Span))
            .conflicts_with("trace"),
        flag("seed", "N", "Random seed [default: 1]").value_parser(value_parser!(u64)),
        flag("replay-round", "FILE", "Replay a round that a server recorded as faulty, with --policy NAME.wasm")
            .value_parser(file())
            .requires("policy"),
    ];
    for arg in args.iter_mut().filter(|a| OF_A_FLOW.contains(&a.get_id().as_str())) {
        *arg = arg.clone().conflicts_with_all(["load", "trace"]);
    }
    args
}

fn serving() -> Vec<Arg> {
    let flag = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help).help_heading("serving")
    };
    vec![
        flag(
            "policy",
            "NAME",
            "oldest, direct, edf (deadline) or a plug-in (FILE.wasm); repeat to compare [default: oldest]",
        )
        .action(ArgAction::Append),
        flag("set", "KEY=VALUE", "A setting of the plug-ins, as burst=4 or weights.gold=4").action(ArgAction::Append),
        flag("plugin-time", "DURATION", "Maximum time of a plan of a plug-in [default: 2ms]")
            .value_parser(value_parser!(Span)),
        flag("plugin-memory", "SIZE", "Maximum memory of a plug-in [default: what its language needs]")
            .value_parser(value_parser!(Size)),
        flag("cost", "FILE", "How long a batch of so many rows runs (TOML)").value_parser(value_parser!(PathBuf)),
        flag("instances", "N,...", "Instances; each number is tried")
            .value_delimiter(',')
            .value_parser(value_parser!(u16).range(1..)),
        flag("slots", "N", "Slots of an instance; direct has as many as rows")
            .value_parser(value_parser!(u32).range(1..)),
        flag("max-batch", "N", "Rows of a batch").value_parser(value_parser!(u32).range(1..)),
        flag("delay", "DURATION", "How long a batch that is not full is held back").value_parser(value_parser!(Span)),
        flag("idle", "DURATION", "How long a sequence may be idle before it ends; or never")
            .value_parser(value_parser!(SpanOrNever)),
        flag("backlog-timeout", "DURATION", "How long a new sequence waits for a slot")
            .value_parser(value_parser!(Span)),
        flag("backlog-levels", "N", "Priority levels of new sequences that wait for a slot")
            .value_parser(value_parser!(u32).range(1..)),
        flag("max-wait", "DURATION", "A request that waits longer runs next, against any policy")
            .value_parser(value_parser!(Span)),
        flag("expire", "HOW", "What happens to a request that waits beyond its deadline")
            .value_parser(PossibleValuesParser::new(["reject", "run"])),
    ]
}

fn output() -> Vec<Arg> {
    let flag = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    vec![
        flag("html", "FILE", "Write the report as a page with plots").value_parser(value_parser!(PathBuf)),
        flag("json", "FILE", "Write the report as JSON").value_parser(value_parser!(PathBuf)),
        flag("output", "FORM", "Output format [default: table]")
            .value_parser(PossibleValuesParser::new(["table", "json"])),
    ]
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failed> {
    if let Some(file) = path(matches, "replay-round") {
        let mut policies = matches.get_many::<String>("policy").into_iter().flatten();
        return match (policies.next(), policies.next()) {
            (Some(policy), None) if policy.ends_with(".wasm") => replay::run(file, policy),
            _ => {
                Err(Failed::Configuration("--replay-round puts a round to one plug-in: --policy FILE.wasm".to_owned()))
            }
        };
    }
    let experiment = experiment(matches).map_err(|e| Failed::Configuration(e.to_string()))?;
    let began = Instant::now();
    let report = experiment.run();
    let took = began.elapsed().as_secs_f64();
    match matches.get_one::<String>("output").map(String::as_str) {
        Some("json") => stdout::text(format_args!("{}", report.json()))?,
        _ => stdout::text(format_args!("{}; ran in {took:.1} s\n{}", report.head(), report.table()))?,
    }
    write(matches, &report)
}

/// Writes the requested files, and prints their paths.
fn write(matches: &ArgMatches, report: &SimulationReport) -> Result<(), Failed> {
    let mut written = Vec::new();
    for (flag, text) in
        [("html", SimulationReport::html as fn(&SimulationReport) -> String), ("json", SimulationReport::json)]
    {
        let Some(path) = path(matches, flag) else { continue };
        fs_err::write(path, text(report)).map_err(|e| Failed::Failed(e.to_string()))?;
        written.push(path.display().to_string());
    }
    if !written.is_empty() {
        eprintln!("{}   (same seed, same bytes)", written.join("   "));
    }
    Ok(())
}

fn path<'a>(matches: &'a ArgMatches, flag: &str) -> Option<&'a Path> {
    matches.get_one::<PathBuf>(flag).map(PathBuf::as_path)
}

fn get<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, flag: &str) -> Option<T> {
    matches.get_one::<T>(flag).cloned()
}

// === flags ===

fn experiment(matches: &ArgMatches) -> Result<Experiment, SimulateError> {
    let (workload, of_file, seed) = workload(matches)?;
    let live = workload.live.as_ref();
    let wishes = serving_options(matches).or(of_file).or(live.map(|l| l.wishes.clone()).unwrap_or_default());
    let serving = wishes.resolve().map_err(SimulateError::Given)?;
    let costs = match path(matches, "cost") {
        Some(path) => Costs::read(path, &text(path)?)?,
        None => live.and_then(|l| l.costs.clone()).unwrap_or_default(),
    };
    let names = matches.get_many::<String>("policy");
    let names: Vec<&str> = names.map_or_else(|| vec!["oldest"], |names| names.map(String::as_str).collect());
    let set: Vec<String> = matches.get_many::<String>("set").into_iter().flatten().cloned().collect();
    if !set.is_empty() && !names.iter().any(|name| name.ends_with(".wasm")) {
        return Err(SimulateError::Given("--set is for plug-ins, and no --policy is one".to_owned()));
    }
    let default = Limits::default();
    let limits = Limits {
        time: get::<Span>(matches, "plugin-time").map_or(default.time, |span| span.0),
        memory: get::<Size>(matches, "plugin-memory").map(|size| size.0).or(default.memory),
    };
    let made = names.into_iter().map(|name| policies::policy(name, &set, limits, (&workload, &serving)));
    let policies = made.collect::<Result<_, _>>()?;
    Ok(Experiment { workload, serving, costs, policies, seed })
}

/// The requests, the serving options of their file, and the seed.
fn workload(matches: &ArgMatches) -> Result<(Workload, ServingOptions, u64), SimulateError> {
    let seed = get(matches, "seed");
    if let Some(paths) = matches.get_many::<PathBuf>("trace") {
        let mut replay = Replay::new(matches.get_one::<String>("model").map(String::as_str));
        for path in paths {
            let file = fs_err::File::open(path).map_err(|e| unreadable(path, &e))?;
            replay.file(path, BufReader::new(file))?;
        }
        return Ok((replay.finish()?, ServingOptions::default(), seed.unwrap_or(1)));
    }
    let mut file = match path(matches, "load") {
        Some(path) => WorkloadFile::read(path, &text(path)?)?,
        None => of_flags(matches),
    };
    file.span = get(matches, "for").or(file.span);
    file.check()?;
    let seed = seed.or(file.seed).unwrap_or(1);
    Ok((file.workload(seed)?, file.serve, seed))
}

/// A workload with one flow, from the flags.
fn of_flags(matches: &ArgMatches) -> WorkloadFile {
    let sequences = get(matches, "sequences").unwrap_or(100);
    let (steps, deadline, tenant) = (get(matches, "steps"), get(matches, "deadline"), None);
    let zipf = get(matches, "zipf").unwrap_or(1.0);
    let tenants = get(matches, "tenants").map(|count| Many { count, zipf });
    let (priority, bytes, shape) = (0, 0, 0);
    let mut file = WorkloadFile::default();
    if let Some(rate) = get(matches, "poisson") {
        file.poisson.push(Poisson {
            rate,
            sequences,
            steps,
            deadline,
            tenant,
            tenants,
            features: FeatureValues::new(),
            priority,
            bytes,
            shape,
        });
    } else if let Some(Rate { count, per }) = get(matches, "bursts") {
        let (every, size) = (Span(per), count.round() as u32);
        file.bursts.push(Bursts {
            features: FeatureValues::new(),
            every,
            size,
            spread: None,
            sequences,
            steps,
            deadline,
            tenant,
            tenants,
            priority,
            bytes,
            shape,
        });
    } else if let Some(sequences) = get(matches, "talkers") {
        let (step, talk, silence, jitter, sequence) = (get(matches, "step"), None, None, None, None);
        let talkers = Talkers {
            features: FeatureValues::new(),
            step,
            talk,
            silence,
            jitter,
            sequence,
            sequences,
            steps,
            deadline,
            tenant,
            tenants,
            priority,
            bytes,
            shape,
        };
        file.talkers.push(talkers);
    }
    file
}

fn serving_options(matches: &ArgMatches) -> ServingOptions {
    let expire = matches.get_one::<String>("expire");
    ServingOptions {
        instances: matches.get_many::<u16>("instances").map(|n| n.copied().collect()),
        slots: get(matches, "slots"),
        max_batch: get(matches, "max-batch"),
        delay: get(matches, "delay"),
        idle: get(matches, "idle"),
        backlog_timeout: get(matches, "backlog-timeout"),
        backlog_levels: get(matches, "backlog-levels"),
        max_wait: get(matches, "max-wait"),
        expire: expire.map(|how| if how == "reject" { Expire::Reject } else { Expire::Run }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduling::wat_fixture::SchedulerWat;

    fn made(args: &[&str]) -> Result<Experiment, String> {
        let args = std::iter::once("simulate").chain(args.iter().copied());
        let matches = command().try_get_matches_from(args).map_err(|e| e.to_string())?;
        experiment(&matches).map_err(|e| e.to_string())
    }

    #[test]
    fn flags_define_the_workload_and_the_serving_options() {
        let made = made(&[
            "--poisson",
            "100/s",
            "--sequences",
            "20",
            "--for",
            "2s",
            "--tenants",
            "3",
            "--instances",
            "2,3",
            "--idle",
            "never",
            "--policy",
            "oldest",
            "--policy",
            "edf",
        ]);
        let made = made.unwrap();
        assert!((150..250).contains(&made.workload.arrivals.len()));
        assert_eq!(
            (made.workload.tenants.len(), made.serving.instances, made.serving.idle, made.policies.len()),
            (3, vec![2, 3], None, 2)
        );
    }

    #[test]
    fn flags_beat_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.toml");
        std::fs::write(
            &path,
            "for = \"1s\"\nseed = 5\n[serve]\nslots = 7\nmax_batch = 3\n[[talkers]]\nsequences = 2\n",
        )
        .unwrap();
        let path = path.to_str().unwrap();
        let of_file = made(&["--load", path]).unwrap();
        assert_eq!((of_file.seed, of_file.serving.slots, of_file.serving.max_batch), (5, 7, 3));
        let of_flags = made(&["--load", path, "--slots", "9", "--seed", "6"]).unwrap();
        assert_eq!((of_flags.seed, of_flags.serving.slots, of_flags.serving.max_batch), (6, 9, 3));
        assert!(made(&["--load", path, "--steps", "3"]).is_err());
    }

    #[test]
    fn a_plug_in_is_a_compared_policy_with_its_settings() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fair.wasm");
        let manifest = "name = \"fair\"\nversion = \"1\"\nworld = \"scheduler\"\ncontract = \"0.1.0\"\n[config.burst]\ntype = \"integer\"\n";
        let guest = SchedulerWat { manifest: Some(manifest), ..SchedulerWat::default() };
        std::fs::write(&path, guest.component()).unwrap();
        let path = path.to_str().unwrap();
        let experiment = made(&["--talkers", "2", "--policy", path, "--set", "burst=4"]).unwrap();
        assert_eq!(experiment.policies[0].name, "fair.wasm");
        assert_eq!(
            made(&["--talkers", "2", "--policy", path, "--set", "burst=much"]).unwrap_err(),
            "fair.wasm: configure: config.burst must be an integer, not \"much\""
        );
        assert_eq!(
            made(&["--talkers", "2", "--policy", path, "--plugin-memory", "64KiB"]).unwrap_err(),
            "fair.wasm: memory limit 64 KiB in its start: asked for 512 KiB"
        );
    }

    #[test]
    fn invalid_simulate_flags_are_refused() {
        assert!(made(&[]).unwrap_err().contains("--load"));
        assert!(made(&["--poisson", "1/s", "--talkers", "2"]).is_err());
        assert!(
            made(&["--talkers", "2", "--policy", "./none.wasm"]).unwrap_err().starts_with("./none.wasm: No such file")
        );
        assert_eq!(
            made(&["--talkers", "2", "--set", "burst=4"]).unwrap_err(),
            "--set is for plug-ins, and no --policy is one"
        );
        assert!(made(&["--poisson", "1/s", "--steps", "0.5"]).unwrap_err().contains("steps must be 1 or more"));
        assert!(made(&["--load", "/nowhere.toml"]).unwrap_err().starts_with("/nowhere.toml: "));
    }
}
