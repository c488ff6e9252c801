//! GET {base}/console: the page with everything.

use http::StatusCode;
use indicatif::HumanBytes;
use maud::{Markup, html};
use serde_json::Value;

use super::commands::records;
use super::visit::{ConsoleVisit, console_page};
use crate::http::extract::RequestContext;
use crate::http::pages::cookie;
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};

/// Maximum number of users or clients on the page.
const SHOWN: usize = 100;

/// Shows the page.
pub async fn show_console(context: &RequestContext) -> Result<Response, Problem> {
    let (browser, set_cookie) = cookie::browser(context);
    let visit = ConsoleVisit::of(context, browser).await?;
    let params = context.params();
    let query = params.get("q").unwrap_or_default().to_lowercase();
    let app = &context.app;
    let status = records(app, None, "status").await.into_iter().next().unwrap_or_default();
    let users = records(app, Some("user"), "list").await;
    let clients = records(app, Some("client"), "list").await;
    let keys = records(app, Some("keys"), "list").await;
    let releases = records(app, Some("release"), "list").await;
    let sections = [
        server_section(&visit, &status),
        refusals_section(&status),
        users_section(&visit, &users, &query),
        clients_section(&visit, &clients, &query),
        exports_section(&status),
        releases_section(&visit, &releases),
        keys_section(&visit, &keys),
    ];
    let content = html! {
        p { "Signed in as " strong { (visit.user.username) } ". " a href="/account" { "Your account" } }
        @for fault in members(&status["faults"]) { p.error role="alert" { (text(fault)) } }
        form method="get" action="/console" {
            label for="q" { "Find users and clients" }
            input id="q" type="search" name="q" value=(query) autocomplete="off";
            button.second type="submit" { "Find" }
        }
        @for section in sections { section { (section) } }
    };
    Ok(cookie::set(
        reply::no_store(reply::html(StatusCode::OK, console_page("Console", &content))),
        set_cookie,
    ))
}

fn server_section(visit: &ConsoleVisit, status: &Value) -> Markup {
    let store = &status["store"];
    let bytes = |value: &Value| value.as_u64().map(|bytes| HumanBytes(bytes).to_string()).unwrap_or_default();
    let rows = [
        ("Version", text(&status["version"])),
        ("Store", format!("{} {}, sequence {}", text(&store["kind"]), text(&store["id"]), store["sequence"])),
        ("Data", format!("{}, {}", text(&store["data"]), bytes(&store["data_bytes"]))),
        ("Free", bytes(&store["free_bytes"])),
        ("Certificate until", text(&status["certificate_until"])),
        ("Time", text(&status["time"])),
    ];
    html! {
        h2 { "Server" }
        table {
            @for (name, value) in rows.iter().filter(|(_, value)| !value.is_empty()) {
                tr { th scope="row" { (name) } td { (value) } }
            }
            @for node in members(&status["nodes"]) {
                tr {
                    th scope="row" { "Node" }
                    td {
                        (text(&node["id"])) " "
                        @if node["is_running"] == true { span.tag { "runs" } } @else { span.quiet { "ended" } }
                        div.quiet { (text(&node["base_url"])) ", seen " (text(&node["seen"])) }
                    }
                }
            }
        }
        @if !members(&status["last_errors"]).is_empty() {
            h2 { "Last errors" }
            ul.rows {
                @for error in members(&status["last_errors"]) {
                    li { div { (text(&error["text"])) div.quiet { (text(&error["time"])) } } }
                }
            }
        }
        (visit.forms(None, &[], status))
    }
}

/// The refused requests: the last ones with reason and remedy, and the number of each reason.
fn refusals_section(status: &Value) -> Markup {
    let recent = members(&status["last_refusals"]);
    let counts = members(&status["refusals"]);
    html! {
        h2 { "Refused requests" }
        @if recent.is_empty() && counts.is_empty() { p.quiet { "none since the start" } }
        ul.rows {
            @for refusal in recent {
                li { div { code { (text(&refusal["client_id"])) } " " (text(&refusal["text"])) div.quiet { (text(&refusal["time"])) } } }
            }
            @for count in counts { li { div { (count[2]) " × " (text(&count[0])) ": " (text(&count[1])) } } }
        }
    }
}

fn users_section(visit: &ConsoleVisit, users: &[Value], query: &str) -> Markup {
    let (shown, left_out) = found(users, &["/username", "/claims/name"], query);
    html! {
        h2 { "Users" }
        ul.rows {
            @for user in shown {
                (entry(user, ("/console/user", "name"), ["/username", "/claims/name"], &["disabled", "administrator", "demo"], None))
            }
        }
        (more(left_out))
        (visit.forms(Some("user"), &[], &Value::Null))
    }
}

fn clients_section(visit: &ConsoleVisit, clients: &[Value], query: &str) -> Markup {
    let (shown, left_out) = found(clients, &["/client_id", "/client_name"], query);
    html! {
        h2 { "Clients" }
        ul.rows {
            @for client in shown {
                (entry(client, ("/console/client", "id"), ["/client_id", "/client_name"], &["declared", "demo"], Some("scope")))
            }
        }
        (more(left_out))
        (visit.forms(Some("client"), &[], &Value::Null))
    }
}

fn exports_section(status: &Value) -> Markup {
    let exports = members(&status["exports"]);
    html! {
        h2 { "Exports" }
        @if exports.is_empty() { p.quiet { "none is waiting or running" } }
        ul.rows {
            @for export in exports {
                li {
                    div {
                        (export["percent"]) " % of " code { (text(&export["request_url"])) }
                        div.quiet { (text(&export["client_id"])) ", snapshot of " (text(&export["transaction_time"])) }
                    }
                }
            }
        }
    }
}

fn releases_section(visit: &ConsoleVisit, releases: &[Value]) -> Markup {
    html! {
        h2 { "Releases of code systems" }
        @if releases.is_empty() { p.quiet { "none is imported" } }
        ul.rows {
            @for release in releases {
                @let id = text(&release["id"]);
                li {
                    div {
                        (text(&release["url"])) " " (text(&release["version"]))
                        div.quiet { (id) ", " (release["concepts"]) " concepts" }
                    }
                    (visit.forms(Some("release"), &[&id], release))
                }
            }
        }
    }
}

fn keys_section(visit: &ConsoleVisit, keys: &[Value]) -> Markup {
    html! {
        h2 { "Signing keys" }
        ul.rows {
            @for key in keys {
                @let kid = text(&key["kid"]);
                li {
                    div {
                        code { (kid) } " " span.tag { (text(&key["stage"])) }
                        div.quiet { (text(&key["purpose"])) ", " (text(&key["alg"])) ", made " (text(&key["created"])) }
                    }
                    (visit.forms(Some("keys"), &[&kid], key))
                }
            }
        }
        (visit.forms(Some("keys"), &[], &Value::Null))
    }
}

/// The records in which one of these members (JSON pointers) contains a text, and the number of those that
/// are not shown.
fn found<'a>(records: &'a [Value], names: &[&str], query: &str) -> (Vec<&'a Value>, usize) {
    let contains =
        |record: &Value| names.iter().any(|name| text_at(record, name).to_lowercase().contains(query));
    let mut all: Vec<_> = records.iter().filter(|record| contains(record)).collect();
    let left_out = all.len().saturating_sub(SHOWN);
    all.truncate(SHOWN);
    (all, left_out)
}

/// The row of a record: a link with its id, its name, the labels that are set, and a detail. The page of the
/// link has the id as a parameter; id and name are JSON pointers, and the others members of the record.
fn entry(
    record: &Value,
    (page, parameter): (&str, &str),
    [id, name]: [&str; 2],
    labels: &[&str],
    detail: Option<&str>,
) -> Markup {
    let id = text_at(record, id);
    let query = form_urlencoded::Serializer::new(String::new()).append_pair(parameter, &id).finish();
    html! {
        li {
            div {
                a href=(format!("{page}?{query}")) { (id) }
                " " (text_at(record, name)) " "
                @for label in labels {
                    @if record[*label] == true { span.tag { (label) } " " }
                }
                @if let Some(detail) = detail { div.quiet { (text(&record[detail])) } }
            }
        }
    }
}

fn more(left_out: usize) -> Markup {
    html! { @if left_out > 0 { p.quiet { (left_out) " more; find them by a part of the name" } } }
}

fn members(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The text at a JSON pointer.
fn text_at(record: &Value, pointer: &str) -> String {
    record.pointer(pointer).map(text).unwrap_or_default()
}

/// A text, or nothing for a value that is not set.
fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
