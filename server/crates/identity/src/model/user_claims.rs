//! The claims of a user that each scope grants access to (OpenID Connect Core sections 5.3 and 5.4).

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::model::members::GrantedClaims;
use crate::model::scope::{NamedScope, Scopes};
use crate::model::user::User;

/// The claims that a list of scopes grants access to. Claims without a value for the user are omitted.
#[derive(Debug, Serialize)]
pub struct UserClaims<'a> {
    /// Subject identifier.
    pub sub: &'a str,
    /// The claims of the scopes (see [`CLAIMS`](super::members::CLAIMS)).
    #[serde(flatten)]
    standard: GrantedClaims<'a>,
    /// URL of the FHIR resource that represents the user (SMART App Launch 2.2).
    #[serde(rename = "fhirUser", skip_serializing_if = "Option::is_none")]
    pub fhir_user: Option<String>,
    /// The claims that the operator has declared.
    #[serde(flatten)]
    pub declared: BTreeMap<String, Value>,
}

/// Returns the claims that the scopes grant access to: always `sub`, the standard claims of each scope, and
/// the URL of the user's FHIR resource with `fhirUser`. `declared` are the declared claims of the same
/// scopes.
pub fn claims_for_scopes<'a>(
    user: &'a User,
    scopes: &'a Scopes,
    declared: BTreeMap<String, Value>,
    fhir_base: &str,
) -> UserClaims<'a> {
    let fhir_user = user.fhir_user.as_deref().filter(|_| scopes.has(NamedScope::FhirUser));
    UserClaims {
        sub: &user.sub,
        standard: GrantedClaims { claims: &user.claims, scopes },
        fhir_user: fhir_user.map(|path| format!("{fhir_base}/{path}")),
        declared,
    }
}
