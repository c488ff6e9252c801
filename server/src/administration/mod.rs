//! Administration: import, export, users, clients, keys. The same code works on the folder of a stopped server and,
//! through a socket in the folder, inside a running server.
//!
//! | module | contents |
//! |---|---|
//! | [`arguments`] | arguments of the commands |
//! | `console` | output of a command |
//! | [`socket`] | the socket: one command in, events out |
//! | [`people`] | users, clients, keys |
//! | [`import`] | import |
//! | [`export`] | export |

pub mod arguments;
mod console;
pub mod export;
pub mod import;
pub mod people;
pub mod socket;

use std::io::{BufRead as _, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use identity::sign_in::password::PasswordPolicy;
use identity::{Dependencies, Identity};
use resources::Resources;
use serde::{Deserialize, Serialize};
use store::{Store, StoreError};

use self::arguments::{ClientCommand, ClockCommand, DataArgs, ExportArgs, KeysCommand, UserCommand};
use self::console::Console;
use crate::clock::Clock;
use crate::config::audit::{AuditConfig, Durability};
use crate::config::{Config, ServeFlags, exit_code, read_identity};
use crate::node::app::App;
use crate::node::data_folder::make_data_folder;
use crate::node::reload::reload_config;
use crate::records::audit::{AuditCaller, AuditLog};

/// A command as it is sent through the socket.
#[derive(Debug, Serialize, Deserialize)]
pub enum AdminCommand {
    /// Load resources.
    Import {
        /// Absolute paths.
        paths: Vec<PathBuf>,
    },
    /// Write resources to a folder, by an absolute path.
    Export(ExportArgs),
    /// Users.
    User(UserCommand),
    /// Clients.
    Client(ClientCommand),
    /// Keys.
    Keys(KeysCommand),
    /// Read the configuration again.
    Reload,
    /// The clock.
    Clock(ClockCommand),
}

/// An event of a running command.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum CommandEvent {
    /// A line of the result, for standard output.
    Line(String),
    /// Durable progress: a line that is updated on a terminal, a line of output in a pipe.
    Progress(String),
    /// Progress of reading: a bar on a terminal, not shown in a pipe.
    Reading {
        /// The activity and the file.
        doing: String,
        /// Number of bytes read.
        bytes: u64,
        /// Number of bytes in total.
        of: u64,
    },
    /// A line about an error, for standard error.
    Trouble(String),
    /// The end of the command, with its exit code.
    Exit(u8),
}

/// Receiver of events.
pub type EventSink<'a> = &'a mut (dyn FnMut(CommandEvent) + Send);

/// The services that commands use.
pub struct AdminServices<'a> {
    /// Users, clients and keys.
    pub identity: &'a Identity,
    /// Resources.
    pub resources: &'a Resources,
    /// The data folder.
    pub data: &'a Path,
    /// Time and randomness.
    pub clock: &'a Clock,
    /// The audit log.
    pub audit: &'a AuditLog,
    /// Requirements for new passwords.
    pub passwords: PasswordPolicy,
    /// The running server; `None` if the server is stopped.
    pub app: Option<&'a App>,
}

/// Executes a command.
///
/// # Errors
/// Returns an error that says what failed and what to do.
pub async fn execute_command(
    services: &AdminServices<'_>,
    command: AdminCommand,
    events: EventSink<'_>,
) -> Result<u8> {
    match command {
        AdminCommand::Import { paths } => import::run_import(services, paths, events).await,
        AdminCommand::Export(args) => export::run_export(services, args, events).await.map(|()| 0),
        AdminCommand::User(command) => {
            people::execute_user_command(services, command, events).await.map(|()| 0)
        }
        AdminCommand::Client(command) => {
            people::execute_client_command(services, command, events).await.map(|()| 0)
        }
        AdminCommand::Keys(command) => {
            people::execute_keys_command(services, command, events).await.map(|()| 0)
        }
        AdminCommand::Clock(ClockCommand::Accept) => {
            let app =
                services.app.context("no server runs on this folder; the clock is accepted at the start")?;
            let moved = app.clock_guard.accept();
            tracing::warn!(moved_s = moved.as_secs(), "an operator accepted the clock");
            events(CommandEvent::Line(format!(
                "accepted the clock, {}; it had moved by {} s",
                app.clock.now(),
                moved.as_secs()
            )));
            Ok(0)
        }
        AdminCommand::Reload => {
            let app =
                services.app.context("no server runs on this folder; its settings are read at the start")?;
            reload_config(app).await?.into_iter().for_each(|line| events(CommandEvent::Line(line)));
            Ok(0)
        }
    }
}

/// Runs a command: through the socket of a running server, or on the folder of a stopped one.
pub async fn run_command(args: &DataArgs, command: AdminCommand) -> ExitCode {
    let console = Console::new();
    let mut print = |event: CommandEvent| console.print_event(event);
    let done = async {
        let command = complete_arguments(command)?;
        match socket::send_command(&args.data, &command, &mut print).await? {
            Some(code) => Ok(code),
            None => run_offline(args, command, &mut print).await,
        }
    };
    let done = done.await;
    console.clear();
    match done {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error:#}");
            exit_code(&error)
        }
    }
}

async fn run_offline(args: &DataArgs, command: AdminCommand, events: EventSink<'_>) -> Result<u8> {
    let data = &args.data;
    if matches!(command, AdminCommand::Reload) {
        bail!("no server runs on {}; its settings are read at the start", data.display());
    }
    if matches!(command, AdminCommand::Clock(_)) {
        bail!("no server runs on {}; the clock is accepted at the start", data.display());
    }
    // Stored references may begin with the base URL of the server.
    let mut fhir_base = String::new();
    if matches!(command, AdminCommand::Export(_) | AdminCommand::Import { .. }) {
        let flags =
            ServeFlags { config: args.config.clone(), data: Some(data.clone()), ..ServeFlags::default() };
        let base_url = Config::load(&flags)?.base_url;
        fhir_base = format!("{}/fhir/R4", base_url.as_deref().unwrap_or("https://localhost:8443"));
    }
    make_data_folder(data)?;
    let (encryption, passwords) = read_identity(args.config.as_deref())?;
    let store = match Store::open(&data.join("store")) {
        Ok(store) => store,
        Err(error @ StoreError::Locked { .. }) => bail!("{error}"),
        Err(error) => return Err(error).context("failed to open the store"),
    };
    let clock = Clock::system();
    // A command writes its audit lines with one fsync.
    let config = AuditConfig { durability: Durability::Synced, ..AuditConfig::default() };
    let audit = AuditLog::open(data, "https://localhost", config, clock.clone())
        .context("failed to open the audit log")?;
    let dependencies = Dependencies { encryption, audit: audit.clone(), ..Dependencies::default() };
    let (random, now) = (clock.random.clone(), clock.now());
    let identity =
        Identity::open_with(store.clone(), random, dependencies, "https://localhost", true, now).await?;
    let resources = Resources::at(store, &fhir_base);
    let (identity, resources) = (&identity, &resources);
    let services =
        AdminServices { identity, resources, data, clock: &clock, audit: &audit, passwords, app: None };
    let (done, recorded) =
        audit.on_behalf(AuditCaller::operator(), execute_command(&services, command, events)).await;
    audit.close();
    let code = done?;
    recorded.context("the command succeeded, but its audit event was not written")?;
    Ok(code)
}

/// Completes a command with what only this process can read: passwords from standard input, files, absolute paths.
fn complete_arguments(mut command: AdminCommand) -> Result<AdminCommand> {
    match &mut command {
        AdminCommand::Import { paths } => {
            for path in paths {
                *path = std::path::absolute(&*path)?;
            }
        }
        AdminCommand::Export(args) => args.out = std::path::absolute(&args.out)?,
        AdminCommand::User(UserCommand::Add(user)) => user.password = read_password()?,
        AdminCommand::User(UserCommand::SetPassword { password, .. }) => *password = read_password()?,
        AdminCommand::Client(ClientCommand::Add(client)) => {
            if let Some(path) = &client.jwks {
                let text = std::fs::read_to_string(path);
                client.jwks_text = Some(text.with_context(|| format!("failed to read {}", path.display()))?);
            }
        }
        _ => {}
    }
    Ok(command)
}

fn read_password() -> Result<String> {
    let stdin = std::io::stdin();
    let line = if stdin.is_terminal() {
        rpassword::prompt_password("Password: ")?
    } else {
        let mut line = String::new();
        stdin.lock().read_line(&mut line)?;
        line
    };
    let password = line.trim_end_matches(['\r', '\n']);
    if password.is_empty() {
        bail!("no password was given on standard input");
    }
    Ok(password.to_owned())
}
