//! `sequor bench`: measures throughput, latency and correctness of a server. The server may be any that serves KServe v2 over gRPC.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::RangedI64ValueParser;
use clap::parser::ValueSource;
use clap::{ArgGroup, ArgMatches, Args, Command, FromArgMatches, value_parser};

use super::{Failed, launch, remote, stdout};
use crate::bench::{BenchError, BenchPlan, BenchReport, Child, ClientKey, Data, Pace, Recipe, Wanted, drive, process};
use crate::config::units::Span;

const ADDRESS: &str = "localhost:8001";

/// Parses a positive number.
fn count() -> RangedI64ValueParser<u32> {
    value_parser!(u32).range(1..)
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("who").args(["server", "against", "serve"])))]
struct BenchArgs {
    /// Model to send requests to
    #[arg(value_name = "MODEL", required_unless_present = "named-model")]
    model: Option<String>,
    /// The same as MODEL
    #[arg(id = "named-model", long = "model", value_name = "MODEL", conflicts_with = "model")]
    named_model: Option<String>,
    /// gRPC address of the server, also as http://HOST:PORT [default: localhost:8001]
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    server: Option<String>,
    /// The same, for any other KServe v2 server
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    against: Option<String>,
    /// File that holds the key to show: KEY or NAME:KEY
    #[arg(id = "key-file", long = "key-file", value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Start a server of our own on this model repository, for the time of the run
    #[arg(long, value_name = "DIR")]
    serve: Option<PathBuf>,
    /// Where its metrics are [default: port 8002 of its host]
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    metrics: Option<String>,
    /// Clients, each with one sequence after another
    #[arg(long, value_name = "N", default_value = "32", value_parser = count())]
    clients: u32,
    /// Requests each client keeps in flight
    #[arg(long, value_name = "N", default_value = "1", value_parser = count())]
    pipeline: u32,
    /// Send on a bidirectional stream for each client, not call by call
    #[arg(long)]
    streaming: bool,
    /// Connections that the clients share [default: one for 8]
    #[arg(long, value_name = "N", value_parser = count())]
    connections: Option<u32>,
    /// Requests of a sequence, 20 % more or less; 0 for none [default: 20, or the whole run with --realtime]
    #[arg(long, value_name = "N")]
    sequence_length: Option<u32>,
    /// Send at the pace of speech, whether or not answers keep up
    #[arg(long)]
    realtime: bool,
    /// With --realtime: a request of each stream every so often
    #[arg(long, value_name = "DURATION", default_value = "32ms", requires = "realtime")]
    chunk: Span,
    /// With --realtime: streams
    #[arg(long, value_name = "N", default_value = "100", value_parser = count(), requires = "realtime")]
    streams: u32,
    /// How long to measure
    #[arg(long = "for", value_name = "DURATION", default_value = "10s")]
    span: Span,
    /// Stop after so many
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// How long to send before measuring
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    warm_up: Span,
    /// Exit with 0 although requests failed, if at least one did not
    #[arg(long)]
    allow_failures: bool,
    /// What inputs hold
    #[arg(long, value_name = "KIND", default_value = "random", value_parser = ["zeros", "random"])]
    data: String,
    /// Shape of an input, batch included, where the model leaves it open
    #[arg(long = "shape", value_name = "NAME:1,576", value_parser = shape)]
    shapes: Vec<(String, Vec<i64>)>,
    /// Check answers: the first output is the sum of what a sequence has sent
    #[arg(long, value_name = "KIND", value_parser = ["accumulator"])]
    check: Option<String>,
    /// Random seed
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// Form of the report
    #[arg(long, value_name = "FORM", default_value = "table", value_parser = ["table", "json"])]
    output: String,
}

pub(super) fn command() -> Command {
    let about = "Measure a server's throughput and latency with sequences, in a closed loop or at the pace of speech";
    BenchArgs::augment_args(Command::new("bench")).about(about)
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failed> {
    let args = parse(matches)?;
    let child = match &args.serve {
        Some(repository) => {
            let program = std::env::current_exe().map_err(|e| Failed::Failed(e.to_string()))?;
            Some(Child::serve(&program, repository).map_err(|e| failed(&e))?)
        }
        None => None,
    };
    let (plan, wanted) = (BenchPlan { key: args.key()?, ..args.plan(child.as_ref()) }, args.wanted());
    let report = threads(&plan)?.block_on(measure(&plan, &wanted)).map_err(|e| failed(&e))?;
    match args.output.as_str() {
        "json" => stdout::line(format_args!("{}", serde_json::to_string_pretty(&report).unwrap_or_default()))?,
        _ => stdout::text(format_args!("{report}"))?,
    }
    verdict(&report, args.allow_failures)
}

/// Parses the arguments. The operators' commands have a global `--server` flag too, with the admin listener as its default. Therefore
/// `server` counts here only if it is on the command line.
fn parse(matches: &ArgMatches) -> Result<BenchArgs, Failed> {
    let args = BenchArgs::from_arg_matches(matches).map_err(|e| Failed::Failed(e.to_string()))?;
    let is_named = matches.value_source("server") == Some(ValueSource::CommandLine);
    Ok(BenchArgs { server: args.server.filter(|_| is_named), ..args })
}

/// Builds the runtime of the senders. If calls of a sequence may be sent ahead of answers, it has one thread: on several threads, hyper's
/// client may complete requests on the wire in another order. Servers take requests in the order in which they are complete.
fn threads(plan: &BenchPlan) -> Result<tokio::runtime::Runtime, Failed> {
    if plan.streaming || matches!(plan.pace, Pace::Closed { pipeline: 0..=1, .. }) {
        return launch::sockets();
    }
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|e| Failed::Failed(format!("no thread for sockets: {e}")))
}

async fn measure(plan: &BenchPlan, wanted: &Wanted) -> Result<BenchReport, BenchError> {
    let recipe = Recipe::ask_with(drive::connect(&plan.address).await?, wanted, plan.key.as_ref()).await?;
    let interrupted = async {
        // If signals are not available, the run continues to its end.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    drive::run(plan, &recipe, interrupted).await
}

fn verdict(report: &BenchReport, allow_failures: bool) -> Result<(), Failed> {
    match report.wrong_sums {
        Some(wrong) if wrong > 0 => Err(Failed::Failed(format!("{wrong} answers are wrong"))),
        _ if report.requests == report.failures() => {
            Err(Failed::Failed("no request was answered with success".to_owned()))
        }
        _ if report.failures() > 0 && !allow_failures => Err(Failed::Failed(format!(
            "{} of {} requests failed (--allow-failures: exit with 0)",
            report.failures(),
            report.requests
        ))),
        _ => Ok(()),
    }
}

fn failed(error: &BenchError) -> Failed {
    match error {
        BenchError::Unreachable { .. } => Failed::Unreachable(error.to_string()),
        BenchError::Refused { .. } => Failed::Refused { text: error.to_string(), help: None },
        BenchError::Unfit(_) | BenchError::NotStarted(_) => Failed::Failed(error.to_string()),
    }
}

impl BenchArgs {
    /// The key to show, if there is one.
    fn key(&self) -> Result<Option<ClientKey>, Failed> {
        let Some(path) = &self.key_file else { return Ok(None) };
        let unfit = || Failed::Configuration(format!("{} holds a key that no header can carry", path.display()));
        ClientKey::new(&remote::client::key(path)?).map(Some).ok_or_else(unfit)
    }

    fn plan(&self, child: Option<&Child>) -> BenchPlan {
        let address = child.map(|c| c.grpc.clone()).or_else(|| self.against.clone()).or_else(|| self.server.clone());
        let address = address.unwrap_or_else(|| ADDRESS.to_owned());
        let pace = match self.realtime {
            true => Pace::Open { streams: self.streams as usize, chunk: self.chunk.0.max(Duration::from_millis(1)) },
            false => Pace::Closed { clients: self.clients as usize, pipeline: self.pipeline as usize },
        };
        let beside = address.rsplit_once(':').map(|(host, _)| format!("{host}:8002"));
        let connections = self.connections.map(|n| n as usize);
        BenchPlan {
            key: None,
            pace,
            streaming: self.streaming,
            connections: connections.unwrap_or_else(|| pace.senders().div_ceil(BenchPlan::CLIENTS_A_CONNECTION)),
            warm_up: self.warm_up.0,
            span: self.span.0,
            requests: self.requests,
            metrics: self.metrics.clone().or_else(|| child.map_or(beside, |c| c.metrics.clone())),
            pid: child.map(Child::pid).or_else(|| process::serving(&address)),
            seed: self.seed,
            address,
        }
    }

    fn wanted(&self) -> Wanted {
        let check_sums = self.check.is_some();
        let whole_run = if self.realtime { u32::MAX } else { 20 };
        Wanted {
            model: self.model.clone().or_else(|| self.named_model.clone()).unwrap_or_default(),
            data: match (check_sums, self.data == "zeros") {
                (_, true) => Data::Zeros,
                (true, false) => Data::Whole,
                (false, false) => Data::Random,
            },
            shapes: self.shapes.iter().cloned().collect(),
            sequence_length: self.sequence_length.unwrap_or(whole_run),
            variation: 20,
            check_sums,
            seed: self.seed,
        }
    }
}

/// Parses `HOST:PORT`, or a URL without a path. The benchmark speaks no TLS.
fn address(text: &str) -> Result<String, String> {
    if text.starts_with("https://") || text.starts_with("grpcs://") {
        return Err("sequor bench speaks gRPC without TLS: name a port without TLS as HOST:PORT".to_owned());
    }
    let bare = ["http://", "grpc://"].into_iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(text);
    let bare = bare.trim_end_matches('/');
    let is_port = |(host, port): (&str, &str)| !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok();
    match bare.rsplit_once(':').is_some_and(is_port) {
        true => Ok(bare.to_owned()),
        false => Err(format!("\"{text}\" is not HOST:PORT")),
    }
}

fn shape(text: &str) -> Result<(String, Vec<i64>), String> {
    let wrong = || format!("\"{text}\" is not a shape (as \"input:1,576\")");
    let (name, dims) = text.rsplit_once(':').ok_or_else(wrong)?;
    let dims = dims.split(',').map(|d| d.trim().parse::<i64>().ok().filter(|d| *d >= 0));
    dims.collect::<Option<Vec<_>>>().map(|dims| (name.to_owned(), dims)).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses through the whole command line, because the operators' flags reach every command.
    fn parse(arguments: &[&str]) -> BenchArgs {
        let line = [&["sequor", "bench", "vad"], arguments].concat();
        let matches = crate::cli::parse(line.into_iter().map(Into::into)).expect("arguments");
        super::parse(matches.subcommand_matches("bench").expect("the command")).expect("arguments")
    }

    #[test]
    fn the_default_server_is_the_grpc_port_and_not_the_admin_listener() {
        assert_eq!(parse(&[]).plan(None).address, ADDRESS);
        assert_eq!(parse(&["--server", "far:1"]).plan(None).address, "far:1");
    }

    #[test]
    fn a_closed_loop_is_the_default() {
        let args = parse(&["--clients", "64"]);
        let plan = args.plan(None);
        assert_eq!((plan.address.as_str(), plan.connections), (ADDRESS, 8));
        assert_eq!(
            (plan.pace, plan.metrics.as_deref()),
            (Pace::Closed { clients: 64, pipeline: 1 }, Some("localhost:8002"))
        );
        assert_eq!(args.wanted().sequence_length, 20);
    }

    #[test]
    fn the_realtime_pace_runs_one_sequence_per_stream() {
        let args = parse(&["--realtime", "--chunk", "20ms", "--streams", "200", "--against", "triton:9001"]);
        let plan = args.plan(None);
        assert_eq!(plan.pace, Pace::Open { streams: 200, chunk: Duration::from_millis(20) });
        assert_eq!((plan.address.as_str(), args.wanted().sequence_length), ("triton:9001", u32::MAX));
        assert!(command().try_get_matches_from(["bench", "vad", "--server", "a:1", "--against", "b:1"]).is_err());
    }

    #[test]
    fn the_model_and_the_address_have_the_forms_of_other_commands() {
        let named = |arguments: &[&str]| {
            let line = [&["sequor", "bench"], arguments].concat();
            let matches = crate::cli::parse(line.into_iter().map(Into::into)).ok()?;
            Some(super::parse(matches.subcommand_matches("bench")?).ok()?.wanted().model)
        };
        assert_eq!((named(&["vad"]), named(&["--model", "vad"])), (Some("vad".to_owned()), Some("vad".to_owned())));
        assert_eq!((named(&[]), named(&["vad", "--model", "vad"])), (None, None));
        for text in ["far:1", "http://far:1", "http://far:1/", "grpc://far:1"] {
            assert_eq!(address(text).as_deref(), Ok("far:1"), "{text}");
        }
        assert_eq!(address("[::1]:8001").as_deref(), Ok("[::1]:8001"));
        assert!(address("https://far:1").unwrap_err().contains("without TLS"));
        for text in ["far", "far:x", ":1", "http://far:1/v2"] {
            assert!(address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shapes_are_read() {
        assert_eq!(shape("input:1,576"), Ok(("input".to_owned(), vec![1, 576])));
        assert_eq!(shape("a:b:1"), Ok(("a:b".to_owned(), vec![1])));
        assert!(shape("input").is_err() && shape("input:1,-1").is_err() && shape("input:x").is_err());
    }
}
