//! Writes the profile of a server: what it states about itself, the answers to questions, and comments for
//! what is still missing.

pub mod questions;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use http::header;
use serde_json::json;

use self::questions::Answers;
use crate::environment::browser;
use crate::environment::cookies::CookieJar;
use crate::environment::target::TestTarget;
use crate::profile::members::{MEMBERS, ProfileMember, SETTINGS};
use crate::spec::Specification;

/// Number of code systems, value sets and Groups that a profile lists.
const LISTED: usize = 3;

/// The text of a profile of the server.
pub async fn profile_text(target: &TestTarget, spec: &Specification, answers: &Answers) -> String {
    let addresses = &target.addresses;
    let mut text = format!(
        "# Profile of {}, written by trefoil-conformance {}.\n\
         # A value such as \"env:NAME\" is read from the environment, so that this file needs no secrets.\n",
        addresses.base_url,
        env!("CARGO_PKG_VERSION")
    );
    let methods = addresses.metadata.as_ref().map(|metadata| &metadata["code_challenge_methods_supported"]);
    let pkce = methods.is_some_and(|methods| !methods.is_null());
    for ProfileMember { name, meaning, .. } in SETTINGS {
        let default = match name {
            "base_url" => addresses.metadata.is_some().then(|| json!(addresses.base_url)),
            "fhir_base" => addresses.fhir_base.as_ref().map(|base| json!(base)),
            "pkce" if addresses.metadata.is_some() => Some(json!(pkce)),
            name => target.profile.get(name).cloned(),
        };
        let _ = write!(text, "\n# {meaning}\n");
        text.push_str(&match default {
            Some(value) if !value.is_object() => format!("{name} = {value}\n"),
            _ => format!("# {}\n", setting_example(name)),
        });
    }
    for ProfileMember { name, meaning, .. } in MEMBERS {
        // Settings of the suite's own server, which a profile does not have.
        if matches!(name, "user" | "declared") {
            continue;
        }
        let count = spec.cases.iter().filter(|case| uses(&case.row, name)).count();
        if count == 0 {
            continue;
        }
        let cases = if count == 1 { "1 case uses it".to_owned() } else { format!("{count} cases use it") };
        let _ = write!(text, "\n# {meaning}\n# {cases} directly.\n");
        if let Some(response) = answers.get(name) {
            text.push_str(response);
            continue;
        }
        let default = match name {
            "groups" => ids(target, "Group", "id").await,
            "code_systems" => ids(target, "CodeSystem", "url").await,
            "value_sets" => ids(target, "ValueSet", "url").await,
            _ => Vec::new(),
        };
        text.push_str(&match (name, default.is_empty()) {
            (_, true) => commented(&member_example(name)),
            ("groups", false) => format!("groups = {}\n", json!(default)),
            (_, false) => {
                default.iter().map(|url| format!("[[{name}]]\nurl = {}\n", json!(url))).collect::<String>()
            }
        });
    }
    tables_last(&text)
}

/// Returns whether a row refers to a member of the profile.
fn uses(row: &str, member: &str) -> bool {
    row.contains(&format!("${member}."))
        || matches!(member, "users") && (row.contains("$user.") || row.contains("signed-in"))
        || member == "public" && row.contains("given = \"token\"")
        || member == "backend" && row.contains("system-token")
}

fn setting_example(name: &str) -> &'static str {
    match name {
        "ca" => "ca = \"ca.pem\"",
        "endpoints" => "endpoints = { introspect = \"https://…\" }",
        "sign_in" => "sign_in = { username = \"login\", password = \"password\", approve = \"Allow\" }",
        "tokens" => "tokens = { user = \"env:USER_TOKEN\", system = \"env:SYSTEM_TOKEN\" }",
        "anonymous" => "anonymous = true",
        "tx_resources" => "tx_resources = true",
        "fhir_base" => "fhir_base = \"https://…/fhir\"",
        "base_url" => "base_url = \"https://…\"",
        "jobs" => "jobs = 1",
        "poll_seconds" => "poll_seconds = 1",
        "sign_in_requests" => {
            "sign_in_requests = [{ post = \"/login\", form = { name = \"$person.username\", password = \
             \"$person.password\" } }, { get = \"$page.return_to\" }]"
        }
        _ => "pkce = true",
    }
}

fn member_example(name: &str) -> String {
    let client = |more: &str| {
        let post_logout = match name {
            "public" => "post_logout_redirect_uris = [\"https://app.example/bye\"]\n",
            _ => "",
        };
        format!(
            "[{name}]\nclient_id = \"…\"\nredirect_uris = [\"https://app.example/callback\"]\n{post_logout}{more}"
        )
    };
    let secret = "client_secret = \"env:CLIENT_SECRET\"\n";
    match name {
        "users" => "[[users]]\nusername = \"…\"\npassword = \"env:PASSWORD\"\n[users.claims]\nsub = \"…\"\n".to_owned(),
        "backend" => "[[backend]]\nclient_id = \"…\"\nscopes = [\"system/*.rs\"]\nalg = \"ES384\"\njwk_file = \"key.json\"\n".to_owned(),
        "confidential" | "pushed" | "retrying" => client(&format!("scopes = [\"openid\", \"profile\"]\n{secret}")),
        "resource_server" => format!("[{name}]\nclient_id = \"…\"\n{secret}"),
        "groups" => "groups = [\"…\"]\n".to_owned(),
        "code_systems" | "value_sets" => format!("[[{name}]]\nid = \"…\"\nurl = \"https://…\"\n"),
        "members" => "[[members]]\nvalue_set = \"https://…\"\nsystem = \"https://…\"\ncode = \"…\"\nmember = true\n".to_owned(),
        "subsumptions" => {
            "[[subsumptions]]\nsystem = \"https://…\"\ncodeA = \"…\"\ncodeB = \"…\"\noutcome = \"subsumes\"\n".to_owned()
        }
        _ => client("scopes = [\"openid\", \"profile\"]\n"),
    }
}

fn commented(text: &str) -> String {
    text.lines().map(|line| format!("# {line}\n")).collect()
}

/// Moves the plain member `groups` before the tables, because a TOML table extends to the next one.
fn tables_last(text: &str) -> String {
    let is_table = |paragraph: &&str| paragraph.lines().any(|line| line.starts_with('['));
    let (tables, plain): (Vec<&str>, Vec<&str>) = text.split("\n\n").partition(is_table);
    let all: Vec<&str> = plain.into_iter().chain(tables).map(str::trim_end).collect();
    format!("{}\n", all.join("\n\n"))
}

/// A member of the first resources of a type, if the server answers without a token.
async fn ids(target: &TestTarget, resource_type: &str, member: &str) -> Vec<String> {
    let is_open = target.profile.get("anonymous").is_some_and(|anonymous| *anonymous == true);
    let (true, Ok(fhir_base)) = (is_open, target.fhir_base()) else { return Vec::new() };
    let Ok(url) = browser::address(&format!("{fhir_base}/{resource_type}?_count={LISTED}")) else {
        return Vec::new();
    };
    let mut request = crate::environment::page_request::get(url);
    request.headers.insert(header::ACCEPT, header::HeaderValue::from_static("application/fhir+json"));
    let Ok(response) = target.send(&request, &mut CookieJar::new()).await else { return Vec::new() };
    let bundle = response.json().unwrap_or_default();
    let entries = bundle["entry"].as_array().into_iter().flatten();
    let unique: BTreeSet<_> =
        entries.filter_map(|entry| entry["resource"][member].as_str().map(str::to_owned)).collect();
    unique.into_iter().take(LISTED).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_members_precede_tables() {
        let text = "# a\na = 1\n\n# t\n[[t]]\nx = 1\n\n# g\ngroups = [\"b\"]\n";
        let ordered = tables_last(text);
        assert_eq!(ordered, "# a\na = 1\n\n# g\ngroups = [\"b\"]\n\n# t\n[[t]]\nx = 1\n");
        assert!(toml::from_str::<toml::Table>(&ordered).is_ok());
    }
}
