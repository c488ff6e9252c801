//! The route with which a user chooses the language of the pages.

use http::{StatusCode, header};

use super::cookie;
use super::language::Language;
use crate::http::extract::RequestContext;
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};

/// GET {base}/language/{tag}: stores the choice of the user in a cookie and returns to the page with the
/// link.
pub async fn choose_language(context: &RequestContext, tag: String) -> Result<Response, Problem> {
    let Some(language) = Language::with_tag(&tag) else {
        return Err(Problem::page(StatusCode::NOT_FOUND, "This server has no pages in this language."));
    };
    // Our pages send their address to us only (Referrer-Policy); the address of another site is not followed.
    let home = format!("{}/", context.app.address.base_url);
    let page = context.header(header::REFERER).filter(|page| page.starts_with(&home)).unwrap_or(&home);
    let response = reply::no_store(reply::redirect(StatusCode::SEE_OTHER, page));
    Ok(cookie::set(response, Some(cookie::set_language(&context.app, language))))
}
