//! Generates the tables in `server/docs/interface`, and compares its requests with the routes.
//!
//! `TREFOIL_UPDATE_DOCS=1 cargo test -p trefoil-server --lib` writes the tables.

use std::collections::BTreeSet;
use std::path::Path;

use ::bulk::{ExportParameter, GuideVersion};
use ::terminology::{OperationMethods, TerminologyOperation, parameters};
use clap::Arg;
use identity::lifetimes;
use identity::model::members::{CLAIMS, client_members, user_members};
use identity::params::MAX_PARAMETERS;
use jiff::SignedDuration;

use super::routes::{self, RouteWork};
use crate::administration::all_commands::{COMMANDS, CommandRow};
use crate::administration::command::AdminMethod;
use crate::config::sections::ConfigFile;
use crate::generated_docs::{check_page, member_line, sentence};
use crate::node::question_pool::MAX_QUESTION_TIME;

fn operations() -> String {
    let mut text = "| request | OperationDefinition | effect |\n|---|---|---|\n".to_owned();
    for operation in TerminologyOperation::ALL {
        let row = operation.row();
        let methods = match row.methods {
            OperationMethods::GetAndPost => "GET, POST",
            OperationMethods::Post => "POST",
        };
        let mut requests = format!("`{methods} {{fhir}}/{}/${}`", row.resource_type, row.name);
        if row.on_instances {
            requests.push_str(&format!(", `{methods} {{fhir}}/{}/{{id}}/${}`", row.resource_type, row.name));
        }
        let definition = row.definition.map_or("", |url| url.rsplit('/').next().unwrap_or(url));
        text.push_str(&format!("| {requests} | {definition} | {} |\n", sentence(row.meaning)));
    }
    text
}

const PARAMETER_HEAD: &str = "| parameter | type | occurs | meaning |\n|---|---|---|---|\n";

/// A row of a table of parameters.
fn parameter_line(name: &str, fhir_type: &str, repeats: bool, meaning: &str) -> String {
    let occurs = if repeats { "0..*" } else { "0..1" };
    format!("| {name} | {fhir_type} | {occurs} | {} |\n", sentence(meaning))
}

/// The table of the parameters of an operation.
fn operation_parameters(operation: TerminologyOperation) -> String {
    let lines = parameters::of_operation(operation).map(|row| {
        let mark = if row.ecosystem { " †" } else { "" };
        let by_post = if row.needs_body() { " By POST only." } else { "" };
        let meaning = format!("{}{by_post}", row.meaning);
        parameter_line(&format!("`{}`{mark}", row.name), row.fhir_type, row.repeats, &meaning)
    });
    std::iter::once(PARAMETER_HEAD.to_owned()).chain(lines).collect()
}

/// The table of the parameters of a kick-off.
fn export_parameters() -> String {
    let lines = ExportParameter::ALL.iter().map(|parameter| {
        let row = parameter.row();
        let guide = if row.since == GuideVersion::V3 { " With `guide = \"3.0.0\"` only." } else { "" };
        let meaning = format!("{}{guide}", row.meaning);
        parameter_line(&format!("`{}`", row.name), row.fhir_type, row.repeats, &meaning)
    });
    std::iter::once(PARAMETER_HEAD.to_owned()).chain(lines).collect()
}

/// The table of the claims of each scope.
fn claims() -> String {
    let mut text = "| `openid` | `sub` |\n".to_owned();
    let mut scopes: Vec<&str> = CLAIMS.iter().filter_map(|row| row.scope).collect();
    scopes.dedup();
    for scope in scopes {
        let names = CLAIMS.iter().filter(|row| row.scope == Some(scope)).map(|row| format!("`{}`", row.name));
        text.push_str(&format!("| `{scope}` | {} |\n", names.collect::<Vec<_>>().join(", ")));
    }
    text.push_str("| `fhirUser` | `fhirUser`, the URL of the user's FHIR resource |\n");
    text
}

fn members() -> String {
    let mut text = "| member | type | default | meaning |\n|---|---|---|---|\n".to_owned();
    user_members().for_each(|row| text.push_str(&member_line(row)));
    text
}

/// The requests to `/admin`, with the help texts of their commands.
fn admin_requests() -> String {
    let mut text = "| request | effect |\n|---|---|\n".to_owned();
    for (row, route) in COMMANDS.iter().flat_map(|row| row.doors.routes.iter().map(move |route| (row, route)))
    {
        let command = row.command_line();
        let argument = |name: &str| command.get_arguments().find(|argument| argument.get_id() == name);
        let help = |argument: &Arg| argument.get_help().map(ToString::to_string).unwrap_or_default();
        let in_path = |name: &str| route.path.contains(&format!("{{{name}}}")) || name == "user";
        let about = command.get_long_about().or(command.get_about()).unwrap().to_string();
        let about = about.replace("The command line reads the password from standard input.", "");
        let about = about.split_whitespace().collect::<Vec<_>>().join(" ");
        // The end of a short help text is without a full stop.
        let mut effect = format!("{}.", about.trim_end_matches('.'));
        // A request can be for one flag of its command.
        let placeholders = route.path.split(['{', '}']).skip(1).step_by(2);
        let flag = route.sets.into_iter().chain(placeholders).filter_map(argument);
        if let Some(flag) = flag.filter(|flag| !flag.is_positional()).last() {
            effect = format!("{}, and end all sessions and tokens of the user.", help(flag));
        } else {
            let names = command.get_arguments().filter(|argument| !argument.is_hide_set());
            let names = names.map(|argument| argument.get_id().as_str()).filter(|name| !in_path(name));
            let (tables, names): (Vec<_>, Vec<_>) =
                names.filter(|name| *name != "unset").partition(|name| is_member(row, name));
            let mut names: Vec<_> = names.into_iter().map(|name| format!("`{name}`")).collect();
            names.extend(row.reads_password.then(|| "`password`".to_owned()));
            names.extend((!tables.is_empty()).then(|| match row.group {
                Some("user") => "those of [a user](#members-of-a-user)".to_owned(),
                _ => "those of [a client](../configuration.md#client)".to_owned(),
            }));
            let kind = match route.method {
                AdminMethod::Get | AdminMethod::Delete => "Parameters",
                _ => "Members",
            };
            if !names.is_empty() {
                effect.push_str(&format!(" {kind}: {}.", names.join(", ")));
            }
        }
        text.push_str(&format!("| `{} /admin/{}` | {effect} |\n", route.method.of_http(), route.path));
    }
    text
}

/// Whether a flag is a member of a user or a client.
fn is_member(row: &CommandRow, name: &str) -> bool {
    match row.group {
        Some("user") => user_members().any(|member| member.name == name),
        Some("client") => client_members().any(|member| member.name == name),
        _ => false,
    }
}

/// A number with commas between groups of three digits.
fn grouped(number: impl TryInto<u64>) -> String {
    let digits = number.try_into().ok().unwrap().to_string();
    let groups: Vec<_> =
        digits.as_bytes().rchunks(3).rev().map(|group| str::from_utf8(group).unwrap()).collect();
    groups.join(",")
}

fn limits() -> String {
    let seconds = |duration: SignedDuration| format!("{} seconds", grouped(duration.as_secs()));
    let file = ConfigFile::default();
    let rows = [
        ("lifetime of an authorization code, which can be used once", seconds(lifetimes::AUTHORIZATION_CODE)),
        ("lifetime of an access token of the token flow", seconds(lifetimes::ACCESS_TOKEN)),
        ("lifetime of other access tokens, by default", seconds(lifetimes::ACCESS_TOKEN)),
        (
            "lifetime of access tokens of `client_credentials`, by default",
            seconds(lifetimes::BACKEND_ACCESS_TOKEN),
        ),
        ("lifetime of an ID token, by default", seconds(lifetimes::ID_TOKEN)),
        (
            "lifetime of refresh tokens, from the first one of a grant, by default",
            seconds(lifetimes::REFRESH_TOKEN_FAMILY),
        ),
        ("lifetime of a session without requests, by default", seconds(lifetimes::IDLE_SESSION)),
        ("lifetime of a session, by default", seconds(lifetimes::SESSION)),
        ("lifetime of a pushed authorization request", seconds(lifetimes::PUSHED_REQUEST)),
        ("lifetime of a device code", seconds(lifetimes::DEVICE_CODE)),
        ("lifetime of a launch context", seconds(lifetimes::LAUNCH)),
        ("parameters of a form or query", grouped(MAX_PARAMETERS)),
        ("body of a FHIR request, by default", format!("{} bytes", grouped(file.limits.body_limit_bytes))),
        ("parameters of a search", grouped(::resources::filter::MAX_PARAMETERS)),
        ("values of all parameters of a search together", grouped(::resources::filter::MAX_VALUES)),
        ("codes in an expansion", grouped(::terminology::MAX_EXPANSION_CODES)),
        ("items of a batch of validations", grouped(::terminology::MAX_BATCH_ITEMS)),
        ("languages in `displayLanguage` or `Accept-Language`", grouped(::terminology::MAX_LANGUAGES)),
        ("filters of a value set", grouped(::terminology::MAX_FILTERS)),
        ("regular expressions of a value set", grouped(::terminology::MAX_PATTERNS)),
        ("searches in `_typeFilter`", grouped(::bulk::MAX_TYPE_FILTERS)),
        ("Patients in `patient`", grouped(::bulk::MAX_PATIENTS)),
        ("concurrent exports", grouped(::bulk::MAX_EXPORTS)),
        ("concurrent exports of a client", grouped(::bulk::MAX_CLIENT_EXPORTS)),
    ];
    let rows = rows.map(|(limit, value)| format!("| {limit} | {value} |\n"));
    format!("| limit | value |\n|---|---|\n{}", rows.concat())
}

/// The table of the CPU time of each route.
fn cpu_limits() -> String {
    let rows = [
        (RouteWork::Read, "the request is refused with 422 `too-costly`"),
        (
            RouteWork::Write,
            "conditional searches and those of a Bundle are refused with 422 `too-costly`; what was written stays",
        ),
        (
            RouteWork::Terminology,
            "the operation is refused with 422 `too-costly`, as it is above its steps and its memory",
        ),
        (RouteWork::Export, "none: kick-offs check, and exports are jobs that take turns"),
        (
            RouteWork::Fixed,
            "none: parameters and forms are limited; password hashes take turns on threads of their own",
        ),
    ];
    let mut text = "| routes | CPU time | above it |\n|---|---|---|\n".to_owned();
    for (work, effect) in rows {
        let paths: BTreeSet<String> = routes::all()
            .filter(|route| route.work() == work)
            .map(|route| match work {
                // Beginnings tell enough about the routes of other kinds.
                RouteWork::Fixed => match route.path.split('/').next().unwrap_or_default() {
                    "" => "`/`".to_owned(),
                    first => format!("`{first}`"),
                },
                RouteWork::Terminology => {
                    format!("`{}`", route.path.replace("fhir/R4", "{fhir}").replace("/{id}", ""))
                }
                _ => format!("`{} {}`", route.method, route.path.replace("fhir/R4", "{fhir}")),
            })
            .collect();
        let limit = match work {
            RouteWork::Terminology => Some(MAX_QUESTION_TIME),
            _ => work.cpu_limit(),
        };
        let limit = limit.map_or("-".to_owned(), |limit| format!("{} ms", grouped(limit.as_millis())));
        let paths: Vec<String> = paths.into_iter().collect();
        text.push_str(&format!("| {} | {limit} | {effect} |\n", paths.join(", ")));
    }
    text
}

#[test]
fn the_pages_contain_the_generated_tables() {
    use TerminologyOperation::{
        BatchValidateCode, Expand, Lookup, Subsumes, Translate, ValidateCode, ValidateCodeInSystem,
    };
    check_page("interface.md", &[("limits", limits()), ("cpu limits", cpu_limits())]);
    let of = operation_parameters;
    let terminology = [
        ("operations", operations()),
        ("ValidateCode", of(ValidateCode)),
        ("ValidateCodeInSystem", of(ValidateCodeInSystem)),
        ("BatchValidateCode", of(BatchValidateCode)),
        ("Expand", of(Expand)),
        ("Lookup", of(Lookup)),
        ("Subsumes", of(Subsumes)),
        ("Translate", of(Translate)),
    ];
    check_page("interface/terminology.md", &terminology);
    check_page("interface/bulk.md", &[("parameters", export_parameters())]);
    // The head of the table is in the page.
    check_page("interface/oauth.md", &[("claims", claims())]);
    check_page("interface/admin.md", &[("requests", admin_requests()), ("members", members())]);
}

/// The text of all pages of `server/docs/interface`.
fn pages() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/interface");
    let pages = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap());
    pages.collect()
}

#[test]
fn the_pages_list_every_request() {
    let text = pages();
    let rows = text.lines().filter(|line| line.starts_with('|'));
    let cells = rows.filter_map(|line| line.split('|').nth(1));
    let mut documented = BTreeSet::new();
    for span in cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)) {
        let span = span.replace("{fhir}", "/fhir/R4");
        let Some((methods, path)) = span.rsplit_once(' ').filter(|(_, path)| path.starts_with('/')) else {
            continue;
        };
        for method in methods.split(", ") {
            assert!(documented.insert(format!("{method} {path}")), "{span} is listed twice");
        }
    }
    let served =
        routes::all().map(|route| format!("{} /{}", route.method, route.path)).collect::<BTreeSet<_>>();
    let missing: Vec<_> = served.difference(&documented).collect();
    let unknown: Vec<_> = documented.difference(&served).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "not documented: {missing:#?}, not served: {unknown:#?}"
    );
}

/// Files that read parameters of OAuth requests by name.
const OAUTH_SOURCES: [&str; 8] = [
    "src/http/oauth/device_authorization.rs",
    "src/http/oauth/introspect.rs",
    "src/http/oauth/revoke.rs",
    "src/http/oauth/token.rs",
    "src/http/pages/sign_out.rs",
    "crates/identity/src/authorize/pushed_request.rs",
    "crates/identity/src/authorize/request.rs",
    "crates/identity/src/client_auth/authenticator.rs",
];

#[test]
fn the_pages_list_every_parameter_of_oauth() {
    let text = pages();
    let mut count = 0;
    for source in OAUTH_SOURCES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
        let code = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{source}: {error}"));
        let code = code.split("#[cfg(test)]").next().unwrap();
        for reading in [".get(\"", "need(\""] {
            for name in code.split(reading).skip(1).filter_map(|rest| rest.split('"').next()) {
                let is_parameter = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
                assert!(!is_parameter || text.contains(&format!("`{name}`")), "{source} reads {name}");
                count += usize::from(is_parameter);
            }
        }
    }
    assert!(count > 40, "the search finds only {count} parameters");
}

#[test]
fn the_page_about_searches_names_every_modifier() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/resources.md"));
    let page = page.unwrap();
    for name in resources::filter::modifier::NAMES {
        assert!(page.contains(&format!(":{name}`")), "resources.md does not name :{name}");
    }
}
