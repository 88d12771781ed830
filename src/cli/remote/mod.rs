//! The shared part of the commands for a running server: the server's address, the key, and the output of answers.
//!
//! # Layout
//!
//! - [`client`]: a request and its answer · `tls`: the certificates that it trusts.
//! - [`status`], [`top`] (`readings`, `top_screen`: its figures and its text), [`why`], [`plugin`], [`model`], [`sequence`], [`config`], [`drain`]: the
//!   commands · `component`: the transfer of a plug-in's file.
//! - `advice`: advice about refusals · `one_sequence`: the arguments that name a sequence.

mod advice;
pub(super) mod client;
pub(super) mod component;
pub(super) mod config;
pub(super) mod drain;
pub(super) mod model;
pub(super) mod one_sequence;
pub(super) mod plugin;
mod readings;
pub(super) mod sequence;
pub(super) mod status;
mod tls;
pub(super) mod top;
mod top_screen;
pub(super) mod why;

use std::path::PathBuf;

use clap::{Arg, ArgMatches, value_parser};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Failed, stdout};

/// Default address of the admin listener.
pub(super) const SERVER: &str = "127.0.0.1:8003";

/// The arguments for the server and for the output format.
pub(super) fn args() -> Vec<Arg> {
    let file = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("FILE").value_parser(value_parser!(PathBuf)).help(help)
    };
    vec![
        Arg::new("server")
            .long("server")
            .value_name("HOST:PORT")
            .env("SEQUOR_SERVER")
            .hide_env_values(true)
            .default_value(SERVER)
            .help("The server's admin listener"),
        file("key-file", "File that holds the key to show: KEY or NAME:KEY"),
        file("tls-ca", "Certificate (PEM) of the authority that the server's own comes from; the server speaks TLS"),
        file("tls-cert", "Certificate (PEM) to show to the server").requires("tls-key"),
        file("tls-key", "Its private key (PEM)").requires("tls-cert"),
        output(),
    ]
}

/// The same arguments, allowed anywhere on the command line, also before a subcommand.
pub(super) fn global_args() -> impl Iterator<Item = Arg> {
    args().into_iter().map(|arg| arg.global(true).hide(true))
}

/// Output for people or for programs. As JSON, a command prints one value, or one value per line if it keeps running.
pub(super) fn output() -> Arg {
    let form = Arg::new("output").long("output").value_name("FORM").value_parser(["table", "json"]);
    form.default_value("table").help("Output format")
}

fn text<'m>(matches: &'m ArgMatches, name: &str) -> &'m str {
    matches.get_one::<String>(name).map_or("", String::as_str)
}

pub(super) fn wants_json(matches: &ArgMatches) -> bool {
    text(matches, "output") == "json"
}

/// Prints an answer as JSON, or as the text of `render`.
fn print<T: DeserializeOwned>(
    matches: &ArgMatches,
    answer: &Value,
    render: impl FnOnce(T) -> String,
) -> Result<(), Failed> {
    if wants_json(matches) {
        return print_json(answer);
    }
    let read = T::deserialize(answer).map_err(|e| misunderstood(&e))?;
    stdout::text(format_args!("{}", render(read)))
}

/// The failure of a command that cannot read the server's answer.
fn misunderstood(error: &serde_json::Error) -> Failed {
    Failed::Failed(format!("the server's answer is not understood, it may be of another version: {error}"))
}

pub(super) fn print_json(value: &Value) -> Result<(), Failed> {
    stdout::line(format_args!("{}", serde_json::to_string_pretty(value).unwrap_or_default()))
}
