//! {base}/sign-in: user name and password.
//!
//! Where it was an authorization request that led here, the form carries its query and the answer
//! goes back to `/oauth2/authorize` with 303; only that GET sends the browser to the client.

use http::{StatusCode, header};
use identity::params::Params;
use identity::password;
use maud::{Markup, html};

use super::{cookie, csrf, page};
use crate::http::extract::Call;
use crate::http::problem::{self, Dialect};
use crate::http::reply::{self, Response};

/// What the page says above the form after an attempt.
const WRONG: &str = "The user name or the password is wrong.";

async fn form(call: &Call, browser: &str, back: &str, username: &str, said: Option<&str>) -> Markup {
    let known = Params::parse(back.as_bytes());
    let client = match known.get("client_id") {
        Some(client_id) => call.app.identity.client(client_id, call.now).await.ok().flatten(),
        None => None,
    };
    let providers = call.app.providers.iter().filter(|_| !back.is_empty());
    page(
        "Sign in",
        &html! {
            @if let Some(said) = said { p.error role="alert" { (said) } }
            @if let Some(client) = client { p.quiet { "to continue to " strong { (client.name) } } }
            form method="post" action="/sign-in" {
                (csrf::field(browser))
                input type="hidden" name="continue" value=(back);
                label for="username" { "User name" }
                input #username name="username" autocomplete="username" autocapitalize="none" spellcheck="false"
                    maxlength="100" required value=(username) autofocus[username.is_empty()];
                label for="password" { "Password" }
                input #password name="password" type="password" autocomplete="current-password" maxlength="128"
                    required autofocus[!username.is_empty()];
                button type="submit" { "Sign in" }
            }
            @for provider in providers {
                @let name = &provider.provider.name;
                @let query = format!("{}&{}", known.without(&["identity_provider"]),
                    form_urlencoded::Serializer::new(String::new()).append_pair("identity_provider", name).finish());
                p { a href=(format!("/oauth2/authorize?{query}")) { "Sign in with " (name) } }
            }
        },
    )
}

/// Shows the form.
pub async fn get(call: Call) -> Response {
    let params = call.params();
    let (browser, set_cookie) = cookie::browser(&call);
    let back = params.get("continue").unwrap_or_default();
    let hint = params.get("login_hint").unwrap_or_default();
    let response = reply::html(StatusCode::OK, form(&call, &browser, back, hint, None).await);
    reply::no_store(cookie::set(response, set_cookie))
}

/// The form once more, with a word about the attempt.
async fn again(call: &Call, back: &str, username: &str, status: StatusCode, said: &str) -> Response {
    let (browser, _) = cookie::browser(call);
    reply::no_store(reply::html(status, form(call, &browser, back, username, Some(said)).await))
}

/// Checks what was typed.
pub async fn post(mut call: Call) -> Response {
    let sent = match csrf::form(&mut call).await {
        Ok(sent) => sent,
        Err(response) => return response,
    };
    let app = call.app.clone();
    let username = sent.get("username").unwrap_or_default();
    let password = sent.get("password").unwrap_or_default().to_owned();
    // Encoded again, so that whatever was typed there fits into a header.
    let back = Params::parse(sent.get("continue").unwrap_or_default().as_bytes()).without(&[]);
    let back = back.as_str();
    let address = call.peer.map(|peer| peer.to_string()).unwrap_or_default();
    match app.identity.sign_in_wait(username, &address, call.now).await {
        Ok(None) => {}
        Ok(Some(wait)) => {
            let seconds = wait.as_secs() + 1;
            let text = format!("Too many attempts. Try again in {seconds} s.");
            let response = again(&call, back, username, StatusCode::TOO_MANY_REQUESTS, &text).await;
            return reply::with(response, header::RETRY_AFTER, &seconds.to_string());
        }
        Err(error) => return problem::store(Dialect::Page, &error),
    }
    let user = match app.identity.user_for_sign_in(username, call.now).await {
        Ok(user) => user,
        Err(error) => return problem::store(Dialect::Page, &error),
    };
    let phc = user.as_ref().and_then(|user| user.password.clone());
    let right = app.hashing(move || password::verify(&password, phc.as_deref())).await;
    if let Err(error) = app.identity.count_sign_in(username, &address, right, call.now).await {
        return problem::store(Dialect::Page, &error);
    }
    let Some(user) = user.filter(|_| right) else {
        return again(&call, back, username, StatusCode::UNAUTHORIZED, WRONG).await;
    };
    // The clock is asked again: hashing may have waited for its turn.
    let value = match app.identity.begin_session(&user, None, cookie::session(&call), app.clock.now()).await {
        Ok(value) => value,
        Err(error) => return problem::store(Dialect::Page, &error),
    };
    let to = if back.is_empty() {
        format!("{}/account", app.base_url)
    } else {
        format!("{}/oauth2/authorize?{back}", app.base_url)
    };
    let response = reply::no_store(reply::redirect(StatusCode::SEE_OTHER, &to));
    cookie::set(response, Some(cookie::set_session(&app, &value)))
}
