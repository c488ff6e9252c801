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
//! | [`cookie`], [`csrf`] | cookies, and forms bound to a browser |
//! | [`health`] | liveness and readiness |

pub mod account;
pub mod consent;
pub mod cookie;
pub mod csrf;
pub mod device;
pub mod form_post;
pub mod health;
pub mod home;
pub mod passkey;
pub mod patient;
pub mod recovery;
pub mod resume;
mod scopes;
pub mod sign_in;
pub mod sign_out;

use http::{HeaderName, HeaderValue, StatusCode, header};
use identity::model::user::User;
use identity::sign_in::session::Session;
use maud::{DOCTYPE, Markup, html};
use store::StoreError;

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

fn frame(title: &str, content: &Markup, script: Option<&str>) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · Trefoil" }
                link rel="icon" href="data:,";
                link rel="stylesheet" href="/style.css";
                @if let Some(script) = script { script src=(script) defer {} }
            }
            body {
                header { a.brand href="/" { span.mark aria-hidden="true" { "☘" } "Trefoil" } }
                main {
                    h1 { (title) }
                    (content)
                }
            }
        }
    }
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
    let title = match status.as_u16() {
        404 => "Not found",
        405 => "Not supported",
        500.. => "Something went wrong",
        _ => "This request cannot be answered",
    };
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    let content = html! {
        p.error role="alert" { (first) (letters.as_str()) }
        p.quiet { "Status " (status.as_u16()) }
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

/// GET {base}/style.css
pub async fn style_sheet(_: &RequestContext) -> Result<Response, Problem> {
    let response = reply::body(StatusCode::OK, "text/css;charset=utf-8", include_str!("style.css"));
    Ok(reply::with(response, header::CACHE_CONTROL, "public, max-age=3600"))
}
