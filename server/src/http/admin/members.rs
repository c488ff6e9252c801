//! The members of a command in a request: the values of the path and the query as JSON.

use std::any::TypeId;

use clap::{Arg, ArgAction};
use identity::params::Params;
use serde_json::{Map, Value, json};

use crate::administration::all_commands::CommandRow;
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
/// The reason if the command has no such member, or the value has another type.
pub fn add_query(members: &mut Map<String, Value>, row: &CommandRow, query: &Params) -> Result<(), String> {
    if let Some(defect) = query.defect() {
        return Err(defect.to_string());
    }
    let command = row.command_line();
    for (name, text) in query.iter() {
        let Some(argument) = command.get_arguments().find(|argument| argument.get_id() == name) else {
            return Err(format!("the request has no parameter '{name}'"));
        };
        if members.insert(name.to_owned(), typed(argument, text)?).is_some() {
            return Err(format!("{name} is given twice"));
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

/// Whether a flag has no value.
fn is_switch(argument: &Arg) -> bool {
    matches!(argument.get_action(), ArgAction::SetTrue)
}

/// Whether a command has a member.
pub fn has(row: &CommandRow, name: &str) -> bool {
    row.command_line().get_arguments().any(|argument| argument.get_id() == name)
}

/// Checks that a command has all members of a body. The members of users and clients are checked with their
/// values.
///
/// # Errors
/// The reason if it lacks one.
pub fn check_body(members: &Map<String, Value>, row: &CommandRow) -> Result<(), String> {
    let is_known = |name: &&String| has(row, name) || row.reads_password && *name == "password";
    match members.keys().find(|name| !is_known(name)) {
        Some(unknown) if !matches!(row.name, "add" | "change") => Err(format!("unknown field `{unknown}`")),
        _ => Ok(()),
    }
}

/// Whether a command needs members that are in no path: a password, or those of a new or changed record.
pub fn needs_body(row: &CommandRow) -> bool {
    row.reads_password || matches!(row.name, "add" | "change")
}
