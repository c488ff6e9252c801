//! Token introspection (RFC 7662; SMART App Launch 2.2). The response is `{"active": false}` for a token that
//! is not valid or that the client must not introspect.

use jiff::Timestamp;
use serde_json::{Value, json};
use store::StoreError;

use crate::model::client::Client;
use crate::model::declared_claim::ClaimPlace;
use crate::tokens::access_token::{BadToken, TokenAccess};
use crate::tokens::token_service::TokenService;

impl TokenService {
    /// Returns the introspection response for this client. A client may introspect its own tokens, and the
    /// tokens of other clients if its registration allows this.
    ///
    /// # Errors
    /// Returns [`StoreError`] if a read fails.
    pub async fn introspect_token(
        &self,
        token: &str,
        client: &Client,
        now: Timestamp,
    ) -> Result<Value, StoreError> {
        let may_introspect = |client_id: &str| client.introspects || client.client_id == client_id;
        let response = match self.verify_access_token(token, now).await {
            Ok(access) => {
                may_introspect(&access.token.client_id).then(|| self.describe_access_token(&access))
            }
            Err(BadToken::Store(error)) => return Err(error),
            Err(_) => {
                let refresh = self.grants.active_refresh_token(token, now).await?;
                refresh.filter(|(grant, _)| may_introspect(&grant.client_id)).map(|(grant, ends)| {
                    json!({
                        "active": true, "iss": self.issuer, "sub": grant.sub, "client_id": grant.client_id,
                        "scope": grant.scopes.to_string(), "exp": ends.as_second(), "token_type": "refresh_token",
                    })
                })
            }
        };
        Ok(response.unwrap_or_else(|| json!({ "active": false })))
    }

    fn describe_access_token(&self, access: &TokenAccess) -> Value {
        let mut response = serde_json::to_value(&*access.token)
            .expect("claims have string keys only, so they serialize to JSON");
        if let Value::Object(members) = &mut response {
            // Claims for internal use of this server.
            for inner in ["sid", "family", "epoch", "generation"] {
                members.remove(inner);
            }
        }
        response["active"] = true.into();
        response["scope"] = access.scopes.to_string().into();
        response["token_type"] = if access.token.cnf.is_some() { "DPoP" } else { "Bearer" }.into();
        if let Some(user) = &access.user {
            response["username"] = user.username.as_str().into();
            for (name, value) in self.declared_claims(user, &access.scopes, ClaimPlace::AccessToken) {
                response[name] = value;
            }
            if let Some(fhir_user) = self.user_claims(user, &access.scopes).fhir_user {
                response["fhirUser"] = fhir_user.into();
            }
        }
        response
    }
}
