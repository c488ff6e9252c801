//! Pushed authorization requests (RFC 9126): a client leaves its request here over its own channel, and the
//! browser carries only a reference to it. A reference lasts 90 seconds until it comes to `authorize`, may be
//! loaded again until somebody is signed in, and is used once.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use store::{Expect, Ledger as _, LedgerWrite, StoreError};

use crate::authorize::{ErrorCode, Refusal, ShowError};
use crate::client::Client;
use crate::dpop;
use crate::interaction;
use crate::params::Params;
use crate::{Identity, ledger};

/// How long a reference lasts.
pub const LIFE: SignedDuration = SignedDuration::from_secs(90);

const PREFIX: &str = "urn:ietf:params:oauth:request_uri:";

/// Parameters that prove who the client is; they are no part of the request.
const CREDENTIALS: [&str; 3] = ["client_secret", "client_assertion", "client_assertion_type"];

/// A request that was pushed: what must be known of that when it is used.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pushed {
    /// Digest of the reference.
    id: String,
    /// Thumbprint of the key that was proven when it was pushed.
    pub(crate) jkt: Option<String>,
}

impl Pushed {
    /// The write that can be made once: two uses cannot both make it.
    pub(crate) fn use_up(&self, now: Timestamp) -> LedgerWrite {
        // For as long as the reference, or a page that it led to, could come back.
        let until = now + LIFE + interaction::LIFE;
        ledger::put(used_key(&self.id), &true, Some(until), Expect::Absent)
    }
}

#[derive(Serialize, Deserialize)]
struct Record {
    client_id: String,
    query: String,
    jkt: Option<String>,
}

/// A pushed request as it was found.
pub(crate) struct Found {
    pub query: String,
    pub pushed: Pushed,
}

/// Why a request was not taken.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// The request is wrong; the text helps the developer.
    #[error("{text}")]
    Refused {
        /// Code for the client.
        error: ErrorCode,
        /// What to change.
        text: &'static str,
    },
    /// The store's.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a developer is to look at. (At `authorize` errors have no description, as SPEC says.)
fn what_to_change(error: ErrorCode) -> &'static str {
    match error {
        ErrorCode::InvalidScope => "scope is malformed or asks for what the client is not registered for",
        ErrorCode::UnauthorizedClient => "the client is not registered for this response_type",
        ErrorCode::UnsupportedResponseType => "response_type must be code, token, id_token or id_token token",
        ErrorCode::RequestNotSupported => "request objects are not supported; push the parameters themselves",
        _ => {
            "a parameter is missing, sent twice, or has a value that it cannot have; look at response_type, state, \
             code_challenge with its method S256, nonce, prompt, max_age, display, aud and response_mode"
        }
    }
}

/// The part of a `request_uri` of ours that names the request; `None` for any other address.
pub(crate) fn id(request_uri: &str) -> Option<&str> {
    request_uri.strip_prefix(PREFIX)
}

impl Identity {
    /// Takes a request in from an authenticated client, checked like at `authorize`; gives the
    /// `request_uri`. `jkt` is the key that was proven beside it.
    ///
    /// # Errors
    /// [`PushError`].
    pub async fn push_request(
        &self,
        form: &Params,
        client: &Client,
        jkt: Option<String>,
        now: Timestamp,
    ) -> Result<String, PushError> {
        let refused = |error, text| PushError::Refused { error, text };
        let invalid = |text| refused(ErrorCode::InvalidRequest, text);
        if form.get("request_uri").is_some() {
            return Err(invalid("request_uri cannot be pushed"));
        }
        let asked = form.get("dpop_jkt");
        if asked.is_some_and(|asked| {
            !dpop::is_thumbprint(asked) || jkt.as_deref().is_some_and(|jkt| jkt != asked)
        }) {
            return Err(invalid("dpop_jkt is not the thumbprint of the key in the DPoP proof"));
        }
        let mut query = form.without(&CREDENTIALS);
        if form.get("client_id").is_none() {
            let id = form_urlencoded::Serializer::new(String::new())
                .append_pair("client_id", &client.client_id)
                .finish();
            query = if query.is_empty() { id } else { format!("{query}&{id}") };
        }
        if query.len() > interaction::LONGEST_QUERY {
            return Err(invalid("the request is too long"));
        }
        let reference = self.random.secret();
        let id = ledger::digest(&reference);
        let pushed = Pushed { id: id.clone(), jkt: jkt.clone() };
        match self.check_params(&query, Some(pushed), now).await {
            Ok(_) => {}
            Err(Refusal::Show(ShowError::Store(error))) => return Err(error.into()),
            Err(Refusal::Show(ShowError::RedirectUri)) => {
                return Err(invalid("redirect_uri is missing or not registered for the client"));
            }
            Err(Refusal::Show(_)) => return Err(invalid("client_id is not the authenticated client's")),
            Err(Refusal::Redirect { error, .. }) => {
                return Err(refused(error, what_to_change(error)));
            }
        }
        let record = Record { client_id: client.client_id.clone(), query, jkt };
        let write = ledger::put(key(&id), &record, Some(now + LIFE), Expect::Absent);
        self.store.write(vec![write], now).await?;
        Ok(format!("{PREFIX}{reference}"))
    }

    /// The request that this client pushed under this reference, where it can still be used.
    pub(crate) async fn pushed_request(
        &self,
        reference: &str,
        client_id: &str,
        now: Timestamp,
    ) -> Result<Found, ShowError> {
        let id = ledger::digest(reference);
        let found = ledger::get::<Record>(&self.store, &key(&id), now).await?;
        let record = found.map(|stored| stored.value).filter(|record| record.client_id == client_id);
        let record = record.ok_or(ShowError::Pushed)?;
        if self.store.get(&used_key(&id), now).await?.is_some() {
            return Err(ShowError::Pushed);
        }
        Ok(Found { query: record.query, pushed: Pushed { id, jkt: record.jkt } })
    }
}

fn key(id: &str) -> String {
    format!("par/{id}")
}

fn used_key(id: &str) -> String {
    format!("par-used/{id}")
}
