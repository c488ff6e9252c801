//! Options of the subcommands that send several terminology requests.

use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use clap::{Args as ClapArgs, Subcommand};
use spreadsheet::StatedEncoding;

use super::{ExpandArgs, LookupArgs, SubsumesArgs, TerminologyArgs, ValidateCodeArgs};

/// Default number of concurrent requests of a batch.
pub const PARALLEL_REQUESTS: usize = 4;
/// Maximum number of concurrent requests of a batch.
const MAX_PARALLEL_REQUESTS: u64 = 32;

/// Options that name a concept.
#[derive(Debug, ClapArgs)]
pub struct ConceptArgs {
    /// Canonical URL of the code system
    #[arg(long)]
    pub system: String,
    /// Version of the code system
    #[arg(long)]
    pub version: Option<String>,
    /// Code of the concept
    #[arg(long)]
    pub code: String,
}

/// Options that name two codes.
#[derive(Debug, ClapArgs)]
pub struct CodePairArgs {
    /// Version of the code system
    #[arg(long)]
    pub version: Option<String>,
    /// First code
    #[arg(long)]
    pub code_a: String,
    /// Second code
    #[arg(long)]
    pub code_b: String,
}

/// Options of `tree`.
#[derive(Debug, ClapArgs)]
pub struct TreeArgs {
    #[command(flatten)]
    pub concept: ConceptArgs,
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
    #[command(flatten)]
    pub codes: CodePairArgs,
    /// Options for the token and the output.
    #[command(flatten)]
    pub ask: TerminologyArgs,
}

/// Options of `validate-batch`.
#[derive(Debug, ClapArgs)]
pub struct ValidateBatchArgs {
    /// CSV or a spreadsheet with headings (code, system, display, url in any order), or one Coding on each
    /// line; - reads stdin
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
    /// Encoding of a CSV file that is not UTF-8: latin1
    #[arg(long, value_name = "NAME", value_parser = StatedEncoding::named)]
    pub encoding: Option<StatedEncoding>,
    /// Sheet of a workbook, instead of the first one
    #[arg(long, value_name = "NAME")]
    pub sheet: Option<String>,
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

/// Options of `compare`.
#[derive(Debug, ClapArgs)]
pub struct CompareArgs {
    /// Profile of the other server
    #[arg(long, value_name = "NAME", required_unless_present = "other_url", conflicts_with = "other_url")]
    pub other_profile: Option<String>,
    /// FHIR base address of another server, which gets no token
    #[arg(long, value_name = "URL")]
    pub other_url: Option<String>,
    /// Question to both servers.
    #[command(subcommand)]
    pub question: ComparedQuestion,
}

/// Questions that `compare` can send.
#[derive(Debug, Subcommand)]
pub enum ComparedQuestion {
    /// Check whether a code is in a value set
    ValidateCode(ValidateCodeArgs),
    /// Check whether one code subsumes another
    Subsumes(SubsumesArgs),
    /// Print display, designations and properties of a code
    Lookup(LookupArgs),
    /// List the codes of a value set
    Expand(ExpandArgs),
}

impl ComparedQuestion {
    /// The options for the token and the output.
    pub fn options(&self) -> &TerminologyArgs {
        match self {
            Self::ValidateCode(args) => &args.ask,
            Self::Subsumes(args) => &args.ask,
            Self::Lookup(args) => &args.ask,
            Self::Expand(args) => &args.ask,
        }
    }
}
