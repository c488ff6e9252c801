//! Exit codes of the commands, and how their errors are reported.

use std::process::ExitCode;

pub(super) const FAILED: u8 = 1;
pub(super) const USAGE: u8 = 2;
pub(super) const UNREACHABLE: u8 = 3;
pub(super) const BROKEN: u8 = 4;
pub(super) const INTERRUPTED: u8 = 130;

pub(super) fn broken(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::from(BROKEN)
}

pub(super) fn usage(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::from(USAGE)
}

/// The exit code for a server that cannot be reached, with the reason and, for a certificate that is not
/// trusted, the remedy.
pub(super) fn unreachable(url: &str, error: &str) -> ExitCode {
    eprintln!("error: {url} cannot be tested: {error}");
    if error.contains("UnknownIssuer") {
        eprintln!(
            "name its certificate authority with --ca FILE; that of a Trefoil server is tls/ca.pem in its data folder"
        );
    }
    ExitCode::from(UNREACHABLE)
}
