//! `sequor drain`: takes a running server out of service.

use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::args;
use super::client::{Body, Client};
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
    client.post("/admin/drain", Body::Nothing)?;
    if !matches.get_flag("wait") {
        println!("the server goes out of service");
        return Ok(());
    }
    while client.is_there() {
        std::thread::sleep(LOOK);
    }
    println!("the server takes no connections any more");
    Ok(())
}
