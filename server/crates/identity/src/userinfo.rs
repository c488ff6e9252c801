//! Claims of the signed-in user by scope (OpenID Connect Core 5.3, 5.4; DESIGN, userinfo).

use serde::Serialize;

use crate::scope::Scopes;
use crate::user::User;

/// The claims that some scopes open. Claims that the user does not have are left out.
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

/// What these scopes open: `openid` gives `sub`, `profile` the names, `email` and `phone` theirs, `fhirUser`
/// the address of the user's FHIR resource.
pub fn claims<'a>(user: &'a User, scopes: &Scopes, fhir_base: &str) -> UserClaims<'a> {
    let held = &user.claims;
    let mut claims = UserClaims { sub: &user.sub, ..UserClaims::default() };
    if scopes.has("profile") {
        claims.name = held.name.as_deref();
        claims.given_name = held.given_name.as_deref();
        claims.family_name = held.family_name.as_deref();
        claims.preferred_username = held.preferred_username.as_deref();
    }
    if scopes.has("email") {
        claims.email = held.email.as_deref();
        claims.email_verified = held.email_verified;
    }
    if scopes.has("phone") {
        claims.phone_number = held.phone_number.as_deref();
        claims.phone_number_verified = held.phone_number_verified;
    }
    if scopes.has("fhirUser") {
        claims.fhir_user = user.fhir_user.as_deref().map(|path| format!("{fhir_base}/{path}"));
    }
    claims
}
