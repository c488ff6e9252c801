//! Token revocation by clients (RFC 7009).

use jiff::Timestamp;
use store::StoreError;

use crate::audit::AuditEvent;
use crate::model::client::Client;
use crate::tokens::access_token::BadToken;
use crate::tokens::token_service::TokenService;

impl TokenService {
    /// Revokes an access token or a refresh token of this client (RFC 7009). Revoking a refresh token revokes
    /// its whole family. Unknown tokens and tokens of other clients are ignored.
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
