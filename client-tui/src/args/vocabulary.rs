//! Options of the subcommands that send several terminology requests.

use clap::Args as ClapArgs;

use super::TerminologyArgs;

/// Options of `tree`.
#[derive(Debug, ClapArgs)]
pub struct TreeArgs {
    /// Canonical URL of the code system
    #[arg(long)]
    pub system: String,
    /// Version of the code system
    #[arg(long)]
    pub version: Option<String>,
    /// Code whose neighbours are printed
    #[arg(long)]
    pub code: String,
    /// Options for the token and the output.
    #[command(flatten)]
    pub ask: TerminologyArgs,
}

/// Options of `path`.
#[derive(Debug, ClapArgs)]
pub struct PathArgs {
    /// Canonical URL of the code system
    #[arg(long)]
    pub system: String,
    /// Version of the code system
    #[arg(long)]
    pub version: Option<String>,
    /// First code
    #[arg(long)]
    pub code_a: String,
    /// Second code
    #[arg(long)]
    pub code_b: String,
    /// Options for the token and the output.
    #[command(flatten)]
    pub ask: TerminologyArgs,
}
