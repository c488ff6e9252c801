//! Flags and commands of the `trefoil` program. Exit codes: 0 success, 1 failure, 2 wrong usage, 3 wrong
//! configuration.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::administration::arguments::AdminSubcommand;
use crate::config::{ENVIRONMENT, ServeFlags};
use crate::migrate::{MigrateArgs, run_migrate};
use crate::node::memory_limit;
use crate::trust::{self, TrustArgs};
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
    #[command(after_help = serve_after_help())]
    Serve(ServeFlags),
    /// Create or update the tables of a PostgreSQL database.
    ///
    /// A server does so when it starts, unless `[store] migrate` is false.
    #[command(after_help = "Example:\n  trefoil migrate --store postgres://owner@db.example/trefoil")]
    Migrate(MigrateArgs),
    /// Add the development CA to the certificate stores of this machine, or remove it.
    ///
    /// Changes the stores of the system, of Chromium and of Firefox, after it has shown the commands and
    /// asked.
    #[command(
        after_help = "Examples:\n  trefoil trust --data ./demo\n  trefoil trust --data ./demo --remove"
    )]
    Trust(TrustArgs),
    /// The administration of a data folder.
    #[command(flatten)]
    Administration(AdminSubcommand),
}

/// An example of `serve` and the environment variables.
fn serve_after_help() -> String {
    let mut text =
        "Example:\n  trefoil serve --demo --data ./demo --listen 127.0.0.1:8443\n\nEnvironment:".to_owned();
    for (name, meaning) in ENVIRONMENT {
        text.push_str(&format!("\n  {name:<20}  {meaning}"));
    }
    text
}

/// Runs a command and returns its exit code.
pub fn run_program(cli: CommandLine) -> ExitCode {
    if matches!(cli.command, ServerCommand::Serve(_)) {
        // Before any thread is started.
        memory_limit::return_memory_at_once();
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("the runtime starts");
    let code = match cli.command {
        ServerCommand::Serve(flags) => runtime.block_on(serve::run_server(&flags)),
        ServerCommand::Migrate(args) => runtime.block_on(run_migrate(args)),
        ServerCommand::Trust(args) => trust::run_trust(&args),
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
