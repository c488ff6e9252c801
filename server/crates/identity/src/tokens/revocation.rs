//! Revoked tokens, families, sessions and consents; and token revocation (RFC 7009).

use std::sync::Arc;

use jiff::Timestamp;
use store::{Expect, Ledger as _, StoreError};

use crate::audit::AuditEvent;
use crate::ledger_keys;
use crate::model::client::Client;
use crate::storage::epoch_ledger::EpochLedger;
use crate::storage::records;
use crate::tokens::access_token::BadToken;
use crate::tokens::token_service::TokenService;

/// The records of revocations in the ledger.
#[derive(Clone)]
pub(crate) struct RevocationList {
    pub ledger: Arc<EpochLedger>,
}

impl RevocationList {
    pub(crate) async fn mark_revoked(
        &self,
        kind: &str,
        id: &str,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let write = records::put_record(ledger_keys::revocation(kind, id), &true, Some(until), Expect::Any);
        self.ledger.write(vec![write], now).await.map(drop)
    }

    pub(crate) async fn is_revoked(&self, kind: &str, id: &str, now: Timestamp) -> Result<bool, StoreError> {
        Ok(self.ledger.get(&ledger_keys::revocation(kind, id), now).await?.is_some())
    }

    /// Returns `true` if the consent was withdrawn after the grant was issued at `granted`.
    pub(crate) async fn is_consent_withdrawn(
        &self,
        sub: &str,
        client_id: &str,
        granted: Timestamp,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let withdrawn = self
            .ledger
            .read_record::<Timestamp>(&ledger_keys::withdrawn_consent(sub, client_id), now)
            .await?;
        Ok(withdrawn.is_some_and(|withdrawn| granted <= withdrawn.value))
    }
}

impl TokenService {
    /// Revokes an access token or a refresh token of this client (RFC 7009). Revoking a refresh token revokes its whole
    /// family. Unknown tokens and tokens of other clients are ignored.
    ///
    /// # Errors
    /// Returns [`StoreError`] if a read or the write fails.
    pub async fn revoke_token(&self, token: &str, client: &Client, now: Timestamp) -> Result<(), StoreError> {
        if let Some((client_id, family)) = self.grants.refresh_token_family(token, now).await? {
            if client_id == client.client_id {
                self.grants.revoke_family(&family, now).await?;
                self.audit.record(AuditEvent::Revoked { client_id, kind: "family", id: family });
            }
            return Ok(());
        }
        let access = match self.verify_access_token(token, now).await {
            Ok(access) => access,
            Err(BadToken::Store(error)) => return Err(error),
            Err(_) => return Ok(()),
        };
        if access.token.client_id == client.client_id {
            let until = Timestamp::from_second(access.token.exp).unwrap_or(Timestamp::MAX);
            self.revocations.mark_revoked("jti", &access.token.jti, until, now).await?;
            let (client_id, id) = (client.client_id.clone(), access.token.jti.clone());
            self.audit.record(AuditEvent::Revoked { client_id, kind: "jti", id });
        }
        Ok(())
    }
}
