//! `trefoil-conformance`: see [`trefoil_conformance::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    trefoil_conformance::cli::main()
}
