//! The HTML pages. They work without scripts (except for passkeys) and on small screens.
//!
//! | module | contents |
//! |---|---|
//! | [`home`] | description of the server |
//! | [`consent`], [`patient`], `patient_search` | consent, and the choice of a patient |
//! | [`sign_in`], [`passkey`], [`recovery`] | sign-in, and its completion |
//! | [`one_time_link`] | a new password for a user who has none, or has lost it |
//! | [`browser_session`] | the signed-in user of a browser |
//! | [`sign_out`], [`account`] | sign-out, and the user's account |
//! | [`console`] | the server as its administrators see it |
//! | [`form_post`] | the answer to a client by POST |
//! | [`device`] | the question whether a device gets access |
//! | [`resume`] | the destination after a sign-in |
//! | [`scopes`] | descriptions of scopes |
//! | [`frame`] | what surrounds the content of a page: name, logo, language |
//! | [`page_request`] | the request in which a page is rendered |
//! | [`texts`] | the texts in all languages |
//! | [`language`], [`language_choice`] | the language of a page, and its choice by the user |
//! | [`cookie`], [`csrf`] | cookies, and forms bound to a browser |
//! | [`health`] | liveness and readiness |
//! | [`error_page`] | the page of an error |

pub mod account;
pub mod browser_session;
pub mod consent;
pub mod console;
pub mod cookie;
pub mod csrf;
pub mod device;
pub mod error_page;
pub mod form_post;
pub mod frame;
pub mod health;
pub mod home;
pub mod language;
pub mod language_choice;
pub mod one_time_link;
pub mod page_request;
pub mod passkey;
pub mod patient;
mod patient_search;
pub mod recovery;
pub mod resume;
mod scopes;
pub mod sign_in;
pub mod sign_out;
pub mod texts;

use http::{HeaderValue, StatusCode, header};

use super::extract::RequestContext;
use super::problem::Problem;
use super::reply::{self, Response};

/// Adds the headers of every page: no content from other hosts, no script except those for passkeys and for
/// answers by POST, no frames, and no referrer for other sites. (Without any referrer, browsers would also
/// hide the origin of our own forms.)
///
/// `form-action` is left out because browsers apply it to the redirect to the client that follows the sign-in
/// form.
pub fn with_page_headers(mut response: Response) -> Response {
    let headers = [
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'",
        ),
        (header::X_FRAME_OPTIONS, "DENY"),
    ];
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    let referrer = HeaderValue::from_static("same-origin");
    response.headers_mut().entry(header::REFERRER_POLICY).or_insert(referrer);
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
