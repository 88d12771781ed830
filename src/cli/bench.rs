//! `sequor bench`: how fast, how late and how right a server's answers are. Any server that speaks KServe v2 over gRPC will do.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, value_parser};

use super::{Failed, launch};
use crate::bench::{BenchError, BenchPlan, BenchReport, Child, Data, Pace, Recipe, Wanted, drive, process};
use crate::config::units::Span;

const ADDRESS: &str = "localhost:8001";

pub(super) fn command() -> Command {
    let flag = |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    let option = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    let count = |name, default: &'static str, help| {
        option(name, "N", help).value_parser(value_parser!(u32).range(1..)).default_value(default)
    };
    let span = |name, default: &'static str, help| {
        option(name, "DURATION", help).value_parser(value_parser!(Span)).default_value(default)
    };
    Command::new("bench")
        .about("Measure how fast a server answers, in sequences, closed loop or at the pace of speech")
        .arg(Arg::new("model").value_name("MODEL").required(true).help("Model to send requests to"))
        .arg(option("server", "HOST:PORT", "gRPC address of the server [default: localhost:8001]"))
        .arg(option("against", "HOST:PORT", "The same, for any other KServe v2 server"))
        .arg(
            option("serve", "DIR", "Start a server of our own on this model repository, for the time of the run")
                .value_parser(value_parser!(PathBuf)),
        )
        .group(ArgGroup::new("who").args(["server", "against", "serve"]))
        .arg(option("metrics", "HOST:PORT", "Where its metrics are [default: port 8002 of its host]"))
        .arg(count("clients", "32", "Clients, each with one sequence after another"))
        .arg(count("pipeline", "1", "Requests each client keeps in flight"))
        .arg(flag("streaming", "Send on a bidirectional stream for each client, not call by call"))
        .arg(
            count("connections", "1", "Connections that the clients share")
                .default_value(None::<&str>)
                .help("Connections that the clients share [default: one for 8]"),
        )
        .arg(
            option(
                "sequence-length",
                "N",
                "Requests of a sequence, 20 % more or less; 0 for none [default: 20, or the whole run with --realtime]",
            )
            .value_parser(value_parser!(u32)),
        )
        .arg(flag("realtime", "Send at the pace of speech, whether or not answers keep up"))
        .arg(span("chunk", "32ms", "With --realtime: a request of each stream every so often").requires("realtime"))
        .arg(count("streams", "100", "With --realtime: streams").requires("realtime"))
        .arg(span("for", "10s", "How long to measure"))
        .arg(option("requests", "N", "Stop after so many").value_parser(value_parser!(u64).range(1..)))
        .arg(span("warm-up", "1s", "How long to send before measuring"))
        .arg(option("data", "KIND", "What inputs hold").value_parser(["zeros", "random"]).default_value("random"))
        .arg(
            option("shape", "NAME:1,576", "Shape of an input, batch included, where the model leaves it open")
                .action(ArgAction::Append)
                .value_parser(shape),
        )
        .arg(
            option("check", "KIND", "Check answers: the first output is the sum of what a sequence has sent")
                .value_parser(["accumulator"]),
        )
        .arg(option("seed", "N", "What random data is made from").value_parser(value_parser!(u64)).default_value("1"))
        .arg(option("output", "FORM", "Form of the report").value_parser(["table", "json"]).default_value("table"))
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failed> {
    let child = match matches.get_one::<PathBuf>("serve") {
        Some(repository) => {
            let program = std::env::current_exe().map_err(|e| Failed::Failed(e.to_string()))?;
            Some(Child::serve(&program, repository).map_err(|e| failed(&e))?)
        }
        None => None,
    };
    let (plan, wanted) = (plan(matches, child.as_ref()), wanted(matches));
    let report = threads(&plan)?.block_on(measure(&plan, &wanted)).map_err(|e| failed(&e))?;
    match matches.get_one::<String>("output").map(String::as_str) {
        Some("json") => println!("{}", serde_json::to_string_pretty(&report).unwrap_or_default()),
        _ => print!("{report}"),
    }
    verdict(&report)
}

/// What the senders run on. Where calls of a sequence may be sent ahead of answers, one thread: on several, hyper's client may put the end
/// of a request on the wire behind that of the next, and a server takes requests in the order in which they are whole.
fn threads(plan: &BenchPlan) -> Result<tokio::runtime::Runtime, Failed> {
    if plan.streaming || matches!(plan.pace, Pace::Closed { pipeline: 0..=1, .. }) {
        return launch::sockets();
    }
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|e| Failed::Failed(format!("no thread for sockets: {e}")))
}

async fn measure(plan: &BenchPlan, wanted: &Wanted) -> Result<BenchReport, BenchError> {
    let recipe = Recipe::ask(drive::connect(&plan.address).await?, wanted).await?;
    let interrupted = async {
        // Without signals the run just goes on to its end.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    drive::run(plan, &recipe, interrupted).await
}

fn verdict(report: &BenchReport) -> Result<(), Failed> {
    match report.wrong_sums {
        Some(wrong) if wrong > 0 => Err(Failed::Failed(format!("{wrong} answers are wrong"))),
        _ if report.requests == report.failures() => {
            Err(Failed::Failed("no request was answered with success".to_owned()))
        }
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

// === what was asked for ===

fn plan(matches: &ArgMatches, child: Option<&Child>) -> BenchPlan {
    let number = |name: &str| matches.get_one::<u32>(name).copied().unwrap_or(1) as usize;
    let span = |name: &str| matches.get_one::<Span>(name).map_or(Duration::ZERO, |s| s.0);
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let address = child.map(|c| c.grpc.clone()).or_else(|| text("against")).or_else(|| text("server"));
    let address = address.unwrap_or_else(|| ADDRESS.to_owned());
    let pace = match matches.get_flag("realtime") {
        true => Pace::Open { streams: number("streams"), chunk: span("chunk").max(Duration::from_millis(1)) },
        false => Pace::Closed { clients: number("clients"), pipeline: number("pipeline") },
    };
    let beside = address.rsplit_once(':').map(|(host, _)| format!("{host}:8002"));
    BenchPlan {
        pace,
        streaming: matches.get_flag("streaming"),
        connections: matches
            .get_one::<u32>("connections")
            .map_or(pace.senders().div_ceil(BenchPlan::CLIENTS_A_CONNECTION), |n| *n as usize),
        warm_up: span("warm-up"),
        span: span("for"),
        requests: matches.get_one::<u64>("requests").copied(),
        metrics: text("metrics").or_else(|| child.map_or(beside, |c| c.metrics.clone())),
        pid: child.map(Child::pid).or_else(|| process::serving(&address)),
        seed: matches.get_one::<u64>("seed").copied().unwrap_or(1),
        address,
    }
}

fn wanted(matches: &ArgMatches) -> Wanted {
    let check_sums = matches.get_one::<String>("check").is_some();
    let zeros = matches.get_one::<String>("data").is_some_and(|data| data == "zeros");
    let whole_run = if matches.get_flag("realtime") { u32::MAX } else { 20 };
    Wanted {
        model: matches.get_one::<String>("model").cloned().unwrap_or_default(),
        data: match (check_sums, zeros) {
            (_, true) => Data::Zeros,
            (true, false) => Data::Whole,
            (false, false) => Data::Random,
        },
        shapes: matches
            .get_many::<(String, Vec<i64>)>("shape")
            .into_iter()
            .flatten()
            .cloned()
            .collect::<BTreeMap<_, _>>(),
        sequence_length: matches.get_one::<u32>("sequence-length").copied().unwrap_or(whole_run),
        variation: 20,
        check_sums,
        seed: matches.get_one::<u64>("seed").copied().unwrap_or(1),
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

    fn parse(arguments: &[&str]) -> ArgMatches {
        command().try_get_matches_from([&["bench", "vad"], arguments].concat()).expect("arguments")
    }

    #[test]
    fn a_closed_loop_is_the_default() {
        let matches = parse(&["--clients", "64"]);
        let plan = plan(&matches, None);
        assert_eq!((plan.address.as_str(), plan.connections), (ADDRESS, 8));
        assert_eq!(
            (plan.pace, plan.metrics.as_deref()),
            (Pace::Closed { clients: 64, pipeline: 1 }, Some("localhost:8002"))
        );
        assert_eq!(wanted(&matches).sequence_length, 20);
    }

    #[test]
    fn the_pace_of_speech_is_one_sequence_a_stream() {
        let matches = parse(&["--realtime", "--chunk", "20ms", "--streams", "200", "--against", "triton:9001"]);
        let plan = plan(&matches, None);
        assert_eq!(plan.pace, Pace::Open { streams: 200, chunk: Duration::from_millis(20) });
        assert_eq!((plan.address.as_str(), wanted(&matches).sequence_length), ("triton:9001", u32::MAX));
        assert!(command().try_get_matches_from(["bench", "vad", "--server", "a:1", "--against", "b:1"]).is_err());
    }

    #[test]
    fn shapes_are_read() {
        assert_eq!(shape("input:1,576"), Ok(("input".to_owned(), vec![1, 576])));
        assert_eq!(shape("a:b:1"), Ok(("a:b".to_owned(), vec![1])));
        assert!(shape("input").is_err() && shape("input:1,-1").is_err() && shape("input:x").is_err());
    }
}
