//! The section about sessions.

use http::StatusCode;
use maud::{Markup, html};
use store::StoreError;

use super::{AccountVisit, agent, date_time, read_form, redirect_done, show_error};
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::pages::texts::{fill, phrase, t};
use crate::http::pages::{cookie, page};
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};

/// Returns the section.
pub(super) async fn section(context: &RequestContext, visit: &AccountVisit) -> Result<Markup, StoreError> {
    let sessions = context.app.identity.sessions.user_sessions(&visit.user, context.now).await?;
    Ok(html! {
        h2 { (t("Where you are signed in")) }
        ul.rows {
            @for session in &sessions {
                @let name = agent::describe(&session.origin.agent);
                @let here = session.sid == visit.session.sid;
                li {
                    div {
                        strong { (name) } @if here { " " span.tag { (t("this browser")) } }
                        div.quiet {
                            @if !session.origin.address.is_empty() { (fill("from {}", &[&session.origin.address])) ", " }
                            (phrase("since {}", &[date_time(session.started)]))
                            @if let Some(provider) = &session.provider { ", " (fill("by {}", &[provider])) }
                            br; (phrase("last used {}", &[date_time(session.last_seen)]))
                        }
                    }
                    @if !here {
                        (visit.button("/account/sessions/end", &[("sid", &session.sid)], t("End"),
                            Some(&fill("End the session in {}", &[&name]))))
                    }
                }
            }
        }
        (visit.button("/account", &[], t("Sign out everywhere"), None))
        p.quiet { (t("Everywhere means: all browsers, and all apps that you signed in to with this account.")) }
    })
}

/// POST {base}/account/sessions/end
pub async fn end_session(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    let (visit, sent) = read_form(context, body).await?;
    let sid = sent.get("sid").unwrap_or_default();
    if !context.app.identity.sessions.end_user_session(&visit.user.sub, sid, context.now).await? {
        let text = t("This session has ended already.");
        return show_error(context, &visit, StatusCode::NOT_FOUND, text).await;
    }
    Ok(redirect_done(context, "ended"))
}

/// POST {base}/account: signs out everywhere.
pub async fn sign_out_everywhere(
    context: &RequestContext,
    body: &mut RequestBody,
) -> Result<Response, Problem> {
    let (visit, _) = read_form(context, body).await?;
    context.app.identity.users.sign_out_everywhere(&visit.user.username, context.now).await?;
    let content = html! {
        p { (t("All sessions and all apps are signed out.")) }
        p { a href="/sign-in" { (t("Sign in again")) } }
    };
    let response = reply::html(StatusCode::OK, page(t("You are signed out"), &content));
    Ok(reply::no_store(cookie::set(response, Some(cookie::clear_session(&context.app)))))
}
