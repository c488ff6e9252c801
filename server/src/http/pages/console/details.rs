//! The page of a user with the sessions and sign-in methods, and the page of a client.

use http::StatusCode;
use maud::{Markup, html};
use serde_json::Value;

use super::action_table::{
    DELETE_CLIENT, DELETE_USER, DISABLE_USER, ENABLE_USER, REMOVE_METHODS, ROTATE_SECRET, SET_PASSWORD,
    SIGN_OUT_USER,
};
use super::commands::run;
use super::visit::{ConsoleVisit, console_page};
use crate::administration::people::user_facts;
use crate::administration::protocol::{AdminCommand, ClientCommand};
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
        return Err(Problem::page(StatusCode::NOT_FOUND, "There is no user with this name."));
    };
    let methods = context.app.identity.sign_in.sign_in_methods(&user.sub, context.now).await?;
    let sessions = context.app.identity.sessions.user_sessions(&user, context.now).await?;
    let fields = [("username", name)];
    let state = if user.disabled { &ENABLE_USER } else { &DISABLE_USER };
    let content = html! {
        (back())
        table {
            @for (name, value) in user_facts(&user, &methods, &context.app.identity.provider_rules.current()) {
                tr { th scope="row" { (name) } td { (value) } }
            }
        }
        div.choice {
            (visit.button(state, &fields, name))
            (visit.button(&SIGN_OUT_USER, &fields, name))
            (visit.button(&REMOVE_METHODS, &fields, name))
            (visit.button(&DELETE_USER, &fields, name))
        }
        (visit.form(&SET_PASSWORD, &fields, &[("password", "New password", "password")]))
        section {
            h2 { "Sessions" }
            @if sessions.is_empty() { p.quiet { "none" } }
            ul.rows {
                @for session in &sessions {
                    li {
                        div {
                            (session.origin.address) " " span.quiet { (session.origin.agent) }
                            div.quiet {
                                "since " (fhir::instant::format(session.started)) ", last seen "
                                (fhir::instant::format(session.last_seen)) ", " (session.amr.join(" "))
                            }
                        }
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
    let shown = run(&context.app, AdminCommand::Client(ClientCommand::Show { id: id.to_owned() })).await;
    let Some(Value::Object(members)) = shown.records.first() else {
        return Err(Problem::page(StatusCode::NOT_FOUND, "There is no client with this id."));
    };
    let fields = [("id", id)];
    let has_secret = members.get("secrets").is_some_and(|count| count.as_u64() != Some(0));
    let content = html! {
        (back())
        table {
            @for (name, value) in members.iter().filter(|(_, value)| !is_empty(value)) {
                tr { th scope="row" { (name) } td { code { (plain(value)) } } }
            }
        }
        div.choice {
            @if has_secret { (visit.button(&ROTATE_SECRET, &fields, id)) }
            (visit.button(&DELETE_CLIENT, &fields, id))
        }
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
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
