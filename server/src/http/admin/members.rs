//! The members of a command in a request: the values of the path and the query as JSON.

use std::any::TypeId;

use clap::Arg;
use identity::params::Params;
use serde_json::{Map, Value, json};

use crate::administration::all_commands::{CommandRow, is_switch};
use crate::http::path_parameters::PathParameters;

/// Adds the values of the path. `{sub}` is the user.
pub fn add_path(members: &mut Map<String, Value>, path: PathParameters) {
    for (name, value) in path.0 {
        match name {
            "sub" => members.insert("user".to_owned(), json!({ "sub": value })),
            name => members.insert(name.to_owned(), value.into()),
        };
    }
}

/// Adds the values of the query, with the types that the flags of the command have.
///
/// # Errors
/// The parameter that the command does not have, or whose value has another type.
pub fn add_query(members: &mut Map<String, Value>, row: &CommandRow, query: &Params) -> Result<(), String> {
    if let Some(defect) = query.defect() {
        return Err(defect.to_string());
    }
    let command = row.command_line();
    for (name, text) in query.iter() {
        let is_named = |argument: &&Arg| argument.get_id() == name && !argument.is_hide_set();
        let Some(argument) = command.get_arguments().find(is_named) else {
            return Err(format!("the request has no parameter '{name}'; remove it"));
        };
        if members.insert(name.to_owned(), typed(argument, text)?).is_some() {
            return Err(format!("{name} is given twice; send it once"));
        }
    }
    Ok(())
}

fn typed(argument: &Arg, text: &str) -> Result<Value, String> {
    let name = argument.get_id();
    let type_id = argument.get_value_parser().type_id();
    match text {
        "true" | "false" if is_switch(argument) => Ok((text == "true").into()),
        _ if is_switch(argument) => Err(format!("{name} must be true or false")),
        _ if type_id == TypeId::of::<usize>() || type_id == TypeId::of::<u32>() => {
            let number = text.parse::<u32>();
            number.map(Into::into).map_err(|_| format!("{name} must be a number"))
        }
        _ => Ok(text.into()),
    }
}

/// The names of a command's members. A flag that the help does not show is an earlier name of another.
fn names(command: &clap::Command) -> impl Iterator<Item = &str> {
    let visible = command.get_arguments().filter(|argument| !argument.is_hide_set());
    visible.map(|argument| argument.get_id().as_str())
}

/// Returns whether a command has a member.
pub fn has(row: &CommandRow, name: &str) -> bool {
    names(&row.command_line()).any(|own| own == name)
}

/// Checks that a command has all members of a body. The members of users and clients are checked with their
/// values.
///
/// # Errors
/// The unknown member, with the names that are accepted.
pub fn check_body(members: &Map<String, Value>, row: &CommandRow) -> Result<(), String> {
    if matches!(row.name, "add" | "change") {
        return Ok(());
    }
    let command = row.command_line();
    let password = row.reads_password.then_some("password");
    let accepted_names: Vec<&str> = names(&command).filter(|name| *name != "user").chain(password).collect();
    match members.keys().find(|name| !accepted_names.contains(&name.as_str())) {
        None => Ok(()),
        Some(unknown) if accepted_names.is_empty() => {
            Err(format!("unknown field `{unknown}`; the request has no members"))
        }
        Some(unknown) => {
            Err(format!("unknown field `{unknown}`, expected one of {}", accepted_names.join(", ")))
        }
    }
}

/// Whether a command needs members that are in no path: a password, or those of a new or changed record.
pub fn needs_body(row: &CommandRow) -> bool {
    row.reads_password || matches!(row.name, "add" | "change")
}
