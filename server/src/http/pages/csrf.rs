//! Protection against cross-site request forgery: a form contains a digest of the browser cookie, and the
//! origin headers of the request must not contradict it.

use http::{StatusCode, header};
use identity::params::Params;
use maud::{Markup, html};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::http::extract::{RequestBody, RequestContext};
use crate::http::problem::Problem;

fn form_token(browser: &str) -> String {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    URL_SAFE_NO_PAD.encode(Sha256::digest(format!("trefoil form {browser}")))
}

/// The hidden field of a form.
pub fn hidden_field(browser: &str) -> Markup {
    html! { input type="hidden" name="csrf" value=(form_token(browser)); }
}

/// Reads a form that one of our pages sent from this browser.
///
/// # Errors
/// A page with the reason.
pub async fn read_form(context: &RequestContext, body: &mut RequestBody) -> Result<Params, Problem> {
    if context.content_type().as_deref() != Some("application/x-www-form-urlencoded") {
        return Err(Problem::page(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "The form must be sent as application/x-www-form-urlencoded.",
        ));
    }
    let body = body.bytes(FORM_LIMIT).await?;
    let form = Params::parse(&body);
    let browser = context.cookies.browser.as_deref().unwrap_or_default();
    let token = form.get("csrf").unwrap_or_default();
    let is_genuine =
        bool::from(token.as_bytes().ct_eq(form_token(browser).as_bytes())) && !browser.is_empty();
    let site = context.header("sec-fetch-site");
    let same_site = site.is_none_or(|site| matches!(site, "same-origin" | "none"));
    // Pages without a referrer send no origin, but still say that the form is ours.
    let is_hidden = |origin: &str| origin == "null" && site == Some("same-origin");
    let same_origin = context
        .header(header::ORIGIN)
        .is_none_or(|origin| origin == context.app.address.base_url || is_hidden(origin));
    if is_genuine && same_site && same_origin {
        Ok(form)
    } else {
        let text = "This form was not sent from our page in this browser. Allow cookies, go back, load the page again and repeat.";
        Err(Problem::page(StatusCode::FORBIDDEN, text))
    }
}

/// Maximum size of a form, in bytes.
pub(super) const FORM_LIMIT: usize = 64 * 1024;
