//! Pushed authorization requests (RFC 9126): a client sends its request directly to this server, and the
//! browser carries a reference to it. A reference expires after 90 seconds, can be loaded repeatedly until
//! the user has signed in, and can be granted once.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::{Expect, Ledger as _, LedgerWrite, StoreError};

use crate::authorize::authorization_service::AuthorizationService;
use crate::authorize::reply::{AuthorizationError, PageError};
use crate::encoding;
use crate::ledger_keys;
use crate::lifetimes;
use crate::model::client::Client;
use crate::model::error_code::ErrorCode;
use crate::params::Params;
use crate::storage::records;
use crate::tokens::dpop;

const REQUEST_URI_PREFIX: &str = "urn:ietf:params:oauth:request_uri:";

/// Parameters that authenticate the client. They are removed before the request is stored.
const CREDENTIAL_PARAMETERS: [&str; 3] = ["client_secret", "client_assertion", "client_assertion_type"];

/// Reference to a pushed request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PushedRequestRef {
    pub(super) id: String,
    /// Thumbprint of the DPoP key that was proven with the pushed request.
    pub(crate) jkt: Option<String>,
}

impl PushedRequestRef {
    /// The ledger write that records the grant of this request. The write fails if the request was granted
    /// before.
    pub(crate) fn consume(&self, now: Timestamp) -> LedgerWrite {
        // The record must outlive the reference and the pages that follow it.
        let until = now + lifetimes::PUSHED_REQUEST + lifetimes::INTERACTION;
        records::put_record(ledger_keys::used_pushed_request(&self.id), &true, Some(until), Expect::Absent)
    }
}

#[derive(Serialize, Deserialize)]
struct PushedRequestRecord {
    client_id: String,
    query: String,
    jkt: Option<String>,
}

/// The stored parameters of a pushed request, with its reference.
pub(crate) struct StoredPushedRequest {
    pub query: String,
    pub pushed: PushedRequestRef,
}

/// Reasons why a pushed request is rejected.
#[derive(Debug, thiserror::Error)]
pub enum PushRequestError {
    /// The request is invalid.
    #[error("{text}")]
    Rejected {
        /// OAuth error code.
        error: ErrorCode,
        /// Description for the developer.
        text: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The reference inside a `request_uri` of this server, or `None` for any other URI.
pub(crate) fn request_reference(request_uri: &str) -> Option<&str> {
    request_uri.strip_prefix(REQUEST_URI_PREFIX)
}

impl AuthorizationService {
    /// Checks and stores a request of an authenticated client, and returns its `request_uri`. `jkt` is the
    /// thumbprint of the DPoP key that the client proved with the request.
    ///
    /// # Errors
    /// Returns [`PushRequestError`] if the request is invalid or cannot be stored.
    pub async fn push_request(
        &self,
        form: &Params,
        client: &Client,
        jkt: Option<String>,
        now: Timestamp,
    ) -> Result<String, PushRequestError> {
        let invalid = |text: &str| PushRequestError::Rejected {
            error: ErrorCode::InvalidRequest,
            text: text.to_owned(),
        };
        if form.get("request_uri").is_some() {
            return Err(invalid("a pushed request must not contain request_uri"));
        }
        let requested = form.get("dpop_jkt");
        if requested.is_some_and(|requested| {
            !dpop::is_thumbprint(requested) || jkt.as_deref().is_some_and(|jkt| jkt != requested)
        }) {
            return Err(invalid("dpop_jkt is not the thumbprint of the key in the DPoP proof"));
        }
        let mut query = form.without(&CREDENTIAL_PARAMETERS);
        if form.get("client_id").is_none() {
            let id = form_urlencoded::Serializer::new(String::new())
                .append_pair("client_id", &client.client_id)
                .finish();
            query = if query.is_empty() { id } else { format!("{query}&{id}") };
        }
        if query.len() > super::authorization_service::MAX_QUERY_BYTES {
            return Err(invalid("the request is longer than 8192 bytes"));
        }
        let reference = self.random.secret();
        let id = encoding::sha256_base64url(&reference);
        let pushed = PushedRequestRef { id: id.clone(), jkt: jkt.clone() };
        // The request is checked now, so that the client learns of an error before a browser is involved, and
        // again at the authorization endpoint, because the registration of the client may change in between.
        match self.check_request_params(&query, Some(pushed), None, now).await {
            Ok(_) => {}
            Err(AuthorizationError::Show(PageError::Store(error))) => return Err(error.into()),
            Err(AuthorizationError::Show(PageError::RedirectUri { .. })) => {
                return Err(invalid("redirect_uri is missing or not registered for the client"));
            }
            Err(AuthorizationError::Show(_)) => {
                return Err(invalid("client_id does not match the authenticated client"));
            }
            Err(AuthorizationError::Redirect { refusal, .. }) => {
                return Err(PushRequestError::Rejected { error: refusal.error, text: refusal.description() });
            }
        }
        let record = PushedRequestRecord { client_id: client.client_id.clone(), query, jkt };
        let write = records::put_record(
            ledger_keys::pushed_request(&id),
            &record,
            Some(now + lifetimes::PUSHED_REQUEST),
            Expect::Absent,
        );
        self.ledger.write(vec![write], now).await?;
        Ok(format!("{REQUEST_URI_PREFIX}{reference}"))
    }

    /// The request that this client pushed under this reference, unless it was already granted.
    pub(crate) async fn load_pushed_request(
        &self,
        reference: &str,
        client_id: &str,
        now: Timestamp,
    ) -> Result<StoredPushedRequest, PageError> {
        let id = encoding::sha256_base64url(reference);
        let read_result =
            self.ledger.read_record::<PushedRequestRecord>(&ledger_keys::pushed_request(&id), now).await?;
        let record = read_result.map(|record| record.value).filter(|record| record.client_id == client_id);
        let record = record.ok_or(PageError::PushedRequest)?;
        if self.ledger.get(&ledger_keys::used_pushed_request(&id), now).await?.is_some() {
            return Err(PageError::PushedRequest);
        }
        Ok(StoredPushedRequest { query: record.query, pushed: PushedRequestRef { id, jkt: record.jkt } })
    }
}
