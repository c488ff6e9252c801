//! Client authentication at the token, revocation, introspection and PAR endpoints. A request uses exactly
//! one method, which must be registered for the client (RFC 6749 section 2.3; OpenID Connect Core section 9).

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;

use crate::audit::{AuditEvent, AuditSink};
use crate::client_auth::error::ClientAuthError;
use crate::client_auth::key_set_cache::KeySetCache;
use crate::directory::client_registry::ClientRegistry;
use crate::model::client::{AuthMethod, Client};
use crate::params::Params;
use crate::storage::epoch_ledger::EpochLedger;
use crate::tokens::revocation::RevocationList;

/// Value of `client_assertion_type` (RFC 7523 section 2.2).
pub const JWT_BEARER: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// Authenticates the clients of requests.
pub struct ClientAuthenticator {
    pub(crate) ledger: Arc<EpochLedger>,
    pub(crate) audit: Arc<dyn AuditSink>,
    pub(crate) clients: Arc<ClientRegistry>,
    pub(crate) key_sets: KeySetCache,
    pub(crate) revocations: RevocationList,
    pub(crate) issuer: String,
}

impl ClientAuthenticator {
    /// Authenticates the client of a request.
    ///
    /// # Errors
    /// Returns [`ClientAuthError`] if the client is not authenticated.
    pub async fn authenticate_client(
        &self,
        authorization: Option<&str>,
        form: &Params,
        now: Timestamp,
    ) -> Result<Client, ClientAuthError> {
        let identified = self.identify_client(authorization, form, now).await;
        match &identified {
            Ok(_) | Err(ClientAuthError::Store(_)) => {}
            Err(error) => {
                // An unknown client id is not recorded in the audit log, because the field may contain a
                // secret.
                let name = match authorization.and_then(parse_basic_header) {
                    Some((id, _)) => Some(id),
                    None => form.get("client_id").map(str::to_owned),
                };
                let client = match &name {
                    Some(id) => self.clients.active_client(id, now).await.ok().flatten(),
                    None => None,
                };
                let client_id = client.map(|client| client.client_id);
                self.audit.record(AuditEvent::ClientRejected { client_id, reason: error.to_string() });
            }
        }
        identified
    }

    async fn identify_client(
        &self,
        authorization: Option<&str>,
        form: &Params,
        now: Timestamp,
    ) -> Result<Client, ClientAuthError> {
        let assertion = form.get("client_assertion");
        let secret = form.get("client_secret");
        // RFC 6749 section 2.3: a client must not use more than one method in a request.
        let methods = [authorization.is_some(), secret.is_some(), assertion.is_some()];
        if methods.iter().filter(|used| **used).count() > 1 {
            return Err(ClientAuthError::InvalidRequest(
                "use one method of client authentication, not several",
            ));
        }
        if let Some(header) = authorization {
            let (id, secret) = parse_basic_header(header).ok_or(ClientAuthError::InvalidClient)?;
            if form.get("client_id").is_some_and(|client_id| client_id != id) {
                return Err(ClientAuthError::InvalidRequest(
                    "client_id differs from the Authorization header",
                ));
            }
            // Some libraries send the header for a public client, too. An empty password is no credential.
            if secret.is_empty() {
                return self.public_client(&id, now).await;
            }
            return self.client_with_secret(&id, &secret, AuthMethod::ClientSecretBasic, now).await;
        }
        if let Some(secret) = secret {
            let id = form.get("client_id").ok_or(ClientAuthError::InvalidRequest("client_id is missing"))?;
            return self.client_with_secret(id, secret, AuthMethod::ClientSecretPost, now).await;
        }
        match (assertion, form.get("client_assertion_type")) {
            (Some(assertion), Some(JWT_BEARER)) => {
                let client = self.verify_assertion(assertion, now).await?;
                if form.get("client_id").is_some_and(|client_id| client_id != client.client_id) {
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
                self.public_client(id, now).await
            }
        }
    }

    /// The client with this id if its id is enough.
    async fn public_client(&self, id: &str, now: Timestamp) -> Result<Client, ClientAuthError> {
        let client = self.clients.active_client(id, now).await?;
        let is_public = |client: &Client| client.auth_methods.contains(&AuthMethod::None);
        client.filter(is_public).ok_or(ClientAuthError::InvalidClient)
    }

    async fn client_with_secret(
        &self,
        id: &str,
        secret: &str,
        method: AuthMethod,
        now: Timestamp,
    ) -> Result<Client, ClientAuthError> {
        let client = self.clients.active_client(id, now).await?.ok_or(ClientAuthError::InvalidClient)?;
        match (client.verify_secret(secret, now), client.auth_methods.contains(&method)) {
            (true, true) => Ok(client),
            // The sender knows the secret, and may learn how the client is registered.
            (true, false) => Err(ClientAuthError::UnregisteredMethod {
                used: method.name(),
                registered: client.auth_methods.iter().map(|method| method.name()).collect(),
            }),
            (false, _) => Err(ClientAuthError::InvalidClient),
        }
    }
}

/// Decodes `Authorization: Basic`. User name and password are form-encoded (RFC 6749 section 2.3.1).
fn parse_basic_header(header: &str) -> Option<(String, String)> {
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
    fn basic_credentials_are_base64_and_form_decoded() {
        let header = |text: &str| format!("Basic {}", STANDARD.encode(text));
        assert_eq!(parse_basic_header(&header("a:b")), Some(("a".into(), "b".into())));
        assert_eq!(
            parse_basic_header(&header("a%3Ab:c%20d+e=f&g")),
            Some(("a:b".into(), "c d e=f&g".into()))
        );
        assert_eq!(parse_basic_header(&header("nocolon")), None);
        assert_eq!(parse_basic_header("Basic !!!"), None);
        assert_eq!(parse_basic_header("Bearer abc"), None);
    }
}
