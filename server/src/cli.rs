//! Flags and commands of the `trefoil` program. Exit codes: 0 success, 1 failure, 2 wrong usage, 3 wrong
//! configuration.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use command_line::help;

use crate::administration::all_commands::AdminLine;
use crate::config::{ENVIRONMENT, ServeFlags};
use crate::migrate::{MigrateArgs, run_migrate};
use crate::new_app::{NewAppArgs, run_new_app};
use crate::node::memory_limit;
use crate::transfer::{CopyArgs, RestoreArgs, run_copy, run_restore};
use crate::trust::{self, TrustArgs};
use crate::upgrade_check::{UpgradeCheckArgs, run_upgrade_check};
use crate::{administration, serve};

/// Sign-in, terminology and bulk export for health apps, in one server.
#[derive(Debug, Parser)]
#[command(
    name = "trefoil",
    version,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 success, 1 failure, 2 wrong usage, 3 wrong configuration, 130 stopped by Ctrl-C.\n\n\
        Example:\n  trefoil serve --demo"
)]
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
    /// Say what this version of the program would change in the data of an earlier one.
    ///
    /// Changes nothing; the server of the earlier version may run. Exit code 1 if the data cannot be used.
    #[command(
        after_help = "Examples:\n  trefoil upgrade-check --data /var/lib/trefoil\n  trefoil upgrade-check --config /etc/trefoil/trefoil.toml"
    )]
    UpgradeCheck(UpgradeCheckArgs),
    /// Restore a store from a backup, or check that it could be restored.
    ///
    /// The target must be new: a folder without a store, or an empty database. All sessions and tokens end.
    #[command(
        after_help = "Examples:\n  trefoil restore --from ./backups --verify\n  trefoil restore --from ./backups --data ./restored\n  trefoil restore --from s3://bucket/trefoil --store postgres://owner@db.example/trefoil"
    )]
    Restore(RestoreArgs),
    /// Copy a server to another store: from a folder to a database, or back.
    #[command(
        after_help = "Examples:\n  trefoil copy --data ./trefoil-data --to postgres://owner@db.example/trefoil\n  trefoil copy --store postgres://owner@db.example/trefoil --to file:./one-machine"
    )]
    Copy(CopyArgs),
    /// Register an app and write an example that signs in with it.
    ///
    /// Asks what the app is, registers its client, and writes a program of about 40 lines with the settings
    /// that it needs. Run again, it shows the commands; with --remove, it deletes what it made.
    #[command(
        after_help = "Examples:\n  trefoil new-app shop\n  trefoil new-app reports --kind backend --language python\n  trefoil new-app reports --remove"
    )]
    NewApp(NewAppArgs),
    /// Add the development CA to the certificate stores of this machine, or remove it.
    ///
    /// Changes the stores of the system, of Chromium and of Firefox, after it has shown the commands and
    /// asked.
    #[command(
        after_help = "Examples:\n  trefoil trust --data ./demo\n  trefoil trust --data ./demo --remove"
    )]
    Trust(TrustArgs),
    /// Print a completion script for a shell.
    #[command(
        after_help = "Example:\n  trefoil completions bash > /usr/share/bash-completion/completions/trefoil"
    )]
    Completions {
        /// Shell.
        shell: clap_complete::Shell,
    },
    /// Write the man pages to a folder.
    #[command(after_help = "Example:\n  trefoil man --out /usr/share/man/man1")]
    Man {
        /// Folder for the pages
        #[arg(long, value_name = "FOLDER")]
        out: PathBuf,
    },
    /// Print a file to begin with.
    #[command(after_help = "Example:\n  trefoil template codes > codes.csv\n  trefoil import codes.csv")]
    Template {
        /// File: a code system as CSV
        #[arg(value_enum)]
        file: TemplateFile,
    },
    /// The administration of a data folder.
    #[command(flatten)]
    Administration(AdminLine),
}

/// A file that `trefoil template` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum TemplateFile {
    /// A code system as CSV.
    Codes,
}

impl TemplateFile {
    fn text(self) -> &'static str {
        match self {
            Self::Codes => include_str!("templates/codes.csv"),
        }
    }
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
        ServerCommand::UpgradeCheck(args) => runtime.block_on(run_upgrade_check(args)),
        ServerCommand::Restore(args) => runtime.block_on(run_restore(args)),
        ServerCommand::Copy(args) => runtime.block_on(run_copy(args)),
        ServerCommand::NewApp(args) => runtime.block_on(run_new_app(args)),
        ServerCommand::Trust(args) => trust::run_trust(&args),
        ServerCommand::Completions { shell } => {
            // A closed pipe (`| head`) is not an error.
            drop(help::print_completions::<CommandLine>(shell));
            ExitCode::SUCCESS
        }
        ServerCommand::Man { out } => write_man_pages(&out),
        ServerCommand::Template { file } => {
            // A closed pipe (`| head`) is not an error.
            drop(std::io::stdout().write_all(file.text().as_bytes()));
            ExitCode::SUCCESS
        }
        ServerCommand::Administration(arguments) => runtime.block_on(administration::run_command(arguments)),
    };
    // A blocking read of standard input must not delay the end of the process.
    runtime.shutdown_background();
    code
}

/// Writes a page for the program and for each of its commands.
fn write_man_pages(folder: &Path) -> ExitCode {
    match help::write_man_pages::<CommandLine>(folder, &[]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: failed to write the man pages to {}: {error}", folder.display());
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_every_command_has_an_example() {
        CommandLine::command().debug_assert();
        fn check(command: &clap::Command, name: &str) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "'{name}' has no example");
            for subcommand in command.get_subcommands() {
                check(subcommand, &format!("{name} {}", subcommand.get_name()));
            }
        }
        check(&CommandLine::command(), "trefoil");
    }

    #[test]
    fn the_template_of_codes_can_be_imported() {
        let text = TemplateFile::Codes.text().as_bytes().to_vec();
        let imported = terminology_import::import_files(vec![("codes.csv".to_owned(), text)]).unwrap();
        assert_eq!(imported.index.url(), "https://example.org/codes");
    }

    #[test]
    fn a_key_id_may_begin_with_a_hyphen() {
        assert!(CommandLine::try_parse_from(["trefoil", "keys", "revoke", "-x7_"]).is_ok());
    }
}
