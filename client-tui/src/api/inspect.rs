//! Inspection of tokens: header, claims, and whether the signature matches a key of the server.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::jwk::{Jwk, JwkSet};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use oauth2::TokenResponse as _;
use serde::Serialize;
use serde_json::{Map, Value};

use super::token_kind::TokenKind;
use super::{Api, ApiError, Introspection};

/// A token without its signature, so that it is not a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TokenInspection {
    pub kind: TokenKind,
    /// Header and claims; `None` if the token is not a JWT.
    pub content: Option<TokenContent>,
    pub signature: SignatureStatus,
    /// Answer of the server about the token; `None` if it was not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub introspection: Option<Introspection>,
    /// Requested scopes, separated by spaces, if they are known.
    pub requested_scope: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TokenContent {
    pub header: Map<String, Value>,
    pub claims: Map<String, Value>,
}

/// Result of the check of a signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "status", content = "reason")]
pub enum SignatureStatus {
    /// The signature matches a key in the key set of the server.
    Valid,
    /// The signature does not match; the value is the reason.
    Invalid(String),
    /// The signature could not be checked; the value is the reason.
    Unknown(String),
}

impl TokenInspection {
    /// Decodes a token without a server, so that its signature is not checked.
    pub fn decode(token: &str) -> Self {
        let reason = "no server was named, for example by --profile".to_owned();
        Self {
            kind: TokenKind::Given,
            content: parse(token),
            signature: SignatureStatus::Unknown(reason),
            introspection: None,
            requested_scope: None,
        }
    }

    /// The granted scopes, separated by spaces: from the token, or else from the answer of the server.
    pub fn granted_scope(&self) -> &str {
        let claims = self.content.as_ref().map(|content| &content.claims);
        let members = match &self.introspection {
            Some(Introspection::Active { members, .. }) => Some(members),
            _ => None,
        };
        let scope =
            [claims, members].into_iter().flatten().find_map(|members| members.get("scope")?.as_str());
        scope.unwrap_or_default()
    }
}

impl Api {
    /// A token of this session, with the scope that was requested for it if that is known.
    ///
    /// # Errors
    /// The error of the request for the token, or [`ApiError::NotSignedIn`].
    pub async fn token_of_kind(&self, kind: TokenKind) -> Result<(String, Option<String>), ApiError> {
        let user = self.user_tokens().await.clone();
        match (kind, user) {
            (TokenKind::BackendAccess, _) => {
                Ok((self.backend_token().await?, Some(self.profile().backend_scope.clone())))
            }
            (TokenKind::UserAccess, Some(user)) => {
                Ok((user.answer.access_token().secret().clone(), Some(user.session.requested_scope)))
            }
            (TokenKind::Id, Some(user)) => {
                let id_token = user.answer.extra_fields().id_token.clone();
                let missing =
                    || ApiError::SignIn("there is no ID token: the scope openid was not granted".to_owned());
                Ok((id_token.ok_or_else(missing)?, None))
            }
            (TokenKind::UserAccess | TokenKind::Id | TokenKind::Given, _) => Err(ApiError::NotSignedIn),
        }
    }

    /// Inspects a token of this process. With `introspect`, the server is asked about it.
    ///
    /// # Errors
    /// The error of the request for the token, or [`ApiError::NotSignedIn`].
    pub async fn inspect(&self, kind: TokenKind, introspect: bool) -> Result<TokenInspection, ApiError> {
        let (token, requested_scope) = self.token_of_kind(kind).await?;
        Ok(self.inspect_token(kind, &token, requested_scope, introspect).await)
    }

    /// Inspects a token that the user supplied.
    pub async fn inspect_given(&self, token: &str, introspect: bool) -> TokenInspection {
        self.inspect_token(TokenKind::Given, token, None, introspect).await
    }

    async fn inspect_token(
        &self,
        kind: TokenKind,
        token: &str,
        requested_scope: Option<String>,
        introspect: bool,
    ) -> TokenInspection {
        let content = parse(token);
        let signature = match &content {
            None => {
                SignatureStatus::Unknown("the token is not a JWT; only the server can read it".to_owned())
            }
            Some(content) => match self.key_set().await {
                Ok(keys) => check_signature(token, &content.header, &keys),
                Err(error) => SignatureStatus::Unknown(format!("the key set is not available: {error}")),
            },
        };
        let introspection = if introspect { Some(self.introspect(kind, token).await) } else { None };
        TokenInspection { kind, content, signature, introspection, requested_scope }
    }

    /// Reads the key set of the server (RFC 7517).
    ///
    /// # Errors
    /// The error of the request.
    pub async fn key_set(&self) -> Result<JwkSet, ApiError> {
        let url = &self.openid().await?.jwks_uri;
        if url.is_empty() {
            let reason = "jwks_uri is missing in the discovery document".to_owned();
            return Err(ApiError::Unexpected { url: self.profile().base_url.clone(), reason });
        }
        self.call(self.http().get(url)).await?.json(url)
    }
}

/// Decodes header and claims of a JWT.
fn parse(token: &str) -> Option<TokenContent> {
    let mut parts = token.split('.');
    let mut object = || serde_json::from_slice(&URL_SAFE_NO_PAD.decode(parts.next()?).ok()?).ok();
    Some(TokenContent { header: object()?, claims: object()? })
}

fn check_signature(token: &str, header: &Map<String, Value>, keys: &JwkSet) -> SignatureStatus {
    let text = |name: &str| header.get(name).and_then(Value::as_str).unwrap_or_default();
    let Ok(algorithm) = text("alg").parse::<Algorithm>() else {
        return SignatureStatus::Unknown(format!("the algorithm '{}' is not supported here", text("alg")));
    };
    let kid = header.get("kid").and_then(Value::as_str);
    let matches_kid = |key: &&Jwk| kid.is_none() || key.common.key_id.as_deref() == kid;
    let candidates: Vec<_> = keys.keys.iter().filter(matches_kid).collect();
    if candidates.is_empty() {
        let kid = kid.unwrap_or_default();
        return SignatureStatus::Invalid(format!("the key set of the server has no key '{kid}'"));
    }
    let mut validation = Validation::new(algorithm);
    // Only the signature is checked here; the claims are shown.
    validation.validate_exp = false;
    validation.validate_aud = false;
    validation.required_spec_claims.clear();
    let verifies = |key: &Jwk| {
        let key = DecodingKey::from_jwk(key).ok()?;
        jsonwebtoken::decode::<Map<String, Value>>(token, &key, &validation).ok()
    };
    if candidates.into_iter().any(|key| verifies(key).is_some()) {
        SignatureStatus::Valid
    } else {
        SignatureStatus::Invalid("the signature does not match the key".to_owned())
    }
}

/// The meaning of a claim or of a member of the header.
pub fn meaning(name: &str) -> &'static str {
    match name {
        "alg" => "signature algorithm",
        "kid" => "id of the key in the key set",
        "typ" => "type of the token",
        "iss" => "server that issued the token",
        "sub" => "user or client",
        "aud" => "recipient of the token",
        "exp" => "time at which it expires",
        "iat" => "time at which it was issued",
        "nbf" => "time before which it is not valid",
        "jti" => "id of the token",
        "auth_time" => "time of the sign-in",
        "acr" => "strength of the sign-in",
        "amr" => "methods of the sign-in",
        "nonce" => "value that binds it to the sign-in",
        "azp" | "client_id" => "client that received the token",
        "generation" => "registration of the client, on Trefoil",
        "scope" => "granted scopes",
        "sid" => "session of the browser",
        "at_hash" => "hash of the access token",
        "c_hash" => "hash of the authorization code",
        "cnf" => "key to which the token is bound",
        "patient" => "patient in context",
        "encounter" => "encounter in context",
        "fhirUser" => "resource of the user",
        "token_type" => "how the token is sent",
        "username" => "name with which the user signs in",
        "name" => "full name",
        "preferred_username" => "user name",
        "email" => "e-mail address",
        "email_verified" => "whether the address is verified",
        _ => "",
    }
}

pub fn scope_meaning(scope: &str) -> String {
    let fixed = match scope {
        "openid" => "sign-in with an ID token",
        "profile" => "name and other facts about the user",
        "email" => "e-mail address",
        "phone" => "telephone number",
        "address" => "postal address",
        "offline_access" => "access while the user is away",
        "online_access" => "access while the user is signed in",
        "fhirUser" => "resource of the user",
        "launch" => "context of the launching application",
        "launch/patient" => "a patient in context",
        "launch/encounter" => "an encounter in context",
        _ => "",
    };
    if !fixed.is_empty() {
        return fixed.to_owned();
    }
    // SMART scopes of version 1 name permissions in words, those of version 2 by letters.
    let Some((context, rest)) = scope.split_once('/') else { return String::new() };
    let Some((kind, permissions)) = rest.split('?').next().and_then(|rest| rest.split_once('.')) else {
        return String::new();
    };
    let who = match context {
        "patient" => "of the patient in context",
        "user" => "that the user may access",
        "system" => "of the server",
        _ => return String::new(),
    };
    let kind = if kind == "*" { "all resources" } else { kind };
    let does: Vec<_> = match permissions {
        "read" => vec!["read", "search"],
        "write" => vec!["create", "update", "delete"],
        "*" => vec!["read", "search", "create", "update", "delete"],
        letters => letters
            .chars()
            .filter_map(|letter| match letter {
                'c' => Some("create"),
                'r' => Some("read"),
                'u' => Some("update"),
                'd' => Some("delete"),
                's' => Some("search"),
                _ => None,
            })
            .collect(),
    };
    format!("{} {kind} {who}", does.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_explained() {
        assert_eq!(scope_meaning("user/ValueSet.rs"), "read, search ValueSet that the user may access");
        assert_eq!(scope_meaning("system/*.read"), "read, search all resources of the server");
        assert_eq!(
            scope_meaning("patient/Observation.rs?category=x"),
            "read, search Observation of the patient in context"
        );
        assert_eq!(scope_meaning("garden.notes"), "");
    }

    #[test]
    fn an_opaque_token_has_no_content() {
        assert_eq!(parse("abc"), None);
        assert_eq!(parse("a.b.c"), None);
        assert!(parse("e30.e30.").is_some());
    }
}
