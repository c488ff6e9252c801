//! {base}/account: what a person has here and can change. The page is a list of sections, each with the
//! forms that change it.
//!
//! | module | what lives there |
//! |---|---|
//! | [`sessions`] | where the user is signed in, and how to end that |
//! | [`passkeys`] | passkeys and recovery codes |
//! | [`password`] | the password |
//! | [`apps`] | applications that were allowed something |
//! | [`links`] | accounts at external providers |
//! | [`agent`] | a browser's name for people |
//!
//! What opens another way into the account is done only soon after a sign-in.

mod agent;
pub mod apps;
pub mod links;
pub mod passkeys;
pub mod password;
pub mod sessions;

use http::StatusCode;
use identity::params::Params;
use identity::session::Session;
use identity::user::User;
use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};
use store::StoreError;

use super::{cookie, csrf, page_with_script};
use crate::http::extract::Call;
use crate::http::problem::{self, Dialect};
use crate::http::reply::{self, Response};

/// How old a sign-in may be for changes that open another way into the account.
const FRESH: SignedDuration = SignedDuration::from_mins(15);

/// Who is signed in, in which browser.
struct Visit {
    session: Session,
    user: User,
    browser: String,
}

impl Visit {
    /// A form of this page: a button and what it sends.
    fn button(&self, action: &str, fields: &[(&str, &str)], label: &str, described: Option<&str>) -> Markup {
        html! {
            form method="post" action=(action) {
                (csrf::field(&self.browser))
                @for (name, value) in fields { input type="hidden" name=(name) value=(value); }
                button.second type="submit" aria-label=[described] { (label) }
            }
        }
    }
}

/// A day and a time as people read it.
fn when(at: Timestamp) -> Markup {
    html! { time datetime=(at) { (at.strftime("%-d %b %Y, %H:%M UTC")) } }
}

/// The page.
pub async fn get(call: Call) -> Response {
    let params = call.params();
    let said = params.get("said").and_then(said);
    let visit = match super::signed_in(&call).await {
        Ok(Some((session, user))) => (session, user),
        Ok(None) => return to_sign_in(&call),
        Err(error) => return problem::store(Dialect::Page, &error),
    };
    let (browser, set_cookie) = cookie::browser(&call);
    let visit = Visit { session: visit.0, user: visit.1, browser };
    let response = render(&call, &visit, StatusCode::OK, said.map(Said::Done)).await;
    cookie::set(response, set_cookie)
}

/// What a change is answered with: the page once more, and a word about it.
fn said(key: &str) -> Option<&'static str> {
    Some(match key {
        "ended" => "The session has ended, and with it the apps that were signed in from it.",
        "passkey" => "The passkey was added. You can sign in with it from now on.",
        "removed" => "The passkey was removed. It signs nobody in any more.",
        "password" => "The password was changed. All other sessions and apps are signed out.",
        "linked" => "The account was linked. You can sign in with it from now on.",
        "withdrawn" => "Taken back. The application is signed out and has to ask again.",
        "unlinked" => "The link was removed.",
        "saved" => "Saved.",
        _ => return None,
    })
}

enum Said<'a> {
    Done(&'a str),
    /// What is wrong, and the field that it is about.
    Wrong(&'a str, Option<&'a str>),
}

async fn render(call: &Call, visit: &Visit, status: StatusCode, said: Option<Said<'_>>) -> Response {
    let field = match said {
        Some(Said::Wrong(_, field)) => field,
        Some(Said::Done(_)) | None => None,
    };
    match sections(call, visit, field).await {
        Ok(sections) => {
            let name = visit.user.claims.name.as_deref().unwrap_or(&visit.user.username);
            let content = html! {
                @match said {
                    Some(Said::Done(text)) => p.done role="status" { (text) },
                    Some(Said::Wrong(text, _)) => p #said .error role="alert" { (text) },
                    None => {},
                }
                p { "Signed in as " strong { (name) } " (" (visit.user.username) ")." }
                form method="post" action="/sign-out" {
                    (csrf::field(&visit.browser))
                    button type="submit" { "Sign out of this browser" }
                }
                @for section in sections { section { (section) } }
            };
            reply::no_store(reply::html(status, page_with_script("Your account", &content)))
        }
        Err(error) => problem::store(Dialect::Page, &error),
    }
}

/// The sections of the page, in order. `wrong` is the field that an error is about.
async fn sections(call: &Call, visit: &Visit, wrong: Option<&str>) -> Result<Vec<Markup>, StoreError> {
    let mut sections = vec![
        sessions::section(call, visit).await?,
        passkeys::section(call, visit).await?,
        passkeys::recovery_section(call, visit).await?,
        password::section(visit, call.app.settings().passwords.min_length, wrong),
    ];
    sections.extend(apps::section(call, visit).await?);
    sections.extend(links::section(call, visit).await?);
    Ok(sections)
}

fn to_sign_in(call: &Call) -> Response {
    reply::no_store(reply::redirect(StatusCode::SEE_OTHER, &format!("{}/sign-in", call.app.base_url)))
}

/// A form of this page, from somebody who is signed in.
async fn begin(call: &mut Call) -> Result<(Visit, Params), Response> {
    let sent = csrf::form(call).await?;
    let browser = cookie::known_browser(call).unwrap_or_default().to_owned();
    match super::signed_in(call).await {
        Ok(Some((session, user))) => Ok((Visit { session, user, browser }, sent)),
        Ok(None) => Err(to_sign_in(call)),
        Err(error) => Err(problem::store(Dialect::Page, &error)),
    }
}

/// The same, and the sign-in is not long ago.
async fn begin_fresh(call: &mut Call) -> Result<(Visit, Params), Response> {
    let (visit, sent) = begin(call).await?;
    is_fresh(call, &visit)?;
    Ok((visit, sent))
}

/// Is the sign-in recent enough for what opens another way into the account?
fn is_fresh(call: &Call, visit: &Visit) -> Result<(), Response> {
    if call.now <= visit.session.auth_time + FRESH {
        return Ok(());
    }
    let hint = form_urlencoded::Serializer::new(String::new())
        .append_pair("login_hint", &visit.user.username)
        .finish();
    let content = html! {
        p { "For this change you sign in once more: it opens another way into your account, and your "
            "sign-in is more than 15 minutes old." }
        p { a.button href=(format!("/sign-in?{hint}")) { "Sign in again" } }
        p { a href="/account" { "Back to your account" } }
    };
    Err(reply::no_store(reply::html(StatusCode::FORBIDDEN, super::page("Sign in again", &content))))
}

/// Back to the page, which says what was done.
fn done(call: &Call, said: &str) -> Response {
    let to = format!("{}/account?said={said}", call.app.base_url);
    reply::no_store(reply::redirect(StatusCode::SEE_OTHER, &to))
}

/// The page once more, which says what was wrong.
async fn wrong(call: &Call, visit: &Visit, status: StatusCode, text: &str) -> Response {
    render(call, visit, status, Some(Said::Wrong(text, None))).await
}
