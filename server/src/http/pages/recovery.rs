//! {base}/recovery: sign-in by a recovery code, for users who have lost their passkey or password.

use http::StatusCode;
use identity::audit::AuditEvent;
use identity::sign_in::session::SignInProof;
use identity::sign_in::throttle::AttemptResult;
use maud::{Markup, html};

use super::frame::page;
use super::sign_in::destination::SignInDestination;
use super::texts::t;
use super::{cookie, csrf};
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};

const WRONG: &str = "The user name or the code is wrong, or the code was used before.";

fn render_form(browser: &str, onward: &SignInDestination, username: &str, notice: Option<&str>) -> Markup {
    let (described, invalid) = (notice.map(|_| "notice"), notice.map(|_| "true"));
    page(
        t("Use a recovery code"),
        &html! {
            @if let Some(notice) = notice { p #notice .error role="alert" { (t(notice)) } }
            p { (t("You can use each recovery code only once.")) }
            form method="post" action="/recovery" {
                (csrf::hidden_field(browser))
                (onward.fields())
                label for="username" { (t("User name")) }
                input #username name="username" autocomplete="username" autocapitalize="none" spellcheck="false"
                    maxlength="100" required value=(username) aria-describedby=[described] aria-invalid=[invalid];
                label for="code" { (t("Recovery code")) }
                input #code name="code" autocomplete="off" autocapitalize="none" spellcheck="false" maxlength="40"
                    required aria-describedby=[described] aria-invalid=[invalid];
                button type="submit" { (t("Sign in")) }
            }
            p { a href=(onward.at("/sign-in")) { (t("Back to sign-in")) } }
        },
    )
}

/// Shows the form.
pub async fn show_form(context: &RequestContext) -> Result<Response, Problem> {
    let (browser, set_cookie) = cookie::browser(context);
    let response = reply::html(
        StatusCode::OK,
        render_form(&browser, &SignInDestination::read(&context.params()), "", None),
    );
    Ok(reply::no_store(cookie::set(response, set_cookie)))
}

/// Checks the code.
pub async fn submit_form(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    let form = csrf::read_form(context, body).await?;
    let username = form.get("username").unwrap_or_default();
    let code = form.get("code").unwrap_or_default();
    let onward = SignInDestination::read(&form);
    let browser = context.cookies.browser.as_deref().unwrap_or_default();
    let again = |status: StatusCode, notice: &str| {
        reply::no_store(reply::html(status, render_form(browser, &onward, username, Some(notice))))
    };
    let (user, counted) = super::sign_in::attempt::begin_attempt(context, username).await?;
    let attempt = match counted {
        Ok(attempt) => attempt,
        Err(wait) => {
            let (text, with_header) = super::sign_in::attempt::lockout_response(wait);
            return Ok(with_header(again(StatusCode::TOO_MANY_REQUESTS, &text)));
        }
    };
    let identity = &context.app.identity;
    let right = identity.sign_in.redeem_recovery_code(user.as_ref(), code, context.now).await?;
    let outcome = if right { AttemptResult::Success } else { AttemptResult::Failure };
    identity.throttle.settle_attempt(attempt, outcome, context.now).await?;
    let sub = user.as_ref().map(|user| user.sub.clone());
    let Some(user) = user.filter(|_| right) else {
        identity.audit.record(AuditEvent::SignInFailed { sub, reason: "wrong recovery code" });
        return Ok(again(StatusCode::UNAUTHORIZED, WRONG));
    };
    // A code that works once is a one-time password (RFC 8176 section 2).
    Ok(super::sign_in::completion::complete_sign_in(
        context,
        &user,
        &SignInProof::from_methods(&["otp"]),
        &onward,
    )
    .await?)
}
