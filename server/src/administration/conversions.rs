//! Converts the command line to commands of the [protocol](super::protocol).
//!
//! The conversion adds what the server cannot read itself: passwords, contents of files and absolute paths.

use std::path::{PathBuf, absolute};

use anyhow::{Context as _, Result};

use super::arguments::{
    AdminSubcommand, ClientSubcommand, ClockSubcommand, DataArgs, ExportArgs, KeysSubcommand, MethodArgs,
    NewClientArgs, NewUserArgs, UserSubcommand,
};
use super::protocol::{
    AdminCommand, ClientCommand, KeysCommand, NewClient, NewUser, OperatorExport, RemovedMethods, UserCommand,
};

impl AdminSubcommand {
    /// Returns the data folder and the command for it. `read_password` is called if the command needs a password.
    ///
    /// The command is an error if a password, a file or the current folder cannot be read.
    pub fn into_command(
        self,
        read_password: impl FnOnce() -> Result<String>,
    ) -> (DataArgs, Result<AdminCommand>) {
        match self {
            Self::Import { data, paths } => (data, import_command(paths)),
            Self::Export { data, export } => (data, export.try_into().map(AdminCommand::Export)),
            Self::User { data, command } => {
                (data, user_command(command, read_password).map(AdminCommand::User))
            }
            Self::Client { data, command } => (data, command.try_into().map(AdminCommand::Client)),
            Self::Keys { data, command } => (data, Ok(AdminCommand::Keys(command.into()))),
            Self::Clock { data, command: ClockSubcommand::Accept } => (data, Ok(AdminCommand::AcceptClock)),
            Self::Reload { data } => (data, Ok(AdminCommand::Reload)),
        }
    }
}

fn import_command(paths: Vec<PathBuf>) -> Result<AdminCommand> {
    let paths = paths.into_iter().map(absolute).collect::<std::io::Result<_>>()?;
    Ok(AdminCommand::Import { paths })
}

impl TryFrom<ExportArgs> for OperatorExport {
    type Error = anyhow::Error;

    fn try_from(args: ExportArgs) -> Result<Self> {
        let ExportArgs { out, group, since, types } = args;
        Ok(Self { out: absolute(out)?, group, since, types })
    }
}

fn user_command(
    command: UserSubcommand,
    read_password: impl FnOnce() -> Result<String>,
) -> Result<UserCommand> {
    Ok(match command {
        UserSubcommand::Add(user) => UserCommand::Add { user: user.into(), password: read_password()? },
        UserSubcommand::List => UserCommand::List,
        UserSubcommand::Show { name } => UserCommand::Show { name },
        UserSubcommand::SetPassword { name, keep_other_methods } => {
            UserCommand::SetPassword { name, password: read_password()?, keep_other_methods }
        }
        UserSubcommand::Disable { name } => UserCommand::Disable { name },
        UserSubcommand::Enable { name } => UserCommand::Enable { name },
        UserSubcommand::Delete { name } => UserCommand::Delete { name },
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
            MethodArgs { recovery_codes: true, .. } => Self::RecoveryCodes,
            MethodArgs { .. } => Self::All,
        }
    }
}

impl From<NewUserArgs> for NewUser {
    fn from(args: NewUserArgs) -> Self {
        let NewUserArgs {
            username,
            name,
            given_name,
            family_name,
            email,
            phone_number,
            allowed_scopes,
            fhir_user,
            administrator,
        } = args;
        Self {
            username,
            name,
            given_name,
            family_name,
            email,
            phone_number,
            allowed_scopes,
            fhir_user,
            administrator,
        }
    }
}

impl TryFrom<ClientSubcommand> for ClientCommand {
    type Error = anyhow::Error;

    fn try_from(command: ClientSubcommand) -> Result<Self> {
        Ok(match command {
            ClientSubcommand::Add(client) => Self::Add(client.try_into()?),
            ClientSubcommand::List => Self::List,
            ClientSubcommand::Show { id } => Self::Show { id },
            ClientSubcommand::RotateSecret { id } => Self::RotateSecret { id },
            ClientSubcommand::Delete { id } => Self::Delete { id },
        })
    }
}

impl TryFrom<NewClientArgs> for NewClient {
    type Error = anyhow::Error;

    fn try_from(args: NewClientArgs) -> Result<Self> {
        let NewClientArgs {
            id,
            name,
            redirect_uris,
            post_logout_redirect_uris,
            response_types,
            grant_types,
            auth_methods,
            jwks,
            scope,
            jwks_uri,
            assertion_algs,
            id_token_alg,
            first_party,
            always_refresh,
            refresh_grace_s,
            require_par,
            dpop_bound,
            introspects,
            pkce_optional,
            native,
            groups,
        } = args;
        let read = |path: PathBuf| {
            let text = std::fs::read(&path).with_context(|| format!("failed to read {}", path.display()))?;
            serde_json::from_slice(&text)
                .with_context(|| format!("the JWK Set {} is not JSON", path.display()))
        };
        let jwks = jwks.map(read).transpose()?;
        Ok(Self {
            id,
            name,
            redirect_uris,
            post_logout_redirect_uris,
            response_types,
            grant_types,
            auth_methods,
            jwks,
            scope,
            jwks_uri,
            assertion_algs,
            id_token_alg,
            first_party,
            always_refresh,
            refresh_grace_s,
            require_par,
            dpop_bound,
            introspects,
            pkce_optional,
            native,
            groups,
        })
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
