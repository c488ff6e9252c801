//! Grants: the permissions behind authorization codes and refresh tokens (RFC 6749 sections 4.1 and 6; RFC
//! 9700 section 4.14).
//!
//! The ledger stores a code or refresh token under its SHA-256 digest and changes it by compare-and-set from
//! live to spent. All tokens from one sign-in with one client form a *family*. If a spent code or token is
//! used again, the whole family is revoked. The spent record is kept for the lifetime of the family.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::StoreError;

use crate::directory::provider_rules::SignedInBy;
use crate::model::client::{Client, GrantType};
use crate::model::scope::{NamedScope, Scopes};
use crate::model::user::User;
use crate::tokens::auth_time;

/// The permissions that a user has granted to a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Client id.
    pub client_id: String,
    /// Id of the client's registration (see [`Client::generation`]).
    pub generation: String,
    /// Subject of the user.
    pub sub: String,
    /// Granted scopes.
    pub scopes: Scopes,
    /// Time of the grant.
    pub granted: Timestamp,
    /// Time of the authentication, if it is known.
    #[serde(with = "auth_time")]
    pub auth_time: Option<Timestamp>,
    /// Authentication methods of the sign-in (RFC 8176).
    pub amr: Vec<String>,
    /// Name of the external provider that authenticated the user, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Id of the browser session.
    pub sid: String,
    /// Time at which the browser session ends at the latest.
    pub session_ends: Timestamp,
    /// Epoch of the user at sign-in.
    pub epoch: u64,
    /// `nonce` of the ID token.
    pub nonce: Option<String>,
    /// Id of the family of all codes and tokens from this grant.
    pub family: String,
    /// Id of the launch patient, whose data `patient/` scopes grant access to (SMART App Launch).
    pub patient: Option<String>,
    /// Id of the encounter of an EHR launch.
    pub encounter: Option<String>,
    /// `true` if the client must show who the launch patient is.
    pub need_patient_banner: bool,
    /// Thumbprint of the key that the tokens are bound to (RFC 9449), if any.
    pub jkt: Option<String>,
    /// The only audience of the access tokens, if the client has chosen one (RFC 8707).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Further resources of the launch context (SMART App Launch 2.2, `fhirContext`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fhir_context: Vec<Value>,
    /// The reason of the launch (SMART App Launch 2.2, `intent`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<String>,
}

/// Parameters of a token request that redeems an authorization code.
#[derive(Debug, Clone, Copy)]
pub struct CodeExchange<'a> {
    /// The authorization code.
    pub code: &'a str,
    /// Redirect URI, which must equal that of the authorization request.
    pub redirect_uri: &'a str,
    /// PKCE code verifier.
    pub verifier: Option<&'a str>,
    /// Thumbprint of the DPoP key that was proven with the request.
    pub jkt: Option<&'a str>,
    /// The only audience of the access token (RFC 8707).
    pub resource: Option<&'a str>,
}

/// Reasons why a code or refresh token is rejected. The client receives `invalid_grant` for all of them
/// except store errors.
#[derive(Debug, thiserror::Error)]
pub enum GrantError {
    /// The code or token is unknown or expired, or was issued to another client.
    #[error("the code or refresh token is unknown, expired or was issued to another client")]
    Unknown,
    /// The code or token was used before. Its family is revoked.
    #[error("the code or refresh token was used before; all tokens issued from it are revoked")]
    Reused,
    /// The redirect URI differs from that of the authorization request.
    #[error("redirect_uri differs from that of the authorization request")]
    RedirectUri,
    /// The code verifier is missing, does not match, or was sent although the request had no code challenge.
    #[error("code_verifier does not match the code_challenge of the authorization request")]
    Verifier,
    /// The code or token is bound to a key whose possession the client did not prove.
    #[error("the code or refresh token is bound to a key; send a DPoP proof signed by that key")]
    Key,
    /// The grant was revoked, or the user signed out, was disabled or deleted.
    #[error("the grant was revoked, or the user signed out")]
    Revoked,
    /// The client or the user lost the scope that allowed the refresh token.
    #[error("the client or the user may no longer have refresh tokens; start a new authorization request")]
    Withdrawn,
    /// The rights that a provider gave have ended, by their age or by the configuration.
    #[error("the rights that the user has from a provider have ended; start a new authorization request")]
    RightsEnded,
    /// The user may no longer access the launch patient.
    #[error("the user may no longer access the patient of this grant; start a new authorization request")]
    Patient,
    /// The resource differs from that of the authorization request. The client receives `invalid_target`.
    #[error("resource differs from that of the authorization request (RFC 8707)")]
    Resource,
    /// The requested scopes exceed the granted ones.
    #[error("scope exceeds the granted scopes")]
    Scope,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Grant {
    /// How the user signed in. Each own method has a value in `amr`, and a provider has none.
    pub fn signed_in_by(&self) -> SignedInBy<'_> {
        match &self.provider {
            Some(name) => SignedInBy::Provider(name),
            None if self.amr.is_empty() => SignedInBy::UnnamedProvider,
            None => SignedInBy::OwnMethod,
        }
    }

    /// Returns `true` if the client receives a refresh token for this grant.
    pub fn allows_refresh(&self, client: &Client) -> bool {
        allows_refresh(&self.scopes, client)
    }

    /// The time at which the refresh tokens end that are issued now for `lifetime`. With `online_access`
    /// (SMART App Launch 2.2) and without `offline_access`, they end with the session of the user.
    pub(super) fn end_of_refresh(&self, lifetime: SignedDuration, now: Timestamp) -> Timestamp {
        let ends = now + lifetime;
        let is_online =
            self.scopes.has(NamedScope::OnlineAccess) && !self.scopes.has(NamedScope::OfflineAccess);
        if is_online { ends.min(self.session_ends) } else { ends }
    }

    /// Narrows the audience of the access tokens to a resource (RFC 8707 section 2.2). Returns `false` if the
    /// grant is for another one.
    pub(super) fn narrow_to(&mut self, resource: Option<&str>) -> bool {
        match (&self.resource, resource) {
            (_, None) => true,
            (Some(resource), Some(requested)) => resource == requested,
            (None, Some(requested)) => {
                self.resource = Some(requested.to_owned());
                true
            }
        }
    }

    /// `true` if the grant was issued to this registration of the client.
    pub(super) fn belongs_to(&self, client: &Client) -> bool {
        self.client_id == client.client_id && self.generation == client.generation
    }
}

/// `true` if the client receives refresh tokens for these scopes.
pub(crate) fn allows_refresh(scopes: &Scopes, client: &Client) -> bool {
    client.grant_types.contains(&GrantType::RefreshToken)
        && (client.always_refresh
            || scopes.has(NamedScope::OfflineAccess)
            || scopes.has(NamedScope::OnlineAccess))
}

/// The granted scopes that the client and the user, if there is one, still have.
pub(crate) fn still_granted(scopes: &Scopes, client: &Client, user: Option<&User>) -> Scopes {
    scopes.covered_by(&client.scopes).filter(|scope| user.is_none_or(|user| user.may_grant(scope)))
}
