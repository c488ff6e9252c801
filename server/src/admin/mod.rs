//! Administration: import, export, users, clients, keys. The same code runs in process on a stopped
//! server's folder and, through a socket in the folder, inside a running server.
//!
//! | module | what lives there |
//! |---|---|
//! | `console` | what a command says, on the terminal or the pipe of who gave it |
//! | [`socket`] | the socket: one command in, events out |
//! | [`people`] | users, clients, keys |
//! | [`import`] | import |
//! | [`export`] | export |

mod console;
pub mod export;
pub mod import;
pub mod people;
pub mod socket;

use std::io::{BufRead as _, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use identity::password::PasswordPolicy;
use identity::{Identity, Outside};
use resources::Resources;
use serde::{Deserialize, Serialize};
use store::{Store, StoreError};

use self::console::Console;
use crate::app::App;
use crate::audit::{Audit, AuditConfig, Caller, Durability};
use crate::cli::{ClientCommand, ClockCommand, DataArgs, ExportArgs, KeysCommand, UserCommand};
use crate::clock::Clock;
use crate::config::{Config, Flags, read_identity};
use crate::reload::reload;
use crate::serve::exit_code;

/// A command as it goes through the socket.
#[derive(Debug, Serialize, Deserialize)]
pub enum Command {
    /// Load resources.
    Import {
        /// Absolute paths.
        paths: Vec<PathBuf>,
    },
    /// Write resources into a folder, by an absolute path.
    Export(ExportArgs),
    /// Users.
    User(UserCommand),
    /// Clients.
    Client(ClientCommand),
    /// Keys.
    Keys(KeysCommand),
    /// Settings.
    Reload,
    /// The clock.
    Clock(ClockCommand),
}

/// What a command says while it runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Event {
    /// A line of the answer, for standard output.
    Line(String),
    /// How far long work is, durably: a moving line on a terminal, a line when piped.
    Progress(String),
    /// How far reading is: a bar on a terminal, nothing when piped.
    Reading {
        /// What is being done, and with which file.
        doing: String,
        /// Bytes that were read.
        bytes: u64,
        /// Bytes that there are to read.
        of: u64,
    },
    /// A line about what went wrong, for standard error.
    Trouble(String),
    /// Ended, with an exit code.
    Exit(u8),
}

/// Where events go.
pub type Events<'a> = &'a mut (dyn FnMut(Event) + Send);

/// What commands work on.
pub struct Services<'a> {
    /// Users, clients, keys.
    pub identity: &'a Identity,
    /// Resources.
    pub resources: &'a Resources,
    /// The data folder.
    pub data: &'a Path,
    /// Time and chance.
    pub clock: &'a Clock,
    /// The audit log.
    pub audit: &'a Audit,
    /// What a new password must be.
    pub passwords: PasswordPolicy,
    /// The server, where one runs.
    pub app: Option<&'a App>,
}

/// Carries a command out.
///
/// # Errors
/// What went wrong and what to do.
pub async fn execute(services: &Services<'_>, command: Command, events: Events<'_>) -> Result<u8> {
    match command {
        Command::Import { paths } => import::run(services, paths, events).await,
        Command::Export(args) => export::run(services, args, events).await.map(|()| 0),
        Command::User(command) => people::user(services, command, events).await.map(|()| 0),
        Command::Client(command) => people::client(services, command, events).await.map(|()| 0),
        Command::Keys(command) => people::keys(services, command, events).await.map(|()| 0),
        Command::Clock(ClockCommand::Accept) => {
            let app =
                services.app.context("no server runs on this folder; a clock is accepted at the start")?;
            let moved = app.clock_guard.accept();
            tracing::warn!(moved_s = moved.as_secs(), "an operator accepted the clock");
            events(Event::Line(format!(
                "accepted the clock, {}; it had moved by {} s",
                app.clock.now(),
                moved.as_secs()
            )));
            Ok(0)
        }
        Command::Reload => {
            let app =
                services.app.context("no server runs on this folder; its settings are read at the start")?;
            reload(app).await?.into_iter().for_each(|line| events(Event::Line(line)));
            Ok(0)
        }
    }
}

/// Runs a command from the command line: through the socket of a running server, else on the folder.
pub async fn run(args: &DataArgs, command: Command) -> ExitCode {
    let console = Console::new();
    let mut say = |event: Event| console.say(event);
    let done = async {
        let command = complete(command)?;
        match socket::send(&args.data, &command, &mut say).await? {
            Some(code) => Ok(code),
            None => offline(args, command, &mut say).await,
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

async fn offline(args: &DataArgs, command: Command, events: Events<'_>) -> Result<u8> {
    let data = &args.data;
    if matches!(command, Command::Reload) {
        bail!("no server runs on {}; its settings are read at the start", data.display());
    }
    if matches!(command, Command::Clock(_)) {
        bail!("no server runs on {}; a clock is accepted at the start", data.display());
    }
    // Stored references may begin with the address of the server.
    let mut fhir_base = String::new();
    if matches!(command, Command::Export(_) | Command::Import { .. }) {
        let flags = Flags { config: args.config.clone(), data: Some(data.clone()), ..Flags::default() };
        let base_url = Config::load(&flags)?.base_url;
        fhir_base = format!("{}/fhir/R4", base_url.as_deref().unwrap_or("https://localhost:8443"));
    }
    crate::serve::make_data_folder(data)?;
    let (seal, passwords) = read_identity(args.config.as_deref())?;
    let store = match Store::open(&data.join("store")) {
        Ok(store) => store,
        Err(error @ StoreError::Locked { .. }) => bail!("{error}"),
        Err(error) => return Err(error).context("failed to open the store"),
    };
    let clock = Clock::system();
    // One command costs one fsync.
    let config = AuditConfig { durability: Durability::Synced, ..AuditConfig::default() };
    let audit = Audit::open(data, "https://localhost", config, clock.clone())
        .context("failed to open the audit log")?;
    let outside = Outside { seal, audit: audit.clone(), ..Outside::default() };
    let (random, now) = (clock.random.clone(), clock.now());
    let identity =
        Identity::open_with(store.clone(), random, outside, "https://localhost", true, now).await?;
    let resources = Resources::at(store, &fhir_base);
    let (identity, resources) = (&identity, &resources);
    let services = Services { identity, resources, data, clock: &clock, audit: &audit, passwords, app: None };
    let (done, recorded) = audit.on_behalf(Caller::operator(), execute(&services, command, events)).await;
    audit.close();
    let code = done?;
    recorded.context("the command was carried out")?;
    Ok(code)
}

/// Fills in what only this process can read: passwords from standard input, files, absolute paths.
fn complete(mut command: Command) -> Result<Command> {
    match &mut command {
        Command::Import { paths } => {
            for path in paths {
                *path = std::path::absolute(&*path)?;
            }
        }
        Command::Export(args) => args.out = std::path::absolute(&args.out)?,
        Command::User(UserCommand::Add(user)) => user.password = read_password()?,
        Command::User(UserCommand::SetPassword { password, .. }) => *password = read_password()?,
        Command::Client(ClientCommand::Add(client)) => {
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
