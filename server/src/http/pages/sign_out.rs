//! {base}/sign-out and /logout: ends the browser session (OpenID Connect RP-Initiated Logout 1.0).
//!
//! An ID token as `id_token_hint` ends only the session whose cookie this browser presents, active or
//! expired, and only if it is a session of the user of the token: ID tokens travel in addresses, so others
//! may know them. Without a hint for this session, a page asks. The browser is redirected only to an address
//! that the client registered.

use http::StatusCode;
use identity::params::Params;
use identity::sign_in::pending_quota::PendingKind;
use maud::html;
use store::StoreError;

use super::frame::page;
use super::texts::t;
use super::{cookie, csrf};
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};

/// Maximum size of a sign-out request by POST that is stored, in bytes. ID tokens have a few thousand.
const STORED_REQUEST_LIMIT: usize = 16 << 10;

/// Ends the session, or asks for confirmation.
pub async fn sign_out(context: &RequestContext) -> Result<Response, Problem> {
    let params = context.params();
    let Some(id) = params.get("request") else { return Ok(process_request(context, &params).await?) };
    let request = context.app.identity.sessions.take_sign_out_request(id, context.now).await?;
    // A page that is loaded again has no parameters, and then at most asks.
    Ok(process_request(context, &Params::parse(request.unwrap_or_default().as_bytes())).await?)
}

async fn process_request(context: &RequestContext, params: &Params) -> Result<Response, StoreError> {
    let sessions = &context.app.identity.sessions;
    let hint = params
        .get("id_token_hint")
        .and_then(|hint| context.app.identity.tokens.verify_id_token_hint(hint, context.now))
        .filter(|_| params.defect().is_none());
    let (presented, active) = match context.cookies.session.as_deref() {
        Some(value) => (
            sessions.session_identity(value, context.now).await?,
            sessions.active_session(value, context.now).await?,
        ),
        None => (None, None),
    };
    if let Some((sub, client_id, _)) = hint {
        let back = back_address(context, params, client_id).await?;
        if presented.is_some_and(|session| session.sub == sub) {
            return end(context, back.as_deref()).await;
        }
        // Nothing ends, but the application has signed its user out and waits for the browser.
        if let Some(to) = back {
            return Ok(reply::no_store(reply::redirect(StatusCode::SEE_OTHER, &to)));
        }
    }
    if active.is_none() {
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

/// The requested address after sign-out, if the client registered it.
async fn back_address(
    context: &RequestContext,
    params: &Params,
    client_id: String,
) -> Result<Option<String>, StoreError> {
    let Some(target) = params.get("post_logout_redirect_uri") else { return Ok(None) };
    if params.get("client_id").is_some_and(|candidate| candidate != client_id) {
        return Ok(None);
    }
    let Some(client) = context.app.identity.clients.active_client(&client_id, context.now).await? else {
        return Ok(None);
    };
    let registered = client.post_logout_redirect_uris.iter().find(|uri| uri.as_str() == target);
    Ok(registered.map(|uri| match params.get("state") {
        Some(state) => uri.with_query(&[("state", state)]),
        None => uri.as_str().to_owned(),
    }))
}

async fn end(context: &RequestContext, back: Option<&str>) -> Result<Response, StoreError> {
    if let Some(value) = context.cookies.session.as_deref() {
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
        let body = body.bytes(STORED_REQUEST_LIMIT).await?;
        if context.cookies.session.as_deref().is_some() {
            return Ok(process_request(context, &Params::parse(&body)).await?);
        }
        return continue_by_get(context, &body).await;
    }
    csrf::read_form(context, body).await?;
    Ok(end(context, None).await?)
}

/// Redirects a POST without the session cookie to a GET of this server. Browsers send a `SameSite=Lax` cookie
/// with the GET also if the page of the form belongs to another site.
async fn continue_by_get(context: &RequestContext, body: &[u8]) -> Result<Response, Problem> {
    context.add_pending(PendingKind::SignOutRequest, None)?;
    let parameters = String::from_utf8_lossy(body);
    let id = context.app.identity.sessions.store_sign_out_request(&parameters, context.now).await?;
    let to = format!("{}/logout?request={id}", context.app.address.base_url);
    Ok(reply::no_store(reply::redirect(StatusCode::SEE_OTHER, &to)))
}
