//! Administration: import, export, users, clients and keys. The same code runs on the data folder of a
//! stopped server and, through a socket in that folder, inside a running server.
//!
//! | module | contents |
//! |---|---|
//! | [`all_commands`] | all commands, one line each |
//! | [`commands`] | the commands, one type each |
//! | [`command`] | what commands have in common: doors, input, answers, errors |
//! | [`events`] | progress, results and errors of a running command |
//! | [`arguments`] | arguments of the command line that all commands have |
//! | `member_flags` | the flags of the members of users and clients |
//! | [`protocol`] | the messages on the socket |
//! | `package_cache` | FHIR packages by name |
//! | [`client_keys`] | key pairs of clients |
//! | `console` | output of a command |
//! | [`socket`] | the socket: one command in, events out |
//! | `execute` | runs one command for the command line |
//! | `services` | the services that the commands use |
//! | [`shown`], [`user_facts`] | the forms of users, clients, sessions, consents and keys for output |
//! | [`registration_warnings`] | warnings about registrations that can hardly work |
//! | [`user_change`] | a change of a user |
//! | [`import`] | import |
//! | [`feed`] | feeds of releases |
//! | [`export`] | export |
//! | [`backups`] | backups |
//! | [`accept_restored`] | a database that went back in time |
//! | [`purge`] | erasure of a patient's record |
//! | [`copy`] | moves to another store |
//! | [`check`] | comparison of what is stored with what should be |
//! | [`status`] | the state of the server |

pub mod accept_restored;
pub mod all_commands;
pub mod arguments;
pub mod backups;
pub mod check;
pub mod client_keys;
pub mod command;
pub mod commands;
mod console;
pub mod copy;
pub mod events;
pub mod execute;
pub mod export;
pub mod feed;
pub mod import;
pub mod member_flags;
mod package_cache;
pub mod protocol;
pub mod purge;
pub mod registration_warnings;
mod services;
pub mod shown;
pub mod socket;
pub mod status;
pub mod user_change;
pub mod user_facts;

use std::io::{BufRead as _, IsTerminal as _};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use command_line::question;
use identity::{Dependencies, Identity};
use resources::Resources;
use resources::assign_stored::record_new_store;
use store::StoreError;
use tokio_util::sync::CancellationToken;

use self::all_commands::{AdminCommand, AdminLine};
use self::arguments::DataArgs;
use self::command::{ProgramInput, StoreNeed};
pub use self::console::Console;
use self::events::{CommandEvent, EventSink};
use self::execute::execute_command;
pub use self::services::AdminServices;
use crate::clock::Clock;
use crate::config::audit::{AuditConfig, Durability};
use crate::config::{Config, StoreEngine, exit_code, read_identity};
use crate::node::backups::BackupSources;
use crate::node::data_folder::{has_store, make_data_folder, require_store};
use crate::node::hashing::PasswordHasher;
use crate::node::store_state::check_usable;
use crate::records::audit::{AuditCaller, AuditLog, AuditSource};

/// The standard input of the program.
struct StandardInput;

impl ProgramInput for StandardInput {
    fn password(&mut self) -> Result<String> {
        read_password()
    }

    fn warn(&mut self, text: &str) {
        eprintln!("warning: {text}");
    }
}

/// Runs a command through the socket of a running server, or on the data folder of a stopped one.
pub async fn run_command(AdminLine { data: mut args, mut command }: AdminLine) -> ExitCode {
    let input = args.locate().and_then(|()| command.read_input(&mut StandardInput));
    if input.is_ok()
        && let Some(question) = command.question()
        && !args.output.yes
        // A script has no terminal, so that its commands are not confirmed.
        && question::ask(&question) == Some(false)
    {
        eprintln!("nothing was changed");
        return ExitCode::FAILURE;
    }
    let console = Console::new(args.output);
    let mut print = |event: CommandEvent| console.print_event(event);
    let stop = CancellationToken::new();
    let work = async {
        input?;
        if let Some(output) = command.run_in_program() {
            return Ok(output?.tell(&mut print));
        }
        if command.ends_early() {
            tokio::spawn(stop_by_ctrl_c(stop.clone()));
        }
        perform(&args, command, &stop, &mut print).await
    };
    let result = work.await;
    console.clear();
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error:#}");
            exit_code(&error)
        }
    }
}

/// Runs a command in the running server of the data folder, or on the folder itself. Returns the exit code.
///
/// # Errors
/// The error of the command.
pub async fn perform(
    args: &DataArgs,
    command: AdminCommand,
    stop: &CancellationToken,
    events: EventSink<'_>,
) -> Result<u8> {
    match socket::send_command(&args.data, &command, stop, events).await? {
        Some(code) => Ok(code),
        None => Box::pin(run_offline(args, command, stop, events)).await,
    }
}

/// Ends a command early when the operator presses Ctrl-C, and the program when it is pressed again.
async fn stop_by_ctrl_c(stop: CancellationToken) {
    if tokio::signal::ctrl_c().await.is_ok() {
        eprintln!("stopping; press Ctrl-C again to end at once");
        stop.cancel();
    }
    if tokio::signal::ctrl_c().await.is_ok() {
        std::process::exit(i32::from(import::STOPPED));
    }
}

async fn run_offline(
    args: &DataArgs,
    command: AdminCommand,
    stop: &CancellationToken,
    events: EventSink<'_>,
) -> Result<u8> {
    let data = &args.data;
    if matches!(command, AdminCommand::Reload(_)) {
        bail!("no server runs on {}; its settings are read at the start", data.display());
    }
    if matches!(command, AdminCommand::ClockAccept(_)) {
        bail!("no server runs on {}; the clock is accepted at the start", data.display());
    }
    let flags = args.serve_flags();
    let config = Config::load(&flags)?;
    let backups = BackupSources::new(&config, &flags);
    let need = command.store();
    let creates_store = need != StoreNeed::Existing;
    let engine = match creates_store {
        true => config.engine,
        false => require_store(config.engine, data)?,
    };
    if need == StoreNeed::CreatedWithNotice && engine == StoreEngine::File && !has_store(data) {
        events(CommandEvent::Trouble(format!("created a store in {}", data.display())));
    }
    let rules = config.settings.resource_rules();
    let preferred_versions = config.settings.preferred_versions.clone();
    // Stored references may begin with the base URL of the running server.
    let fhir_base = format!("{}/fhir/R4", config.base_url.as_deref().unwrap_or("https://localhost:8443"));
    make_data_folder(data)?;
    let (encryption, passwords) = read_identity(args.config.as_deref())?;
    let store = match engine.open(data).await {
        Ok(store) => store,
        Err(error @ StoreError::Locked { .. }) => bail!("{error}"),
        Err(error) => return Err(error).context("failed to open the store"),
    };
    let clock = Clock::system();
    check_usable(&store, clock.now()).await?;
    if !matches!(command, AdminCommand::StoreAccept(_)) {
        store.check_known(&data.join("node.json")).await?;
    }
    if creates_store {
        record_new_store(&store, clock.now()).await?;
    }
    // With this setting, the audit lines of a command are written with one fsync.
    let source = AuditSource { observer: "https://localhost".to_owned(), node: config.node };
    let config = AuditConfig { durability: Durability::Synced, ..AuditConfig::default() };
    let audit =
        AuditLog::open(data, source, config, clock.clone()).context("failed to open the audit log")?;
    let dependencies = Dependencies { encryption, audit: audit.clone(), ..Dependencies::default() };
    let (random, now) = (clock.random.clone(), clock.now());
    let identity =
        Identity::open_with(store.clone(), random, dependencies, "https://localhost", true, now).await?;
    let resources = Resources::at(store, &fhir_base);
    resources.set_rules(rules);
    let (identity, resources) = (&identity, &resources);
    let hashing = PasswordHasher::new(1);
    let services = AdminServices {
        identity,
        resources,
        data,
        clock: &clock,
        audit: &audit,
        passwords,
        hashing: &hashing,
        backups: &backups,
        preferred_versions,
        app: None,
        stop,
    };
    let (done, recorded) =
        Box::pin(audit.on_behalf(AuditCaller::operator(), execute_command(&services, command, events))).await;
    audit.close();
    let code = done?;
    recorded.context("the command succeeded, but its audit event was not written")?;
    Ok(code)
}

/// Reads a password from standard input, without echo on a terminal.
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
