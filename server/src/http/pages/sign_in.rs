//! {base}/sign-in: user name and password.
//!
//! Where it was an authorization request that led here, the form carries it, sealed, and the answer goes back
//! to `/oauth2/resume` with 303; only that GET sends the browser to the client.

use http::{StatusCode, header};
use identity::audit::Event;
use identity::password;
use maud::{Markup, html};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{cookie, csrf, page};
use crate::http::extract::Call;
use crate::http::oauth::authorize;
use crate::http::problem::{self, Dialect};
use crate::http::reply::{self, Response};

/// What the page says above the form after an attempt.
const WRONG: &str = "The user name or the password is wrong.";

async fn form(call: &Call, browser: &str, back: &str, username: &str, said: Option<&str>) -> Markup {
    let opened = call.app.identity.open_seal(back, browser, call.now);
    let client = match opened {
        Some(interaction) => call.app.identity.check_interaction(&interaction, call.now).await.ok(),
        None => None,
    };
    let client = client.map(|request| request.client);
    let settings = call.app.settings();
    let providers = settings.providers.iter().filter(|_| !back.is_empty());
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
                @let address = format!("/sign-in/with/{}?continue={back}", utf8_percent_encode(name, NON_ALPHANUMERIC));
                p { a href=(address) { "Sign in with " (name) } }
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
    let back = sent.get("continue").unwrap_or_default();
    let address = call.client_ip().map(|peer| peer.to_string()).unwrap_or_default();
    match app.identity.sign_in_wait(username, &address, call.now).await {
        Ok(None) => {}
        Ok(Some(wait)) => {
            let sub = app.identity.user_named(username, call.now).await.ok().flatten().map(|user| user.sub);
            app.identity.record(Event::SignInFailed { sub, reason: "too many attempts" });
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
    let sub = user.as_ref().map(|user| user.sub.clone());
    let Some(user) = user.filter(|_| right) else {
        app.identity.record(Event::SignInFailed { sub, reason: "wrong user name or password" });
        return again(&call, back, username, StatusCode::UNAUTHORIZED, WRONG).await;
    };
    // The clock is asked again: hashing may have waited for its turn.
    let value = match app
        .identity
        .begin_session(&user, &["pwd"], None, cookie::session(&call), app.clock.now())
        .await
    {
        Ok(value) => value,
        Err(error) => return problem::store(Dialect::Page, &error),
    };
    let browser = cookie::known_browser(&call).unwrap_or_default();
    let to = match app.identity.open_seal(back, browser, call.now) {
        Some(_) => authorize::resume_address(&call, back),
        None => format!("{}/account", app.base_url),
    };
    let response = reply::no_store(reply::redirect(StatusCode::SEE_OTHER, &to));
    cookie::set(response, Some(cookie::set_session(&app, &value)))
}
