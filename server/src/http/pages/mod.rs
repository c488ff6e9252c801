//! Pages for people: rendered here, work without script, look right on a phone.
//!
//! | module | what lives there |
//! |---|---|
//! | [`home`] | what this server is |
//! | [`sign_in`], [`sign_out`], [`account`] | sessions |
//! | [`consent`], [`patient`] | what an application gets, and whose |
//! | [`cookie`], [`csrf`] | what ties a form to a browser |
//! | [`health`] | for load balancers |

pub mod account;
pub mod consent;
pub mod cookie;
pub mod csrf;
pub mod health;
pub mod home;
pub mod patient;
pub mod sign_in;
pub mod sign_out;

use http::{HeaderName, HeaderValue, StatusCode, header};
use maud::{DOCTYPE, Markup, html};

use super::extract::Call;
use super::reply::{self, Response};

/// Largest form that is read, in bytes.
const FORM_LIMIT: usize = 64 * 1024;

/// The frame of every page.
fn page(title: &str, content: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " · Trefoil" }
                link rel="stylesheet" href="/style.css";
            }
            body {
                main {
                    header { span.mark aria-hidden="true" { "☘" } span.name { "Trefoil" } }
                    h1 { (title) }
                    (content)
                }
            }
        }
    }
}

/// An error page.
pub fn error(status: StatusCode, text: &str) -> Response {
    let title = match status.as_u16() {
        404 => "Not found",
        405 => "Not possible",
        500.. => "Something went wrong here",
        _ => "This request cannot be answered",
    };
    let content = html! {
        p.error role="alert" { (text) }
        p.quiet { "Status " (status.as_u16()) }
    };
    reply::no_store(reply::html(status, page(title, &content)))
}

/// Headers of every page: nothing from elsewhere, no frames, no referrer for other sites. (Without any
/// referrer browsers would also hide the origin of our own forms.)
///
/// `form-action` is left out on purpose: browsers apply it to the redirect to the client that
/// follows the sign-in form.
pub fn with_page_headers(mut response: Response) -> Response {
    let headers = [
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'self'; img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'",
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
