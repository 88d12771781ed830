//! The arguments that name one sequence: `MODEL ID`, `MODEL/ID`, or `--model MODEL ID`.

use clap::{Arg, ArgAction, ArgMatches, Command};

/// The arguments. A command that has them takes all three forms.
pub(super) fn args() -> [Arg; 4] {
    [
        Arg::new("of").value_name("MODEL").required_unless_present("model").help("The model; or MODEL/ID, and no ID"),
        Arg::new("id").value_name("ID").help("The sequence"),
        Arg::new("model").long("model").value_name("MODEL").help("The model; then ID is the only other name"),
        Arg::new("text").long("text").action(ArgAction::SetTrue).help("ID is a text, even if it reads as a number"),
    ]
}

/// The model and the id. `None` if one of them is missing, or named twice.
fn named(matches: &ArgMatches) -> Option<(&str, &str)> {
    let text = |name: &str| matches.try_get_one::<String>(name).ok().flatten().map(String::as_str);
    match (text("of"), text("id"), text("model")) {
        (Some(model), Some(id), None) => Some((model, id)),
        (Some(id), None, Some(model)) => Some((model, id)),
        (Some(both), None, None) => both.split_once('/').filter(|(model, id)| !model.is_empty() && !id.is_empty()),
        _ => None,
    }
}

/// The model and the id that a command line names. [`unnamed`] has refused one without them.
pub(super) fn of(matches: &ArgMatches) -> (&str, &str) {
    named(matches).unwrap_or_default()
}

/// Why a command line of a command about one sequence is refused, if it does not name one.
pub(in crate::cli) fn unnamed(command: &Command, matches: &ArgMatches) -> Option<String> {
    // Matches know the names of arguments in debug builds only.
    let takes = |name: &str| command.get_arguments().any(|arg| arg.get_id() == name);
    if !["of", "id", "model", "text"].into_iter().all(takes) || named(matches).is_some() {
        return None;
    }
    let is_twice = matches.try_contains_id("id").unwrap_or(false);
    let what = if is_twice { "the model is named twice" } else { "there is no ID" };
    Some(format!("{what}: name the sequence by MODEL ID, MODEL/ID, or --model MODEL ID"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        Command::new("x").args(args())
    }

    fn parsed(arguments: &[&str]) -> ArgMatches {
        command().try_get_matches_from([&["x"], arguments].concat()).unwrap()
    }

    #[test]
    fn a_sequence_is_named_in_three_forms() {
        for (arguments, want) in [
            (&["vad", "7"][..], ("vad", "7")),
            (&["vad/7"], ("vad", "7")),
            (&["vad/a/b"], ("vad", "a/b")),
            (&["vad", "a/b"], ("vad", "a/b")),
            (&["--model", "vad", "7"], ("vad", "7")),
            (&["a/b", "--model", "vad"], ("vad", "a/b")),
        ] {
            let matches = parsed(arguments);
            assert_eq!((of(&matches), unnamed(&command(), &matches)), (want, None), "{arguments:?}");
        }
        for (arguments, why) in [
            (&["vad"][..], "there is no ID"),
            (&["vad/"], "there is no ID"),
            (&["--model", "vad"], "there is no ID"),
            (&["--model", "vad", "vad", "7"], "the model is named twice"),
        ] {
            let what = unnamed(&command(), &parsed(arguments)).unwrap();
            assert!(what.starts_with(why) && what.ends_with("MODEL/ID, or --model MODEL ID"), "{what}");
        }
        let other = Command::new("y");
        let matches = other.clone().try_get_matches_from(["y"]).unwrap();
        assert_eq!(unnamed(&other, &matches), None, "another command");
    }
}
