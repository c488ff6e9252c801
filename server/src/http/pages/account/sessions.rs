//! Where the user is signed in.

use http::StatusCode;
use maud::{Markup, html};
use store::StoreError;

use super::{Visit, agent, begin, done, when, wrong};
use crate::http::extract::Call;
use crate::http::pages::{cookie, page};
use crate::http::problem::{self, Dialect};
use crate::http::reply::{self, Response};

/// The section.
pub(super) async fn section(call: &Call, visit: &Visit) -> Result<Markup, StoreError> {
    let sessions = call.app.identity.sessions_of(&visit.user, call.now).await?;
    Ok(html! {
        h2 { "Where you are signed in" }
        ul.rows {
            @for session in &sessions {
                @let name = agent::describe(&session.place.agent);
                @let here = session.sid == visit.session.sid;
                li {
                    div {
                        strong { (name) } @if here { " " span.tag { "this browser" } }
                        div.quiet {
                            @if !session.place.address.is_empty() { "from " (session.place.address) ", " }
                            "since " (when(session.auth_time))
                            @if let Some(provider) = &session.provider { ", by " (provider) }
                            br; "last used " (when(session.last_seen))
                        }
                    }
                    @if !here {
                        (visit.button("/account/sessions/end", &[("sid", &session.sid)], "End",
                            Some(&format!("End the session in {name}"))))
                    }
                }
            }
        }
        (visit.button("/account", &[], "Sign out everywhere", None))
        p.quiet { "Everywhere means: all browsers, and all apps that you signed in to with this account." }
    })
}

/// POST {base}/account/sessions/end
pub async fn end(mut call: Call) -> Response {
    let (visit, sent) = match begin(&mut call).await {
        Ok(begun) => begun,
        Err(response) => return response,
    };
    let sid = sent.get("sid").unwrap_or_default();
    match call.app.identity.end_session_of(&visit.user.sub, sid, call.now).await {
        Ok(true) => done(&call, "ended"),
        Ok(false) => wrong(&call, &visit, StatusCode::NOT_FOUND, "This session has ended already.").await,
        Err(error) => problem::store(Dialect::Page, &error),
    }
}

/// POST {base}/account: global sign-out.
pub async fn everywhere(mut call: Call) -> Response {
    let (visit, _) = match begin(&mut call).await {
        Ok(begun) => begun,
        Err(response) => return response,
    };
    if let Err(error) = call.app.identity.sign_out_everywhere(&visit.user.username, call.now).await {
        return problem::user(&error);
    }
    let content = html! {
        p { "All sessions and all apps are signed out." }
        p { a href="/sign-in" { "Sign in again" } }
    };
    let response = reply::html(StatusCode::OK, page("You are signed out", &content));
    reply::no_store(cookie::set(response, Some(cookie::clear_session(&call.app))))
}
