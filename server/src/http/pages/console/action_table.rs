//! The actions of the console, one row each. An action runs a command of the command line, whose words come
//! from the fields of its form.

use clap::Parser;
use command_line::text::shell_word;
use identity::params::Params;

use crate::administration::arguments::AdminSubcommand;
use crate::administration::protocol::AdminCommand;

/// A word of a command.
#[derive(Debug, Clone, Copy)]
pub(super) enum CommandWord {
    /// This word.
    Fixed(&'static str),
    /// The value of this field. All such words are the last ones.
    Field(&'static str),
    /// A flag with the value of this field, unless that is empty.
    Flag(&'static str, &'static str),
    /// A flag, if this field was sent.
    Switch(&'static str, &'static str),
}

use CommandWord::{Field, Fixed, Flag, Switch};

/// An action.
#[derive(Debug)]
pub(super) struct ConsoleAction {
    /// Value of the field `action`.
    pub name: &'static str,
    /// Text of its button.
    pub label: &'static str,
    words: &'static [CommandWord],
}

macro_rules! actions {
    ($($constant:ident: $name:literal, $label:literal, [$($word:expr),*];)*) => {
        $(pub(super) const $constant: ConsoleAction =
            ConsoleAction { name: $name, label: $label, words: &[$($word),*] };)*
        /// All actions.
        const ACTIONS: &[&ConsoleAction] = &[$(&$constant),*];
    };
}

actions! {
    ADD_USER: "user-add", "Add a user", [
        Fixed("user"), Fixed("add"), Flag("--name", "name"), Flag("--email", "email"),
        Switch("--administrator", "administrator"), Field("username")
    ];
    DISABLE_USER: "user-disable", "Disable", [Fixed("user"), Fixed("disable"), Field("username")];
    ENABLE_USER: "user-enable", "Enable", [Fixed("user"), Fixed("enable"), Field("username")];
    SIGN_OUT_USER: "user-sign-out", "Sign out everywhere", [Fixed("user"), Fixed("sign-out"), Field("username")];
    SET_PASSWORD: "user-set-password", "Set a new password", [Fixed("user"), Fixed("set-password"), Field("username")];
    REMOVE_METHODS: "user-remove-methods", "Remove passkeys, codes and links", [
        Fixed("user"), Fixed("remove-methods"), Fixed("--all"), Field("username")
    ];
    DELETE_USER: "user-delete", "Delete", [Fixed("user"), Fixed("delete"), Field("username")];
    ADD_CLIENT: "client-add", "Add a client", [
        Fixed("client"), Fixed("add"), Flag("--name", "name"), Flag("--redirect-uri", "redirect_uri"),
        Flag("--scope", "scope"), Flag("--auth-method", "auth_method"), Field("id")
    ];
    ROTATE_SECRET: "client-rotate-secret", "Replace the secret", [Fixed("client"), Fixed("rotate-secret"), Field("id")];
    DELETE_CLIENT: "client-delete", "Delete", [Fixed("client"), Fixed("delete"), Field("id")];
    ROTATE_KEYS: "keys-rotate", "Rotate the keys", [Fixed("keys"), Fixed("rotate")];
    REVOKE_KEY: "keys-revoke", "Revoke", [Fixed("keys"), Fixed("revoke"), Field("kid")];
    REMOVE_RELEASE: "release-remove", "Remove", [Fixed("release"), Fixed("remove"), Field("id")];
    RELOAD: "reload", "Read the configuration again", [Fixed("reload")];
}

/// A command that a form asks for.
#[derive(Debug)]
pub(super) struct AskedCommand {
    pub action: &'static ConsoleAction,
    pub command: AdminCommand,
    /// The fields that are part of the command, with their values.
    pub fields: Vec<(&'static str, String)>,
    /// The same command for a shell, without a password.
    pub line: String,
}

/// The commands of the console as the command line parses them.
#[derive(Debug, Parser)]
struct ConsoleCommandLine {
    #[command(subcommand)]
    command: AdminSubcommand,
}

/// The command of a form.
///
/// # Errors
/// The reason why the form is not that of an action.
pub(super) fn asked_command(form: &Params) -> Result<AskedCommand, String> {
    let name = form.get("action").unwrap_or_default();
    let action = ACTIONS.iter().find(|action| action.name == name);
    let action = action.ok_or_else(|| format!("The console has no action '{name}'."))?;
    let (mut words, mut values, mut fields) = (Vec::new(), Vec::new(), Vec::new());
    for word in action.words {
        let mut value = |field| {
            let value = form.get(field).map(str::trim).filter(|value| !value.is_empty())?.to_owned();
            fields.push((field, value.clone()));
            Some(value)
        };
        match *word {
            Fixed(word) => words.push(word.to_owned()),
            Flag(flag, field) => words.extend(value(field).map(|value| format!("{flag}={value}"))),
            Switch(flag, field) => words.extend(value(field).map(|_| flag.to_owned())),
            Field(field) => {
                values.push(value(field).ok_or_else(|| format!("The field '{field}' is empty."))?);
            }
        }
    }
    // A value that begins with a hyphen is no flag.
    let has_hyphen = values.iter().any(|value| value.starts_with('-'));
    words.extend(has_hyphen.then(|| "--".to_owned()));
    words.extend(values);
    let shown: Vec<_> = words.iter().map(String::as_str).map(shell_word).collect();
    let line = format!("trefoil {}", shown.join(" "));
    let parsed = ConsoleCommandLine::try_parse_from(["trefoil".to_owned()].into_iter().chain(words))
        .map_err(|error| error.to_string())?;
    let password = form.get("password").unwrap_or_default().to_owned();
    let (_, command) = parsed.command.into_command(|| Ok(password));
    let command = command.map_err(|error| format!("{error:#}"))?;
    Ok(AskedCommand { action, command, fields, line })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(form: &str) -> Result<AskedCommand, String> {
        asked_command(&Params::parse(form.as_bytes()))
    }

    #[test]
    fn every_action_is_a_command() {
        for action in ACTIONS {
            let form = format!(
                "action={}&username=ada&id=web&kid=k1&name=N&email=a%40b.example&administrator=yes&password=a+long+password\
                 &redirect_uri=https%3A%2F%2Fapp.example%2F&scope=openid&auth_method=none",
                action.name
            );
            let asked = asked(&form).unwrap_or_else(|error| panic!("{}: {error}", action.name));
            assert_eq!(asked.action.name, action.name);
            assert!(!asked.line.contains("password'") && !asked.line.contains("a long"), "{}", asked.line);
        }
    }

    #[test]
    fn values_are_never_flags() {
        let asked = asked("action=user-delete&username=--all").unwrap();
        assert_eq!(asked.line, "trefoil user delete -- --all");
        assert!(asked.command.question().unwrap().contains("--all"));
        let add =
            super::tests::asked("action=user-add&username=ada&name=--administrator&password=x").unwrap();
        assert_eq!(add.line, "trefoil user add --name=--administrator ada");
    }

    #[test]
    fn other_commands_are_refused() {
        for form in
            ["action=purge&id=Patient%2Fp1", "", "action=user-delete", "action=user-delete&username=+"]
        {
            assert!(asked(form).is_err(), "{form}");
        }
    }
}
