//! Members of the profile that a case needs and the profile lacks.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::environment::target::TestTarget;
use crate::profile::members::MEMBERS;
use crate::spec::case::Case;
use crate::spec::preconditions;
use crate::wire::variables;

/// The paths of the members, such as `device.client_id`. They are named by the preconditions and the row; a
/// row may also use a member where a standard leaves a choice, which is not counted.
pub fn missing_members(case: &Case, target: &TestTarget) -> BTreeSet<String> {
    let is_missing = |path: &String| variables::value_at(&target.profile, path).is_none();
    let mut missing: BTreeSet<String> =
        case.given.iter().flat_map(|precondition| needs(precondition, target)).filter(is_missing).collect();
    // The row is parsed only if it names a missing member at all.
    if members_in(&case.row).any(|path| is_missing(&path)) {
        let row: Value = toml::from_str(&case.row).unwrap_or_default();
        let mut members_of_row = BTreeSet::new();
        collect(&row, target.treatment.house_rules, &mut members_of_row);
        missing.extend(members_of_row.into_iter().filter(is_missing));
    }
    missing
}

/// The members that a precondition needs. A token in the profile replaces the means to request one.
fn needs<'a>(precondition: &str, target: &'a TestTarget) -> impl Iterator<Item = String> + use<'a> {
    let needs = preconditions::named(precondition).map(|row| &*row.needs).unwrap_or_default();
    let has = |path: &str| variables::value_at(&target.profile, path).is_some();
    let is_anonymous = target.profile.get("anonymous").is_some_and(|anonymous| *anonymous == true);
    let (has_system, has_user) = (has("tokens.system") || is_anonymous, has("tokens.user"));
    let is_user_token = matches!(precondition, "token" | "fresh-token" | "openid-token" | "notes-token");
    let is_system_token = matches!(precondition, "system-token" | "export" | "fresh-export");
    let replaced = move |path: &&String| {
        is_user_token && has_user || is_system_token && has_system && path.starts_with("backend.")
    };
    needs.iter().filter(move |path| !replaced(path)).cloned()
}

/// The members of the profile that a text names as variables.
fn members_in(text: &str) -> impl Iterator<Item = String> {
    let paths = variables::names(text).filter(|path| {
        let root = path.split('.').next().unwrap_or_default();
        MEMBERS.iter().any(|member| member.name == root)
    });
    // Credentials of the header are derived from the secret.
    paths.map(|path| match path.strip_suffix(".basic").or(path.strip_suffix(".wrong")) {
        Some(client) => format!("{client}.client_secret"),
        None => path.to_owned(),
    })
}

/// Collects the members that the part of a row names which is sent to the target and compared with its
/// responses.
fn collect(row: &Value, house_rules: bool, members_of_row: &mut BTreeSet<String>) {
    match row {
        Value::String(text) => {
            let is_choice = text.starts_with("$optional:") || text.starts_with("$house:");
            if house_rules || !is_choice {
                members_of_row.extend(members_in(text));
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, house_rules, members_of_row)),
        Value::Object(members) => {
            let has = |name: &str| members.contains_key(name);
            let is_choice = has("$optional") || has("$house");
            let is_house_step = has("house") && !has("expect") && !has("out") && !has("error");
            if !house_rules && (is_choice || is_house_step) {
                return;
            }
            let compared = members.iter().filter(|(name, _)| house_rules || *name != "house");
            compared.for_each(|(_, value)| collect(value, house_rules, members_of_row));
        }
        _ => {}
    }
}
