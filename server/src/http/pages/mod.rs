//! Pages for people: rendered here, work without script, look right on a phone.
//!
//! | module | what lives there |
//! |---|---|
//! | [`home`] | what this server is |
//! | [`consent`], [`patient`] | what an application gets, and whose |
//! | [`sign_in`], [`passkey`], [`recovery`] | the ways in; how each of them ends |
//! | [`sign_out`], [`account`] | the way out, and what a person can change |
//! | [`device`] | yes or no to a device without a browser |
//! | [`resume`] | where the browser goes on after a sign-in |
//! | [`scopes`] | scopes in words |
//! | [`cookie`], [`csrf`] | what ties a form to a browser |
//! | [`health`] | for load balancers |

pub mod account;
pub mod consent;
pub mod cookie;
pub mod csrf;
pub mod device;
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
use identity::session::Session;
use identity::user::User;
use maud::{DOCTYPE, Markup, html};
use store::StoreError;

use super::extract::Call;
use super::reply::{self, Response};

/// Largest form that is read, in bytes.
const FORM_LIMIT: usize = 64 * 1024;

/// The frame of every page.
fn page(title: &str, content: &Markup) -> Markup {
    frame(title, content, false)
}

/// The frame of a page that has forms for passkeys.
fn page_with_script(title: &str, content: &Markup) -> Markup {
    frame(title, content, true)
}

fn frame(title: &str, content: &Markup, script: bool) -> Markup {
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
                @if script { script src="/passkey.js" defer {} }
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

/// Who is signed in in this browser.
///
/// # Errors
/// The store's.
async fn signed_in(call: &Call) -> Result<Option<(Session, User)>, StoreError> {
    match cookie::session(call) {
        Some(value) => call.app.identity.session(value, call.now).await,
        None => Ok(None),
    }
}

/// The address that somebody comes from.
fn address(call: &Call) -> String {
    call.client_ip.map(|peer| peer.to_string()).unwrap_or_default()
}

/// An error page.
pub fn error(status: StatusCode, text: &str) -> Response {
    let title = match status.as_u16() {
        404 => "Not found",
        405 => "Not possible",
        500.. => "Something went wrong here",
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

/// Headers of every page: nothing from elsewhere and no script but the one for passkeys, no frames, no referrer for other sites. (Without any
/// referrer browsers would also hide the origin of our own forms.)
///
/// `form-action` is left out on purpose: browsers apply it to the redirect to the client that
/// follows the sign-in form.
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
pub async fn style(_: Call) -> Response {
    let response = reply::body(StatusCode::OK, "text/css;charset=utf-8", include_str!("style.css"));
    reply::with(response, header::CACHE_CONTROL, "public, max-age=3600")
}
