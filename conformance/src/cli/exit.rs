//! Exit codes of the commands, and how their errors are reported.

use std::process::ExitCode;

/// A case failed.
pub(super) const FAILED: u8 = 1;
/// The command line is wrong.
pub(super) const USAGE: u8 = 2;
/// The target cannot be reached.
pub(super) const UNREACHABLE: u8 = 3;
/// The suite failed.
pub(super) const BROKEN: u8 = 4;
/// Ctrl-C.
pub(super) const INTERRUPTED: u8 = 130;

pub(super) fn broken(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::from(BROKEN)
}

pub(super) fn usage(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::from(USAGE)
}
