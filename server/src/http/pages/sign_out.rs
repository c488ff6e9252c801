//! {base}/sign-out and /logout: ends the browser session (OpenID Connect RP-Initiated Logout 1.0).
//!
//! Only an ID token of ours for the user of this session ends it without asking; a link from anywhere else
//! leads to a page that asks. The browser goes on only to an address that the client registered.

use http::StatusCode;
use identity::params::Params;
use maud::html;
use store::StoreError;

use super::{cookie, csrf, page};
use crate::http::extract::Call;
use crate::http::problem::{self, Dialect};
use crate::http::reply::{self, Response};

/// Ends the session, or asks first.
pub async fn get(call: Call) -> Response {
    let params = call.params();
    request(&call, &params).await.unwrap_or_else(|error| problem::store(Dialect::Page, &error))
}

async fn request(call: &Call, params: &Params) -> Result<Response, StoreError> {
    let app = &call.app;
    let hint = params.get("id_token_hint").and_then(|hint| app.identity.read_id_token_hint(hint, call.now));
    let session = match cookie::session(call) {
        Some(value) => app.identity.session(value, call.now).await?,
        None => None,
    };
    let hinted = match (&hint, &session) {
        (Some((sub, _, _)), Some((session, _))) => *sub == session.sub,
        (Some(_), None) => true,
        (None, _) => false,
    };
    if let Some((_, client_id, sid)) = hint.filter(|_| hinted && params.defect().is_none()) {
        // The browser session may have ended by itself; its tokens live on until now.
        app.identity.end_sid(&sid, call.now).await?;
        let back = back_address(call, params, client_id).await?;
        return end(call, back.as_deref()).await;
    }
    if session.is_none() {
        return end(call, None).await;
    }
    let (browser, set_cookie) = cookie::browser(call);
    let content = html! {
        p { "Do you want to sign out of this browser?" }
        form method="post" action="/sign-out" { (csrf::field(&browser)) button type="submit" { "Sign out" } }
    };
    let response = reply::html(StatusCode::OK, page("Sign out", &content));
    Ok(reply::no_store(cookie::set(response, set_cookie)))
}

/// Where the client wants the browser afterwards, if it registered that address.
async fn back_address(call: &Call, params: &Params, client_id: String) -> Result<Option<String>, StoreError> {
    let Some(wanted) = params.get("post_logout_redirect_uri") else { return Ok(None) };
    if params.get("client_id").is_some_and(|named| named != client_id) {
        return Ok(None);
    }
    let Some(client) = call.app.identity.client(&client_id, call.now).await? else { return Ok(None) };
    let known = client.post_logout_redirect_uris.iter().find(|uri| uri.as_str() == wanted);
    Ok(known.map(|uri| match params.get("state") {
        Some(state) => uri.with_query(&[("state", state)]),
        None => uri.as_str().to_owned(),
    }))
}

async fn end(call: &Call, back: Option<&str>) -> Result<Response, StoreError> {
    if let Some(value) = cookie::session(call) {
        call.app.identity.end_session(value, call.now).await?;
    }
    let response = match back {
        Some(to) => reply::redirect(StatusCode::SEE_OTHER, to),
        None => reply::html(
            StatusCode::OK,
            page("You are signed out", &html! { p { "You can close this page." } }),
        ),
    };
    Ok(reply::no_store(cookie::set(response, Some(cookie::clear_session(&call.app)))))
}

/// The answer to the page that asks; and RP-initiated logout by POST.
pub async fn post(mut call: Call) -> Response {
    if call.path == "/logout" {
        let body = match call.bytes(super::FORM_LIMIT).await {
            Ok(body) => body,
            Err(error) => return problem::unreadable(Dialect::Page, &error),
        };
        let params = Params::parse(&body);
        return request(&call, &params).await.unwrap_or_else(|error| problem::store(Dialect::Page, &error));
    }
    if let Err(response) = csrf::form(&mut call).await {
        return response;
    }
    end(&call, None).await.unwrap_or_else(|error| problem::store(Dialect::Page, &error))
}
