//! The program: parse, run, exit code. Everything else is in the library.

use std::process::ExitCode;

// Small allocations on many threads are most of what a server does beside its models' runs.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    sequor::cli::run(std::env::args_os())
}
