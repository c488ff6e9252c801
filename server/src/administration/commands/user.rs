//! `trefoil user …`: users, their sign-in methods, sessions and consents.

use std::collections::{BTreeSet, HashSet};
use std::convert::Infallible;
use std::str::FromStr;

use clap::Args;
use identity::directory::user_directory::{
    AccountsOfDeleted, ChangeUserError, OtherMethods, UserError, VersionedUser,
};
use identity::model::user::User;
use identity::model::user_name;
use identity::sign_in::sign_in_methods::MethodsToRemove;
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::administration::command::AdminMethod::{Delete as DELETE, Get, Patch, Post, Put};
use crate::administration::command::{
    AdminRoute, Answer, AnswerShape, Call, Command, CommandError, Doors, ListAnswer, ProgramInput,
    RecordAnswer, StoreNeed, page_size,
};
use crate::administration::events::EventSink;
use crate::administration::member_flags::{MemberChanges, MemberFlags, UserTable};
use crate::administration::registration_warnings::user_warnings;
use crate::administration::shown::{ShownConsent, ShownMethods, ShownOneTimeLink, ShownSession, ShownUser};
use crate::administration::user_change::{UserChange, new_user};
use crate::administration::user_facts::user_facts;
use crate::node::closure_tables;

/// A user: by name on the command line, by subject over HTTP.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UserAddress {
    /// The user name.
    Name(String),
    /// The subject.
    Sub(String),
}

impl FromStr for UserAddress {
    type Err = Infallible;

    fn from_str(name: &str) -> Result<Self, Infallible> {
        Ok(Self::Name(name.to_owned()))
    }
}

impl UserAddress {
    /// The addressed user, if the record has the revision that the call requires.
    async fn read(&self, call: &Call<'_>) -> Result<VersionedUser, CommandError> {
        let users = &call.services.identity.users;
        let sub = match self {
            Self::Name(name) => match users.user_by_name(name, call.now()).await? {
                Some(user) => user.sub,
                None => return Err(UserError::Unknown(name.clone()).into()),
            },
            Self::Sub(sub) => sub.clone(),
        };
        let user = users.versioned_user(&sub, call.now()).await?.ok_or(ChangeUserError::Unknown)?;
        call.check_revision(user.revision, "user")?;
        Ok(user)
    }
}

/// A user who was added or changed, with warnings.
async fn changed(call: &Call<'_>, text: String, user: &VersionedUser) -> Result<RecordAnswer, CommandError> {
    Ok(RecordAnswer {
        warnings: user_warnings(call.services.resources, &user.user).await,
        revision: Some(user.revision),
        ..RecordAnswer::new(text, ShownUser::new(&user.user))
    })
}

/// Checks the values of claims against the configuration, which only a running server knows.
fn check_claims(call: &Call<'_>, change: &UserChange) -> Result<(), CommandError> {
    match call.services.app {
        Some(_) => Ok(change.check_claims(&call.services.identity.provider_rules.claims())?),
        None => Ok(()),
    }
}

/// Add a user.
///
/// The command line reads the password from standard input.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(
    after_help = "Example:\n  echo 'a long password' | trefoil user add ada --name 'Ada Example' --email ada@example.org"
)]
pub struct Add {
    /// User name
    #[arg(value_name = "USERNAME")]
    username: String,
    /// The password. Over HTTP, a user without one signs in with an account of a provider.
    #[arg(skip)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    password: Option<String>,
    /// Make a one-time link with which the user sets a password, instead of reading one
    #[arg(long)]
    #[serde(default)]
    invite: bool,
    #[command(flatten)]
    #[serde(flatten)]
    members: MemberFlags<UserTable>,
}

impl Command for Add {
    const DOORS: Doors = Doors::all("Add a user", &[AdminRoute::new(Post, "users")]);
    const ANSWER: AnswerShape = AnswerShape::record::<ShownUser<'_>>();
    const STORE: StoreNeed = StoreNeed::CreatedWithNotice;
    const READS_PASSWORD: bool = true;

    fn read_input(&mut self, input: &mut dyn ProgramInput) -> anyhow::Result<()> {
        if !self.invite {
            self.password = Some(input.password()?);
        }
        Ok(())
    }

    async fn run(self, call: &Call<'_>, _: EventSink<'_>) -> Result<Answer, CommandError> {
        let Self { username, password, invite, members } = self;
        let change = UserChange::read(members.members)?;
        check_claims(call, &change)?;
        if invite && password.is_some() {
            return Err(CommandError::Invalid("leave out the password of a user who is invited".to_owned()));
        }
        let password = match password {
            Some(plain) => Some(call.services.hash_new_password(plain, &username).await?),
            None => None,
        };
        let mut user = new_user(username, password);
        change.apply(&mut user);
        if invite && user.administrator {
            call.check_recent_sign_in()?;
        }
        // A new user has no tokens.
        user.epoch = 0;
        let users = &call.services.identity.users;
        let sub = users.add_user(user, call.now()).await?.sub;
        let added = users.versioned_user(&sub, call.now()).await?.ok_or(ChangeUserError::Unknown)?;
        let mut text = format!("added user {} (sub {sub})", added.user.username);
        let link = match invite {
            true => Some(make_link(call, &added.user, DEFAULT_LINK_HOURS).await?),
            false => None,
        };
        if let Some(link) = &link {
            text = format!("{text}\n{}", link.text(false)?);
        }
        Ok(RecordAnswer {
            warnings: user_warnings(call.services.resources, &added.user).await,
            revision: Some(added.revision),
            location: Some(format!("users/{sub}")),
            ..RecordAnswer::new(text, ShownUser::new(&added.user).with_link(link))
        }
        .into())
    }
}

/// Change a user. What is not given stays as it is.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(after_help = "Example:\n  trefoil user change ada --fhir-user Patient/p1")]
pub struct Change {
    /// User name
    #[arg(value_name = "USERNAME")]
    user: UserAddress,
    #[command(flatten)]
    #[serde(flatten)]
    members: MemberChanges<UserTable>,
}

impl Command for Change {
    const DOORS: Doors = Doors::all("Change", &[AdminRoute::new(Patch, "users/{sub}")]);
    const ANSWER: AnswerShape = AnswerShape::record::<ShownUser<'_>>();

    async fn run(self, call: &Call<'_>, _: EventSink<'_>) -> Result<Answer, CommandError> {
        let change = UserChange::read(self.members.members)?;
        check_claims(call, &change)?;
        let User { sub, username, .. } = self.user.read(call).await?.user;
        let users = &call.services.identity.users;
        let user_after =
            users.change_versioned_user(&sub, call.revision, call.now(), |user| change.apply(user)).await?;
        Ok(changed(call, format!("changed user {username}"), &user_after).await?.into())
    }
}

/// List all users.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(after_help = "Example:\n  trefoil user list --json | jq -r .username")]
pub struct List {
    /// Only users whose names are not accepted for new users, for example because they contain invisible
    /// characters, and users whom apps see with the name of another user
    #[arg(long)]
    #[serde(default)]
    irregular_names: bool,
    /// Only the users after this one
    #[arg(long, value_name = "SUB")]
    after: Option<String>,
    /// Only so many users, from 1 to 500
    #[arg(long, value_name = "NUMBER")]
    count: Option<usize>,
}

impl Command for List {
    const DOORS: Doors = Doors::all("List", &[AdminRoute::new(Get, "users")]);
    const ANSWER: AnswerShape = AnswerShape::list::<ShownUser<'_>>("users");

    async fn run(self, call: &Call<'_>, _: EventSink<'_>) -> Result<Answer, CommandError> {
        let users = &call.services.identity.users;
        // The names of all users are compared.
        let is_page = self.count.is_some() && !self.irregular_names;
        let (listed, next, shared) = match page_size(self.count)? {
            Some(count) if is_page => {
                let (listed, next) = users.users_page(self.after.as_deref(), count, call.now()).await?;
                (listed, next, None)
            }
            _ => {
                let all = users.all_users(call.now()).await?;
                let shared = shared_names(&all);
                (all, None, Some(shared))
            }
        };
        let mut entries = Vec::new();
        for user in &listed {
            let irregular_name = shared.as_ref().map(|shared| is_irregular(user, shared));
            if self.irregular_names && irregular_name != Some(true) {
                continue;
            }
            let fields = ShownUser::new(user).in_list(irregular_name);
            entries.push((user_line(user, irregular_name == Some(true)), json!(fields)));
        }
        Ok(ListAnswer { next, ..ListAnswer::new(entries) }.into())
    }
}

/// A user as a line of a list.
fn user_line(user: &User, is_irregular: bool) -> String {
    let labels = [
        (user.disabled, "disabled"),
        (user.administrator, "administrator"),
        (user.demo, "demo"),
        (is_irregular, "irregular name"),
    ];
    let labels: Vec<_> = labels.into_iter().filter_map(|(is_set, label)| is_set.then_some(label)).collect();
    let labels = if labels.is_empty() { String::new() } else { format!("  [{}]", labels.join(", ")) };
    let name = user.claims.name.as_deref().unwrap_or_default();
    // Invisible characters are shown as escapes.
    format!("{}  {}  {name}{labels}", user.username.escape_debug(), user.sub)
}

/// Whether the name of a user is not accepted for new users, or apps see it as that of several users.
fn is_irregular(user: &User, shared: &HashSet<String>) -> bool {
    let is_shared = user
        .claims
        .preferred_username
        .as_ref()
        .is_some_and(|name| *name != user.username && shared.contains(&user_name::counted_name(name)));
    is_shared || user_name::check_new_name(&user.username).is_err()
}

/// The names that apps see of several users. Providers chose the names of users whom an earlier version
/// created.
fn shared_names(users: &[User]) -> HashSet<String> {
    let (mut seen, mut shared) = (HashSet::new(), HashSet::new());
    for user in users {
        let names = [Some(&user.username), user.claims.preferred_username.as_ref()];
        let names: BTreeSet<_> =
            names.into_iter().flatten().map(|name| user_name::counted_name(name)).collect();
        for name in names {
            if !seen.insert(name.clone()) {
                shared.insert(name);
            }
        }
    }
    shared
}

/// Show a user and the user's sign-in methods.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(after_help = "Example:\n  trefoil user show ada --json")]
pub struct Show {
    /// User name
    #[arg(value_name = "NAME")]
    user: UserAddress,
}

impl Command for Show {
    const DOORS: Doors = Doors::all(
        "Show",
        &[AdminRoute::new(Get, "users/{sub}"), AdminRoute::new(Get, "users/{sub}/sign-in-methods")],
    );
    const ANSWER: AnswerShape = AnswerShape::record::<ShownUser<'_>>();

    async fn run(self, call: &Call<'_>, _: EventSink<'_>) -> Result<Answer, CommandError> {
        let VersionedUser { user, revision } = self.user.read(call).await?;
        let identity = call.services.identity;
        let methods = identity.sign_in.sign_in_methods(&user.sub, call.now()).await?;
        let facts = user_facts(&user, &methods, &identity.provider_rules.current());
        let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        let lines = facts.iter().map(|(name, value)| format!("{name:width$}  {value}"));
        let text = lines.collect::<Vec<_>>().join("\n");
        let fields = ShownUser::new(&user).with_methods(ShownMethods::new(&user, &methods));
        Ok(RecordAnswer { revision: Some(revision), ..RecordAnswer::new(text, fields) }.into())
    }
}

/// Set a password, and remove all other sign-in methods.
///
/// The command line reads the password from standard input. All sessions and tokens of the user end.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(after_help = "Example:\n  echo 'another long password' | trefoil user set-password ada")]
pub struct SetPassword {
    /// User name
    #[arg(value_name = "NAME")]
    user: UserAddress,
    /// The password.
    #[arg(skip)]
    password: String,
    /// Keep passkeys, recovery codes and linked accounts
    #[arg(long)]
    #[serde(default)]
    keep_sign_in_methods: bool,
    /// The earlier name of the flag.
    #[arg(long, hide = true)]
    #[serde(skip)]
    keep_other_methods: bool,
}

impl Command for SetPassword {
    const DOORS: Doors = Doors::all("Set a new password", &[AdminRoute::new(Put, "users/{sub}/password")]);
    const READS_PASSWORD: bool = true;

    fn read_input(&mut self, input: &mut dyn ProgramInput) -> anyhow::Result<()> {
        if self.keep_other_methods {
            input.warn(
                "--keep-other-methods is now --keep-sign-in-methods; the next version will not know it",
            );
            self.keep_sign_in_methods = true;
        }
        self.password = input.password()?;
        Ok(())
    }

    async fn run(self, call: &Call<'_>, _: EventSink<'_>) -> Result<Answer, CommandError> {
        let User { sub, username, .. } = self.user.read(call).await?.user;
        let phc = call.services.hash_new_password(self.password, &username).await?;
        let (others, others_text) = match self.keep_sign_in_methods {
            true => (OtherMethods::Keep, "other sign-in methods were kept"),
            false => (
                OtherMethods::RemoveAdded,
                "passkeys, recovery codes and the accounts that the user has linked were removed",
            ),
        };
        // Someone who knew the old password may have sessions and tokens, so the new password ends all of
        // them.
        let users = &call.services.identity.users;
        users.reset_password(&sub, call.revision, &phc, others, call.now()).await?;
        Ok(Answer::Done(format!(
            "set the password of {username}; all sessions and tokens have ended, {others_text}"
        )))
    }
}

/// Lifetime of a one-time link in hours, and the longest one: 30 days.
const DEFAULT_LINK_HOURS: u32 = 24;
const MAX_LINK_HOURS: u32 = 30 * 24;

/// Makes a one-time link for a user.
async fn make_link(call: &Call<'_>, user: &User, hours: u32) -> Result<ShownOneTimeLink, CommandError> {
    if user.administrator {
        call.check_recent_sign_in()?;
    }
    let identity = call.services.identity;
    let lifetime = SignedDuration::from_hours(hours.into());
    let link = identity.sign_in.make_one_time_link(user, lifetime, call.now()).await?;
    Ok(ShownOneTimeLink::new(link, &identity.issuer))
}

fn default_link_hours() -> u32 {
    DEFAULT_LINK_HOURS
}

/// Make a link with which the user sets a new password once; it ends an earlier link.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(after_help = "Example:\n  trefoil user one-time-link ada --hours 48")]
pub struct OneTimeLink {
    /// User name
    #[arg(value_name = "NAME")]
    user: UserAddress,
    /// Hours, up to 720, after which the link ends
    #[arg(long, default_value_t = DEFAULT_LINK_HOURS, value_name = "HOURS", value_parser = clap::value_parser!(u32).range(1..=720))]
    #[serde(default = "default_link_hours")]
    hours: u32,
    /// Print the link also as a QR code
    #[arg(long)]
    #[serde(default)]
    qr: bool,
}

impl Command for OneTimeLink {
    const DOORS: Doors =
        Doors::all("Make a one-time link", &[AdminRoute::new(Post, "users/{sub}/one-time-link")])
            .only_if(|user| user["disabled"] == false);
    const ANSWER: AnswerShape = AnswerShape::record::<ShownOneTimeLink>();

    async fn run(self, call: &Call<'_>, _: EventSink<'_>) -> Result<Answer, CommandError> {
        if !(1..=MAX_LINK_HOURS).contains(&self.hours) {
            return Err(CommandError::Invalid(format!("hours must be a number from 1 to {MAX_LINK_HOURS}")));
        }
        let user = self.user.read(call).await?.user;
        let link = make_link(call, &user, self.hours).await?;
        Ok(RecordAnswer::new(link.text(self.qr)?, link).into())
    }
}

/// Disable a user: sign-in and all tokens are refused.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(after_help = "Example:\n  trefoil user disable ada")]
pub struct Disable {
    /// User name
    #[arg(value_name = "NAME")]
    user: UserAddress,
}

impl Command for Disable {
    const DOORS: Doors = Doors::all("Disable", &[AdminRoute::new(Post, "users/{sub}/disable")])
        .only_if(|user| user["disabled"] == false);

    async fn run(self, call: &Call<'_>, _: EventSink<'_>) -> Result<Answer, CommandError> {
        let User { sub, username, .. } = self.user.read(call).await?.user;
        // Incrementing the epoch ends all sessions and tokens. `enable` does not restore them.
        let disable = |user: &mut User| (user.disabled, user.epoch) = (true, user.epoch + 1);
        let users = &call.services.identity.users;
        users.change_versioned_user(&sub, call.revision, call.now(), disable).await?;
        Ok(Answer::Done(format!("disabled {username}; all sessions and tokens have ended")))
    }
}

/// Enable a disabled user.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(after_help = "Example:\n  trefoil user enable ada")]
pub struct Enable {
    /// User name
    #[arg(value_name = "NAME")]
    user: UserAddress,
}

impl Command for Enable {
    const DOORS: Doors = Doors::all("Enable", &[AdminRoute::new(Post, "users/{sub}/enable")])
        .only_if(|user| user["disabled"] == true);

    async fn run(self, call: &Call<'_>, _: EventSink<'_>) -> Result<Answer, CommandError> {
        let User { sub, username, .. } = self.user.read(call).await?.user;
        let users = &call.services.identity.users;
        users.change_versioned_user(&sub, call.revision, call.now(), |user| user.disabled = false).await?;
        Ok(Answer::Done(format!("enabled {username}")))
    }
}

/// Delete a user. The accounts of the user at providers cannot sign in any more.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(after_help = "Example:\n  trefoil user delete ada --yes")]
pub struct Delete {
    /// User name, or with `--forget` the subject of a deleted user
    #[arg(value_name = "NAME")]
    user: UserAddress,
    /// Let the accounts of the user at providers sign in as other users
    #[arg(long)]
    #[serde(default)]
    forget: bool,
}

impl Command for Delete {
    const DOORS: Doors = Doors::all("Delete", &[AdminRoute::new(DELETE, "users/{sub}")]);

    fn question(&self) -> Option<String> {
        let (UserAddress::Name(name) | UserAddress::Sub(name)) = &self.user;
        Some(format!("Delete the user {name}?"))
    }

    async fn run(self, call: &Call<'_>, _: EventSink<'_>) -> Result<Answer, CommandError> {
        let accounts = if self.forget { AccountsOfDeleted::Forget } else { AccountsOfDeleted::Remember };
        let users = &call.services.identity.users;
        let name = match self.user {
            // It may be the subject of a deleted user.
            UserAddress::Name(name) => name,
            UserAddress::Sub(_) => self.user.read(call).await?.user.username,
        };
        let user = users.user_by_name(&name, call.now()).await?;
        users.delete_user(&name, accounts, call.now()).await?;
        if let Some(user) = user {
            closure_tables::remove_of_user(call.services.resources.store(), &user.sub, call.now()).await?;
        }
        Ok(Answer::Done(format!("deleted {name}")))
    }
}

/// End all sessions and tokens of a user.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(after_help = "Example:\n  trefoil user sign-out ada")]
pub struct SignOut {
    /// User name
    #[arg(value_name = "NAME")]
    user: UserAddress,
}

impl Command for SignOut {
    const DOORS: Doors = Doors::all("Sign out everywhere", &[AdminRoute::new(Post, "users/{sub}/sign-out")]);

    async fn run(self, call: &Call<'_>, _: EventSink<'_>) -> Result<Answer, CommandError> {
        let name = self.user.read(call).await?.user.username;
        call.services.identity.users.sign_out_everywhere(&name, call.now()).await?;
        Ok(Answer::Done(format!("signed {name} out everywhere")))
    }
}

/// Remove sign-in methods, and end all sessions and tokens of the user.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(
    after_help = "Example:\n  trefoil user remove-methods ada --recovery-codes",
    group = clap::ArgGroup::new("methods").required(true)
)]
pub struct RemoveMethods {
    /// User name
    #[arg(value_name = "NAME")]
    user: UserAddress,
    /// Remove the passkey with this id
    #[arg(long, value_name = "ID", group = "methods")]
    passkey: Option<String>,
    /// Remove the linked account with this id
    #[arg(long, value_name = "ID", group = "methods")]
    linked_account: Option<String>,
    /// Forget the account with this id that is or was linked, so that it can be linked to another user
    #[arg(long, value_name = "ID", group = "methods")]
    forget_account: Option<String>,
    /// Remove all recovery codes
    #[arg(long, group = "methods")]
    #[serde(default)]
    recovery_codes: bool,
    /// Remove all passkeys, recovery codes and linked accounts
    #[arg(long, group = "methods")]
    #[serde(default)]
    all: bool,
}

impl Command for RemoveMethods {
    const DOORS: Doors = Doors::all(
        "Remove sign-in methods",
        &[
            AdminRoute::new(DELETE, "users/{sub}/sign-in-methods").sets("all"),
            AdminRoute::new(DELETE, "users/{sub}/passkeys/{passkey}"),
            AdminRoute::new(DELETE, "users/{sub}/recovery-codes").sets("recovery_codes"),
            AdminRoute::new(DELETE, "users/{sub}/linked-accounts/{linked_account}"),
            AdminRoute::new(DELETE, "users/{sub}/removed-accounts/{forget_account}"),
        ],
    );

    fn question(&self) -> Option<String> {
        let (UserAddress::Name(name) | UserAddress::Sub(name)) = &self.user;
        Some(format!("Remove sign-in methods of {name}, and end all sessions and tokens?"))
    }

    async fn run(self, call: &Call<'_>, _: EventSink<'_>) -> Result<Answer, CommandError> {
        let User { sub, username: name, .. } = self.user.read(call).await?.user;
        let facts = [
            self.passkey.is_some(),
            self.linked_account.is_some(),
            self.forget_account.is_some(),
            self.recovery_codes,
            self.all,
        ];
        if facts.iter().filter(|is_named| **is_named).count() != 1 {
            let text = "name one of passkey, linked_account, forget_account, recovery_codes and all";
            return Err(CommandError::Invalid(text.to_owned()));
        }
        let methods = match self {
            Self { passkey: Some(id), .. } => MethodsToRemove::Passkey(id),
            Self { linked_account: Some(id), .. } => MethodsToRemove::LinkedAccount(id),
            Self { forget_account: Some(id), .. } => MethodsToRemove::KnownAccount(id),
            Self { recovery_codes: true, .. } => MethodsToRemove::RecoveryCodes,
            Self { .. } => MethodsToRemove::All,
        };
        if !call.services.identity.sign_in.remove_sign_in_methods(&sub, &methods, call.now()).await? {
            return Err(CommandError::Unknown {
                record: "sign-in method",
                text: format!("{name} has no such sign-in method; `trefoil user show {name}` lists all"),
            });
        }
        Ok(Answer::Done(format!("removed; all sessions and tokens of {name} have ended")))
    }
}

/// List the sessions of a user.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(after_help = "Example:\n  trefoil user sessions ada")]
pub struct Sessions {
    /// User name
    #[arg(value_name = "NAME")]
    user: UserAddress,
}

impl Command for Sessions {
    const DOORS: Doors = Doors::all("Show", &[AdminRoute::new(Get, "users/{sub}/sessions")]);
    const ANSWER: AnswerShape = AnswerShape::list::<ShownSession<'_>>("sessions");

    async fn run(self, call: &Call<'_>, _: EventSink<'_>) -> Result<Answer, CommandError> {
        let user = self.user.read(call).await?.user;
        let sessions = call.services.identity.sessions.user_sessions(&user, call.now()).await?;
        let records = sessions.iter().map(ShownSession::new).map(|session| (session.line(), json!(session)));
        Ok(ListAnswer::new(records).if_empty("no session").into())
    }
}

/// End a session of a user with its tokens.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(after_help = "Example:\n  trefoil user end-session ada 3nHPY9")]
pub struct EndSession {
    /// User name
    #[arg(value_name = "NAME")]
    user: UserAddress,
    // Ids are base64url, so one in 64 begins with a hyphen.
    /// Id of the session
    #[arg(allow_hyphen_values = true)]
    sid: String,
}

impl Command for EndSession {
    const DOORS: Doors =
        Doors::all("End a session", &[AdminRoute::new(DELETE, "users/{sub}/sessions/{sid}")]);

    async fn run(self, call: &Call<'_>, _: EventSink<'_>) -> Result<Answer, CommandError> {
        let User { sub, username: name, .. } = self.user.read(call).await?.user;
        if !call.services.identity.sessions.end_user_session(&sub, &self.sid, call.now()).await? {
            return Err(CommandError::Unknown {
                record: "session",
                text: format!("{name} has no such session; `trefoil user sessions {name}` lists all"),
            });
        }
        Ok(Answer::Done(format!("ended the session of {name} with its tokens")))
    }
}

/// List the consents of a user: which apps may act for the user.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(after_help = "Example:\n  trefoil user consents ada")]
pub struct Consents {
    /// User name
    #[arg(value_name = "NAME")]
    user: UserAddress,
}

impl Command for Consents {
    const DOORS: Doors = Doors::all("Show", &[AdminRoute::new(Get, "users/{sub}/consents")]);
    const ANSWER: AnswerShape = AnswerShape::list::<ShownConsent<'_>>("consents");

    async fn run(self, call: &Call<'_>, _: EventSink<'_>) -> Result<Answer, CommandError> {
        let sub = self.user.read(call).await?.user.sub;
        let consents = call.services.identity.consents.user_consents(&sub, call.now()).await?;
        let records = consents.iter().map(ShownConsent::new).map(|consent| (consent.line(), json!(consent)));
        Ok(ListAnswer::new(records).if_empty("no consent").into())
    }
}

/// Withdraw a consent of a user, and end the app's access that is based on it.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(after_help = "Example:\n  trefoil user withdraw-consent ada shop")]
pub struct WithdrawConsent {
    /// User name
    #[arg(value_name = "NAME")]
    user: UserAddress,
    /// Client id of the app
    client_id: String,
}

impl Command for WithdrawConsent {
    const DOORS: Doors =
        Doors::all("Withdraw a consent", &[AdminRoute::new(DELETE, "users/{sub}/consents/{client_id}")]);

    async fn run(self, call: &Call<'_>, _: EventSink<'_>) -> Result<Answer, CommandError> {
        let User { sub, username, .. } = self.user.read(call).await?.user;
        let client_id = &self.client_id;
        call.services.identity.consents.withdraw_consent(&sub, client_id, call.now()).await?;
        Ok(Answer::Done(format!("withdrew the consent of {username} for {client_id}")))
    }
}
