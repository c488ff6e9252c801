//! The messages on the administration socket: one command from the client, followed by events from the
//! server. Each message is one line of JSON.
//!
//! The commands and their [events](super::events) define the format of the messages. If the format changes,
//! which the snapshot test of this module detects, [`PROTOCOL_VERSION`] must change too.

use serde::{Deserialize, Serialize};

use super::all_commands::AdminCommand;

/// Version of the protocol. The program and the running server must have the same version.
pub const PROTOCOL_VERSION: u32 = 16;

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
    use std::any::TypeId;
    use std::path::Path;

    use clap::{Arg, ArgAction, Parser as _, ValueHint};

    use super::*;
    use crate::administration::all_commands::{AdminLine, COMMANDS, CommandRow};
    use crate::administration::command::{ProgramInput, StoreNeed};
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

    /// The words that set a flag. `file` is a JWK Set.
    fn words(argument: &Arg, file: &Path) -> Vec<String> {
        let value = match argument.get_value_parser().type_id() {
            _ if argument.get_value_hint() == ValueHint::FilePath => file.display().to_string(),
            id if id == TypeId::of::<u32>() || id == TypeId::of::<usize>() => "9".to_owned(),
            id if id == TypeId::of::<std::path::PathBuf>() => "/a".to_owned(),
            id if id == TypeId::of::<terminology_import::StatedEncoding>() => "latin1".to_owned(),
            _ if argument.get_id() == "feed" => "https://feed.example/feed.xml".to_owned(),
            _ if argument.get_id() == "since" => "2026-01-31T00:00:00Z".to_owned(),
            // It is the name of a flag for `--unset`.
            _ => "name".to_owned(),
        };
        match argument.get_long() {
            None => vec![value],
            Some(flag) if matches!(argument.get_action(), ArgAction::SetTrue) => vec![format!("--{flag}")],
            Some(flag) => vec![format!("--{flag}"), value],
        }
    }

    /// The forms of a command: with what it requires, and with each further flag.
    fn forms(row: &CommandRow, file: &Path) -> Vec<String> {
        let command = row.command_line();
        let visible = || command.get_arguments().filter(|argument| !argument.is_hide_set());
        let required: Vec<String> =
            visible().filter(|one| one.is_required_set()).flat_map(|one| words(one, file)).collect();
        let optional = visible().filter(|one| !one.is_required_set()).map(|one| words(one, file));
        let lines: Vec<Vec<String>> = std::iter::once(Vec::new()).chain(optional).collect();
        let mut forms = Vec::new();
        for more in &lines {
            let parse = |other: &Vec<String>| {
                let name = ["trefoil"].into_iter().chain(row.words()).map(str::to_owned);
                let line = name.chain(more.clone()).chain(required.clone()).chain(other.clone());
                AdminProgram::try_parse_from(line)
            };
            // A flag may need another one, or a command one of several.
            let parsed = parse(&Vec::new()).or_else(|error| {
                let others = lines.iter().filter(|other| *other != more);
                others.map(parse).find_map(Result::ok).ok_or(error)
            });
            // A command that requires one of several flags is not complete without one.
            let Ok(AdminProgram { line }) = parsed else { continue };
            let mut command = line.command;
            command.read_input(&mut Password).unwrap();
            let encoded = String::from_utf8(encode_command(&command).unwrap()).unwrap();
            let decoded = decode_command(&encoded).unwrap_or_else(|error| panic!("{encoded}: {error}"));
            assert_eq!(encode_command(&decoded).unwrap(), encoded.as_bytes());
            forms.push(encoded);
        }
        assert!(forms.len() >= lines.len().saturating_sub(1).max(1), "{}: {lines:?}", row.name);
        forms
    }

    #[test]
    fn the_format_of_every_command_is_unchanged() {
        let jwks = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&jwks, "{\"keys\":[]}").unwrap();
        let mut all = Vec::new();
        for row in COMMANDS {
            // `trefoil copy` has a command line of its own.
            if row.name != "copy" && row.name != "keygen" {
                all.extend(forms(row, jwks.path()));
            }
        }
        let copy = StoreCopy { to: "file:/new".to_owned(), to_data: Some("/data".into()), keep_source: true };
        assert_ne!(AdminCommand::Copy(copy.clone()).store(), StoreNeed::None);
        all.push(String::from_utf8(encode_command(&AdminCommand::Copy(copy)).unwrap()).unwrap());
        insta::assert_snapshot!(all.join("\n"));
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
        let other = PROTOCOL_VERSION + 1;
        let message = |version: u32| format!(r#"{{"protocol":{version},"command":{{"unheard":"of"}}}}"#);
        let error = decode_command(&message(other)).unwrap_err().to_string();
        assert!(error.starts_with(&format!("version {other} of the administration protocol")), "{error}");
        let remedy = format!("has version {PROTOCOL_VERSION}; use the trefoil program of the running server");
        assert!(error.contains(&remedy), "{error}");
        for malformed in ["", "{}", r#"{"command":"reload"}"#, &message(PROTOCOL_VERSION)] {
            assert!(matches!(decode_command(malformed), Err(ProtocolError::Malformed(_))), "{malformed}");
        }
    }
}
