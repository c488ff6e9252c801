//! Flags and commands of the `trefoil` program. Exit codes: 0 success, 1 failure, 2 wrong usage, 3 wrong
//! configuration.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::administration::arguments::{
    ClientCommand, ClockCommand, DataArgs, ExportArgs, KeysCommand, UserCommand,
};
use crate::config::ServeFlags;
use crate::{administration, serve};

/// Sign-in, terminology and bulk export for health apps, in one server.
#[derive(Debug, Parser)]
#[command(name = "trefoil", version, arg_required_else_help = true)]
pub struct CommandLine {
    /// The command to run.
    #[command(subcommand)]
    pub command: ServerCommand,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum ServerCommand {
    /// Run the server.
    #[command(after_help = "Example:\n  trefoil serve --demo --data ./demo --listen 127.0.0.1:8443")]
    Serve(ServeArgs),
    /// Import resources and releases of code systems.
    ///
    /// Resources: NDJSON, JSON, Bundles, FHIR packages (.tgz) and folders, each also as .gz. Releases, as a folder or
    /// .zip: SNOMED CT RF2, LOINC, RxNorm, ICD-10-CM, ClaML, CSV.
    #[command(
        after_help = "Examples:\n  trefoil import --data ./data hl7.fhir.r4.core.tgz patients/\n  trefoil import --data ./data SnomedCT_International.zip SnomedCT_Extension.zip"
    )]
    Import {
        /// The data folder.
        #[command(flatten)]
        data: DataArgs,
        /// Files and folders to import
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// Export resources to a folder as NDJSON.
    ///
    /// Writes one file per type, with all resources or those of the members of a Group.
    #[command(
        after_help = "Example:\n  trefoil export --data ./data --out ./today --type Patient,Observation"
    )]
    Export {
        /// The data folder.
        #[command(flatten)]
        data: DataArgs,
        /// The resources to export, and the folder.
        #[command(flatten)]
        export: ExportArgs,
    },
    /// Manage users.
    #[command(after_help = "Example:\n  echo 'a long password' | trefoil user add ada --name 'Ada Example'")]
    User {
        /// The data folder.
        #[command(flatten)]
        data: DataArgs,
        /// The action.
        #[command(subcommand)]
        command: UserCommand,
    },
    /// Manage clients.
    #[command(
        after_help = "Example:\n  trefoil client add web --redirect-uri https://app.example/cb --scope 'openid profile'"
    )]
    Client {
        /// The data folder.
        #[command(flatten)]
        data: DataArgs,
        /// The action.
        #[command(subcommand)]
        command: ClientCommand,
    },
    /// Make a running server read its configuration again, as SIGHUP does.
    #[command(after_help = "Example:\n  trefoil reload --data ./data")]
    Reload {
        /// The data folder.
        #[command(flatten)]
        data: DataArgs,
    },
    /// Manage how a running server treats the clock of the machine.
    #[command(after_help = "Example:\n  trefoil clock accept --data ./data")]
    Clock {
        /// The data folder.
        #[command(flatten)]
        data: DataArgs,
        /// The action.
        #[command(subcommand)]
        command: ClockCommand,
    },
    /// Manage signing keys.
    #[command(after_help = "Example:\n  trefoil keys rotate --data ./data")]
    Keys {
        /// The data folder.
        #[command(flatten)]
        data: DataArgs,
        /// The action.
        #[command(subcommand)]
        command: KeysCommand,
    },
}

/// Flags of `serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Configuration file; flags take precedence over it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Folder for the store, exports, keys and certificate [default: trefoil-data]
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// Store engine: memory or file [default: file]
    #[arg(long, value_name = "ENGINE")]
    store: Option<String>,
    /// Address and port to listen on; port 0 chooses a free one [default: 127.0.0.1:8443]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Base URL of the server [default: https://localhost:PORT]
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// Add the demo project and serve it, on loopback addresses only
    #[arg(long)]
    demo: bool,
    /// Serve plain HTTP, on loopback addresses only: for benchmarks or a local TLS proxy
    #[arg(long)]
    insecure_http: bool,
}

/// Runs a command and returns its exit code.
pub fn run_program(cli: CommandLine) -> ExitCode {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("the runtime starts");
    let code =
        match cli.command {
            ServerCommand::Serve(args) => runtime.block_on(serve::run_server(&ServeFlags {
                config: args.config,
                data: args.data,
                store: args.store,
                listen: args.listen,
                base_url: args.base_url,
                demo: args.demo,
                insecure_http: args.insecure_http,
            })),
            ServerCommand::Import { data, paths } => runtime
                .block_on(administration::run_command(&data, administration::AdminCommand::Import { paths })),
            ServerCommand::Export { data, export } => runtime
                .block_on(administration::run_command(&data, administration::AdminCommand::Export(export))),
            ServerCommand::User { data, command } => runtime
                .block_on(administration::run_command(&data, administration::AdminCommand::User(command))),
            ServerCommand::Client { data, command } => runtime
                .block_on(administration::run_command(&data, administration::AdminCommand::Client(command))),
            ServerCommand::Keys { data, command } => runtime
                .block_on(administration::run_command(&data, administration::AdminCommand::Keys(command))),
            ServerCommand::Clock { data, command } => runtime
                .block_on(administration::run_command(&data, administration::AdminCommand::Clock(command))),
            ServerCommand::Reload { data } => {
                runtime.block_on(administration::run_command(&data, administration::AdminCommand::Reload))
            }
        };
    // A blocking read of standard input must not delay the end of the process.
    runtime.shutdown_background();
    code
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent_and_every_command_has_an_example() {
        CommandLine::command().debug_assert();
        for command in CommandLine::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "{}", command.get_name());
        }
    }

    #[test]
    fn a_key_id_may_begin_with_a_hyphen() {
        assert!(CommandLine::try_parse_from(["trefoil", "keys", "revoke", "-x7_"]).is_ok());
    }
}
