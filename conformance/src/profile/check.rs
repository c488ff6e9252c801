//! Finds misspelled members of a profile and values of a wrong type. A message names the line, and the member
//! that was probably meant.

use anyhow::{Result, bail};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::members::{MEMBERS, MemberKind, SETTINGS};
use crate::spec::endpoints::ENDPOINTS;

/// Similarity, from 0 to 1, above which a member is suggested.
const SIMILAR: f64 = 0.8;

/// Checks the members of a profile.
///
/// # Errors
/// An error for the first unknown member or value of a wrong type.
pub(super) fn check_members(text: &str) -> Result<()> {
    let profile = DeTable::parse(text)?;
    let names: Vec<&str> = SETTINGS.iter().chain(&MEMBERS).map(|member| member.name).collect();
    check_names(text, profile.get_ref(), "a profile", &names)?;
    for member in SETTINGS.iter().chain(&MEMBERS) {
        if let Some(value) = profile.get_ref().get(member.name) {
            check_value(text, member.name, member.kind, value)?;
        }
    }
    Ok(())
}

fn check_value(text: &str, name: &str, kind: MemberKind, value: &Spanned<DeValue<'_>>) -> Result<()> {
    let endpoints = || ENDPOINTS.map(|endpoint| endpoint.name);
    let expected = match (kind, value.get_ref()) {
        (MemberKind::Any, _)
        | (MemberKind::Text, DeValue::String(_))
        | (MemberKind::Flag, DeValue::Boolean(_)) => return Ok(()),
        (MemberKind::Number, DeValue::Integer(number))
            if number.as_str().parse().is_ok_and(|jobs: u32| jobs > 0) =>
        {
            return Ok(());
        }
        (MemberKind::Texts, DeValue::Array(items)) if items.iter().all(|item| item.get_ref().is_str()) => {
            return Ok(());
        }
        (MemberKind::Table(known), DeValue::Table(table)) => return check_names(text, table, name, known),
        (MemberKind::Endpoints, DeValue::Table(table)) => {
            return check_names(text, table, name, &endpoints());
        }
        (MemberKind::Tables(known), DeValue::Array(items))
            if items.iter().all(|item| item.get_ref().is_table()) =>
        {
            let tables = items.iter().filter_map(|item| item.get_ref().as_table());
            return tables.into_iter().try_for_each(|table| check_names(text, table, name, known));
        }
        (MemberKind::Text, _) => "a text".to_owned(),
        (MemberKind::Flag, _) => "true or false".to_owned(),
        (MemberKind::Number, _) => "a whole number above 0".to_owned(),
        (MemberKind::Texts, _) => "a list of texts".to_owned(),
        (MemberKind::Table(_) | MemberKind::Endpoints, _) => format!("a table: [{name}]"),
        (MemberKind::Tables(_), _) => format!("a list of tables: [[{name}]]"),
    };
    bail!("line {}: '{name}' must be {expected}", line_at(text, value.span().start))
}

/// Checks that a table has only members of these names.
fn check_names(text: &str, table: &DeTable<'_>, owner: &str, valid_names: &[&str]) -> Result<()> {
    let Some(unknown) = table.keys().find(|name| !valid_names.contains(&name.get_ref().as_ref())) else {
        return Ok(());
    };
    let (line, name) = (line_at(text, unknown.span().start), unknown.get_ref());
    let owner = if owner == "a profile" { owner.to_owned() } else { format!("'{owner}'") };
    let nearest =
        valid_names.iter().map(|valid_names| (strsim::jaro_winkler(name, valid_names), valid_names));
    let nearest = nearest.filter(|(similarity, _)| *similarity > SIMILAR).max_by(|a, b| a.0.total_cmp(&b.0));
    let hint = match nearest {
        Some((_, nearest)) => format!("did you mean '{nearest}'?"),
        None => format!("its members are {}", valid_names.join(", ")),
    };
    bail!("line {line}: '{name}' is not a member of {owner}; {hint}")
}

/// The line, from 1, of a position in a text.
fn line_at(text: &str, position: usize) -> usize {
    1 + text[..position].matches('\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(check_members(text).unwrap_err().to_string(), expected);
    }

    #[test]
    fn misspelled_members_are_named_with_the_nearest_right_one() {
        check(
            "pkce = true\nfhirbase = \"x\"",
            "line 2: 'fhirbase' is not a member of a profile; did you mean 'fhir_base'?",
        );
        check(
            "[public]\nclient_id = \"a\"\nredirect_uri = [\"https://a\"]",
            "line 3: 'redirect_uri' is not a member of 'public'; did you mean 'redirect_uris'?",
        );
        check(
            "[[users]]\nusername = \"a\"\n[[users]]\nsecret = \"b\"",
            "line 4: 'secret' is not a member of 'users'; its members are username, password, claims",
        );
        check(
            "endpoints = { introspection = \"https://a\" }",
            "line 1: 'introspection' is not a member of 'endpoints'; did you mean 'introspect'?",
        );
    }

    #[test]
    fn values_of_a_wrong_type_are_named() {
        check("\nanonymous = \"true\"", "line 2: 'anonymous' must be true or false");
        check("jobs = 0", "line 1: 'jobs' must be a whole number above 0");
        check("jobs = \"one\"", "line 1: 'jobs' must be a whole number above 0");
        check("groups = \"a\"", "line 1: 'groups' must be a list of texts");
        check("users = { username = \"a\" }", "line 1: 'users' must be a list of tables: [[users]]");
        check("public = \"a\"", "line 1: 'public' must be a table: [public]");
    }

    #[test]
    fn claims_keys_and_declared_clients_have_any_members() {
        let text =
            "[[users]]\nclaims = { tenant = 1 }\n[[backend]]\njwk = { kty = \"EC\" }\n[declared.x]\ny = 1";
        check_members(text).unwrap();
    }
}
