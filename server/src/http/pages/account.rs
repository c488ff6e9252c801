//! {base}/account: who is signed in, and the two ways to end that.

use http::StatusCode;
use maud::html;

use super::{cookie, csrf, page};
use crate::http::extract::Call;
use crate::http::problem::{self, Dialect};
use crate::http::reply::{self, Response};

async fn signed_in(call: &Call) -> Result<identity::user::User, Response> {
    let session = match cookie::session(call) {
        Some(value) => call.app.identity.session(value, call.now).await,
        None => Ok(None),
    };
    match session {
        Ok(Some((_, user))) => Ok(user),
        Ok(None) => Err(reply::no_store(reply::redirect(
            StatusCode::SEE_OTHER,
            &format!("{}/sign-in", call.app.base_url),
        ))),
        Err(error) => Err(problem::store(Dialect::Page, &error)),
    }
}

/// The page.
pub async fn get(call: Call) -> Response {
    let user = match signed_in(&call).await {
        Ok(user) => user,
        Err(response) => return response,
    };
    let (browser, set_cookie) = cookie::browser(&call);
    let name = user.claims.name.as_deref().unwrap_or(&user.username);
    let content = html! {
        p { "Signed in as " strong { (name) } " (" (user.username) ")." }
        form method="post" action="/sign-out" { (csrf::field(&browser)) button type="submit" { "Sign out of this browser" } }
        form method="post" action="/account" {
            (csrf::field(&browser))
            button.second type="submit" { "Sign out everywhere" }
        }
        p.quiet { "Everywhere means: all browsers, and all apps that you signed in to with this account." }
    };
    let response = reply::html(StatusCode::OK, page("Your account", &content));
    reply::no_store(cookie::set(response, set_cookie))
}

/// Global sign-out.
pub async fn post(mut call: Call) -> Response {
    if let Err(response) = csrf::form(&mut call).await {
        return response;
    }
    let user = match signed_in(&call).await {
        Ok(user) => user,
        Err(response) => return response,
    };
    if let Err(error) = call.app.identity.sign_out_everywhere(&user.username, call.now).await {
        tracing::error!(%error, "global sign-out");
        return super::error(StatusCode::INTERNAL_SERVER_ERROR, "Signing out failed; please try again.");
    }
    let content = html! { p { "All sessions and all apps are signed out." } };
    let response = reply::html(StatusCode::OK, page("You are signed out", &content));
    reply::no_store(cookie::set(response, Some(cookie::clear_session(&call.app))))
}
