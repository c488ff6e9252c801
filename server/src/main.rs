//! The `trefoil` program: reads the command line and runs it.

use std::process::ExitCode;

use clap::Parser as _;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    trefoil_server::cli::run_program(trefoil_server::cli::CommandLine::parse())
}
