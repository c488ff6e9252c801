//! Subcommands about servers and about this program: setup, doctor, keys, completions and man pages.

use command_line::help::{print_completions, write_man_pages};
use command_line::text::one_line;
use serde_json::json;

use crate::api::{Api, ApiError};
use crate::args::man_sections::MAN_SECTIONS;
use crate::args::{Args, CompletionsArgs, DoctorArgs, KeysArgs, ManArgs, ProfileArgs, SetupArgs};
use crate::doctor::{self, Finding, FindingStatus};
use crate::failure::CommandFailure;
use crate::keys::key::Key;
use crate::output::Output;
use crate::profile::file::{ProfileFile, ProfileSettings};
use crate::settings;
use crate::setup;

/// Stores a profile.
///
/// # Errors
/// [`CommandFailure`] if the server does not answer, or if the profile cannot be stored.
pub async fn setup(profile: &ProfileArgs, args: SetupArgs) -> Result<(), CommandFailure> {
    if profile.read_only {
        let reason = "this command stores a profile, and may register clients at the server".to_owned();
        return Err(ApiError::ReadOnly(reason).into());
    }
    let settings = ProfileSettings::from(profile);
    let report = setup::run(&args, settings, ProfileFile::of_user()?).await?;
    let details = json!({ "name": report.name, "profile": report.settings, "actions": report.actions });
    Output { json: args.json }.result(&details, || {
        let mut text = report.actions.join("\n");
        text.push_str(&format!(
            "\nstored the profile {0}; use it with: trefoil-tui --profile {0}",
            report.name
        ));
        text
    })
}

pub(super) async fn doctor(api: &Api, args: &DoctorArgs) -> Result<(), CommandFailure> {
    let findings = doctor::examine(api).await;
    Output { json: args.json }.result(&findings, || {
        let line = |finding: &Finding| {
            let status = match finding.status {
                FindingStatus::Ok => "ok     ",
                FindingStatus::Warning => "warning",
                FindingStatus::Failed => "FAILED ",
            };
            format!("{status}  {:<20}  {}", finding.subject, one_line(&finding.detail))
        };
        findings.iter().map(line).collect::<Vec<_>>().join("\n")
    })?;
    match findings.iter().any(|finding| finding.status == FindingStatus::Failed) {
        true => Err(CommandFailure::NegativeResult),
        false => Ok(()),
    }
}

/// Prints the keys of all actions. The names of the actions are those of the settings.
///
/// # Errors
/// [`CommandFailure`] if the settings are invalid, or if the table cannot be printed.
pub fn keys(args: &KeysArgs) -> Result<(), CommandFailure> {
    let path = settings::path_of_user()?;
    let table = settings::read(&path)?.keys;
    let rows: Vec<_> = table.rows_by_action().collect();
    let details: Vec<_> = rows
        .iter()
        .map(|row| {
            let keys: Vec<_> = row.keys.iter().map(Key::to_string).collect();
            json!({ "action": row.action.name(), "keys": keys, "does": row.does, "where": row.place() })
        })
        .collect();
    Output { json: args.json }.result(&details, || {
        format!("# Store lines that you change in {}.\n{}", path.display(), table.settings().trim_end())
    })
}

/// Prints a completion script.
///
/// # Errors
/// [`CommandFailure::Output`] if stdout cannot be written.
pub fn completions(args: &CompletionsArgs) -> Result<(), CommandFailure> {
    print_completions::<Args>(args.shell).map_err(CommandFailure::Output)
}

/// Writes the man pages of the program and its subcommands.
///
/// # Errors
/// [`CommandFailure::Output`] if a page cannot be written.
pub fn man(args: &ManArgs) -> Result<(), CommandFailure> {
    write_man_pages::<Args>(&args.out, &MAN_SECTIONS).map_err(CommandFailure::Output)
}
