//! `sequor runtime install | path`: downloads or finds the ONNX Runtime library.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use super::{Failed, stdout};
use crate::backend::onnx::install::{self, Installed, Package, Progress};
use crate::backend::onnx::library::{self, System};

pub(super) fn command() -> Command {
    let to = Arg::new("to").long("to").value_name("DIR").value_parser(value_parser!(PathBuf)).help(format!(
        "Where to put the library [default: {}, with --gpu {}]",
        library::LOCAL,
        library::LOCAL_GPU
    ));
    let gpu = Arg::new("gpu")
        .long("gpu")
        .action(ArgAction::SetTrue)
        .help("With a provider for NVIDIA GPUs, for instances of KIND_GPU (x86_64; 256 MB)");
    Command::new("runtime")
        .about("The ONNX Runtime library: install it, or say which one is used")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("install").about("Fetch the pinned version from the Python package index").args([gpu, to]),
        )
        .subcommand(
            Command::new("path")
                .about("Print the path of the ONNX Runtime library that Sequor would load; exit 1 if there is none"),
        )
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failed> {
    match matches.subcommand() {
        Some(("install", matches)) => install(matches),
        _ => path(),
    }
}

fn install(matches: &ArgMatches) -> Result<(), Failed> {
    let (package, local, name, size) = match matches.get_flag("gpu") {
        true => (Package::Gpu, library::LOCAL_GPU, "onnxruntime-gpu", "256 MB"),
        false => (Package::Cpu, library::LOCAL, "onnxruntime", "24 MB"),
    };
    let target = matches.get_one::<PathBuf>("to").cloned().unwrap_or_else(|| PathBuf::from(local));
    let done = install::install(package, &target, &mut |progress| match progress {
        Progress::Downloading(version) => eprintln!("fetching {name} {version} with pip ({size}) ..."),
        Progress::Extracting { bytes } => eprintln!("extracting {} MB ...", bytes / 1_000_000),
    });
    match done.map_err(|e| Failed::Failed(e.to_string()))? {
        Installed::Now { path, version } => stdout::line(format_args!("{name} {version} is now {}", path.display())),
        Installed::Already { path, version } => {
            stdout::line(format_args!("{name} {version} is already {}", path.display()))
        }
    }
}

fn path() -> Result<(), Failed> {
    let library = library::find(None, &System).map_err(|e| Failed::Failed(e.to_string()))?;
    stdout::line(format_args!("{}", library.path.display()))
}
