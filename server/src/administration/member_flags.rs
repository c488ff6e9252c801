//! The command-line flags of the members of users and of clients, from the rows of
//! [`identity::model::members`].

use std::borrow::Cow;
use std::marker::PhantomData;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueHint};
use identity::model::members::{self, MemberRow, MemberType};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// A table of members.
pub trait MemberTable {
    /// Its rows.
    fn rows() -> impl Iterator<Item = &'static MemberRow>;
}

/// The members of users.
#[derive(Debug)]
pub struct UserTable;

impl MemberTable for UserTable {
    fn rows() -> impl Iterator<Item = &'static MemberRow> {
        members::user_members()
    }
}

/// The members of clients.
#[derive(Debug)]
pub struct ClientTable;

impl MemberTable for ClientTable {
    fn rows() -> impl Iterator<Item = &'static MemberRow> {
        members::client_members()
    }
}

/// Members of a user or a client by name, in the form of a JSON merge patch.
pub type Members = Map<String, Value>;

/// The members that the flags of a new record set.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub struct MemberFlags<T> {
    /// The members by name.
    pub members: Members,
    #[serde(skip)]
    table: PhantomData<T>,
}

/// The members that the flags of a change set. `--unset` restores the default of a member, which is `null`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub struct MemberChanges<T> {
    /// The members by name.
    pub members: Members,
    #[serde(skip)]
    table: PhantomData<T>,
}

/// Name of the flag that restores defaults.
const UNSET: &str = "unset";

/// Adds the members of the unset flags.
fn unset_members<T: MemberTable>(matches: &ArgMatches, members: &mut Members) -> Result<(), String> {
    for flag in matches.get_many::<String>(UNSET).into_iter().flatten() {
        let name = flag.trim_start_matches("--");
        let Some(row) = T::rows().find(|row| row.flag == Some(name)) else {
            return Err(format!(
                "--unset {flag}: there is no such flag; name one without its dashes, such as 'name'"
            ));
        };
        if members.insert(row.name.to_owned(), Value::Null).is_some() {
            return Err(format!("--unset {flag}: the flag is set by the same command"));
        }
    }
    Ok(())
}

impl<T: MemberTable> FromArgMatches for MemberChanges<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut members = MemberFlags::<T>::from_arg_matches(matches)?.members;
        unset_members::<T>(matches, &mut members)
            .map_err(|text| clap::Error::raw(ErrorKind::ValueValidation, text + "\n"))?;
        Ok(Self { members, table: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.members.append(&mut Self::from_arg_matches(matches)?.members);
        Ok(())
    }
}

impl<T: MemberTable> Args for MemberChanges<T> {
    fn augment_args(command: Command) -> Command {
        let help = "Restore the default of another flag, such as name; can be repeated";
        let unset = Arg::new(UNSET).long(UNSET).value_name("FLAG").action(ArgAction::Append).help(help);
        MemberFlags::<T>::augment_args(command).arg(unset)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<T: MemberTable> JsonSchema for MemberFlags<T> {
    fn schema_name() -> Cow<'static, str> {
        "Members".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let properties: Members = T::rows().map(|row| (row.name.to_owned(), property(row))).collect();
        json_schema!({ "type": "object", "properties": properties })
    }
}

/// The schema of a member. `null` is its default.
pub fn property(row: &MemberRow) -> Value {
    let mut schema = match row.kind {
        MemberType::Text | MemberType::Choice(_) => json!({ "type": ["string", "null"] }),
        MemberType::List => json!({ "type": ["array", "null"], "items": { "type": "string" } }),
        MemberType::Number => json!({ "type": ["integer", "null"] }),
        MemberType::Boolean | MemberType::BooleanOff => json!({ "type": ["boolean", "null"] }),
        MemberType::KeySet => json!({ "type": ["object", "null"] }),
    };
    schema["description"] = row.description().into();
    schema
}

/// Position of the flags in the help text: after those of every command.
const MEMBER_ORDER: usize = 100;

/// The argument of a row, or `None` if no flag sets the member.
fn argument(row: &'static MemberRow) -> Option<Arg> {
    let flag = row.flag?;
    let text = if row.help.is_empty() { row.description() } else { row.help.to_owned() };
    let mut help = text.trim().trim_end_matches('.').replace('`', "");
    if row.kind == MemberType::List {
        help.push_str("; can be repeated");
    }
    if row.help.is_empty() && !matches!(row.default, "none" | "false") {
        help.push_str(&format!(" [default: {}]", row.default.replace('`', "")));
    }
    let argument = Arg::new(row.name).long(flag).help(help).display_order(MEMBER_ORDER);
    Some(match row.kind {
        MemberType::Boolean | MemberType::BooleanOff | MemberType::Choice(_) => {
            argument.action(ArgAction::SetTrue)
        }
        MemberType::Text => argument.value_name(row.value),
        MemberType::List => argument.value_name(row.value).action(ArgAction::Append),
        MemberType::Number => argument.value_name(row.value).value_parser(clap::value_parser!(u32)),
        MemberType::KeySet => {
            argument.value_name(row.value).value_parser(read_key_set).value_hint(ValueHint::FilePath)
        }
    })
}

/// Reads the JWK Set in a file.
fn read_key_set(path: &str) -> Result<Value, String> {
    let text = std::fs::read(path).map_err(|error| format!("failed to read {path}: {error}"))?;
    serde_json::from_slice(&text).map_err(|error| format!("the JWK Set {path} is not JSON: {error}"))
}

/// The value that the flag of a row sets, or `None` if the command does not have the flag.
fn value(row: &MemberRow, matches: &ArgMatches) -> Option<Value> {
    let is_set = |value: Value| matches.get_flag(row.name).then_some(value);
    match row.kind {
        MemberType::Boolean => is_set(true.into()),
        MemberType::BooleanOff => is_set(false.into()),
        MemberType::Choice(choice) => is_set(choice.into()),
        MemberType::Text => matches.get_one::<String>(row.name).map(|text| text.as_str().into()),
        MemberType::List => {
            let values = matches.get_many::<String>(row.name)?;
            Some(values.map(String::as_str).collect())
        }
        MemberType::Number => matches.get_one::<u32>(row.name).map(|number| (*number).into()),
        MemberType::KeySet => matches.get_one::<Value>(row.name).cloned(),
    }
}

impl<T: MemberTable> FromArgMatches for MemberFlags<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let rows = T::rows().filter(|row| row.flag.is_some());
        let members = rows.filter_map(|row| Some((row.name.to_owned(), value(row, matches)?))).collect();
        Ok(Self { members, table: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.members.append(&mut Self::from_arg_matches(matches)?.members);
        Ok(())
    }
}

impl<T: MemberTable> Args for MemberFlags<T> {
    fn augment_args(command: Command) -> Command {
        command.args(T::rows().filter_map(argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
