//! The page of a user with the sessions and sign-in methods, and the page of a client.

use http::StatusCode;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::commands::records_of;
use super::visit::{ConsoleVisit, console_page};
use crate::administration::user_facts::user_facts;
use crate::http::extract::RequestContext;
use crate::http::pages::cookie;
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};

/// GET {base}/console/user?name=NAME
pub async fn show_user(context: &RequestContext) -> Result<Response, Problem> {
    let (browser, set_cookie) = cookie::browser(context);
    let visit = ConsoleVisit::of(context, browser).await?;
    let params = context.params();
    let name = params.get("name").unwrap_or_default();
    let Some(user) = context.app.identity.users.user_by_name(name, context.now).await? else {
        return Err(Problem::page(StatusCode::NOT_FOUND, "No user has this name."));
    };
    let methods = context.app.identity.sign_in.sign_in_methods(&user.sub, context.now).await?;
    let (app, of_user) = (&context.app, json!({ "user": { "name": name } }));
    let record = json!({ "disabled": user.disabled });
    let sessions = records_of(app, Some("user"), "sessions", of_user.clone()).await;
    let consents = records_of(app, Some("user"), "consents", of_user).await;
    let content = html! {
        (back())
        table {
            @for (name, value) in user_facts(&user, &methods, &context.app.identity.provider_rules.current()) {
                tr { th scope="row" { (name) } td { (value) } }
            }
        }
        (visit.forms(Some("user"), &[name], &record))
        section {
            h2 { "Sessions" }
            @if sessions.is_empty() { p.quiet { "none" } }
            ul.rows {
                @for session in &sessions {
                    li {
                        div {
                            (plain(&session["address"])) " " span.quiet { (plain(&session["user_agent"])) }
                            div.quiet { "last seen " (plain(&session["last_seen"])) ", " (plain(&session["amr"])) }
                        }
                        (visit.entry_form("user-end-session", &[name, &plain(&session["sid"])]))
                    }
                }
            }
        }
        section {
            h2 { "Consents" }
            @if consents.is_empty() { p.quiet { "none" } }
            ul.rows {
                @for consent in &consents {
                    li {
                        div { (plain(&consent["client_id"])) div.quiet { (plain(&consent["scope"])) } }
                        (visit.entry_form("user-withdraw-consent", &[name, &plain(&consent["client_id"])]))
                    }
                }
            }
        }
    };
    Ok(cookie::set(reply::no_store(reply::html(StatusCode::OK, console_page(name, &content))), set_cookie))
}

/// GET {base}/console/client?id=ID
pub async fn show_client(context: &RequestContext) -> Result<Response, Problem> {
    let (browser, set_cookie) = cookie::browser(context);
    let visit = ConsoleVisit::of(context, browser).await?;
    let params = context.params();
    let id = params.get("id").unwrap_or_default();
    let records = records_of(&context.app, Some("client"), "show", json!({ "client_id": id })).await;
    let Some(client @ Value::Object(members)) = records.first() else {
        return Err(Problem::page(StatusCode::NOT_FOUND, "No client has this id."));
    };
    let content = html! {
        (back())
        table {
            @for (name, value) in members.iter().filter(|(_, value)| !is_empty(value)) {
                tr { th scope="row" { (name) } td { code { (plain(value)) } } }
            }
        }
        (visit.forms(Some("client"), &[id], client))
    };
    Ok(cookie::set(reply::no_store(reply::html(StatusCode::OK, console_page(id, &content))), set_cookie))
}

fn back() -> Markup {
    html! { p { a href="/console" { "Back to the console" } } }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(values) => values.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

/// A text without quotes; other values as JSON.
fn plain(value: &Value) -> String {
    if let Value::Array(values) = value {
        return values.iter().map(plain).collect::<Vec<_>>().join(" ");
    }
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
