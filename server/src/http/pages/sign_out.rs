//! {base}/sign-out and /logout: ends the browser session (OpenID Connect RP-Initiated Logout 1.0).
//!
//! Only a valid ID token for the user of this session ends it without a question; a link from another site leads to a
//! page that asks. The browser is redirected only to an address that the client registered.

use http::StatusCode;
use identity::params::Params;
use maud::html;
use store::StoreError;

use super::texts::t;
use super::{cookie, csrf, page};
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};

/// Ends the session, or asks for confirmation.
pub async fn sign_out(context: &RequestContext) -> Result<Response, Problem> {
    let params = context.params();
    Ok(request(context, &params).await?)
}

async fn request(context: &RequestContext, params: &Params) -> Result<Response, StoreError> {
    let app = &context.app;
    let hint = params
        .get("id_token_hint")
        .and_then(|hint| app.identity.tokens.verify_id_token_hint(hint, context.now));
    let session = match cookie::session(context) {
        Some(value) => app.identity.sessions.active_session(value, context.now).await?,
        None => None,
    };
    let hinted = match (&hint, &session) {
        (Some((sub, _, _)), Some((session, _))) => *sub == session.sub,
        (Some(_), None) => true,
        (None, _) => false,
    };
    if let Some((_, client_id, sid)) = hint.filter(|_| hinted && params.defect().is_none()) {
        // The browser session may have expired before; its tokens end now.
        app.identity.sessions.end_session_by_id(&sid, context.now).await?;
        let back = back_address(context, params, client_id).await?;
        return end(context, back.as_deref()).await;
    }
    if session.is_none() {
        return end(context, None).await;
    }
    let (browser, set_cookie) = cookie::browser(context);
    let content = html! {
        p { (t("Do you want to sign out of this browser?")) }
        form method="post" action="/sign-out" { (csrf::hidden_field(&browser)) button type="submit" { (t("Sign out")) } }
    };
    let response = reply::html(StatusCode::OK, page(t("Sign out"), &content));
    Ok(reply::no_store(cookie::set(response, set_cookie)))
}

/// Returns the requested address after sign-out, if the client registered it.
async fn back_address(
    context: &RequestContext,
    params: &Params,
    client_id: String,
) -> Result<Option<String>, StoreError> {
    let Some(wanted) = params.get("post_logout_redirect_uri") else { return Ok(None) };
    if params.get("client_id").is_some_and(|named| named != client_id) {
        return Ok(None);
    }
    let Some(client) = context.app.identity.clients.active_client(&client_id, context.now).await? else {
        return Ok(None);
    };
    let known = client.post_logout_redirect_uris.iter().find(|uri| uri.as_str() == wanted);
    Ok(known.map(|uri| match params.get("state") {
        Some(state) => uri.with_query(&[("state", state)]),
        None => uri.as_str().to_owned(),
    }))
}

async fn end(context: &RequestContext, back: Option<&str>) -> Result<Response, StoreError> {
    if let Some(value) = cookie::session(context) {
        context.app.identity.sessions.end_session(value, context.now).await?;
    }
    let response = match back {
        Some(to) => reply::redirect(StatusCode::SEE_OTHER, to),
        None => reply::html(
            StatusCode::OK,
            page(t("You are signed out"), &html! { p { (t("You can close this page.")) } }),
        ),
    };
    Ok(reply::no_store(cookie::set(response, Some(cookie::clear_session(&context.app)))))
}

/// Processes the answer to the confirmation, and RP-initiated logout by POST.
pub async fn submit_form(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    if context.path == "/logout" {
        let body = body.bytes(super::FORM_LIMIT).await?;
        return Ok(request(context, &Params::parse(&body)).await?);
    }
    csrf::read_form(context, body).await?;
    Ok(end(context, None).await?)
}
