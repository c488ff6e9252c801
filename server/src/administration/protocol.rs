//! The messages on the administration socket: one command from the client, followed by events from the
//! server. Each message is one line of JSON.
//!
//! The commands and their [events](super::events) define the format of the messages. If the format changes,
//! which the snapshot test of this module detects, [`PROTOCOL_VERSION`] must change too.

use serde::{Deserialize, Serialize};

use super::all_commands::AdminCommand;

/// Version of the protocol. The program and the running server must have the same version.
pub const PROTOCOL_VERSION: u32 = 11;

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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::Parser as _;

    use super::*;
    use crate::administration::all_commands::{AdminLine, COMMANDS};
    use crate::administration::command::ProgramInput;
    use crate::administration::copy::StoreCopy;
    use crate::administration::events::CommandEvent;

    #[derive(clap::Parser)]
    struct AdminProgram {
        #[command(subcommand)]
        line: AdminLine,
    }

    struct Password;

    impl ProgramInput for Password {
        fn password(&mut self) -> anyhow::Result<String> {
            Ok("a long password".to_owned())
        }

        fn warn(&mut self, text: &str) {
            panic!("{text}");
        }
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
        "user set-password ada --keep-sign-in-methods",
        "user disable ada",
        "user enable ada",
        "user delete ada",
        "user delete ada --forget",
        "user sign-out ada",
        "user sessions ada",
        "user end-session ada -x7_",
        "user consents ada",
        "user withdraw-consent ada web",
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
                AdminProgram::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}"));
            let mut command = parsed.line.command;
            command.read_input(&mut Password).unwrap();
            let encoded = String::from_utf8(encode_command(&command).unwrap()).unwrap();
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
        let mut commands: BTreeSet<String> =
            COMMANDS.iter().map(|row| row.words().collect::<Vec<_>>().join(" ")).collect();
        let covers = |line: &&str, name: &str| **line == *name || line.starts_with(&format!("{name} "));
        // The program runs the first itself, and sends the second by another command line.
        commands.remove("client keygen");
        commands.remove("copy");
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
        let error = decode_command(r#"{"protocol":12,"command":{"unheard":"of"}}"#).unwrap_err().to_string();
        assert!(error.starts_with("version 12 of the administration protocol is not supported"), "{error}");
        assert!(error.contains("has version 11; use the trefoil program of the running server"), "{error}");
        for malformed in
            ["", "{}", r#"{"command":"reload"}"#, r#"{"protocol":11,"command":{"unheard":"of"}}"#]
        {
            assert!(matches!(decode_command(malformed), Err(ProtocolError::Malformed(_))), "{malformed}");
        }
    }
}
