//! Client authentication at the token endpoint: exactly one method, and one that the client is
//! registered for (RFC 6749 2.3; OpenID Connect Core 9).

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use store::StoreError;

use crate::Identity;
use crate::assertion::BadAssertion;
use crate::audit::Event;
use crate::client::{AuthMethod, Client};
use crate::key_sets::Unreachable;
use crate::params::Params;

/// Value of `client_assertion_type` (RFC 7523 2.2).
pub const JWT_BEARER: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// Why a client was not recognised.
#[derive(Debug, thiserror::Error)]
pub enum ClientAuthError {
    /// The request is malformed.
    #[error("{0}")]
    InvalidRequest(&'static str),
    /// Unknown client, wrong secret, or a method that the client is not registered for. One text for
    /// all, so that nothing is learned.
    #[error("the client is unknown, or its credentials or its way to authenticate are wrong")]
    InvalidClient,
    /// The assertion was judged and found wanting; what was wrong helps the developer and tells a
    /// stranger nothing that is not in the assertion.
    #[error("client assertion refused: {0}")]
    BadAssertion(BadAssertion),
    /// The client's keys stand at an address that gives none.
    #[error(transparent)]
    KeySet(#[from] Unreachable),
    /// The store's.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Identity {
    /// Recognises the client of a token, revocation or introspection request.
    ///
    /// # Errors
    /// [`ClientAuthError`].
    pub async fn authenticate_client(
        &self,
        authorization: Option<&str>,
        form: &Params,
        now: Timestamp,
    ) -> Result<Client, ClientAuthError> {
        let found = self.recognise_client(authorization, form, now).await;
        match &found {
            Ok(_) | Err(ClientAuthError::Store(_)) => {}
            Err(error) => {
                // A client that does not exist is not named: what stands there may be a secret.
                let named = match authorization.and_then(basic) {
                    Some((id, _)) => Some(id),
                    None => form.get("client_id").map(str::to_owned),
                };
                let client = match &named {
                    Some(id) => self.client(id, now).await.ok().flatten(),
                    None => None,
                };
                let client_id = client.map(|client| client.client_id);
                self.record(Event::ClientRefused { client_id, reason: error.to_string() });
            }
        }
        found
    }

    async fn recognise_client(
        &self,
        authorization: Option<&str>,
        form: &Params,
        now: Timestamp,
    ) -> Result<Client, ClientAuthError> {
        let assertion = form.get("client_assertion");
        let secret = form.get("client_secret");
        let methods = [authorization.is_some(), secret.is_some(), assertion.is_some()];
        if methods.iter().filter(|used| **used).count() > 1 {
            return Err(ClientAuthError::InvalidRequest("use one way of client authentication, not two"));
        }
        if let Some(header) = authorization {
            let (id, secret) = basic(header).ok_or(ClientAuthError::InvalidClient)?;
            if form.get("client_id").is_some_and(|named| named != id) {
                return Err(ClientAuthError::InvalidRequest(
                    "client_id differs from the Authorization header",
                ));
            }
            return self.client_with_secret(&id, &secret, AuthMethod::ClientSecretBasic, now).await;
        }
        if let Some(secret) = secret {
            let id = form.get("client_id").ok_or(ClientAuthError::InvalidRequest("client_id is missing"))?;
            return self.client_with_secret(id, secret, AuthMethod::ClientSecretPost, now).await;
        }
        match (assertion, form.get("client_assertion_type")) {
            (Some(assertion), Some(JWT_BEARER)) => {
                let client = self.check_assertion(assertion, now).await?;
                if form.get("client_id").is_some_and(|named| named != client.client_id) {
                    return Err(ClientAuthError::InvalidRequest(
                        "client_id differs from the client assertion",
                    ));
                }
                Ok(client)
            }
            (Some(_), _) => Err(ClientAuthError::InvalidRequest(
                "client_assertion_type must be urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
            )),
            (None, Some(_)) => Err(ClientAuthError::InvalidRequest("client_assertion is missing")),
            (None, None) => {
                let id = form.get("client_id").ok_or(ClientAuthError::InvalidClient)?;
                let client = self.client(id, now).await?.ok_or(ClientAuthError::InvalidClient)?;
                let named_is_enough = client.auth_methods.contains(&AuthMethod::None);
                if named_is_enough { Ok(client) } else { Err(ClientAuthError::InvalidClient) }
            }
        }
    }

    async fn client_with_secret(
        &self,
        id: &str,
        secret: &str,
        method: AuthMethod,
        now: Timestamp,
    ) -> Result<Client, ClientAuthError> {
        let client = self.client(id, now).await?.ok_or(ClientAuthError::InvalidClient)?;
        if client.has_secret(secret) && client.auth_methods.contains(&method) {
            Ok(client)
        } else {
            Err(ClientAuthError::InvalidClient)
        }
    }
}

/// Reads `Authorization: Basic`; both halves are form-encoded inside (RFC 6749 2.3.1).
fn basic(header: &str) -> Option<(String, String)> {
    let (scheme, encoded) = header.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (id, secret) = text.split_once(':')?;
    let decode = |half: &str| {
        let pair = format!("x={}", half.replace('&', "%26"));
        form_urlencoded::parse(pair.as_bytes()).next().map(|(_, value)| value.into_owned())
    };
    Some((decode(id)?, decode(secret)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn basic_is_decoded_on_both_levels() {
        let header = |text: &str| format!("Basic {}", STANDARD.encode(text));
        assert_eq!(basic(&header("a:b")), Some(("a".into(), "b".into())));
        assert_eq!(basic(&header("a%3Ab:c%20d+e=f&g")), Some(("a:b".into(), "c d e=f&g".into())));
        assert_eq!(basic(&header("nocolon")), None);
        assert_eq!(basic("Basic !!!"), None);
        assert_eq!(basic("Bearer abc"), None);
    }
}
