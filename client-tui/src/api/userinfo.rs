//! Claims about the signed-in user: `GET {base}/oauth2/userinfo` (OpenID Connect Core 5.3).

use serde_json::{Map, Value};

use super::{Api, ApiError, Bearer};

/// Claims by name, in the order of the response.
pub type Claims = Map<String, Value>;

impl Api {
    /// Reads the claims about the user of the token.
    ///
    /// # Errors
    /// The error of the request, or [`ApiError::NotSignedIn`].
    pub async fn userinfo(&self, bearer: &Bearer) -> Result<Claims, ApiError> {
        let Some(url) = &self.openid().await?.userinfo_endpoint else {
            return Err(ApiError::Profile("the server has no userinfo endpoint"));
        };
        self.call(self.authorize(self.http().get(url), url, bearer).await?).await?.json(url)
    }
}
