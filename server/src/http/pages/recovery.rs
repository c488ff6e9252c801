//! {base}/recovery: sign-in by a recovery code, for who has lost the passkey or the password.

use http::StatusCode;
use identity::audit::Event;
use identity::params::Params;
use identity::session::Proof;
use identity::throttle::Outcome;
use maud::{Markup, html};
use store::StoreError;

use super::sign_in::{self, Onward};
use super::{cookie, csrf, page};
use crate::http::extract::Call;
use crate::http::problem::{self, Dialect};
use crate::http::reply::{self, Response};

const WRONG: &str = "The user name or the code is wrong, or the code was used before.";

fn form(browser: &str, onward: &Onward, username: &str, said: Option<&str>) -> Markup {
    let (described, invalid) = (said.map(|_| "said"), said.map(|_| "true"));
    page(
        "Use a recovery code",
        &html! {
            @if let Some(said) = said { p #said .error role="alert" { (said) } }
            p { "Each code that you kept when you set up your account signs you in once." }
            form method="post" action="/recovery" {
                (csrf::field(browser))
                (onward.fields())
                label for="username" { "User name" }
                input #username name="username" autocomplete="username" autocapitalize="none" spellcheck="false"
                    maxlength="100" required value=(username) aria-describedby=[described] aria-invalid=[invalid];
                label for="code" { "Recovery code" }
                input #code name="code" autocomplete="off" autocapitalize="none" spellcheck="false" maxlength="40"
                    required aria-describedby=[described] aria-invalid=[invalid];
                button type="submit" { "Sign in" }
            }
            p { a href=(onward.at("/sign-in")) { "Back to sign-in" } }
        },
    )
}

/// Shows the form.
pub async fn get(call: Call) -> Response {
    let (browser, set_cookie) = cookie::browser(&call);
    let response = reply::html(StatusCode::OK, form(&browser, &Onward::read(&call.params()), "", None));
    reply::no_store(cookie::set(response, set_cookie))
}

/// Checks the code.
pub async fn post(mut call: Call) -> Response {
    let sent = match csrf::form(&mut call).await {
        Ok(sent) => sent,
        Err(response) => return response,
    };
    check(&call, &sent).await.unwrap_or_else(|error| problem::store(Dialect::Page, &error))
}

async fn check(call: &Call, sent: &Params) -> Result<Response, StoreError> {
    let username = sent.get("username").unwrap_or_default();
    let code = sent.get("code").unwrap_or_default();
    let onward = Onward::read(sent);
    let browser = cookie::known_browser(call).unwrap_or_default();
    let again = |status: StatusCode, said: &str| {
        reply::no_store(reply::html(status, form(browser, &onward, username, Some(said))))
    };
    let (user, counted) = sign_in::attempt(call, username).await?;
    let attempt = match counted {
        Ok(attempt) => attempt,
        Err(wait) => {
            let (text, with_header) = sign_in::too_often(wait);
            return Ok(with_header(again(StatusCode::TOO_MANY_REQUESTS, &text)));
        }
    };
    let identity = &call.app.identity;
    let right = identity.spend_recovery_code(user.as_ref(), code, call.now).await?;
    let outcome = if right { Outcome::Right } else { Outcome::Wrong };
    identity.settle(attempt, outcome, call.now).await?;
    let sub = user.as_ref().map(|user| user.sub.clone());
    let Some(user) = user.filter(|_| right) else {
        identity.record(Event::SignInFailed { sub, reason: "wrong recovery code" });
        return Ok(again(StatusCode::UNAUTHORIZED, WRONG));
    };
    // A code that works once is a one-time password (RFC 8176 2).
    sign_in::complete(call, &user, &Proof::by(&["otp"]), &onward).await
}
