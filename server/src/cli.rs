//! Flags and commands of the `trefoil` program. Exit codes: 0 success, 1 failure, 2 wrong usage, 3 wrong
//! configuration.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::administration::arguments::AdminSubcommand;
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
#[expect(clippy::large_enum_variant, reason = "one command is read in the life of a process")]
#[derive(Debug, Subcommand)]
pub enum ServerCommand {
    /// Run the server.
    #[command(after_help = "Example:\n  trefoil serve --demo --data ./demo --listen 127.0.0.1:8443")]
    Serve(ServeArgs),
    /// The administration of a data folder.
    #[command(flatten)]
    Administration(AdminSubcommand),
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
    let code = match cli.command {
        ServerCommand::Serve(args) => runtime.block_on(serve::run_server(&ServeFlags {
            config: args.config,
            data: args.data,
            store: args.store,
            listen: args.listen,
            base_url: args.base_url,
            demo: args.demo,
            insecure_http: args.insecure_http,
        })),
        ServerCommand::Administration(arguments) => runtime.block_on(administration::run_command(arguments)),
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
