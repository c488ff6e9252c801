//! All commands, one line each. The command line, the messages of the socket, the requests to `/admin`, their
//! page and their description in OpenAPI, and the console follow from these lines.

use clap::{Arg, ArgAction, ArgMatches, Args as _, FromArgMatches as _, Subcommand};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::arguments::DataArgs;
use super::command::{Answer, AnswerShape, Call, Command, CommandError, Doors, ProgramInput, StoreNeed};
use super::commands::{client, keys, release, server, store, user};
use super::copy::StoreCopy;
use super::events::EventSink;

/// A command as a row of the table.
pub struct CommandRow {
    /// The word before the name, if the command belongs to a group such as `user`.
    pub group: Option<&'static str>,
    /// The name on the command line.
    pub name: &'static str,
    /// Its doors.
    pub doors: Doors,
    /// The JSON of its answer.
    pub answer: AnswerShape,
    /// Whether it reads a password.
    pub reads_password: bool,
    /// Adds its flags and its help text.
    augment: fn(clap::Command) -> clap::Command,
    /// Reads it from the command line.
    pub from_arguments: fn(&mut ArgMatches) -> Result<AdminCommand, clap::Error>,
    /// Reads it from its members.
    pub from_members: fn(Value) -> serde_json::Result<AdminCommand>,
}

impl CommandRow {
    /// The command with its flags and its help text, without those of all commands.
    pub fn command_line(&self) -> clap::Command {
        (self.augment)(clap::Command::new(self.name))
    }

    /// The words of the command line.
    pub fn words(&self) -> impl Iterator<Item = &'static str> {
        self.group.into_iter().chain([self.name])
    }
}

/// Returns whether a flag has no value and sets `true`.
pub fn is_switch(argument: &Arg) -> bool {
    matches!(argument.get_action(), ArgAction::SetTrue)
}

macro_rules! commands {
    ($($variant:ident: $($group:literal)? / $name:literal => $command:ty;)*) => {
        /// A command of an administrator.
        #[derive(Debug, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[expect(missing_docs, reason = "each command has its own documentation")]
        pub enum AdminCommand {
            $($variant($command),)*
        }

        /// All commands.
        pub const COMMANDS: &[CommandRow] = &[$(CommandRow {
            group: commands!(@group $($group)?),
            name: $name,
            doors: <$command as Command>::DOORS,
            answer: <$command as Command>::ANSWER,
            reads_password: <$command as Command>::READS_PASSWORD,
            augment: <$command>::augment_args,
            from_arguments: |matches| <$command>::from_arg_matches_mut(matches).map(AdminCommand::$variant),
            from_members: |members| serde_json::from_value(members).map(AdminCommand::$variant),
        },)*];

        impl AdminCommand {
            /// The store that the command needs.
            pub fn store(&self) -> StoreNeed {
                match self { $(Self::$variant(_) => <$command as Command>::STORE,)* }
            }

            /// Whether Ctrl-C ends the command early.
            pub fn ends_early(&self) -> bool {
                match self { $(Self::$variant(_) => <$command as Command>::ENDS_EARLY,)* }
            }

            /// See [`Command::question`].
            pub fn question(&self) -> Option<String> {
                match self { $(Self::$variant(command) => command.question(),)* }
            }

            /// See [`Command::read_input`].
            ///
            /// # Errors
            /// An error if something cannot be read.
            pub fn read_input(&mut self, input: &mut dyn ProgramInput) -> anyhow::Result<()> {
                match self { $(Self::$variant(command) => command.read_input(input),)* }
            }

            /// See [`Command::run_in_program`].
            pub fn run_in_program(&self) -> Option<anyhow::Result<Answer>> {
                match self { $(Self::$variant(command) => command.run_in_program(),)* }
            }

            /// See [`Command::run`].
            ///
            /// # Errors
            /// The error of the command.
            pub async fn run(self, call: &Call<'_>, events: EventSink<'_>) -> Result<Answer, CommandError> {
                match self { $(Self::$variant(command) => Box::pin(command.run(call, events)).await,)* }
            }
        }
    };
    (@group) => { None };
    (@group $group:literal) => { Some($group) };
}

commands! {
    Import: / "import" => store::Import;
    Export: / "export" => store::Export;
    UserAdd: "user" / "add" => user::Add;
    UserChange: "user" / "change" => user::Change;
    UserList: "user" / "list" => user::List;
    UserShow: "user" / "show" => user::Show;
    UserSetPassword: "user" / "set-password" => user::SetPassword;
    UserOneTimeLink: "user" / "one-time-link" => user::OneTimeLink;
    UserDisable: "user" / "disable" => user::Disable;
    UserEnable: "user" / "enable" => user::Enable;
    UserSignOut: "user" / "sign-out" => user::SignOut;
    UserRemoveMethods: "user" / "remove-methods" => user::RemoveMethods;
    UserSessions: "user" / "sessions" => user::Sessions;
    UserEndSession: "user" / "end-session" => user::EndSession;
    UserConsents: "user" / "consents" => user::Consents;
    UserWithdrawConsent: "user" / "withdraw-consent" => user::WithdrawConsent;
    UserDelete: "user" / "delete" => user::Delete;
    ClientAdd: "client" / "add" => client::Add;
    ClientList: "client" / "list" => client::List;
    ClientShow: "client" / "show" => client::Show;
    ClientChange: "client" / "change" => client::Change;
    ClientRotateSecret: "client" / "rotate-secret" => client::RotateSecret;
    ClientKeygen: "client" / "keygen" => client::Keygen;
    ClientDelete: "client" / "delete" => client::Delete;
    Backup: / "backup" => store::Backup;
    Purge: / "purge" => store::Purge;
    Compact: / "compact" => store::Compact;
    Status: / "status" => server::Status;
    Check: / "check" => store::Check;
    Reload: / "reload" => server::Reload;
    ClockAccept: "clock" / "accept" => server::AcceptClock;
    StoreBackups: "store" / "backups" => store::DecideBackups;
    StoreAccept: "store" / "accept-restored" => store::AcceptRestored;
    ReleaseList: "release" / "list" => release::List;
    ReleaseShow: "release" / "show" => release::Show;
    ReleaseRemove: "release" / "remove" => release::Remove;
    KeysList: "keys" / "list" => keys::List;
    KeysRotate: "keys" / "rotate" => keys::Rotate;
    KeysRevoke: "keys" / "revoke" => keys::Revoke;
    Copy: / "copy" => StoreCopy;
}

/// The groups of commands: name, help text, and example.
const GROUPS: &[(&str, &str, &str)] = &[
    ("user", "Manage users", "echo 'a long password' | trefoil user add ada --name 'Ada Example'"),
    (
        "client",
        "Manage clients",
        "trefoil client add web --redirect-uri https://app.example/cb --scope 'openid profile'",
    ),
    ("clock", "Manage how a running server treats the clock of the machine", "trefoil clock accept"),
    ("store", "Decide about a restored store", "trefoil store backups --continue"),
    ("release", "Manage imported releases of code systems", "trefoil release list"),
    ("keys", "Manage signing keys", "trefoil keys rotate"),
];

/// The commands on the data folder of a stopped or a running server, with the folder.
#[derive(Debug)]
pub struct AdminLine {
    /// The folder, and how the command asks and prints.
    pub data: DataArgs,
    /// The command, before it has read its input.
    pub command: AdminCommand,
}

/// The rows that the command line has. `trefoil copy` sends its command itself.
fn rows_with_line() -> impl Iterator<Item = &'static CommandRow> {
    COMMANDS.iter().filter(|row| row.name != "copy")
}

impl Subcommand for AdminLine {
    fn augment_subcommands(mut program: clap::Command) -> clap::Command {
        let mut added = Vec::new();
        for row in rows_with_line() {
            let Some(group) = row.group else {
                program =
                    program.subcommand((row.augment)(DataArgs::augment_args(clap::Command::new(row.name))));
                continue;
            };
            if added.contains(&group) {
                continue;
            }
            added.push(group);
            let (_, about, example) =
                GROUPS.iter().find(|(name, ..)| *name == group).expect("each group has a row");
            let command = DataArgs::augment_args(clap::Command::new(group))
                .about(*about)
                .after_help(format!("Example:\n  {example}"))
                .subcommand_required(true)
                .arg_required_else_help(true)
                .subcommands(
                    rows_with_line().filter(|row| row.group == Some(group)).map(CommandRow::command_line),
                );
            program = program.subcommand(command);
        }
        program
    }

    fn augment_subcommands_for_update(program: clap::Command) -> clap::Command {
        Self::augment_subcommands(program)
    }

    fn has_subcommand(name: &str) -> bool {
        rows_with_line().any(|row| row.words().next() == Some(name))
    }
}

impl clap::FromArgMatches for AdminLine {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Self::from_arg_matches_mut(&mut matches.clone())
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, clap::Error> {
        let missing = || clap::Error::new(clap::error::ErrorKind::MissingSubcommand);
        let (first, mut matches) = matches.remove_subcommand().ok_or_else(missing)?;
        let data = DataArgs::from_arg_matches_mut(&mut matches)?;
        let (group, name, mut matches) = match matches.remove_subcommand() {
            Some((name, inner)) => (Some(first), name, inner),
            None => (None, first, matches),
        };
        let row = rows_with_line().find(|row| row.group == group.as_deref() && row.name == name);
        let command = (row.ok_or_else(missing)?.from_arguments)(&mut matches)?;
        Ok(Self { data, command })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
