//! Access tokens (RFC 9068): their claims, and the resources that they grant access to.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::StoreError;

use crate::directory::provider_rules::SignedInBy;
use crate::model::scope::{ScopeContext, ScopePermissions, Scopes, SmartScope};
use crate::model::user::User;
use crate::tokens::dpop::{BadProof, ProofError};

/// Claims of an access token: those of RFC 9068 section 2.2, followed by claims of this server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are those of RFC 9068")]
pub struct AccessToken {
    pub iss: String,
    /// Subject of the user, or the client id for a token of the client itself.
    pub sub: String,
    /// The issuer if `openid` is granted, and the FHIR base URL if a SMART scope is granted.
    pub aud: Vec<String>,
    pub client_id: String,
    pub scope: String,
    /// Time of issue in seconds since 1970.
    pub iat: i64,
    /// Time of expiry in seconds since 1970.
    pub exp: i64,
    pub jti: String,
    /// Time of the authentication in seconds since 1970, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_time: Option<i64>,
    /// Authentication context class of the sign-in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acr: Option<String>,
    /// Name of the external provider that authenticated the user, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Id of the browser session whose end also ends the token. `None` with `offline_access`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sid: Option<String>,
    /// Id of the token family (see [`crate::tokens::grant`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// Epoch of the user at sign-in. `None` for tokens without a user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// Id of the client's registration (see [`crate::model::client::Client::generation`]).
    #[serde(default)]
    pub generation: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patient: Option<String>,
    /// Id of the encounter of an EHR launch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encounter: Option<String>,
    /// Key that the token is bound to (RFC 7800; RFC 9449 section 6.1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cnf: Option<KeyConfirmation>,
    /// Declared claims of the user. They are for other resource servers, and this server does not read them.
    #[serde(flatten, skip_deserializing)]
    pub claims: BTreeMap<String, Value>,
}

/// The claim `cnf`: the key whose possession the sender must prove.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyConfirmation {
    /// JWK thumbprint (RFC 7638).
    pub jkt: String,
}

impl AccessToken {
    /// How the user signed in.
    pub fn signed_in_by(&self) -> SignedInBy<'_> {
        self.provider.as_deref().map_or(SignedInBy::OwnMethod, SignedInBy::Provider)
    }

    /// Returns `true` if the token is intended for this audience.
    pub fn is_for_audience(&self, audience: &str) -> bool {
        self.aud.iter().any(|aud| aud == audience)
    }
}

/// A valid access token, with the client's and user's current permissions.
#[derive(Debug)]
pub struct TokenAccess {
    /// Claims of the token.
    pub token: Arc<AccessToken>,
    /// Scopes of the token that its client and its user still have.
    pub scopes: Scopes,
    /// User of the token. `None` for a token of the client itself.
    pub user: Option<User>,
}

/// The resources of one type that a token grants access to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResourceAccess<'a> {
    /// No resources.
    Nothing,
    /// Resources in the compartments of these patients.
    Patients(Vec<&'a str>),
    /// All resources, whether or not they are in a Patient compartment.
    All,
}

impl TokenAccess {
    /// Returns the access that everyone has without a token: these scopes for this audience, and no identity.
    pub fn of_everyone(audience: &str, scopes: Scopes) -> Self {
        let token = AccessToken { aud: vec![audience.to_owned()], ..AccessToken::default() };
        Self { token: Arc::new(token), scopes, user: None }
    }

    /// Returns the resources of a type on which the token grants these permissions. `system/` scopes grant
    /// access to all resources. `user/` scopes grant access to the resources that the user may access; for a
    /// patient or a carer, these are the compartments of the user's patients. `patient/` scopes grant access
    /// to the compartment of the launch patient, if the user may access it.
    pub fn resource_access(&self, kind: &str, permissions: ScopePermissions) -> ResourceAccess<'_> {
        let mut patients = Vec::new();
        for scope in self.scopes.smart_scopes().filter(|scope| scope.allows(kind, permissions)) {
            match (scope.context, &self.user) {
                (ScopeContext::System, _) => return ResourceAccess::All,
                (ScopeContext::User, Some(user)) => {
                    if user.allowed_scopes.allow_access(ScopeContext::User, kind, permissions) {
                        return ResourceAccess::All;
                    }
                    patients.extend(user.patients());
                }
                (ScopeContext::Patient, Some(user)) => {
                    patients.extend(self.token.patient.as_deref().filter(|id| user.may_see_patient(id)));
                }
                (ScopeContext::User | ScopeContext::Patient, None) => {}
            }
        }
        if patients.is_empty() { ResourceAccess::Nothing } else { ResourceAccess::Patients(patients) }
    }
}

/// The resources of one type that a granular scope grants access to: those that match its query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GranularAccess<'a> {
    /// Query of the scope.
    pub query: &'a str,
    /// Resources to which the query is applied.
    pub access: ResourceAccess<'a>,
}

impl TokenAccess {
    /// Returns what the granular scopes of the token grant, in addition to [`TokenAccess::resource_access`].
    pub fn granular_access(&self, kind: &str, permissions: ScopePermissions) -> Vec<GranularAccess<'_>> {
        let is_granted =
            |scope: &SmartScope<'_>| scope.kind == kind && scope.permissions.contains_all(permissions);
        let scopes = self.scopes.smart_scopes().filter(is_granted);
        let searches = scopes.filter_map(|scope| {
            let query = scope.query?;
            let patients = match (scope.context, &self.user) {
                (ScopeContext::System, _) => {
                    return Some(GranularAccess { query, access: ResourceAccess::All });
                }
                (ScopeContext::User, Some(user)) => {
                    if user.allowed_scopes.smart_scopes().any(|allowed| allowed.covers(&scope)) {
                        return Some(GranularAccess { query, access: ResourceAccess::All });
                    }
                    user.patients()
                }
                (ScopeContext::Patient, Some(user)) => {
                    self.token.patient.as_deref().filter(|id| user.may_see_patient(id)).into_iter().collect()
                }
                (ScopeContext::User | ScopeContext::Patient, None) => Vec::new(),
            };
            let access = ResourceAccess::Patients(patients);
            (access != ResourceAccess::Patients(Vec::new())).then_some(GranularAccess { query, access })
        });
        searches.collect()
    }
}

/// An access token and the request parameters that a DPoP proof must match.
#[derive(Debug, Clone, Copy)]
pub struct TokenCredentials<'a> {
    /// The access token as it was sent.
    pub token: &'a str,
    /// DPoP proof. `None` for `Authorization: Bearer`.
    pub proof: Option<&'a str>,
    /// Method of the request.
    pub method: &'a str,
    /// Path of the request as it was sent.
    pub path: &'a str,
}

/// Reasons why an access token is rejected. The caller receives `invalid_token`.
#[derive(Debug, thiserror::Error)]
pub enum BadToken {
    /// The token is not a JWS of this server.
    #[error("the access token is malformed or was not issued by this server")]
    Malformed,
    /// The token has expired.
    #[error("the access token is expired")]
    Expired,
    /// The token, its family or its session was revoked, or the consent was withdrawn.
    #[error("the access token is revoked")]
    Revoked,
    /// The client was deleted or is disabled.
    #[error("the client of the access token is deleted or disabled")]
    ClientGone,
    /// The user was deleted or disabled.
    #[error("the user of the access token is deleted or disabled")]
    UserGone,
    /// The user has signed out globally.
    #[error("the user of the access token has signed out globally")]
    SignedOut,
    /// The token is bound to a key but was sent as a bearer token.
    #[error("the access token is bound to a key; send it as 'Authorization: DPoP' with a proof")]
    NeedsProof,
    /// A bearer token was sent with a proof.
    #[error("the access token is not bound to a key; send it as 'Authorization: Bearer'")]
    NotBound,
    /// The proof is signed by another key.
    #[error("the proof is not signed by the key that the access token is bound to")]
    OtherKey,
    /// The proof is invalid.
    #[error("{0}")]
    Proof(BadProof),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<ProofError> for BadToken {
    fn from(error: ProofError) -> Self {
        match error {
            ProofError::Bad(error) => Self::Proof(error),
            ProofError::Store(error) => Self::Store(error),
        }
    }
}
