//! {base}/account: the page on which users manage their account. It is a list of sections, each with its forms.
//!
//! | module | contents |
//! |---|---|
//! | [`sessions`] | sessions, and ending them |
//! | [`passkeys`] | passkeys and recovery codes |
//! | [`password`] | the password |
//! | [`apps`] | applications with a consent |
//! | [`links`] | accounts at external providers |
//! | [`agent`] | a readable name of a browser |
//!
//! A change that adds a sign-in method requires a recent sign-in.

mod agent;
pub mod apps;
pub mod links;
pub mod passkeys;
pub mod password;
pub mod sessions;

use http::StatusCode;
use identity::model::user::User;
use identity::params::Params;
use identity::sign_in::session::Session;
use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};
use store::StoreError;

use super::texts::{phrase, t};
use super::{cookie, csrf, page_with_script};
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};

/// Maximum age of a sign-in for a change that adds a sign-in method.
const MAX_SIGN_IN_AGE: SignedDuration = SignedDuration::from_mins(15);

/// The signed-in user, the session and the browser.
struct AccountVisit {
    session: Session,
    user: User,
    browser: String,
}

impl AccountVisit {
    /// Returns a form of this page: a button and its fields.
    fn button(&self, action: &str, fields: &[(&str, &str)], label: &str, described: Option<&str>) -> Markup {
        html! {
            form method="post" action=(action) {
                (csrf::hidden_field(&self.browser))
                @for (name, value) in fields { input type="hidden" name=(name) value=(value); }
                button.second type="submit" aria-label=[described] { (label) }
            }
        }
    }
}

/// Returns a day and a time.
fn date_time(at: Timestamp) -> Markup {
    html! { time datetime=(at) { (at.strftime("%-d %b %Y, %H:%M UTC")) } }
}

/// Shows the page.
pub async fn show_account(context: &RequestContext) -> Result<Response, Problem> {
    let params = context.params();
    let notice = params.get("notice").and_then(confirmation);
    let Some((session, user)) = super::signed_in(context).await? else { return Ok(to_sign_in(context)) };
    let (browser, set_cookie) = cookie::browser(context);
    let visit = AccountVisit { session, user, browser };
    let response = render_account(context, &visit, StatusCode::OK, notice.map(AccountNotice::Done)).await?;
    Ok(cookie::set(response, set_cookie))
}

/// Returns the confirmation that the page shows after a change.
fn confirmation(key: &str) -> Option<&'static str> {
    Some(match key {
        "ended" => t("The session has ended, and with it the apps that were signed in from it."),
        "passkey" => t("The passkey was added. You can sign in with it from now on."),
        "removed" => t("The passkey was removed and no longer signs you in."),
        "password" => t("The password was changed. All other sessions and apps are signed out."),
        "linked" => t("The account was linked. You can sign in with it from now on."),
        "withdrawn" => t("Permission withdrawn. The application is signed out and must ask again."),
        "unlinked" => t("The link was removed."),
        "saved" => t("Saved."),
        _ => return None,
    })
}

enum AccountNotice<'a> {
    Done(&'a str),
    /// The error, and the field that it is about.
    Wrong(&'a str, Option<&'a str>),
}

async fn render_account(
    context: &RequestContext,
    visit: &AccountVisit,
    status: StatusCode,
    notice: Option<AccountNotice<'_>>,
) -> Result<Response, Problem> {
    let field = match notice {
        Some(AccountNotice::Wrong(_, field)) => field,
        Some(AccountNotice::Done(_)) | None => None,
    };
    let sections = sections(context, visit, field).await?;
    let name = visit.user.claims.name.as_deref().unwrap_or(&visit.user.username);
    let content = html! {
        @match notice {
            Some(AccountNotice::Done(text)) => p.done role="status" { (text) },
            Some(AccountNotice::Wrong(text, _)) => p #notice .error role="alert" { (t(text)) },
            None => {},
        }
        p { (phrase("Signed in as {} ({}).", &[html! { strong { (name) } }, html! { (visit.user.username) }])) }
        form method="post" action="/sign-out" {
            (csrf::hidden_field(&visit.browser))
            button type="submit" { (t("Sign out of this browser")) }
        }
        @for section in sections { section { (section) } }
    };
    Ok(reply::no_store(reply::html(status, page_with_script(t("Your account"), &content))))
}

/// Returns the sections of the page, in order. `wrong` is the field that an error is about.
async fn sections(
    context: &RequestContext,
    visit: &AccountVisit,
    wrong: Option<&str>,
) -> Result<Vec<Markup>, StoreError> {
    let mut sections = vec![
        sessions::section(context, visit).await?,
        passkeys::section(context, visit).await?,
        passkeys::recovery_section(context, visit).await?,
        password::section(visit, context.app.settings().passwords.min_length, wrong),
    ];
    sections.extend(apps::section(context, visit).await?);
    sections.extend(links::section(context, visit).await?);
    Ok(sections)
}

fn to_sign_in(context: &RequestContext) -> Response {
    reply::no_store(reply::redirect(StatusCode::SEE_OTHER, &format!("{}/sign-in", context.app.base_url)))
}

/// Reads a form of this page from a signed-in user.
async fn read_form(
    context: &RequestContext,
    body: &mut RequestBody,
) -> Result<(AccountVisit, Params), Problem> {
    let sent = csrf::read_form(context, body).await?;
    let browser = cookie::known_browser(context).unwrap_or_default().to_owned();
    match super::signed_in(context).await? {
        Some((session, user)) => Ok((AccountVisit { session, user, browser }, sent)),
        None => Err(to_sign_in(context).into()),
    }
}

/// Reads a form of this page from a user who signed in recently.
async fn read_fresh_form(
    context: &RequestContext,
    body: &mut RequestBody,
) -> Result<(AccountVisit, Params), Problem> {
    let (visit, sent) = read_form(context, body).await?;
    check_fresh(context, &visit)?;
    Ok((visit, sent))
}

/// Checks that the sign-in is recent enough for a change that adds a sign-in method.
fn check_fresh(context: &RequestContext, visit: &AccountVisit) -> Result<(), Problem> {
    if context.now <= visit.session.started + MAX_SIGN_IN_AGE {
        return Ok(());
    }
    let hint = form_urlencoded::Serializer::new(String::new())
        .append_pair("login_hint", &visit.user.username)
        .finish();
    let content = html! {
        p { (t("Sign in again for this change: it adds a way to sign in to your account, and your sign-in is more than 15 minutes old.")) }
        p { a.button href=(format!("/sign-in?{hint}")) { (t("Sign in again")) } }
        p { a href="/account" { (t("Back to your account")) } }
    };
    let page = super::page(t("Sign in again"), &content);
    Err(reply::no_store(reply::html(StatusCode::FORBIDDEN, page)).into())
}

/// Redirects to the page with a confirmation.
fn redirect_done(context: &RequestContext, notice: &str) -> Response {
    let to = format!("{}/account?notice={notice}", context.app.base_url);
    reply::no_store(reply::redirect(StatusCode::SEE_OTHER, &to))
}

/// Shows the page again with an error.
async fn show_error(
    context: &RequestContext,
    visit: &AccountVisit,
    status: StatusCode,
    text: &str,
) -> Result<Response, Problem> {
    render_account(context, visit, status, Some(AccountNotice::Wrong(text, None))).await
}
