//! Introspection of tokens (RFC 7662): what the server says about a token.

use serde::Serialize;
use serde_json::{Map, Value};

use super::client_auth::ClientIdentity;
use super::discovery::check_safe;
use super::{Api, ApiError, TokenKind};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "status")]
pub enum Introspection {
    Active {
        client: String,
        /// Members of the response except `active`.
        members: Map<String, Value>,
    },
    /// The token is not valid, or the client may not introspect it (RFC 7662 2.2).
    Inactive { client: String },
    /// No request was sent: its answer would say nothing about the token.
    NotAsked { reason: String },
    /// The request failed, or its answer is not usable.
    Unavailable { reason: String },
}

impl Introspection {
    pub fn sentence(&self) -> String {
        match self {
            Self::Active { client, .. } => format!("active, says the server to the client {client}"),
            Self::Inactive { client } => {
                format!("INACTIVE: the token is not valid, or the client {client} may not introspect it")
            }
            Self::NotAsked { reason } => format!("not asked: {reason}"),
            Self::Unavailable { reason } => format!("not available: {reason}"),
        }
    }

    /// The members of an active token that the token itself does not contain.
    pub fn members_beside<'i>(
        &'i self,
        claims: Option<&'i Map<String, Value>>,
    ) -> impl Iterator<Item = (&'i String, &'i Value)> {
        let members = match self {
            Self::Active { members, .. } => Some(members),
            Self::Inactive { .. } | Self::NotAsked { .. } | Self::Unavailable { .. } => None,
        };
        let is_new = move |(name, value): &(&String, &Value)| {
            claims.and_then(|claims| claims.get(name.as_str())) != Some(value)
        };
        members.into_iter().flatten().filter(is_new)
    }
}

impl Api {
    /// Asks the server about a token, as the client that received it. To other clients, servers answer that a
    /// valid token is not active (RFC 7662 2.2).
    pub(super) async fn introspect(&self, kind: TokenKind, token: &str) -> Introspection {
        match self.ask_about(kind, token).await {
            Ok(response) => response,
            Err(error) => Introspection::Unavailable { reason: error.to_string() },
        }
    }

    async fn ask_about(&self, kind: TokenKind, token: &str) -> Result<Introspection, ApiError> {
        let not_asked = |reason: &str| Ok(Introspection::NotAsked { reason: reason.to_owned() });
        if kind == TokenKind::Id {
            return not_asked("servers introspect access and refresh tokens, but not ID tokens (RFC 7662)");
        }
        let Some(client) = self.introspecting_client(kind) else {
            return not_asked(
                "this client may not introspect; that needs the token's own client with --client-secret-file or --client-key",
            );
        };
        let openid = self.openid().await?;
        let Some(url) = &openid.introspection_endpoint else {
            return not_asked("the server offers no introspection");
        };
        check_safe(url)?;
        let form = vec![("token", token.to_owned()), ("token_type_hint", "access_token".to_owned())];
        let response = self.call(self.client_request(url, form, &client, &openid.token_endpoint)?).await?;
        let mut members: Map<String, Value> = response.json(url)?;
        let client = client.id.to_owned();
        match members.remove("active") {
            Some(Value::Bool(true)) => Ok(Introspection::Active { client, members }),
            Some(Value::Bool(false)) => Ok(Introspection::Inactive { client }),
            _ => {
                let reason = "the member 'active' is missing in the response".to_owned();
                Err(ApiError::Unexpected { url: url.clone(), reason })
            }
        }
    }

    /// The client that received the token, if it is confidential. For a token that the user supplied, it is
    /// any confidential client of the profile.
    fn introspecting_client(&self, kind: TokenKind) -> Option<ClientIdentity<'_>> {
        let user = self.user_client().filter(ClientIdentity::is_confidential);
        match kind {
            TokenKind::BackendAccess => self.backend_client(),
            TokenKind::UserAccess | TokenKind::Id => user,
            TokenKind::Given => user.or(self.backend_client()),
        }
    }
}
