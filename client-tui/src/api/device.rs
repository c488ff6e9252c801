//! Sign-in on another device (RFC 8628): the user enters a code in a browser anywhere.

use jiff::{SignedDuration, Timestamp};
use oauth2::{
    DeviceAuthorizationUrl, EmptyExtraDeviceAuthorizationFields, Scope, StandardDeviceAuthorizationResponse,
};

use super::sign_in::token_error;
use super::user_tokens::UserTokens;
use super::{Api, ApiError};

/// A sign-in that waits for the user at another device.
#[derive(Debug)]
pub struct PendingDeviceSignIn {
    response: StandardDeviceAuthorizationResponse,
    scope: String,
    /// Texts and time for the user.
    pub prompt: DevicePrompt,
}

/// Texts and time of a sign-in on another device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevicePrompt {
    pub user_code: String,
    /// Address at which the user enters the code.
    pub address: String,
    /// Address that already contains the code, for the QR code.
    pub complete_address: Option<String>,
    /// Time at which the code expires.
    pub expires_at: Timestamp,
}

impl Api {
    /// Requests a code for the user.
    ///
    /// # Errors
    /// The error of the server, or [`ApiError::Profile`] if the profile has no client_id, or
    /// [`ApiError::SignIn`] if the server has no device authorization endpoint.
    pub async fn begin_device_sign_in(&self, scope: &str) -> Result<PendingDeviceSignIn, ApiError> {
        const NO_CLIENT: &str =
            "sign-in requires a client: use --client-id ID, a profile with client_id, or --demo DIR";
        if self.profile().client_id.is_none() {
            return Err(ApiError::Profile(NO_CLIENT));
        }
        let openid = self.openid().await?;
        let Some(endpoint) = &openid.device_authorization_endpoint else {
            let reason = "the server offers no sign-in on another device; sign in with the browser";
            return Err(ApiError::SignIn(reason.to_owned()));
        };
        super::discovery::check_safe(endpoint)?;
        let address = |error: url::ParseError| ApiError::Request(error.to_string());
        let url = DeviceAuthorizationUrl::new(endpoint.clone()).map_err(address)?;
        let client = self.oauth_client(&openid.token_endpoint)?.set_device_authorization_url(url);
        let asked_at = self.now();
        let request = client
            .exchange_device_code()
            .add_scopes(scope.split_whitespace().map(|scope| Scope::new(scope.to_owned())));
        let sender = self.oauth2_sender(&openid.token_endpoint);
        let response = request.request_async::<_, EmptyExtraDeviceAuthorizationFields>(&sender).await;
        let response = response.map_err(|error| token_error(endpoint, error))?;
        let life = SignedDuration::try_from(response.expires_in()).unwrap_or_default();
        let prompt = DevicePrompt {
            user_code: response.user_code().secret().clone(),
            address: response.verification_uri().to_string(),
            complete_address: response.verification_uri_complete().map(|url| url.secret().clone()),
            expires_at: asked_at.saturating_add(life).unwrap_or(asked_at),
        };
        Ok(PendingDeviceSignIn { response, scope: scope.to_owned(), prompt })
    }

    /// Polls the token endpoint until the user has answered, and stores the tokens.
    ///
    /// # Errors
    /// [`ApiError::SignIn`] if the user denied the sign-in or the code has expired, or the error of a
    /// request.
    pub async fn finish_device_sign_in(&self, pending: &PendingDeviceSignIn) -> Result<UserTokens, ApiError> {
        let openid = self.openid().await?;
        let client = self.oauth_client(&openid.token_endpoint)?;
        let request = client.exchange_device_access_token(&pending.response);
        let wait = {
            let api = self.clone();
            move |duration| {
                let api = api.clone();
                async move { api.wait(duration).await }
            }
        };
        let sender = self.oauth2_sender(&openid.token_endpoint);
        let answer = request.request_async(&sender, wait, None).await;
        let response = answer.map_err(|error| token_error(&openid.token_endpoint, error))?;
        self.store_session(response, &pending.scope, None, self.now()).await
    }
}
