//! Options of the subcommands that send several terminology requests.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use clap::builder::RangedU64ValueParser;

use super::TerminologyArgs;

/// Default number of concurrent requests of a batch.
pub const PARALLEL_REQUESTS: usize = 4;
/// Maximum number of concurrent requests of a batch.
const MAX_PARALLEL_REQUESTS: u64 = 32;

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

/// Options of `validate-batch`.
#[derive(Debug, ClapArgs)]
pub struct ValidateBatchArgs {
    /// CSV with a header (columns code, system, display, url in any order), or one Coding on each line; - reads stdin
    #[arg(value_name = "FILE|-")]
    pub file: PathBuf,
    /// Canonical URL of the value set, for rows without one
    #[arg(long)]
    pub url: Option<String>,
    /// Id of the value set, instead of its URL
    #[arg(long, conflicts_with = "url")]
    pub id: Option<String>,
    /// Code system, for rows without one
    #[arg(long)]
    pub system: Option<String>,
    /// Number of concurrent requests
    #[arg(long, value_name = "N", default_value_t = PARALLEL_REQUESTS,
        value_parser = RangedU64ValueParser::<usize>::new().range(1..=MAX_PARALLEL_REQUESTS))]
    pub parallel: usize,
    /// Print the results as CSV
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    /// Options for the token and the output.
    #[command(flatten)]
    pub ask: TerminologyArgs,
}
