//! Token introspection (RFC 7662; SMART App Launch 2.2, token introspection): what a token says, for whoever
//! may know. Anything that does not stand is `{"active": false}` and no more.

use jiff::Timestamp;
use serde_json::{Value, json};
use store::StoreError;

use crate::Identity;
use crate::client::Client;
use crate::token::{Access, BadToken};

impl Identity {
    /// What a token says to this client: its own tokens, or every one where the client may introspect.
    ///
    /// # Errors
    /// The store's.
    pub async fn introspect(
        &self,
        token: &str,
        client: &Client,
        now: Timestamp,
    ) -> Result<Value, StoreError> {
        let may = |client_id: &str| client.introspects || client.client_id == client_id;
        let told = match self.verify_access_token(token, now).await {
            Ok(access) => may(&access.token.client_id).then(|| self.describe_access(&access)),
            Err(BadToken::Store(error)) => return Err(error),
            Err(_) => {
                let found = self.standing_refresh(token, now).await?;
                found.filter(|(grant, _)| may(&grant.client_id)).map(|(grant, ends)| {
                    json!({
                        "active": true, "iss": self.issuer, "sub": grant.sub, "client_id": grant.client_id,
                        "scope": grant.scopes.to_string(), "exp": ends.as_second(), "token_type": "refresh_token",
                    })
                })
            }
        };
        Ok(told.unwrap_or_else(|| json!({ "active": false })))
    }

    fn describe_access(&self, access: &Access) -> Value {
        let mut told = serde_json::to_value(&*access.token).expect("our own claims serialise");
        if let Value::Object(members) = &mut told {
            // How tokens are ended is our own affair.
            for inner in ["sid", "family", "epoch", "generation"] {
                members.remove(inner);
            }
        }
        told["active"] = true.into();
        told["scope"] = access.scopes.to_string().into();
        told["token_type"] = if access.token.cnf.is_some() { "DPoP" } else { "Bearer" }.into();
        if let Some(user) = &access.user {
            told["username"] = user.username.as_str().into();
            if let Some(fhir_user) = self.user_claims(user, &access.scopes).fhir_user {
                told["fhirUser"] = fhir_user.into();
            }
        }
        told
    }
}
