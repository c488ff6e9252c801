//! {base}/device: a person says yes or no to a device that shows a code (RFC 8628 3.3).
//!
//! Nobody is asked before they have signed in, and nothing is granted before they have compared the code
//! and pressed a button (RFC 8628 5.4). Guessing codes is made slow by user and by address.

use http::StatusCode;
use identity::device::Question;
use identity::params::Params;
use identity::session::Session;
use identity::throttle::Outcome;
use identity::user::User;
use maud::html;
use store::StoreError;

use super::sign_in::{self, Onward};
use super::{cookie, csrf, page, resume, scopes};
use crate::http::extract::Call;
use crate::http::problem::{self, Dialect};
use crate::http::reply::{self, Response};

const UNKNOWN: &str =
    "This code is not known here, has expired, or was answered already. Look at your device once more.";

/// Shows the form for the code, or, where the address carries one, the question.
pub async fn get(call: Call) -> Response {
    let params = call.params();
    let code = params.get("user_code").unwrap_or_default();
    let answered = async {
        match super::signed_in(&call).await? {
            None => {
                let onward = Onward { back: resume::device(code), link: None };
                let to = format!("{}{}", call.app.base_url, onward.at("/sign-in"));
                Ok(reply::no_store(reply::redirect(StatusCode::SEE_OTHER, &to)))
            }
            Some(_) if code.is_empty() => Ok(enter(&call, StatusCode::OK, "", None)),
            Some((_, user)) => Ok(match question(&call, code, &user).await? {
                Ok(question) => ask(&call, &question, &user),
                Err(response) => response,
            }),
        }
    };
    answered.await.unwrap_or_else(|error| problem::store(Dialect::Page, &error))
}

/// Takes the code, or the answer.
pub async fn post(mut call: Call) -> Response {
    let sent = match csrf::form(&mut call).await {
        Ok(sent) => sent,
        Err(response) => return response,
    };
    answer(&call, &sent).await.unwrap_or_else(|error| problem::store(Dialect::Page, &error))
}

async fn answer(call: &Call, sent: &Params) -> Result<Response, StoreError> {
    let code = sent.get("user_code").unwrap_or_default();
    let Some((session, user)) = super::signed_in(call).await? else {
        let onward = Onward { back: resume::device(code), link: None };
        let to = format!("{}{}", call.app.base_url, onward.at("/sign-in"));
        return Ok(reply::no_store(reply::redirect(StatusCode::SEE_OTHER, &to)));
    };
    let question = match question(call, code, &user).await? {
        Ok(question) => question,
        Err(response) => return Ok(response),
    };
    match sent.get("answer") {
        None => Ok(ask(call, &question, &user)),
        Some("allow") if !question.scopes.is_empty() => decide(call, &question, true, &session, &user).await,
        Some("deny") => decide(call, &question, false, &session, &user).await,
        Some(_) => Ok(super::error(StatusCode::BAD_REQUEST, "The answer is either yes or no.")),
    }
}

/// What is asked under this code; or the page that says that it is not known, or to wait.
async fn question(call: &Call, code: &str, user: &User) -> Result<Result<Question, Response>, StoreError> {
    let identity = &call.app.identity;
    let address = super::address(call);
    let attempt = match identity.attempt_guess("user-code", &user.sub, &address, call.now).await? {
        Ok(attempt) => attempt,
        Err(wait) => {
            let (text, with_header) = sign_in::too_often(wait);
            return Ok(Err(with_header(enter(call, StatusCode::TOO_MANY_REQUESTS, code, Some(&text)))));
        }
    };
    let question = identity.device_question(code, user, call.now).await?;
    let outcome = if question.is_some() { Outcome::Right } else { Outcome::Wrong };
    identity.settle(attempt, outcome, call.now).await?;
    Ok(question.ok_or_else(|| enter(call, StatusCode::BAD_REQUEST, code, Some(UNKNOWN))))
}

fn enter(call: &Call, status: StatusCode, code: &str, said: Option<&str>) -> Response {
    let (browser, set_cookie) = cookie::browser(call);
    let described = if said.is_some() { "said hint" } else { "hint" };
    let content = html! {
        @if let Some(said) = said { p #said .error role="alert" { (said) } }
        form method="post" action="/device" {
            (csrf::field(&browser))
            label for="user_code" { "Code" }
            input #user_code .code name="user_code" autocomplete="off" autocapitalize="characters" spellcheck="false"
                maxlength="20" required value=(code) autofocus aria-describedby=(described);
            p #hint .quiet { "Eight letters, such as BCDF-GHJK, that your device shows." }
            button type="submit" { "Continue" }
        }
    };
    let response = reply::html(status, page("Connect a device", &content));
    reply::no_store(cookie::set(response, set_cookie))
}

fn ask(call: &Call, question: &Question, user: &User) -> Response {
    let (browser, set_cookie) = cookie::browser(call);
    let name = user.claims.name.as_deref().unwrap_or(&user.username);
    let content = html! {
        p { "Does your device show this code?" }
        p.code { (question.user_code) }
        @if question.scopes.is_empty() {
            p.error role="alert" { "You cannot grant any of what this device asks for." }
        } @else {
            p { strong { (question.client.name) } " asks to act for you, " strong { (name) } ", and to:" }
            (scopes::list(call, &question.scopes))
        }
        p.quiet { "Say yes only if you began this yourself, on a device that is in front of you. "
            "Whoever sent you a code or a link would get in with your account." }
        form method="post" action="/device" {
            (csrf::field(&browser))
            input type="hidden" name="user_code" value=(question.user_code);
            div.choice {
                @if !question.scopes.is_empty() {
                    button type="submit" name="answer" value="allow" { "Yes, connect it" }
                }
                button.second type="submit" name="answer" value="deny" { "No" }
            }
        }
    };
    let response = reply::html(StatusCode::OK, page("Connect a device", &content));
    reply::no_store(cookie::set(response, set_cookie))
}

async fn decide(
    call: &Call,
    question: &Question,
    allow: bool,
    session: &Session,
    user: &User,
) -> Result<Response, StoreError> {
    let code = &question.user_code;
    if !call.app.identity.answer_device(code, allow, session, user, call.now).await? {
        return Ok(enter(call, StatusCode::BAD_REQUEST, code, Some(UNKNOWN)));
    }
    let (title, text) = if allow {
        ("Device connected", "Go back to your device. It goes on by itself in a few seconds.")
    } else {
        ("Device refused", "The device was told no. You can close this page.")
    };
    Ok(reply::no_store(reply::html(StatusCode::OK, page(title, &html! { p { (text) } }))))
}
