//! Well-known addresses that belong to no protocol: the page on which a password is changed (W3C, "A
//! Well-Known URL for Changing Passwords"), and the contact for faults of security (RFC 9116).

use http::{StatusCode, header};
use jiff::SignedDuration;

use super::extract::RequestContext;
use super::problem::Problem;
use super::reply::{self, Response};

/// Time for which the contact is valid (RFC 9116 section 2.5.5 recommends less than a year).
const CONTACT_LIFETIME: SignedDuration = SignedDuration::from_hours(24 * 90);

/// GET {base}/.well-known/change-password: password managers open it.
pub async fn change_password(context: &RequestContext) -> Result<Response, Problem> {
    let to = format!("{}/account", context.app.address.base_url);
    Ok(reply::no_store(reply::redirect(StatusCode::FOUND, &to)))
}

/// GET {base}/.well-known/security.txt, if a contact is configured.
pub async fn security_contact(context: &RequestContext) -> Result<Response, Problem> {
    let settings = context.app.settings();
    let Some(contact) = &settings.brand.security_contact else {
        return Err(Problem::page(
            StatusCode::NOT_FOUND,
            "no contact is configured ([pages] security_contact)",
        ));
    };
    let expires = fhir::instant::format(context.now + CONTACT_LIFETIME);
    let canonical = format!("{}/.well-known/security.txt", context.app.address.base_url);
    let text = format!(
        "Contact: {contact}\nExpires: {expires}\nCanonical: {canonical}\nPreferred-Languages: en, de\n"
    );
    let response = reply::body(StatusCode::OK, "text/plain;charset=utf-8", text);
    Ok(reply::with(response, header::CACHE_CONTROL, "public, max-age=86400"))
}
