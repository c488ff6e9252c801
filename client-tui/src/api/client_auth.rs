//! Authentication of clients at the endpoints of the authorization server: `client_secret_basic` (RFC 6749
//! 2.3.1) and `private_key_jwt` (RFC 7523 2.2).

use reqwest::RequestBuilder;
use url::form_urlencoded;

use super::backend::{client_assertion, random_id};
use super::{Api, ApiError};
use crate::key::SigningKey;
use crate::profile::ClientCredential;

/// Type of client assertions (RFC 7523 2.2).
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// A client of the profile with its credential.
pub(super) struct ClientIdentity<'p> {
    pub(super) id: &'p str,
    credential: Credential<'p>,
}

enum Credential<'p> {
    None,
    Secret(&'p str),
    Key(&'p SigningKey),
}

impl<'p> Credential<'p> {
    fn of(credential: &'p ClientCredential) -> Self {
        match credential {
            ClientCredential::Secret(secret) => Self::Secret(secret),
            ClientCredential::Key(key) => Self::Key(key),
        }
    }
}

impl ClientIdentity<'_> {
    pub(super) fn is_confidential(&self) -> bool {
        !matches!(self.credential, Credential::None)
    }
}

impl Api {
    /// The client that signs in users.
    pub(super) fn user_client(&self) -> Option<ClientIdentity<'_>> {
        let credential = self.profile().client_credential.as_ref().map_or(Credential::None, Credential::of);
        Some(ClientIdentity { id: self.profile().client_id.as_deref()?, credential })
    }

    /// The client without users.
    pub(super) fn backend_client(&self) -> Option<ClientIdentity<'_>> {
        let backend = self.profile().backend.as_ref()?;
        Some(ClientIdentity { id: &backend.client_id, credential: Credential::of(&backend.credential) })
    }

    /// The parameters that authenticate a client with a private key. A server accepts an assertion once.
    ///
    /// # Errors
    /// [`ApiError::Request`] if the key cannot sign.
    pub(super) fn assertion_parameters(
        &self,
        client: &ClientIdentity<'_>,
        audience: &str,
    ) -> Result<Vec<(&'static str, String)>, ApiError> {
        let Credential::Key(key) = client.credential else { return Ok(Vec::new()) };
        let assertion = client_assertion(client.id, key, audience, self.now(), &random_id()?)?;
        Ok(vec![("client_assertion_type", ASSERTION_TYPE.to_owned()), ("client_assertion", assertion)])
    }

    /// A request of a client with a form. The audience of an assertion is the token endpoint at every
    /// endpoint (RFC 7523 3).
    ///
    /// # Errors
    /// [`ApiError::Request`] if the key of the client cannot sign.
    pub(super) fn client_request(
        &self,
        url: &str,
        mut form: Vec<(&'static str, String)>,
        client: &ClientIdentity<'_>,
        token_endpoint: &str,
    ) -> Result<RequestBuilder, ApiError> {
        let request = self.http().post(url);
        Ok(match client.credential {
            Credential::None => {
                form.push(("client_id", client.id.to_owned()));
                request.form(&form)
            }
            Credential::Secret(secret) => {
                // RFC 6749 2.3.1: both are encoded as in a form.
                let encoded =
                    |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
                request.basic_auth(encoded(client.id), Some(encoded(secret))).form(&form)
            }
            // The assertion names the client.
            Credential::Key(_) => {
                form.extend(self.assertion_parameters(client, token_endpoint)?);
                request.form(&form)
            }
        })
    }
}
