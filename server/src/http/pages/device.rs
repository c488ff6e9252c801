//! {base}/device: the user allows or denies access for a device that shows a code (RFC 8628 section 3.3).
//!
//! The page requires a sign-in, and access requires that the user compares the code and presses a button (RFC
//! 8628 section 5.4). Attempts with wrong codes are limited by user and by address.

use http::StatusCode;
use identity::authorize::device::DeviceQuestion;
use identity::model::user::User;
use identity::sign_in::session::Session;
use identity::sign_in::throttle::AttemptResult;
use maud::html;

use super::frame::page;
use super::sign_in::destination::SignInDestination;
use super::texts::{phrase, t};
use super::{cookie, csrf, resume, scopes};
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::pages::browser_session::signed_in;
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};

const UNKNOWN: &str = "This code is unknown, has expired or was already used. Check the code on your device.";

/// Shows the form for the code or, if the address contains one, the question.
pub async fn show_form(context: &RequestContext) -> Result<Response, Problem> {
    let params = context.params();
    let code = params.get("user_code").unwrap_or_default();
    let Some((_, user)) = signed_in(context).await? else { return Ok(to_sign_in(context, code)) };
    if code.is_empty() {
        return Ok(code_form(context, StatusCode::OK, "", None));
    }
    let question = find_question(context, code, &user).await?;
    Ok(question_page(context, &question, &user))
}

/// Redirects to the sign-in, which returns to this page.
fn to_sign_in(context: &RequestContext, code: &str) -> Response {
    let onward = SignInDestination { back: resume::device_destination(code), link: None };
    let to = format!("{}{}", context.app.address.base_url, onward.at("/sign-in"));
    reply::no_store(reply::redirect(StatusCode::SEE_OTHER, &to))
}

/// Processes the code or the answer.
pub async fn submit_form(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    let form = csrf::read_form(context, body).await?;
    let code = form.get("user_code").unwrap_or_default();
    let Some((session, user)) = signed_in(context).await? else {
        return Ok(to_sign_in(context, code));
    };
    let question = find_question(context, code, &user).await?;
    match form.get("answer") {
        None => Ok(question_page(context, &question, &user)),
        Some("allow") if !question.scopes.is_empty() => {
            record_answer(context, &question, true, &session, &user).await
        }
        Some("deny") => record_answer(context, &question, false, &session, &user).await,
        Some(_) => Err(Problem::page(StatusCode::BAD_REQUEST, "The answer must be yes or no.")),
    }
}

/// The question for this code.
///
/// # Errors
/// A page that says that the code is unknown or that the user must wait.
async fn find_question(context: &RequestContext, code: &str, user: &User) -> Result<DeviceQuestion, Problem> {
    let identity = &context.app.identity;
    let address = context.address_text();
    let attempt = match identity.throttle.begin_guess("user-code", &user.sub, &address, context.now).await? {
        Ok(attempt) => attempt,
        Err(wait) => {
            let (text, with_header) = super::sign_in::attempt::lockout_response(wait);
            let form = code_form(context, StatusCode::TOO_MANY_REQUESTS, code, Some(&text));
            return Err(with_header(form).into());
        }
    };
    let question = identity.devices.device_question(code, user, context.now).await?;
    let outcome = if question.is_some() { AttemptResult::Success } else { AttemptResult::Failure };
    identity.throttle.settle_attempt(attempt, outcome, context.now).await?;
    question.ok_or_else(|| code_form(context, StatusCode::BAD_REQUEST, code, Some(UNKNOWN)).into())
}

fn code_form(context: &RequestContext, status: StatusCode, code: &str, notice: Option<&str>) -> Response {
    let (browser, set_cookie) = cookie::browser(context);
    let described = if notice.is_some() { "notice hint" } else { "hint" };
    let content = html! {
        @if let Some(notice) = notice { p #notice .error role="alert" { (t(notice)) } }
        p { (t("A device or a program without a browser shows a code. Enter it here, to use your account there.")) }
        form method="post" action="/device" {
            (csrf::hidden_field(&browser))
            label for="user_code" { (t("Code")) }
            input #user_code .code name="user_code" autocomplete="off" autocapitalize="characters" spellcheck="false"
                maxlength="20" required value=(code) autofocus aria-describedby=(described);
            p #hint .quiet { (t("Eight letters, such as BCDF-GHJK, that your device shows.")) }
            button type="submit" { (t("Continue")) }
        }
    };
    let response = reply::html(status, page(t("Connect a device"), &content));
    reply::no_store(cookie::set(response, set_cookie))
}

fn question_page(context: &RequestContext, question: &DeviceQuestion, user: &User) -> Response {
    let (browser, set_cookie) = cookie::browser(context);
    let name = user.claims.name.as_deref().unwrap_or(&user.username);
    let content = html! {
        p { (t("Does your device show this code?")) }
        p.code { (question.user_code) }
        @if question.scopes.is_empty() {
            p.error role="alert" { (t("You cannot grant any of the access that this device requests.")) }
        } @else {
            @let names = [html! { strong { (question.client.name) } }, html! { strong { (name) } }];
            p { (phrase("{} asks to act for you, {}, and to:", &names)) }
            (scopes::list(context, &question.scopes))
        }
        p.quiet { (t("Say yes only if you started this yourself, on a device that is in front of you. Anyone who sent you a code or a link would get access to your account.")) }
        form method="post" action="/device" {
            (csrf::hidden_field(&browser))
            input type="hidden" name="user_code" value=(question.user_code);
            div.choice {
                @if !question.scopes.is_empty() {
                    button type="submit" name="answer" value="allow" { (t("Yes, connect it")) }
                }
                button.second type="submit" name="answer" value="deny" { (t("No")) }
            }
        }
    };
    let response = reply::html(StatusCode::OK, page(t("Connect a device"), &content));
    reply::no_store(cookie::set(response, set_cookie))
}

async fn record_answer(
    context: &RequestContext,
    question: &DeviceQuestion,
    allow: bool,
    session: &Session,
    user: &User,
) -> Result<Response, Problem> {
    let code = &question.user_code;
    if !context.app.identity.devices.answer_device_question(code, allow, session, user, context.now).await? {
        return Ok(code_form(context, StatusCode::BAD_REQUEST, code, Some(UNKNOWN)));
    }
    let (title, text) = if allow {
        (t("Device connected"), t("Return to your device. It continues automatically in a few seconds."))
    } else {
        (t("Access denied"), t("Access for the device was denied. You can close this page."))
    };
    Ok(reply::no_store(reply::html(StatusCode::OK, page(title, &html! { p { (text) } }))))
}
