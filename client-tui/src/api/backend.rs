//! Access tokens without a user: the client credentials grant with `private_key_jwt` (RFC 7523 2.2; SMART App
//! Launch 2.2.0, Backend Services).

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::StatusCode;
use jiff::Timestamp;
use jsonwebtoken::Header;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Api, ApiError, Bearer};
use crate::key::SigningKey;
use crate::profile::{BackendProfile, ClientCredential};

/// Lifetime of a client assertion, in seconds. The server allows at most five minutes.
const ASSERTION_LIFE_S: i64 = 120;
/// Time before the expiry of a token at which it is renewed, in seconds.
const RENEW_AHEAD_S: i64 = 20;

/// An access token of a backend client.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct BackendToken {
    pub access_token: String,
    /// Type of the token, always `Bearer`.
    pub token_type: String,
    /// Lifetime of the token, in seconds.
    pub expires_in: i64,
    /// Granted scope, which may be less than requested.
    #[serde(default)]
    pub scope: String,
    /// Time at which the token was requested, by the local clock.
    #[serde(skip)]
    pub asked_at: Timestamp,
}

impl BackendToken {
    fn is_fresh(&self, now: Timestamp) -> bool {
        now.as_second() + RENEW_AHEAD_S < self.asked_at.as_second().saturating_add(self.expires_in)
    }
}

/// Signs a client assertion for the token endpoint. Each assertion needs a new `jti`.
///
/// # Errors
/// [`ApiError::Request`] if the key cannot sign.
pub fn client_assertion(
    client_id: &str,
    key: &SigningKey,
    audience: &str,
    now: Timestamp,
    jti: &str,
) -> Result<String, ApiError> {
    let mut header = Header::new(key.alg);
    header.kid.clone_from(&key.kid);
    let claims = json!({
        "iss": client_id,
        "sub": client_id,
        "aud": audience,
        "iat": now.as_second(),
        "exp": now.as_second() + ASSERTION_LIFE_S,
        "jti": jti,
    });
    jsonwebtoken::encode(&header, &claims, &key.encoding)
        .map_err(|error| ApiError::Request(format!("the key of the client cannot sign: {error}")))
}

/// Adds to the rejection of a client what the user can check.
fn explain_client(mut error: ApiError, backend: &BackendProfile) -> ApiError {
    if let ApiError::Refused { text, .. } = &mut error
        && text.starts_with("invalid_client")
    {
        let hint = match &backend.credential {
            ClientCredential::Secret(_) => "check --backend-client and --backend-secret-file".to_owned(),
            ClientCredential::Key(key) => {
                let kid = match &key.kid {
                    Some(kid) => format!("the key id '{kid}'"),
                    None => "no key id".to_owned(),
                };
                format!(
                    "the assertion was signed with {:?} and {kid}: check --backend-client, --backend-key, --backend-alg \
                     and --backend-kid",
                    key.alg
                )
            }
        };
        text.push_str(&format!("; {hint}"));
    }
    error
}

/// A random identifier for a `jti`.
///
/// # Errors
/// [`ApiError::Request`] if the operating system has no randomness.
pub(super) fn random_id() -> Result<String, ApiError> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| ApiError::Request(error.to_string()))?;
    Ok(URL_SAFE_NO_PAD.encode(random))
}

impl Api {
    /// Requests a new token for the backend client of the profile.
    ///
    /// # Errors
    /// The error of the request, or [`ApiError::Profile`] if the profile has no backend client.
    pub async fn ask_backend_token(&self, scope: &str) -> Result<BackendToken, ApiError> {
        const NO_BACKEND: &str = "a backend client is required: use --backend-client ID with --backend-key FILE or --backend-secret-file FILE, a profile with them, or --demo DIR";
        let backend = self.profile().backend.as_ref().ok_or(ApiError::Profile(NO_BACKEND))?;
        let url = match self.smart().await {
            Ok(smart) => &smart.token_endpoint,
            // A server without SMART has its endpoints in another document.
            Err(error) if error.is_not_found() => &self.openid().await?.token_endpoint,
            Err(error) => return Err(error),
        };
        let asked_at = self.now();
        let client = self.backend_client().ok_or(ApiError::Profile(NO_BACKEND))?;
        let form = vec![("grant_type", "client_credentials".to_owned()), ("scope", scope.to_owned())];
        let response = self.call(self.client_request(url, form, &client, url)?).await?;
        let token: BackendToken = response.json(url).map_err(|error| explain_client(error, backend))?;
        Ok(BackendToken { asked_at, ..token })
    }

    /// Discards the token of the backend client if the server rejected it (401). Returns true if a new token
    /// can be requested, also if another request has discarded the token already.
    pub async fn discard_rejected_token(&self, error: &ApiError, bearer: Option<&Bearer>) -> bool {
        let is_unauthorized = matches!(error, ApiError::Refused { status: StatusCode::UNAUTHORIZED, .. });
        if !is_unauthorized || bearer != Some(&Bearer::Backend) {
            return false;
        }
        self.0.backend.lock().await.take();
        true
    }

    /// A token of the backend client for reading. It is renewed shortly before it expires.
    ///
    /// # Errors
    /// The error of the request, or [`ApiError::Profile`] if the profile has no backend client.
    pub async fn backend_token(&self) -> Result<String, ApiError> {
        // The lock is held during the request, so that concurrent downloads request one token.
        let mut backend = self.0.backend.lock().await;
        if let Some(token) = backend.as_ref().filter(|token| token.is_fresh(self.now())) {
            return Ok(token.access_token.clone());
        }
        let token = self.ask_backend_token(&self.profile().backend_scope).await?;
        Ok(backend.insert(token).access_token.clone())
    }
}
