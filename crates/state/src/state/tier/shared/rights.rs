//! Checks at the start that the user of Redis may do all that the shared store does, by a trial of each command and each kind of key. Without
//! that, a right that is missing would show when the first sequence moves.

use redis::{ErrorKind, RedisError, ServerErrorKind, Value};

use super::commands::{OF_KEY, OTHERS};
use super::keys;
use super::link::{Bundle, RedisAddress, RedisLink};
use super::scripts::RecordScript;
use crate::state::tier::error::TierError;

/// Something that is tried.
struct RightTrial {
    /// Its name for operators.
    what: String,
    /// Parts of the refusals that are about something else.
    others: &'static [&'static str],
}

/// Redis refuses a key with "no permissions to access …", and a command with "no permissions to run …".
const OF_KEYS: &str = "to access";
const OF_COMMANDS: &str = "to run";
/// A refusal of a command in a script. That command has a trial of its own.
const OF_SCRIPTS: &str = "script";

/// Tries what this server, with this run, will do. Returns an error that names all rights that are missing.
pub(super) fn check(link: &mut RedisLink, run: &str) -> Result<(), TierError> {
    let channel = keys::channel(run);
    let (bundle, trials) = trials(run, &channel);
    let answers = link.send(&bundle)?;
    let mut refused: Vec<(String, String)> = trials
        .into_iter()
        .zip(&answers)
        .filter_map(|(trial, answer)| Some((refusal(answer)?, trial)))
        .filter(|(said, trial)| !trial.others.iter().any(|part| said.contains(part)))
        .map(|(said, trial)| (trial.what, said))
        .collect();
    refused.extend(subscribe(link.address(), &channel)?.map(|said| ("SUBSCRIBE".to_owned(), said)));
    let Some((_, said)) = refused.first().cloned() else { return Ok(()) };
    let missing = refused.into_iter().map(|(what, _)| what).collect::<Vec<_>>().join(", ");
    let what =
        format!("its user lacks rights: {missing}. docs/deploy/several-servers.md has the line of its rights ({said})");
    Err(TierError::Refused { address: link.address().shown.clone(), what })
}

fn trials(run: &str, channel: &str) -> (Bundle, Vec<RightTrial>) {
    let key = keys::blob(run, u64::MAX);
    let (mut bundle, mut trials) = (Bundle::new(), Vec::new());
    let mut add =
        |what: &str, others: &'static [&'static str]| trials.push(RightTrial { what: what.to_owned(), others });
    for (command, arguments) in OF_KEY {
        let all: Vec<&[u8]> = [key.as_bytes()].into_iter().chain(arguments.iter().copied()).collect();
        bundle.command(command, &all);
        add(command, &[OF_KEYS]);
    }
    for (command, arguments) in OTHERS {
        bundle.command(command, arguments);
        add(command, &[]);
    }
    bundle.command("PUBLISH", &[channel.as_bytes(), b""]);
    add(&format!("PUBLISH to {}*", keys::CHANNEL), &[]);
    // This server has no such sequence, so nothing changes.
    bundle.script(RecordScript::Clear, &[key.as_bytes()], &[run.as_bytes(), b"0", b"0"]);
    add("EVALSHA", &[OF_KEYS, OF_SCRIPTS]);
    for (name, shown) in keys::kinds(run) {
        bundle.command("EXISTS", &[name.as_bytes()]);
        add(&format!("keys {shown}"), &[OF_COMMANDS]);
    }
    (bundle, trials)
}

/// What Redis said, if it refused the command for a right that is missing.
fn refusal(answer: &Value) -> Option<String> {
    match answer {
        Value::ServerError(error) if error.code() == "NOPERM" => Some(error.to_string()),
        _ => None,
    }
}

fn subscribe(address: &RedisAddress, channel: &str) -> Result<Option<String>, TierError> {
    let mut connection = address.connect()?;
    let is_refused = |error: &RedisError| error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm);
    // The library's own call does not report a refusal.
    match redis::cmd("SUBSCRIBE").arg(channel).query::<Value>(&mut connection) {
        Ok(_) => Ok(None),
        Err(error) if is_refused(&error) => Ok(Some(error.to_string())),
        Err(error) => Err(address.failed(&error)),
    }
}
