//! `sequor plugin test`: runs the cases of plug-ins. The cases of schedulers run in the simulator, each beside the built-in policy.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, value_parser};

use super::world::{self, GivenComponent, Printed, Tested};
use super::{Failed, failed, file, machine, remote, worlds};
use crate::cli::stdout;

pub(super) fn command() -> Command {
    let cases = Arg::new("case").long("case").value_name("FILE").value_parser(value_parser!(PathBuf)).num_args(1..);
    Command::new("test")
        .about("Run the cases of plug-ins, and compare the results with what the cases expect")
        .arg(file::argument().help("Components or their folders; the cases lie in cases/ beside a component"))
        .arg(cases.help("These cases, in place of cases/*.toml"))
        .arg(file::grant())
        .arg(remote::output())
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failed> {
    let (as_json, machine, mut wrong, mut all) = (remote::wants_json(matches), machine(), 0, Vec::new());
    for path in file::named(matches)? {
        let bytes = file::bytes(&path).map_err(failed)?;
        let given: Vec<PathBuf> = matches.get_many("case").into_iter().flatten().cloned().collect();
        for case in if given.is_empty() { world::cases(&path)? } else { given } {
            let given = GivenComponent { path: &path, bytes: &bytes, matches, machine: &machine };
            let Tested { is_good, printed: Printed { text, json } } =
                worlds::of_component(&bytes).test(given, &case)?;
            wrong += u32::from(!is_good);
            if !as_json {
                stdout::text(format_args!("{text}"))?;
            }
            all.push(json);
        }
    }
    let cases = all.len();
    if as_json {
        remote::print_json(&all.into())?;
    }
    if wrong > 0 {
        return Err(Failed::Failed(format!("{wrong} of {cases} cases are not as expected")));
    }
    Ok(())
}
