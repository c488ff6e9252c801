//! Forms that only our own pages can send: the form carries a digest of the browser's cookie, and
//! what the browser says of the request's origin must not speak against it.

use http::{StatusCode, header};
use identity::params::Params;
use maud::{Markup, html};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{FORM_LIMIT, cookie, error};
use crate::http::extract::Call;
use crate::http::problem::{self, Dialect};
use crate::http::reply::Response;

fn token(browser: &str) -> String {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    URL_SAFE_NO_PAD.encode(Sha256::digest(format!("trefoil form {browser}")))
}

/// The hidden field of a form.
pub fn field(browser: &str) -> Markup {
    html! { input type="hidden" name="csrf" value=(token(browser)); }
}

/// Reads a form that one of our pages sent from this browser.
///
/// # Errors
/// The page that says why not.
pub async fn form(call: &mut Call) -> Result<Params, Response> {
    if call.content_type().as_deref() != Some("application/x-www-form-urlencoded") {
        return Err(error(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "Forms are sent as application/x-www-form-urlencoded.",
        ));
    }
    let body = call.bytes(FORM_LIMIT).await.map_err(|e| problem::unreadable(Dialect::Page, &e))?;
    let form = Params::parse(&body);
    let browser = cookie::known_browser(call).unwrap_or_default();
    let sent = form.get("csrf").unwrap_or_default();
    let known = bool::from(sent.as_bytes().ct_eq(token(browser).as_bytes())) && !browser.is_empty();
    let same_site = call.header("sec-fetch-site").is_none_or(|site| matches!(site, "same-origin" | "none"));
    let same_origin = call.header(header::ORIGIN).is_none_or(|origin| origin == call.app.base_url);
    if known && same_site && same_origin {
        Ok(form)
    } else {
        let text = "This form was not sent from our page in this browser. Allow cookies, go back, load the page again and repeat.";
        Err(error(StatusCode::FORBIDDEN, text))
    }
}
