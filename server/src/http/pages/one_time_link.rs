//! {base}/one-time-link: a user who has no sign-in method, or has lost it, sets a password.
//!
//! Showing the page uses nothing, because scanners of mails open every link. The form uses the link.

use http::{StatusCode, header};
use identity::model::user::User;
use identity::sign_in::one_time_link::PAGE_PATH;
use identity::sign_in::password::MAX_PASSWORD_BYTES;
use identity::sign_in::session::SignInProof;
use maud::{Markup, html};

use super::sign_in::attempt::hash_new_password;
use super::sign_in::completion::complete_sign_in;
use super::sign_in::destination::SignInDestination;
use super::sign_in::passkey_form::ask_after_password;
use super::texts::{as_sentence, fill, t};
use super::{cookie, csrf, error_page};
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::pages::frame::page;
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};

fn render_form(
    context: &RequestContext,
    browser: &str,
    (key, user): (&str, &User),
    notice: Option<&str>,
) -> Markup {
    let (described, invalid) =
        (notice.map_or("password-hint", |_| "notice password-hint"), notice.map(|_| "true"));
    let min_length = context.app.settings().passwords.min_length;
    page(
        t("Set a password"),
        &html! {
            @if let Some(notice) = notice { p #notice .error role="alert" { (notice) } }
            p { (fill("For the account {}. This link can be used once.", &[&user.username])) }
            form method="post" action=(PAGE_PATH) {
                (csrf::hidden_field(browser))
                input type="hidden" name="key" value=(key);
                // Password managers store the user name with the new password.
                input type="text" name="username" value=(user.username) autocomplete="username" hidden;
                label for="new" { (t("New password")) }
                input #new name="new" type="password" autocomplete="new-password" minlength=(min_length)
                    maxlength=(MAX_PASSWORD_BYTES) required autofocus aria-describedby=(described) aria-invalid=[invalid];
                p #password-hint .quiet { (fill("At least {} characters; several unrelated words are a good choice. All other sessions and apps are signed out by the change.", &[&min_length])) }
                button type="submit" { (t("Set the password and sign in")) }
            }
        },
    )
}

/// The address of the page is a secret, which other sites must not see.
fn without_referrer(response: Response) -> Response {
    reply::with_static(response, header::REFERRER_POLICY, "no-referrer")
}

fn ended() -> Response {
    let text =
        t("This link was used before, has expired or was replaced by a newer one. Ask for a new link.");
    without_referrer(error_page::error(StatusCode::NOT_FOUND, text))
}

/// Shows the form.
pub async fn show_form(context: &RequestContext) -> Result<Response, Problem> {
    let params = context.params();
    let key = params.get("key").unwrap_or_default();
    let Some(user) = context.app.identity.sign_in.user_of_one_time_link(key, context.now).await? else {
        return Ok(ended());
    };
    let (browser, set_cookie) = cookie::browser(context);
    let response = reply::html(StatusCode::OK, render_form(context, &browser, (key, &user), None));
    Ok(without_referrer(reply::no_store(cookie::set(response, set_cookie))))
}

/// Sets the password, and signs the user in. A passkey that is required is still asked for.
pub async fn submit_form(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    let form = csrf::read_form(context, body).await?;
    let (app, key) = (&context.app, form.get("key").unwrap_or_default());
    let sign_in = &app.identity.sign_in;
    // A hash is not computed for a link that has ended.
    let Some(user) = sign_in.user_of_one_time_link(key, context.now).await? else { return Ok(ended()) };
    let browser = context.cookies.browser.as_deref().unwrap_or_default();
    let again = |status: StatusCode, notice: &str| {
        let form = render_form(context, browser, (key, &user), Some(notice));
        without_referrer(reply::no_store(reply::html(status, form)))
    };
    let plain = form.get("new").unwrap_or_default();
    let phc = match hash_new_password(context, &user.username, plain).await {
        Some(Ok(phc)) => phc,
        Some(Err(error)) => return Ok(again(StatusCode::BAD_REQUEST, &as_sentence(&error.to_string()))),
        None => {
            let text = t("Too many people are signing in at this moment. Please try again.");
            let response = again(StatusCode::SERVICE_UNAVAILABLE, text);
            return Ok(reply::with(response, header::RETRY_AFTER, "5"));
        }
    };
    // The hash may have waited for its turn.
    let now = app.clock.now();
    let Some(user) = sign_in.redeem_one_time_link(key, &phc, now).await? else { return Ok(ended()) };
    let onward = SignInDestination { back: String::new(), link: None };
    if sign_in.requires_passkey(&user.sub, now).await? {
        return Ok(ask_after_password(context, &user, &onward).await?);
    }
    // A link that works once is a one-time password (RFC 8176 section 2).
    Ok(complete_sign_in(context, &user, &SignInProof::from_methods(&["otp"]), &onward).await?)
}
