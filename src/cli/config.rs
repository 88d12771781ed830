//! `sequor config`: the settings of `sequor serve`. `show` prints those that it would use, and the origin of each, and starts no server; the
//! other commands ask a running server (`remote/config.rs`).

use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::json;

use super::{Failed, environment, folders, launch, ovms, remote, settings, stdout};
use crate::config::ovms::command as ovms_flags;
use crate::config::server::{self, GivenFlags, Shown};
use crate::server::reload;
use crate::text::table;

const WITHOUT_CERTIFICATES: &str = "without-certificates";

const FLAGS: &str =
    "Takes every flag of `sequor serve`, with the same variables and settings file (--config FILE, or SEQUOR_CONFIG).
A value that is empty is found by the server itself. Secrets are shown as ***.

Example:
  sequor config show --origin --config /etc/sequor/sequor.toml --http-port 9000";

pub(super) fn command() -> Command {
    let origin = Arg::new("origin")
        .long("origin")
        .action(ArgAction::SetTrue)
        .help("Also print what set each value: a flag, a variable, a line of the file, or default");
    let quiet = Arg::new("quiet").long("quiet").action(ArgAction::SetTrue).conflicts_with("origin");
    let quiet = quiet.help(
        "Print only what is wrong, and check the model repository and the files of keys and certificates, too: the exit \
         code is 3 if a server could not start",
    );
    let without =
        Arg::new(WITHOUT_CERTIFICATES).long(WITHOUT_CERTIFICATES).action(ArgAction::SetTrue).requires("quiet");
    let without = without
        .help("With --quiet: leave out the model repository, and the certificates and keys of tls.*, as a reload does");
    let of_serve = server::args().into_iter().chain(ovms_flags::args()).map(|arg| arg.hide(true));
    let show = Command::new("show").about("Print every setting of `sequor serve`, and start nothing");
    Command::new("config")
        .about("The settings of `sequor serve`: its flags, variables and file together")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(show.args([origin, quiet, without, remote::output()]).args(of_serve).after_help(FLAGS))
        .subcommands(remote::config::commands())
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failed> {
    match matches.subcommand() {
        Some(("reload", matches)) => remote::config::reload(matches),
        Some(("running", matches)) => remote::config::running(matches),
        Some((_, matches)) => show(matches),
        None => Ok(()),
    }
}

fn show(matches: &ArgMatches) -> Result<(), Failed> {
    let mut given = GivenFlags::from_matches(matches);
    let _repository = ovms::repository(matches, &mut given)?;
    if matches.get_flag("quiet") {
        return check(&given, matches.get_flag(WITHOUT_CERTIFICATES));
    }
    let settings = settings::load(&given)?;
    let shown = launch::shown(&settings);
    for notice in &given.notices {
        eprintln!("sequor: {notice}");
    }
    for notice in environment::misspelt(std::env::vars_os().filter_map(|(name, _)| name.into_string().ok())) {
        eprintln!("sequor: {notice}");
    }
    match remote::wants_json(matches) {
        true => remote::print_json(&json!(shown)),
        false => stdout::text(format_args!("{}", rows(&shown, matches.get_flag("origin")))),
    }
}

/// Checks the settings, and the files that they name.
fn check(given: &GivenFlags, as_a_reload: bool) -> Result<(), Failed> {
    let (settings, mut faults) = settings::load_all(given)?;
    faults.extend(reload::faults(&settings));
    if !as_a_reload {
        let unserved = settings.model.repository.iter().filter_map(|path| folders::unserved(path));
        faults.extend(unserved.map(|what| reload::fault_at(&settings, "model.repository", &what)));
        faults.extend(reload::tls_faults(&settings));
        for warning in reload::tls_warnings(&settings) {
            eprintln!("sequor: warning: {warning}");
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(Failed::Configuration(faults.join("\nsequor: "))) }
}

fn rows(shown: &[Shown], with_origin: bool) -> String {
    let cells = |row: &Shown| {
        let mut cells = vec![row.key.to_owned(), row.value.clone()];
        cells.extend(with_origin.then(|| row.origin.clone()));
        cells
    };
    let heads = ["KEY", "VALUE", "ORIGIN"];
    let columns = if with_origin { heads.len() } else { heads.len() - 1 };
    table(heads.get(..columns).unwrap_or_default(), &shown.iter().map(cells).collect::<Vec<_>>())
}
