//! The program: parse, run, exit code. Everything else is in the library.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: sequor::device::ProgramAllocator = sequor::device::ProgramAllocator;

fn main() -> ExitCode {
    sequor::cli::run(std::env::args_os())
}
