//! The claims of a user that each scope grants access to (OpenID Connect Core sections 5.3 and 5.4).

use serde::Serialize;

use crate::model::scope::Scopes;
use crate::model::user::User;

/// The claims that a list of scopes grants access to. Claims without a value for the user are omitted.
#[derive(Debug, Default, Serialize)]
#[expect(missing_docs, reason = "the names are those of OpenID Connect and of SMART App Launch")]
pub struct UserClaims<'a> {
    pub sub: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub given_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_username: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email_verified: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phone_number: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phone_number_verified: Option<bool>,
    #[serde(rename = "fhirUser", skip_serializing_if = "Option::is_none")]
    pub fhir_user: Option<String>,
}

/// Returns the claims that the scopes grant access to: always `sub`, the name claims with `profile`, the e-mail and
/// phone claims with `email` and `phone`, and the URL of the user's FHIR resource with `fhirUser`.
pub fn claims_for_scopes<'a>(user: &'a User, scopes: &Scopes, fhir_base: &str) -> UserClaims<'a> {
    let stored = &user.claims;
    let mut claims = UserClaims { sub: &user.sub, ..UserClaims::default() };
    if scopes.contains("profile") {
        claims.name = stored.name.as_deref();
        claims.given_name = stored.given_name.as_deref();
        claims.family_name = stored.family_name.as_deref();
        claims.preferred_username = stored.preferred_username.as_deref();
    }
    if scopes.contains("email") {
        claims.email = stored.email.as_deref();
        claims.email_verified = stored.email_verified;
    }
    if scopes.contains("phone") {
        claims.phone_number = stored.phone_number.as_deref();
        claims.phone_number_verified = stored.phone_number_verified;
    }
    if scopes.contains("fhirUser") {
        claims.fhir_user = user.fhir_user.as_deref().map(|path| format!("{fhir_base}/{path}"));
    }
    claims
}
