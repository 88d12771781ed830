//! `sequor top`: the load of a running server, refreshed in a terminal. Without a terminal it prints one screen after the other.

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde::Deserialize;

use super::client::Client;
use super::readings::{ServerActivity, StatusReading};
use super::top_screen::{fitted, screen};
use super::{args, print_json, wants_json};
use crate::cli::Failed;
use crate::cli::stdout;
use crate::cli::terminal::{Leave, Terminal};
use crate::config::units::Span;

/// The shortest time between two readings.
const SHORTEST: Duration = Duration::from_millis(100);

pub(in crate::cli) fn command() -> Command {
    let interval = Arg::new("interval")
        .long("interval")
        .value_name("DURATION")
        .value_parser(value_parser!(Span))
        .default_value("1s")
        .help("Time between two readings, at least 100ms; rates are over this time");
    let once = Arg::new("once").long("once").action(ArgAction::SetTrue);
    Command::new("top")
        .about("Watch a running server: load by model, where the time goes, ends, refusals, and plug-ins in trouble")
        .after_help(
            "In a terminal, q and Ctrl-C leave. If the server is away for a while, the screen says so and stays.",
        )
        .arg(interval)
        .arg(once.help("Print one screen, after two readings, and end"))
        .args(args())
}

pub(in crate::cli) fn run(matches: &ArgMatches) -> Result<(), Failed> {
    let client = Client::from_matches(matches)?;
    let interval = matches.get_one::<Span>("interval").map_or(SHORTEST, |Span(span)| *span).max(SHORTEST);
    let mut before = read(&client)?;
    let is_screen = std::io::stdout().is_terminal() && !wants_json(matches) && !matches.get_flag("once");
    if is_screen {
        return watch(&client, interval, before);
    }
    let leave = Leave::on_signals()?;
    while !leave.within(interval) {
        let after = read(&client)?;
        let activity = ServerActivity::between(&before, &after);
        match wants_json(matches) {
            true => print_json(&serde_json::to_value(&activity).unwrap_or_default())?,
            false => stdout::line(format_args!("{}", screen(&activity)))?,
        }
        if matches.get_flag("once") {
            return Ok(());
        }
        before = after;
    }
    Ok(())
}

/// Redraws the terminal until the operator leaves. A server that does not answer is asked again.
fn watch(client: &Client, interval: Duration, mut before: StatusReading) -> Result<(), Failed> {
    let failed = |e: std::io::Error| Failed::Failed(format!("the terminal cannot be used: {e}"));
    let mut terminal = Terminal::enter().map_err(failed)?;
    let (mut shown, mut notice) = (screen(&ServerActivity::between(&before, &before)), None);
    loop {
        terminal.draw(&fitted(&shown, notice.as_deref(), terminal.size())).map_err(failed)?;
        if terminal.leave().within(interval) {
            return Ok(());
        }
        match read(client) {
            Ok(after) => {
                (shown, notice) = (screen(&ServerActivity::between(&before, &after)), None);
                before = after;
            }
            Err(error) => notice = Some(error.to_string()),
        }
    }
}

fn read(client: &Client) -> Result<StatusReading, Failed> {
    let answer = client.get("/admin/status.json")?;
    StatusReading::deserialize(&answer).map_err(|e| super::misunderstood(&e))
}
