//! The section about sessions.

use http::StatusCode;
use maud::html;

use super::page::show_error;
use super::visit::{read_form, redirect_done};
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::pages::cookie;
use crate::http::pages::frame::page;
use crate::http::pages::texts::t;
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};

/// POST {base}/account/sessions/end
pub async fn end_session(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    let (visit, form) = read_form(context, body).await?;
    let sid = form.get("sid").unwrap_or_default();
    if !context.app.identity.sessions.end_user_session(&visit.user.sub, sid, context.now).await? {
        let text = t("This session has ended already.");
        return show_error(context, &visit, StatusCode::NOT_FOUND, text).await;
    }
    Ok(redirect_done(context, "ended"))
}

/// POST {base}/account/sessions/end-others: ends all sessions of the user but the one of this browser.
pub async fn end_other_sessions(
    context: &RequestContext,
    body: &mut RequestBody,
) -> Result<Response, Problem> {
    let (visit, _) = read_form(context, body).await?;
    let sessions = &context.app.identity.sessions;
    for session in sessions.user_sessions(&visit.user, context.now).await? {
        if session.sid != visit.session.sid {
            sessions.end_user_session(&visit.user.sub, &session.sid, context.now).await?;
        }
    }
    Ok(redirect_done(context, "others"))
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
