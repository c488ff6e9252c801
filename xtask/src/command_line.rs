//! The commands and their arguments. All of them are here, so that `--help` needs no other package.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// The command line.
#[derive(Parser)]
#[command(name = "cargo xtask", about = "Commands of the Trefoil project")]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: XtaskCommand,
}

/// The commands.
#[derive(Subcommand)]
pub enum XtaskCommand {
    /// Build and start the demo server, and open the terminal client if the output is a terminal.
    Demo(DemoArgs),
    /// Run what every change must pass: fmt, tidy, unit tests, tables, property tests, snapshots, journeys.
    Test,
    /// Run what the pipeline checks besides: clippy, links of comments, planted faults, simulations,
    /// databases, several nodes.
    Ci,
    /// Run the conformance suite against a new Trefoil server, or against --target.
    Conformance {
        /// Filters and options of `trefoil-conformance run`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Run the conformance suite against servers with planted faults, and list the faults that it does not
    /// find.
    Mutants(MutantArgs),
    /// Simulate several nodes with their clients and faults. A seed gives the same run each time.
    Sim {
        /// First seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Number of consecutive seeds.
        #[arg(long, default_value_t = 1)]
        count: u64,
        /// Print what happened.
        #[arg(long)]
        log: bool,
        /// Run all seeds, also after one that breaks a rule.
        #[arg(long)]
        keep_going: bool,
    },
    /// Generate the records of the demo project from their seed.
    GenFixtures {
        /// Compare the files instead of writing them.
        #[arg(long)]
        check: bool,
    },
    /// Generate the tables of elements, search parameters and the Patient compartment from HL7's definitions
    /// of FHIR R4.
    ///
    /// The definitions are read from the folder `data` in the folder of TREFOIL_SHARED, or in ../shared.
    GenFhirTables {
        /// Compare the tables instead of writing them.
        #[arg(long)]
        check: bool,
    },
    /// Generate the tables of the built-in code systems from the registries of IANA, ISO and UCUM, which
    /// .ci/run installs.
    GenVocabularies {
        /// Compare the tables instead of writing them.
        #[arg(long)]
        check: bool,
    },
    /// Run the benchmarks, and compare them with the HTTP floor measured in the same run.
    Bench(BenchArgs),
    /// Test servers of other makers and Trefoil on its engines, and write one page to target/board.
    Board(BoardArgs),
    /// Make the documents a site with search, in target/book; needs mdbook.
    Book,
    /// Write the files of a release to target/dist.
    Dist(DistArgs),
    /// Write pictures and a recording of the terminal client to target/pictures; needs tmux and Chromium.
    Pictures,
    /// Run the long checks: fuzz targets with 10,000,000 runs each in the release profile, the terminology
    /// benchmark, and a server that is killed 200 times.
    Soak(SoakArgs),
    /// Check the boundaries between the crates, prose, links and commits.
    Tidy,
    /// Format the code.
    Fmt,
    /// Run clippy; warnings are errors.
    Lint,
}

/// Arguments of `demo`.
#[derive(clap::Args)]
pub struct DemoArgs {
    /// Do not open the terminal client.
    #[arg(long)]
    pub no_tui: bool,
    /// Folder for the data of the demo.
    #[arg(long)]
    pub data: Option<PathBuf>,
    /// Address to listen on; port 0 selects a free port.
    #[arg(long, default_value = "127.0.0.1:8443")]
    pub listen: String,
}

/// Arguments of `bench`.
#[derive(clap::Args)]
pub struct BenchArgs {
    /// Run only this group. Without a group, those that need neither a database nor further crates are run.
    #[arg(value_enum)]
    pub group: Option<BenchGroup>,
    /// Use wrk as the load generator of the operations of terminology.
    #[arg(long, conflicts_with = "group")]
    pub outside: bool,
    /// Count the instructions of a request with valgrind.
    #[arg(long, conflicts_with = "outside")]
    pub instructions: bool,
    /// Options of the benchmark program, such as --rounds=1.
    #[arg(last = true, value_name = "OPTIONS")]
    pub options: Vec<String>,
}

/// A group of benchmarks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum BenchGroup {
    /// Sign-in, tokens and FHIR over HTTP.
    Identity,
    /// The index of a large code system, and its operations over HTTP.
    Terminology,
    /// The workloads of a public terminology benchmark.
    Tx20,
    /// Exports and their downloads.
    Bulk,
    /// Searches of one of a million Patients.
    Patients,
    /// Searches of a million resources beside PostgreSQL.
    Search,
    /// Downloads of export files.
    Download,
    /// The log.
    Log,
    /// The engine on a database beside the engine on files.
    Postgres,
    /// One, two and three nodes on one database.
    Scale,
    /// The terminal client.
    Client,
}

impl BenchGroup {
    /// The name on the command line, which the benchmarks over HTTP also use.
    pub fn name(self) -> String {
        use clap::ValueEnum as _;
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// Arguments of `board`.
#[derive(clap::Args)]
pub struct BoardArgs {
    /// Build the servers of Helios if they are not built yet, which takes an hour.
    #[arg(long)]
    pub helios: bool,
}

/// Arguments of `dist`.
#[derive(clap::Args)]
pub struct DistArgs {
    /// Folder with programs for this machine. Without it, static programs are built for all platforms.
    #[arg(long)]
    pub programs: Option<PathBuf>,
    /// Address of the folder that will contain the files, for install.sh and the formula of Homebrew.
    #[arg(long, value_name = "URL")]
    pub releases: Option<String>,
}

/// Arguments of `mutants`.
#[derive(clap::Args)]
pub struct MutantArgs {
    /// Run only faults whose name contains one of these texts.
    pub filter: Vec<String>,
    /// Run only this number of faults.
    #[arg(long, value_name = "N")]
    pub sample: Option<usize>,
    /// Number that selects the faults of the sample.
    #[arg(long, default_value_t = 1, requires = "sample")]
    pub seed: u64,
    /// Start the servers outside of the suite, and pass their addresses with --target.
    #[arg(long)]
    pub black_box: bool,
    /// Number of servers that run at the same time; by default the number of processors.
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    /// List the faults without running them.
    #[arg(long)]
    pub list: bool,
    /// Write the list of faults in the documentation, and run nothing.
    #[arg(long)]
    pub document: bool,
}

impl MutantArgs {
    /// The arguments for a sample of this size.
    pub fn for_sample(size: usize) -> Self {
        Self { sample: Some(size), ..Self::for_all() }
    }

    /// The arguments for all faults.
    pub fn for_all() -> Self {
        Self {
            filter: Vec::new(),
            sample: None,
            seed: 1,
            black_box: false,
            jobs: None,
            list: false,
            document: false,
        }
    }
}

/// Arguments of `soak`.
#[derive(clap::Args)]
pub struct SoakArgs {
    /// Number of runs of each fuzz target.
    #[arg(long, default_value_t = 10_000_000)]
    pub runs: u64,
    /// Number of times the server is killed.
    #[arg(long, default_value_t = 200)]
    pub kills: u64,
    /// Run only checks whose name contains this text: a fuzz target, `terminology` for the benchmark,
    /// `expression-constraints`, `kills`, `nodes`, `simulation`, `power-cuts`, `attacks`, `drills`,
    /// `searches`, `increments`, `package`, `rolling-upgrade`, `mutants`, `wire-faults` or
    /// `helios`.
    #[arg(long, value_name = "NAME")]
    pub only: Option<String>,
    /// List the checks without running them.
    #[arg(long)]
    pub list: bool,
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;

    /// Tests of the documents check commands with `--help`, so that no command runs.
    #[test]
    fn help_is_shown_after_any_benchmark_group() {
        for group in ["identity", "terminology", "bulk", "download", "log", "postgres", "scale", "client"] {
            let parsed = Cli::try_parse_from(["xtask", "bench", group, "--help"]);
            assert_eq!(parsed.err().map(|error| error.kind()), Some(ErrorKind::DisplayHelp), "{group}");
        }
        let parsed = Cli::try_parse_from(["xtask", "bench", "no-such-group", "--help"]);
        assert_eq!(parsed.err().map(|error| error.kind()), Some(ErrorKind::InvalidValue));
    }
}
