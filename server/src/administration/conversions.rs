//! Converts the command line to commands of the [protocol](super::protocol).
//!
//! The conversion adds passwords and absolute paths, which the server cannot read itself.

use std::fs;
use std::path::{Path, absolute};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::arguments::{
    AdminSubcommand, ChangeClientArgs, ChangeUserArgs, ClientSubcommand, ClockSubcommand, DataArgs,
    ExportArgs, KeysSubcommand, MethodArgs, NewClientArgs, NewUserArgs, ReleaseSubcommand, UserSubcommand,
};
use super::package_cache;
use super::protocol::{
    AdminCommand, ClientCommand, KeysCommand, OperatorExport, ReleaseCommand, RemovedMethods, UserCommand,
};
use crate::config::backup::is_bucket;

impl AdminSubcommand {
    /// The data folder and the command for it. `read_password` is called if the command needs a password.
    ///
    /// The command is an error if a password, a file or the current folder cannot be read.
    pub fn into_command(
        self,
        read_password: impl FnOnce() -> Result<String>,
    ) -> (DataArgs, Result<AdminCommand>) {
        match self {
            Self::Import { data, edition, version, unpublished, keep_bundles, paths, package_cache } => {
                let paths = package_cache::resolve_packages(paths, package_cache);
                let command =
                    |paths| AdminCommand::Import { paths, edition, version, unpublished, keep_bundles };
                (data, paths.map(command))
            }
            Self::Export { data, export } => (data, export.try_into().map(AdminCommand::Export)),
            Self::User { data, command } => {
                (data, user_command(command, read_password).map(AdminCommand::User))
            }
            Self::Client { data, command } => (data, command.try_into().map(AdminCommand::Client)),
            Self::Release { data, command } => (data, Ok(AdminCommand::Release(command.into()))),
            Self::Keys { data, command } => (data, Ok(AdminCommand::Keys(command.into()))),
            Self::Clock { data, command: ClockSubcommand::Accept } => (data, Ok(AdminCommand::AcceptClock)),
            Self::Backup { data, to, full } => {
                let to = to.map(|to| match is_bucket(&to) {
                    true => Ok(to),
                    false => absolute(to).map(|path| path.display().to_string()),
                });
                (data, to.transpose().map(|to| AdminCommand::Backup { to, full }).map_err(Into::into))
            }
            Self::Compact { data } => (data, Ok(AdminCommand::Compact)),
            Self::Purge { data, resource } => (data, Ok(AdminCommand::Purge { resource })),
            Self::Check { data } => (data, Ok(AdminCommand::Check)),
            Self::Status { data } => (data, Ok(AdminCommand::Status)),
            Self::Reload { data } => (data, Ok(AdminCommand::Reload)),
        }
    }
}

impl TryFrom<ExportArgs> for OperatorExport {
    type Error = anyhow::Error;

    fn try_from(args: ExportArgs) -> Result<Self> {
        let ExportArgs { out, group, since, types } = args;
        Ok(Self { out: absolute(out)?, group, since: since.map(instant_or_folder).transpose()?, types })
    }
}

/// The value of `--since`: an instant, or the folder of an earlier export, which is replaced by its time.
fn instant_or_folder(since: String) -> Result<String> {
    if !Path::new(&since).is_dir() {
        return Ok(since);
    }
    let path = Path::new(&since).join("manifest.json");
    let manifest = fs::read(&path)
        .with_context(|| format!("{since} is not a complete export: no {}", path.display()))?;
    let manifest: Value = serde_json::from_slice(&manifest).with_context(|| path.display().to_string())?;
    let time = manifest["transactionTime"].as_str();
    Ok(time.with_context(|| format!("{} has no transactionTime", path.display()))?.to_owned())
}

fn user_command(
    command: UserSubcommand,
    read_password: impl FnOnce() -> Result<String>,
) -> Result<UserCommand> {
    Ok(match command {
        UserSubcommand::Add(NewUserArgs { username, members }) => {
            UserCommand::Add { username, members: members.members, password: read_password()? }
        }
        UserSubcommand::Change(ChangeUserArgs { username, members, unset }) => {
            UserCommand::Change { username, members: members.with_unset(unset)? }
        }
        UserSubcommand::List { irregular_names: true } => UserCommand::ListIrregularNames,
        UserSubcommand::List { irregular_names: false } => UserCommand::List,
        UserSubcommand::Show { name } => UserCommand::Show { name },
        UserSubcommand::SetPassword { name, keep_other_methods } => {
            UserCommand::SetPassword { name, password: read_password()?, keep_other_methods }
        }
        UserSubcommand::Disable { name } => UserCommand::Disable { name },
        UserSubcommand::Enable { name } => UserCommand::Enable { name },
        UserSubcommand::Delete { name, forget } => UserCommand::Delete { name, forget },
        UserSubcommand::SignOut { name } => UserCommand::SignOut { name },
        UserSubcommand::RemoveMethods { name, methods } => {
            UserCommand::RemoveMethods { name, methods: methods.into() }
        }
    })
}

impl From<MethodArgs> for RemovedMethods {
    fn from(args: MethodArgs) -> Self {
        match args {
            MethodArgs { passkey: Some(id), .. } => Self::Passkey(id),
            MethodArgs { linked_account: Some(id), .. } => Self::LinkedAccount(id),
            MethodArgs { forget_account: Some(id), .. } => Self::ForgetAccount(id),
            MethodArgs { recovery_codes: true, .. } => Self::RecoveryCodes,
            MethodArgs { .. } => Self::All,
        }
    }
}

impl TryFrom<ClientSubcommand> for ClientCommand {
    type Error = anyhow::Error;

    fn try_from(command: ClientSubcommand) -> Result<Self> {
        Ok(match command {
            ClientSubcommand::Add(NewClientArgs { id, members }) => {
                Self::Add { id, members: members.members }
            }
            ClientSubcommand::Change(ChangeClientArgs { id, members, unset }) => {
                Self::Change { id, members: members.with_unset(unset)? }
            }
            ClientSubcommand::List => Self::List,
            ClientSubcommand::Show { id } => Self::Show { id },
            ClientSubcommand::RotateSecret { id, overlap_s } => Self::RotateSecret { id, overlap_s },
            ClientSubcommand::Delete { id } => Self::Delete { id },
            // It is run before, because it needs no store.
            ClientSubcommand::Keygen(_) => bail!("a key pair is generated without a server"),
        })
    }
}

impl From<ReleaseSubcommand> for ReleaseCommand {
    fn from(command: ReleaseSubcommand) -> Self {
        match command {
            ReleaseSubcommand::List => Self::List,
            ReleaseSubcommand::Show { id } => Self::Show { id },
            ReleaseSubcommand::Remove { id, force } => Self::Remove { id, force },
        }
    }
}

impl From<KeysSubcommand> for KeysCommand {
    fn from(command: KeysSubcommand) -> Self {
        match command {
            KeysSubcommand::List => Self::List,
            KeysSubcommand::Rotate { server_secret: true, .. } => Self::RotateServerSecret,
            KeysSubcommand::Rotate { now, .. } => Self::Rotate { now },
            KeysSubcommand::Revoke { kid } => Self::Revoke { kid },
        }
    }
}
