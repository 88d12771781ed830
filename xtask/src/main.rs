//! `cargo xtask`: the project's recipes. Each is a few phases with their wall time; the file of a phase's name describes it. Nothing here
//! is part of the server. The recipes need only Rust, a C compiler, Python 3, pip and curl.

mod bare;
mod browser;
mod debian;
mod dist;
mod fuzz;
mod gpu;
mod guests;
mod kernels;
mod kits;
mod node;
mod pack;
mod perf;
mod phases;
mod process;
mod python;
mod runtime;
mod serve;
mod servers;
mod soak;
mod sounds;
mod tally;
mod test;
mod thin;
mod types;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask serve [-- ARGUMENTS]   build (release), get ONNX Runtime if there is none, serve the repository models/;
                                   ARGUMENTS go to `sequor serve` (with a --model-repository of their own, models/ is left out)
cargo xtask test                   everything that must hold: format, lints, models, tests;
        [--browser]                a browser must be there (otherwise its test is left out, and said so, where none can be had)
        [--all-languages]          and plug-ins in JavaScript and C, whose tools are 59 and 411 MB, and the types of the kit
                                   for JavaScript (34 MB)
        [--rustdoc]                and the crates' own pages, without a warning
        [--fuzz SECONDS]           and the fuzz targets for so long, all at the same time
cargo xtask prepare                gets what tests need and prints the environment in which `cargo nextest run` finds it
cargo xtask fuzz [--seconds 60]    the fuzz targets alone
cargo xtask soak                   the load tests for minutes: 64 streams for 60 s, 10,000 reloads, 100 runs of perf_analyzer
cargo xtask gpu-test               what only a machine with an NVIDIA GPU can show: its kernels and its models against the CPU
cargo xtask gpu-bench [-- ARGS]    how fast that is (--batch N, --seconds N)
cargo xtask gpu-pack FOLDER        both in one folder that runs where there is no Rust and no network: sh FOLDER/run.sh
        [--libraries FOLDER]       with the libraries that lie there: ONNX Runtime and its provider
        [--gpu 9.0]                without the provider's code for GPUs of another compute capability
        [--split MIB]              and compressed beside it, in pieces of at most so many MiB
        [--profile release]
cargo xtask dist                   the packages, in target/dist-packages: a tarball and a Python wheel (a build with full LTO: minutes)
        [--check]                  and run both where nothing else is installed (needs root and apt)
        [--profile release]
cargo xtask kits                   the kits of plug-in authors as packages, in target/kits: a crate, a wheel and an npm tarball
cargo xtask ptx                    compile the GPU kernels anew (x86_64; fetches a compiler, needs no GPU)
";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let recipe = arguments.next();
    let rest: Vec<String> = arguments.skip_while(|a| a == "--").collect();
    let done = match recipe.as_deref() {
        Some("serve") => serve::serve(&rest),
        Some("test") => test::test(&rest),
        Some("prepare") if rest.is_empty() => test::prepare(),
        Some("fuzz") => fuzz::fuzz(&rest),
        Some("soak") if rest.is_empty() => soak::soak(),
        Some("gpu-test") if rest.is_empty() => gpu::test(),
        Some("gpu-bench") => gpu::bench(&rest),
        Some("gpu-pack") => pack::pack(&rest),
        Some("dist") => dist::dist(&rest),
        Some("kits") if rest.is_empty() => kits::kits(),
        Some("ptx") if rest.is_empty() => kernels::ptx(),
        Some("help" | "--help" | "-h") => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("xtask: {e:#}");
            ExitCode::FAILURE
        }
    }
}
