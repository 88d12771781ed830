//! `sequor drain`: drains a running server, which then ends.

use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::client::{Client, RequestPayload};
use super::{args, print};
use crate::cli::Failed;

/// How often the command checks whether the server has ended.
const LOOK: Duration = Duration::from_millis(200);

pub(in crate::cli) fn command() -> Command {
    let wait = Arg::new("wait")
        .long("wait")
        .action(ArgAction::SetTrue)
        .help("Return when the server has closed its connections");
    Command::new("drain")
        .about("Drain a running server and end its process: new sequences are refused, live ones may finish first (as after SIGTERM)")
        .arg(wait)
        .args(args())
}

pub(in crate::cli) fn run(matches: &ArgMatches) -> Result<(), Failed> {
    let client = Client::from_matches(matches)?;
    client.post("/admin/drain", RequestPayload::Nothing)?;
    let waits = matches.get_flag("wait");
    while waits && client.is_there() {
        std::thread::sleep(LOOK);
    }
    let message = match waits {
        true => "the server has closed its connections; its process ends once states are stored\n",
        false => "the server drains; then its process ends\n",
    };
    print(matches, &serde_json::json!({ "draining": true, "out": waits }), |_: serde_json::Value| message.to_owned())
}
