//! The messages on the administration socket: one command from the client, followed by events from the
//! server. Each message is one line of JSON.
//!
//! The types in this module define the format of the messages. If the format changes, which the snapshot test
//! of this module detects, [`PROTOCOL_VERSION`] must change too.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Version of the protocol. The program and the running server must have the same version.
pub const PROTOCOL_VERSION: u32 = 10;

/// The line that a client sends after its command to end it early.
pub const STOP: &str = "stop";

/// The member of the first message that all protocol versions have.
#[derive(Deserialize)]
struct VersionMember {
    protocol: u32,
}

/// The first message of a connection, with its version and command.
#[derive(Serialize, Deserialize)]
struct FirstMessage<C> {
    protocol: u32,
    command: C,
}

/// Reasons why a first message is rejected.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// The program and the server have different versions.
    #[error(
        "version {theirs} of the administration protocol is not supported: the running server (trefoil {}) has \
         version {PROTOCOL_VERSION}; use the trefoil program of the running server, or restart the server with \
         this program",
        env!("CARGO_PKG_VERSION")
    )]
    VersionMismatch {
        /// Version of the sender.
        theirs: u32,
    },
    /// The message has the correct version or none, but its format is invalid.
    #[error("the message is not a command of version {PROTOCOL_VERSION} of the administration protocol: {0}")]
    Malformed(#[from] serde_json::Error),
}

/// The first message as JSON, without the line end.
///
/// # Errors
/// An error if a path is not UTF-8.
pub fn encode_command(command: &AdminCommand) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&FirstMessage { protocol: PROTOCOL_VERSION, command })
}

/// Parses the first message. The version is compared before the command is parsed, because other versions may
/// have other commands.
///
/// # Errors
/// An error if the version differs or the message is malformed.
pub fn decode_command(line: &str) -> Result<AdminCommand, ProtocolError> {
    let VersionMember { protocol } = serde_json::from_str(line)?;
    if protocol != PROTOCOL_VERSION {
        return Err(ProtocolError::VersionMismatch { theirs: protocol });
    }
    let message: FirstMessage<AdminCommand> = serde_json::from_str(line)?;
    Ok(message.command)
}

/// An event of a running command.
///
/// `Trouble` and `Exit` have the same format in all versions, because the server also sends them to programs
/// of other versions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandEvent {
    /// A line of the result, for standard output.
    Line(String),
    /// A part of the result for standard output: as text, or as JSON if the operator asked for it.
    Record {
        /// One or more lines.
        text: String,
        /// The same facts.
        json: Value,
    },
    /// Durable progress. On a terminal, one line is updated; in a pipe, each event is a line of standard
    /// error.
    Progress(String),
    /// Progress of reading. It is shown as a bar on a terminal, and not shown in a pipe.
    Reading {
        /// Description of the activity, with the name of the file.
        doing: String,
        /// Number of bytes read.
        bytes: u64,
        /// Total number of bytes.
        of: u64,
    },
    /// A line about an error, for standard error.
    Trouble(String),
    /// The end of the command, with its exit code.
    Exit(u8),
}

/// A command for the server.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdminCommand {
    /// Import resources and releases.
    Import {
        /// Absolute paths of the files and folders.
        paths: Vec<PathBuf>,
        /// Module of the only SNOMED CT edition among them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        edition: Option<String>,
        /// Date of the only SNOMED CT release among them, as `YYYYMMDD`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<String>,
        /// Whether the only SNOMED CT release among them is not published.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unpublished: bool,
        /// Whether batch and transaction Bundles are stored as resources.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        keep_bundles: bool,
    },
    /// Export resources to a folder.
    Export(OperatorExport),
    /// Manage users.
    User(UserCommand),
    /// Manage clients.
    Client(ClientCommand),
    /// Manage imported releases.
    Release(ReleaseCommand),
    /// Manage signing keys.
    Keys(KeysCommand),
    /// Back up the store.
    Backup {
        /// Absolute path of a folder, or the URL of a bucket; without it, that of the configuration.
        to: Option<String>,
        /// Whether everything is contained again.
        full: bool,
    },
    /// Copy the store to another one, and stop.
    Copy(StoreCopy),
    /// Erase a resource with all its versions.
    Purge {
        /// `Patient/ID`, or `TYPE/ID` of a deleted resource.
        resource: String,
    },
    /// Rewrite the files of the store.
    Compact,
    /// Compare what is stored with what should be.
    Check,
    /// Show the state of the server.
    Status,
    /// Read the configuration again.
    Reload,
    /// Accept the current time of the clock.
    AcceptClock,
}

impl AdminCommand {
    /// The question before a command that cannot be undone.
    pub fn question(&self) -> Option<String> {
        Some(match self {
            Self::User(UserCommand::Delete { name, .. }) => format!("Delete the user {name}?"),
            Self::User(UserCommand::RemoveMethods { name, .. }) => {
                format!("Remove sign-in methods of {name}, and end all sessions and tokens?")
            }
            Self::Client(ClientCommand::Delete { id }) => {
                format!("Delete the client {id} and end its tokens?")
            }
            Self::Purge { resource } => format!(
                "Erase {resource} with all versions, and end all exports? Nothing but a backup can bring it back."
            ),
            Self::Release(ReleaseCommand::Remove { id, .. }) => format!("Remove the release {id}?"),
            Self::Keys(KeysCommand::Revoke { kid }) => {
                format!("Revoke the key {kid}? Tokens signed with it are no longer accepted.")
            }
            Self::Keys(KeysCommand::RotateServerSecret) => {
                "Rotate the server secret? Sign-ins in progress and signed URLs become invalid.".to_owned()
            }
            _ => return None,
        })
    }

    /// Returns whether the command makes sense on a folder or database without a store, which it creates.
    pub fn creates_store(&self) -> bool {
        self.announces_store() || matches!(self, Self::Import { .. })
    }

    /// Returns whether the command says that it has created a store, because few operators expect it.
    pub fn announces_store(&self) -> bool {
        matches!(self, Self::User(UserCommand::Add { .. }) | Self::Client(ClientCommand::Add { .. }))
    }
}

/// A copy of the store.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StoreCopy {
    /// URL of a database, or `file:` and an absolute path.
    pub to: String,
    /// Absolute path of the data folder beside a database.
    pub to_data: Option<PathBuf>,
    /// Whether the source stays in use.
    pub keep_source: bool,
}

/// Options of an export by an operator.
#[derive(Debug, Serialize, Deserialize)]
pub struct OperatorExport {
    /// Absolute path of the output folder.
    pub out: PathBuf,
    /// Id of the Group to export.
    pub group: Option<String>,
    /// Instant after which the exported resources were changed.
    pub since: Option<String>,
    /// Resource types, separated by commas.
    pub types: Option<String>,
}

/// A command about users.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "`UserSubcommand` describes the same commands")]
pub enum UserCommand {
    Add {
        username: String,
        members: Members,
        password: String,
    },
    Change {
        username: String,
        members: Members,
    },
    List,
    ListIrregularNames,
    Show {
        name: String,
    },
    SetPassword {
        name: String,
        password: String,
        keep_other_methods: bool,
    },
    Disable {
        name: String,
    },
    Enable {
        name: String,
    },
    Delete {
        name: String,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        forget: bool,
    },
    SignOut {
        name: String,
    },
    RemoveMethods {
        name: String,
        methods: RemovedMethods,
    },
}

/// Members of a user or a client by name, in the form of a JSON merge patch.
pub type Members = Map<String, Value>;

/// The sign-in methods to remove.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RemovedMethods {
    /// The passkey with this id.
    Passkey(String),
    /// The linked account with this id.
    LinkedAccount(String),
    /// The account with this id that is or was linked.
    ForgetAccount(String),
    /// All recovery codes.
    RecoveryCodes,
    /// All passkeys, recovery codes and linked accounts.
    All,
}

/// A command about clients.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "`ClientSubcommand` describes the same commands")]
pub enum ClientCommand {
    Add { id: String, members: Members },
    Change { id: String, members: Members },
    List,
    Show { id: String },
    RotateSecret { id: String, overlap_s: u32 },
    Delete { id: String },
}

/// A command about imported releases.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "`ReleaseSubcommand` describes the same commands")]
pub enum ReleaseCommand {
    List,
    Show { id: String },
    Remove { id: String, force: bool },
}

/// A command about keys.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "`KeysSubcommand` describes the same commands")]
pub enum KeysCommand {
    List,
    Rotate { now: bool },
    RotateServerSecret,
    Revoke { kid: String },
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::{CommandFactory as _, Parser as _};

    use super::*;
    use crate::administration::arguments::AdminSubcommand;

    #[derive(clap::Parser)]
    struct AdminCommandLine {
        #[command(subcommand)]
        command: AdminSubcommand,
    }

    /// One command line for each command that can be sent through the socket.
    const COMMAND_LINES: &[&str] = &[
        "import /a /b.zip",
        "export --out /out",
        "export --out /out --group g --since 2026-01-31T00:00:00Z --type Patient,Group",
        "user add ada",
        "user add ada --name N --given-name G --family-name F --email E --email-verified --phone-number P \
         --phone-number-verified --allowed-scopes S --fhir-user Patient/p1 --administrator",
        "user change ada --name N",
        "user change ada --unset fhir-user --unset administrator --unset allowed-scopes",
        "user list",
        "user list --irregular-names",
        "user show ada",
        "user set-password ada",
        "user set-password ada --keep-other-methods",
        "user disable ada",
        "user enable ada",
        "user delete ada",
        "user delete ada --forget",
        "user sign-out ada",
        "user remove-methods ada --passkey ID",
        "user remove-methods ada --linked-account ID",
        "user remove-methods ada --forget-account ID",
        "user remove-methods ada --recovery-codes",
        "user remove-methods ada --all",
        "client add web",
        "client add web --name N --redirect-uri R1 --redirect-uri R2 --post-logout-redirect-uri L \
         --response-type code --grant-type authorization_code --auth-method none --jwks JWKS --scope S \
         --jwks-uri K --assertion-alg ES384 --assertion-audience issuer --id-token-alg ES256 --claims-in-id-token --first-party \
         --always-refresh --refresh-grace-s 9 --access-token-lifetime-s 60 --id-token-lifetime-s 60 \
         --refresh-token-lifetime-s 60 --default-max-age 60 --require-par --dpop-bound --introspects --pkce-optional --native --group g",
        "client list",
        "client show web",
        "client change web --redirect-uri R --unset first-party --unset group",
        "client rotate-secret web",
        "client rotate-secret web --overlap-s 3600",
        "client delete web",
        "release list",
        "release show loinc.org-2.80",
        "release remove loinc.org-2.80",
        "release remove loinc.org-2.80 --force",
        "keys list",
        "keys rotate",
        "keys rotate --now",
        "keys rotate --server-secret",
        "keys revoke -x7_",
        "clock accept",
        "backup",
        "backup --to /backups --full",
        "purge Patient/p1",
        "compact",
        "check",
        "status",
        "reload",
    ];

    #[test]
    fn the_format_of_every_command_is_unchanged() {
        let jwks = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&jwks, "{\"keys\":[]}").unwrap();
        let mut forms = String::new();
        for line in COMMAND_LINES {
            let line = line.replace("JWKS", jwks.path().to_str().unwrap());
            let words = ["trefoil"].into_iter().chain(line.split_whitespace());
            let parsed =
                AdminCommandLine::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}"));
            let (_, command) = parsed.command.into_command(|| Ok("a long password".to_owned()));
            let encoded = String::from_utf8(encode_command(&command.unwrap()).unwrap()).unwrap();
            let decoded = decode_command(&encoded).unwrap_or_else(|error| panic!("{line}: {error}"));
            assert_eq!(encode_command(&decoded).unwrap(), encoded.as_bytes(), "{line}");
            forms.push_str(&format!("{encoded}\n"));
        }
        // `trefoil copy` sends it if a server runs.
        let copy = StoreCopy { to: "file:/new".to_owned(), to_data: Some("/data".into()), keep_source: true };
        forms.push_str(&String::from_utf8(encode_command(&AdminCommand::Copy(copy)).unwrap()).unwrap());
        insta::assert_snapshot!(forms);
    }

    #[test]
    fn every_command_has_a_command_line() {
        let command_line = AdminCommandLine::command();
        let mut commands = BTreeSet::new();
        for command in command_line.get_subcommands() {
            let actions: Vec<_> = command.get_subcommands().map(|action| action.get_name()).collect();
            match actions.is_empty() {
                true => drop(commands.insert(command.get_name().to_owned())),
                false => {
                    commands.extend(actions.iter().map(|action| format!("{} {action}", command.get_name())))
                }
            }
        }
        let covers = |line: &&str, name: &str| **line == *name || line.starts_with(&format!("{name} "));
        // It is not sent through the socket.
        commands.remove("client keygen");
        commands.retain(|name| !COMMAND_LINES.iter().any(|line| covers(line, name)));
        assert!(commands.is_empty(), "the format is not checked for: {commands:?}");
    }

    #[test]
    fn the_format_of_every_event_is_unchanged() {
        let text = || "text".to_owned();
        let events = [
            CommandEvent::Line(text()),
            CommandEvent::Progress(text()),
            CommandEvent::Reading { doing: text(), bytes: 1, of: 2 },
            CommandEvent::Trouble(text()),
            CommandEvent::Exit(3),
        ];
        let mut forms = Vec::new();
        for event in events {
            let encoded = serde_json::to_string(&event).unwrap();
            assert_eq!(serde_json::from_str::<CommandEvent>(&encoded).unwrap(), event);
            forms.push(encoded);
        }
        assert_eq!(
            forms,
            [
                r#"{"line":"text"}"#,
                r#"{"progress":"text"}"#,
                r#"{"reading":{"doing":"text","bytes":1,"of":2}}"#,
                r#"{"trouble":"text"}"#,
                r#"{"exit":3}"#,
            ]
        );
    }

    #[test]
    fn another_version_is_rejected_before_its_command_is_read() {
        let error = decode_command(r#"{"protocol":11,"command":{"unheard":"of"}}"#).unwrap_err().to_string();
        assert!(error.starts_with("version 11 of the administration protocol is not supported"), "{error}");
        assert!(error.contains("has version 10; use the trefoil program of the running server"), "{error}");
        for malformed in
            ["", "{}", r#"{"command":"reload"}"#, r#"{"protocol":10,"command":{"unheard":"of"}}"#]
        {
            assert!(matches!(decode_command(malformed), Err(ProtocolError::Malformed(_))), "{malformed}");
        }
    }
}
