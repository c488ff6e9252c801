//! Claims about the signed-in user: `GET {base}/oauth2/userinfo` (OpenID Connect Core 5.3).

use serde_json::{Map, Value};

use super::{Api, ApiError, Bearer};

/// Claims by name, in the server's order.
pub type Claims = Map<String, Value>;

impl Api {
    /// The claims of the person whom the token is for.
    ///
    /// # Errors
    /// The server's; [`ApiError::NotSignedIn`].
    pub async fn userinfo(&self, bearer: &Bearer) -> Result<Claims, ApiError> {
        let token = self.token(bearer).await?;
        let url = &self.openid().await?.userinfo_endpoint;
        self.call(self.http().get(url).bearer_auth(token)).await?.json(url)
    }
}
