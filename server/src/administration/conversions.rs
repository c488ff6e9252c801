//! Converts the command line to commands of the [protocol](super::protocol).
//!
//! The conversion adds what the server cannot read itself: passwords, contents of files and absolute paths.

use std::path::{PathBuf, absolute};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::arguments::{
    AdminSubcommand, ChangeClientArgs, ChangeUserArgs, ClientMemberArgs, ClientSubcommand, ClockSubcommand,
    DataArgs, ExportArgs, KeysSubcommand, MethodArgs, NewClientArgs, NewUserArgs, UserMemberArgs,
    UserSubcommand,
};
use super::protocol::{
    AdminCommand, ClientCommand, KeysCommand, Members, OperatorExport, RemovedMethods, UserCommand,
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
            Self::Import { data, edition, version, paths } => (data, import_command(paths, edition, version)),
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

fn import_command(
    paths: Vec<PathBuf>,
    edition: Option<String>,
    version: Option<String>,
) -> Result<AdminCommand> {
    let paths = paths.into_iter().map(absolute).collect::<std::io::Result<_>>()?;
    Ok(AdminCommand::Import { paths, edition, version })
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
        UserSubcommand::Add(NewUserArgs { username, members }) => {
            UserCommand::Add { username, members: members.into(), password: read_password()? }
        }
        UserSubcommand::Change(ChangeUserArgs { username, members, unset }) => {
            let mut members = members.into();
            unset_members(&mut members, unset, |flag| {
                let mut flags = user_flags().into_iter();
                flags.find(|(known, ..)| *known == flag).map(|(_, member, value)| (member, value))
            })?;
            UserCommand::Change { username, members }
        }
        UserSubcommand::List { irregular_names: true } => UserCommand::ListIrregularNames,
        UserSubcommand::List { irregular_names: false } => UserCommand::List,
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

/// Flags of a user, the member that each flag sets, and the value of the member if the flag is unset.
fn user_flags() -> [(&'static str, &'static str, Value); 10] {
    let null = Value::Null;
    [
        ("name", "name", null.clone()),
        ("given-name", "given_name", null.clone()),
        ("family-name", "family_name", null.clone()),
        ("email", "email", null.clone()),
        ("email-verified", "email_verified", null.clone()),
        ("phone-number", "phone_number", null.clone()),
        ("phone-number-verified", "phone_number_verified", null.clone()),
        ("allowed-scopes", "allowed_scopes", "openid profile email phone".into()),
        ("fhir-user", "fhir_user", null),
        ("administrator", "administrator", false.into()),
    ]
}

/// Flags of a client, and the member that each flag sets.
const CLIENT_FLAGS: [(&str, &str); 26] = [
    ("name", "client_name"),
    ("redirect-uri", "redirect_uris"),
    ("post-logout-redirect-uri", "post_logout_redirect_uris"),
    ("response-type", "response_types"),
    ("grant-type", "grant_types"),
    ("auth-method", "token_endpoint_auth_methods"),
    ("jwks", "jwks"),
    ("scope", "scope"),
    ("jwks-uri", "jwks_uri"),
    ("assertion-alg", "token_endpoint_auth_signing_algs"),
    ("assertion-audience", "assertion_audience"),
    ("id-token-alg", "id_token_signed_response_alg"),
    ("claims-in-id-token", "claims_in_id_token"),
    ("first-party", "first_party"),
    ("always-refresh", "always_refresh"),
    ("refresh-grace-s", "refresh_grace_s"),
    ("access-token-lifetime-s", "access_token_lifetime_s"),
    ("id-token-lifetime-s", "id_token_lifetime_s"),
    ("refresh-token-lifetime-s", "refresh_token_lifetime_s"),
    ("default-max-age", "default_max_age"),
    ("require-par", "require_pushed_authorization_requests"),
    ("dpop-bound", "dpop_bound_access_tokens"),
    ("introspects", "introspects"),
    ("pkce-optional", "pkce_required"),
    ("native", "application_type"),
    ("group", "groups"),
];

/// Adds the members of the unset flags.
fn unset_members(
    members: &mut Members,
    unset: Vec<String>,
    flags: impl Fn(&str) -> Option<(&'static str, Value)>,
) -> Result<()> {
    for flag in unset {
        let Some((member, value)) = flags(flag.trim_start_matches("--")) else {
            bail!("--unset {flag}: there is no such flag; name one without its dashes, such as 'name'");
        };
        if members.insert(member.to_owned(), value).is_some() {
            bail!("--unset {flag}: the flag is set by the same command");
        }
    }
    Ok(())
}

impl From<UserMemberArgs> for Members {
    fn from(args: UserMemberArgs) -> Self {
        let texts = [
            ("name", args.name),
            ("given_name", args.given_name),
            ("family_name", args.family_name),
            ("email", args.email),
            ("phone_number", args.phone_number),
            ("allowed_scopes", args.allowed_scopes),
            ("fhir_user", args.fhir_user),
        ];
        let flags = [
            ("email_verified", args.email_verified),
            ("phone_number_verified", args.phone_number_verified),
            ("administrator", args.administrator),
        ];
        let texts = texts.into_iter().filter_map(|(name, text)| Some((name, Value::from(text?))));
        let flags = flags.into_iter().filter(|(_, set)| *set).map(|(name, _)| (name, true.into()));
        texts.chain(flags).map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

impl TryFrom<ClientSubcommand> for ClientCommand {
    type Error = anyhow::Error;

    fn try_from(command: ClientSubcommand) -> Result<Self> {
        Ok(match command {
            ClientSubcommand::Add(NewClientArgs { id, members }) => {
                Self::Add { id, members: client_members(members)? }
            }
            ClientSubcommand::Change(ChangeClientArgs { id, members, unset }) => {
                let mut members = client_members(members)?;
                unset_members(&mut members, unset, |flag| {
                    let (_, member) = CLIENT_FLAGS.iter().find(|(known, _)| *known == flag)?;
                    Some((*member, Value::Null))
                })?;
                Self::Change { id, members }
            }
            ClientSubcommand::List => Self::List,
            ClientSubcommand::Show { id } => Self::Show { id },
            ClientSubcommand::RotateSecret { id, overlap_s } => Self::RotateSecret { id, overlap_s },
            ClientSubcommand::Delete { id } => Self::Delete { id },
        })
    }
}

/// Returns the members that the flags set. Reads the file with the JWK Set.
fn client_members(args: ClientMemberArgs) -> Result<Members> {
    let read = |path: PathBuf| -> Result<Value> {
        let text = std::fs::read(&path).with_context(|| format!("failed to read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("the JWK Set {} is not JSON", path.display()))
    };
    let list = |values: Vec<String>| (!values.is_empty()).then(|| Value::from(values));
    let flag = |set: bool, value: Value| set.then_some(value);
    let members = [
        ("client_name", args.name.map(Value::from)),
        ("redirect_uris", list(args.redirect_uris)),
        ("post_logout_redirect_uris", list(args.post_logout_redirect_uris)),
        ("response_types", list(args.response_types)),
        ("grant_types", list(args.grant_types)),
        ("token_endpoint_auth_methods", list(args.auth_methods)),
        ("jwks", args.jwks.map(read).transpose()?),
        ("scope", args.scope.map(Value::from)),
        ("jwks_uri", args.jwks_uri.map(Value::from)),
        ("token_endpoint_auth_signing_algs", list(args.assertion_algs)),
        ("assertion_audience", args.assertion_audience.map(Value::from)),
        ("id_token_signed_response_alg", args.id_token_alg.map(Value::from)),
        ("claims_in_id_token", flag(args.claims_in_id_token, true.into())),
        ("first_party", flag(args.first_party, true.into())),
        ("always_refresh", flag(args.always_refresh, true.into())),
        ("refresh_grace_s", args.refresh_grace_s.map(Value::from)),
        ("access_token_lifetime_s", args.access_token_lifetime_s.map(Value::from)),
        ("id_token_lifetime_s", args.id_token_lifetime_s.map(Value::from)),
        ("refresh_token_lifetime_s", args.refresh_token_lifetime_s.map(Value::from)),
        ("default_max_age", args.default_max_age.map(Value::from)),
        ("require_pushed_authorization_requests", flag(args.require_par, true.into())),
        ("dpop_bound_access_tokens", flag(args.dpop_bound, true.into())),
        ("introspects", flag(args.introspects, true.into())),
        ("pkce_required", flag(args.pkce_optional, false.into())),
        ("application_type", flag(args.native, "native".into())),
        ("groups", list(args.groups)),
    ];
    Ok(members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
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

#[cfg(test)]
mod tests {
    use clap::{Args, Command};

    use super::*;

    fn flags_of<T: Args>() -> Vec<String> {
        let command = T::augment_args(Command::new("test"));
        command.get_arguments().filter_map(|argument| argument.get_long().map(str::to_owned)).collect()
    }

    #[test]
    fn every_flag_can_be_unset() {
        let users = user_flags().map(|(flag, ..)| flag);
        assert_eq!(flags_of::<UserMemberArgs>(), users);
        let mut clients = CLIENT_FLAGS.map(|(flag, _)| flag.to_owned()).to_vec();
        let mut known = flags_of::<ClientMemberArgs>();
        clients.sort();
        known.sort();
        assert_eq!(known, clients);
    }
}
