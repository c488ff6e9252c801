//! The HTML pages. They work without scripts (except for passkeys) and on small screens.
//!
//! | module | contents |
//! |---|---|
//! | [`home`] | description of the server |
//! | [`consent`], [`patient`] | consent, and the choice of a patient |
//! | [`sign_in`], [`passkey`], [`recovery`] | sign-in, and its completion |
//! | [`sign_out`], [`account`] | sign-out, and the user's account |
//! | [`form_post`] | the answer to a client by POST |
//! | [`device`] | the question whether a device gets access |
//! | [`resume`] | the destination after a sign-in |
//! | [`scopes`] | descriptions of scopes |
//! | [`frame`] | what surrounds the content of a page: name, logo, language |
//! | [`texts`] | the texts in all languages |
//! | [`cookie`], [`csrf`] | cookies, and forms bound to a browser |
//! | [`health`] | liveness and readiness |

pub mod account;
pub mod consent;
pub mod cookie;
pub mod csrf;
pub mod device;
pub mod form_post;
pub mod frame;
pub mod health;
pub mod home;
pub mod passkey;
pub mod patient;
pub mod recovery;
pub mod resume;
mod scopes;
pub mod sign_in;
pub mod sign_out;
pub mod texts;

use http::{HeaderName, HeaderValue, StatusCode, header};
use identity::model::user::User;
use identity::sign_in::session::Session;
use maud::{Markup, html};
use store::StoreError;

use self::frame::frame;
use self::texts::t;
use super::extract::RequestContext;
use super::problem::Problem;
use super::reply::{self, Response};

/// Maximum size of a form, in bytes.
const FORM_LIMIT: usize = 64 * 1024;

/// Returns a page.
fn page(title: &str, content: &Markup) -> Markup {
    frame(title, content, None)
}

/// Returns a page with the script for passkeys.
fn page_with_script(title: &str, content: &Markup) -> Markup {
    frame(title, content, Some("/passkey.js"))
}

/// Returns the session and the user of this browser.
///
/// # Errors
/// Returns [`StoreError`] if the session cannot be read.
async fn signed_in(context: &RequestContext) -> Result<Option<(Session, User)>, StoreError> {
    match cookie::session(context) {
        Some(value) => context.app.identity.sessions.active_session(value, context.now).await,
        None => Ok(None),
    }
}

/// Returns the address of the client, or an empty text.
fn address(context: &RequestContext) -> String {
    context.client_address.map(|peer| peer.to_string()).unwrap_or_default()
}

/// Returns an error page.
pub fn error(status: StatusCode, text: &str) -> Response {
    detailed_error(status, text, &[])
}

/// Returns an error page with details for the developers of the application.
pub fn detailed_error(status: StatusCode, text: &str, details: &[(&str, &str)]) -> Response {
    let title = match status.as_u16() {
        404 => t("Not found"),
        405 => t("Not supported"),
        500.. => t("Something went wrong"),
        _ => t("This request cannot be answered"),
    };
    let mut letters = t(text).chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    let content = html! {
        p.error role="alert" { (first) (letters.as_str()) }
        details {
            summary { (t("Details for developers")) }
            dl {
                dt { (t("Status")) } dd { (status.as_u16()) }
                @for (name, value) in details {
                    dt { (t(name)) } dd { @if value.is_empty() { (t("not sent")) } @else { code { (value) } } }
                }
                dt { (t("Request")) } dd { code { (frame::request_id()) } }
            }
        }
    };
    reply::no_store(reply::html(status, page(title, &content)))
}

/// Adds the headers of every page: no content from other hosts, no script except those for passkeys and for answers by POST, no frames, and
/// no referrer for other sites. (Without any referrer, browsers would also hide the origin of our own forms.)
///
/// `form-action` is left out because browsers apply it to the redirect to the client that follows the sign-in form.
pub fn with_page_headers(mut response: Response) -> Response {
    let headers = [
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'",
        ),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// GET {base}/style.css, with the configured colours.
pub async fn style_sheet(context: &RequestContext) -> Result<Response, Problem> {
    let text = format!("{}{}", include_str!("style.css"), context.app.settings().brand.colors);
    let response = reply::body(StatusCode::OK, "text/css;charset=utf-8", text);
    Ok(reply::with(response, header::CACHE_CONTROL, "public, max-age=3600"))
}

/// GET {base}/page.js
pub async fn page_script(_: &RequestContext) -> Result<Response, Problem> {
    let response = reply::body(StatusCode::OK, "text/javascript;charset=utf-8", include_str!("page.js"));
    Ok(reply::with(response, header::CACHE_CONTROL, "public, max-age=3600"))
}

/// GET {base}/logo
pub async fn logo(context: &RequestContext) -> Result<Response, Problem> {
    match &context.app.settings().brand.logo {
        Some(logo) => {
            let response = reply::body(StatusCode::OK, logo.media_type, logo.bytes.clone());
            Ok(reply::with(response, header::CACHE_CONTROL, "public, max-age=3600"))
        }
        None => Err(Problem::page(StatusCode::NOT_FOUND, "no logo is configured")),
    }
}
