//! `sequor drain`: takes a running server out of service.

use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::client::{Client, RequestPayload};
use super::{args, print};
use crate::cli::Failed;

/// How often a server that goes out is looked for.
const LOOK: Duration = Duration::from_millis(200);

pub(in crate::cli) fn command() -> Command {
    let wait = Arg::new("wait").long("wait").action(ArgAction::SetTrue).help("Return when it is out of service");
    Command::new("drain")
        .about("Take a running server out of service: live sequences may end first")
        .arg(wait)
        .args(args())
}

pub(in crate::cli) fn run(matches: &ArgMatches) -> Result<(), Failed> {
    let client = Client::of(matches)?;
    client.post("/admin/drain", RequestPayload::Nothing)?;
    let waits = matches.get_flag("wait");
    while waits && client.is_there() {
        std::thread::sleep(LOOK);
    }
    let told = if waits { "the server takes no connections any more\n" } else { "the server goes out of service\n" };
    print(matches, &serde_json::json!({ "draining": true, "out": waits }), |_: serde_json::Value| told.to_owned())
}
