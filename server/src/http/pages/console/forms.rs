//! The forms of the console: one for each command that changes something and that `/admin` has, made from the
//! members of the command.
//!
//! A form is where the path of the request is: without a placeholder in the section of all records, with one
//! at a record, with two at an entry of a record.

use clap::{Arg, ArgAction, ValueHint};
use command_line::text::shell_word;
use identity::params::Params;
use maud::{Markup, html};
use serde_json::Value;

use crate::administration::all_commands::{AdminCommand, COMMANDS, CommandRow, is_switch};
use crate::administration::command::{AdminMethod, ProgramInput};
use crate::http::pages::csrf;

/// The field with the password, which is never part of a command line.
const PASSWORD: &str = "password";
/// Number of optional fields that are shown at once.
const SHOWN_FIELDS: usize = 3;

/// The value of the field `action` of a command.
pub(super) fn action(row: &CommandRow) -> String {
    row.words().collect::<Vec<_>>().join("-")
}

/// The members that the path of the request names.
fn path_members(row: &CommandRow) -> Vec<&'static str> {
    let path = row.doors.routes.first().map_or("", |route| route.path);
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    names.map(|name| if name == "sub" { "user" } else { name }).collect()
}

/// The commands of a group that have a form, and whose path has so many placeholders.
pub(super) fn commands(
    group: Option<&'static str>,
    depth: usize,
) -> impl Iterator<Item = &'static CommandRow> {
    with_form().filter(move |row| row.group == group && path_members(row).len() == depth)
}

fn with_form() -> impl Iterator<Item = &'static CommandRow> {
    COMMANDS.iter().filter(|row| row.doors.routes.iter().any(|route| route.method != AdminMethod::Get))
}

/// The flags that a form has. A file on the machine of the server is not one of them.
fn arguments(command: &clap::Command) -> impl Iterator<Item = &Arg> {
    let is_file = |argument: &Arg| {
        matches!(argument.get_value_hint(), ValueHint::FilePath | ValueHint::AnyPath | ValueHint::DirPath)
    };
    command.get_arguments().filter(move |argument| !argument.is_hide_set() && !is_file(argument))
}

/// The form of a command.
pub(super) enum CommandForm {
    /// A button.
    Button(Markup),
    /// Fields behind the label.
    Fields(Markup),
}

/// The form of a command for the record that these values of the path name. `None` if the command is not for
/// records with these members.
pub(super) fn form(row: &CommandRow, browser: &str, path: &[&str], record: &Value) -> Option<CommandForm> {
    if row.doors.only_if.is_some_and(|offers| !offers(record)) {
        return None;
    }
    let (label, action, of) = (row.doors.label, action(row), path.last().unwrap_or(&""));
    let fixed: Vec<_> = path_members(row).into_iter().zip(path).collect();
    let command = row.command_line();
    let open = arguments(&command).filter(|open| fixed.iter().all(|(name, _)| open.get_id() != *name));
    let (needed, optional): (Vec<_>, Vec<_>) = open.partition(|open| open.is_positional());
    let hidden = html! {
        (csrf::hidden_field(browser))
        input type="hidden" name="action" value=(action);
        @for (name, value) in &fixed { input type="hidden" name=(name) value=(value); }
    };
    if needed.is_empty() && optional.is_empty() && !row.reads_password {
        return Some(CommandForm::Button(html! {
            form method="post" action="/console" {
                (hidden)
                button.second type="submit" aria-label=(format!("{label} {of}").trim_end()) { (label) }
            }
        }));
    }
    let visible = if optional.len() > SHOWN_FIELDS + 1 { SHOWN_FIELDS } else { optional.len() };
    let (visible, more) = optional.split_at(visible);
    Some(CommandForm::Fields(html! {
        details {
            summary aria-label=(format!("{label} {of}").trim_end()) { (label) }
            form method="post" action="/console" {
                (hidden)
                @for argument in needed.iter().chain(visible) { (field(argument, &action)) }
                @if row.reads_password {
                    @let id = format!("{action}-{PASSWORD}");
                    label for=(id) { "Password" }
                    input id=(id) type="password" name=(PASSWORD) autocomplete="off";
                }
                @if !more.is_empty() {
                    details {
                        summary { "More" }
                        @for argument in more { (field(argument, &action)) }
                    }
                }
                button type="submit" { (label) }
            }
        }
    }))
}

/// The forms of commands for a record: the buttons in a row, the others below.
pub(super) fn forms(
    rows: impl Iterator<Item = &'static CommandRow>,
    browser: &str,
    path: &[&str],
    record: &Value,
) -> Markup {
    let (mut buttons, mut fields) = (Vec::new(), Vec::new());
    for row in rows {
        match form(row, browser, path, record) {
            Some(CommandForm::Button(button)) => buttons.push(button),
            Some(CommandForm::Fields(form)) => fields.push(form),
            None => {}
        }
    }
    html! {
        @if !buttons.is_empty() { div.choice { @for button in buttons { (button) } } }
        @for form in fields { (form) }
    }
}

fn field(argument: &Arg, action: &str) -> Markup {
    let name = argument.get_id().as_str();
    let id = format!("{action}-{name}");
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let label = help.replace("; can be repeated", ", separated by spaces");
    html! {
        @if is_switch(argument) {
            label.check for=(id) {
                input id=(id) type="checkbox" name=(name) value="yes" autocomplete="off"; (label)
            }
        } @else {
            label for=(id) { (label) }
            input id=(id) type="text" name=(name) autocomplete="off" required[argument.is_required_set()];
        }
    }
}

/// A command that a form asks for.
#[derive(Debug)]
pub(super) struct AskedCommand {
    pub command: AdminCommand,
    /// The value of the field `action`.
    pub action: String,
    /// The text of the button.
    pub label: &'static str,
    /// The fields that are part of the command, with their values.
    pub fields: Vec<(String, String)>,
    /// The same command for a shell, without a password.
    pub line: String,
}

/// The password of a form.
struct FormInput(String);

impl ProgramInput for FormInput {
    fn password(&mut self) -> anyhow::Result<String> {
        anyhow::ensure!(!self.0.is_empty(), "The field 'password' is empty.");
        Ok(std::mem::take(&mut self.0))
    }

    fn warn(&mut self, _: &str) {}
}

/// The command of a form.
///
/// # Errors
/// The reason why the form is not that of a command.
pub(super) fn asked_command(form: &Params) -> Result<AskedCommand, String> {
    let name = form.get("action").unwrap_or_default();
    let row = with_form().find(|row| action(row) == name);
    let row = row.ok_or_else(|| format!("The console has no action '{name}'."))?;
    let (mut flags, mut values, mut fields) = (Vec::new(), Vec::new(), Vec::new());
    for argument in arguments(&row.command_line()) {
        let name = argument.get_id().as_str();
        let value = form.get(name).map(str::trim).filter(|value| !value.is_empty());
        if let Some(value) = value {
            fields.push((name.to_owned(), value.to_owned()));
        }
        match (argument.get_long(), value) {
            (Some(flag), Some(_)) if is_switch(argument) => flags.push(format!("--{flag}")),
            // The values of a list, such as redirect URIs, contain no spaces.
            (Some(flag), Some(value)) if matches!(argument.get_action(), ArgAction::Append) => {
                flags.extend(value.split_whitespace().map(|value| format!("--{flag}={value}")));
            }
            (Some(flag), Some(value)) => flags.push(format!("--{flag}={value}")),
            (None, Some(value)) => values.push(value.to_owned()),
            (None, None) if argument.is_required_set() => {
                return Err(format!("The field '{name}' is empty."));
            }
            (_, None) => {}
        }
    }
    // A value that begins with a hyphen is no flag.
    let has_hyphen = values.iter().any(|value| value.starts_with('-'));
    flags.extend(has_hyphen.then(|| "--".to_owned()));
    flags.extend(values);
    let words = ["trefoil"].into_iter().chain(row.words()).map(str::to_owned);
    let shell_words: Vec<_> =
        words.chain(flags.iter().cloned()).map(|word| shell_word(&word).to_string()).collect();
    let matches = row.command_line().try_get_matches_from([row.name.to_owned()].into_iter().chain(flags));
    let parsed = matches.and_then(|mut matches| (row.from_arguments)(&mut matches));
    let mut command = parsed.map_err(|error| error.to_string())?;
    let mut input = FormInput(form.get(PASSWORD).unwrap_or_default().to_owned());
    command.read_input(&mut input).map_err(|error| format!("{error:#}"))?;
    Ok(AskedCommand {
        command,
        action: action(row),
        label: row.doors.label,
        fields,
        line: shell_words.join(" "),
    })
}

#[cfg(test)]
mod tests {
    use std::any::TypeId;
    use std::path::PathBuf;

    use super::*;

    fn asked(form: &str) -> Result<AskedCommand, String> {
        asked_command(&Params::parse(form.as_bytes()))
    }

    #[test]
    fn every_form_is_a_command() {
        for row in with_form() {
            let mut form = format!("action={}&password=a+long+password", action(row));
            for argument in arguments(&row.command_line()).filter(|argument| argument.is_positional()) {
                form.push_str(&format!("&{}=ada", argument.get_id()));
            }
            // One of the methods is required.
            form.push_str("&all=yes");
            let command = asked(&form).unwrap_or_else(|error| panic!("{form}: {error}"));
            assert_eq!(command.action, action(row));
            assert!(!command.line.contains("a long"), "{}", command.line);
        }
    }

    #[test]
    fn no_command_with_a_path_leaves_the_machine() {
        for row in COMMANDS.iter().filter(|row| !row.doors.routes.is_empty()) {
            for argument in row.command_line().get_arguments() {
                let type_id = argument.get_value_parser().type_id();
                let name = argument.get_id();
                assert!(type_id != TypeId::of::<PathBuf>(), "{}: {name}", action(row));
                let has_path = argument
                    .get_value_names()
                    .unwrap_or_default()
                    .iter()
                    .any(|value| ["FOLDER", "STORE", "LOCATION", "PATHS"].contains(&value.as_str()));
                assert!(!has_path, "{}: {name}", action(row));
            }
        }
    }

    #[test]
    fn values_are_never_flags() {
        let delete = asked("action=user-delete&user=--forget").unwrap();
        assert_eq!(delete.line, "trefoil user delete -- --forget");
        assert!(delete.command.question().unwrap().contains("--forget"));
        let add = asked("action=user-add&username=ada&name=--administrator&password=x").unwrap();
        assert_eq!(add.line, "trefoil user add --name=--administrator ada");
    }

    #[test]
    fn other_commands_are_refused() {
        for form in [
            "action=purge&resource=Patient%2Fp1",
            "action=import&paths=%2Fetc",
            "action=backup",
            "",
            "action=user-delete",
            "action=user-delete&user=+",
        ] {
            assert!(asked(form).is_err(), "{form}");
        }
    }
}
