//! A sign-in from the authorization request to the tokens, used by screens and subcommands.

use tokio::sync::mpsc;

use crate::api::{Api, ApiError, DevicePrompt, UserTokens};
use crate::browser;
use crate::loopback::LoopbackListener;

/// Progress event of a sign-in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The user must open `url` in a browser.
    GoTo {
        /// URL of the authorization request.
        url: String,
        /// `Ok` if a browser was started, or else the reason why not.
        browser: Result<(), String>,
    },
    /// The pasted text is not valid; the sign-in continues.
    PasteRefused(String),
    /// The user must enter a code on any device.
    Device(DevicePrompt),
}

/// Signs in a user on any device.
///
/// # Errors
/// The error of a request, or [`ApiError::SignIn`] if the user denied the sign-in or the code has expired.
pub async fn sign_in_on_device(api: &Api, scope: &str, tell: impl Fn(Step)) -> Result<UserTokens, ApiError> {
    let pending = api.begin_device_sign_in(scope).await?;
    tell(Step::Device(pending.prompt.clone()));
    api.finish_device_sign_in(&pending).await
}

/// Signs in a user. The response arrives by the redirect of the browser to this machine, or as a text from
/// `pasted`.
///
/// # Errors
/// The error of a request, or [`ApiError::SignIn`] if the server or the user denied the sign-in.
pub async fn sign_in(
    api: &Api,
    scope: &str,
    mut pasted: mpsc::Receiver<String>,
    tell: impl Fn(Step),
) -> Result<UserTokens, ApiError> {
    let refused = |error: &dyn std::error::Error| ApiError::SignIn(error.to_string());
    let loopback =
        LoopbackListener::bind(&api.profile().redirect_host).await.map_err(|error| refused(&error))?;
    let pending = api.begin_sign_in(&loopback.redirect_uri(), scope).await?;
    let url = pending.url.to_string();
    let no_browser = || Err("--no-browser is set".to_owned());
    let browser = if api.profile().open_browser { browser::open(&url) } else { no_browser() };
    tell(Step::GoTo { url, browser });
    let by_hand = async {
        while let Some(text) = pasted.recv().await {
            match pending.judge_pasted(&text) {
                Ok(code) => return Ok(code),
                Err(error) if error.ends_sign_in() => return Err(error),
                Err(error) => tell(Step::PasteRefused(error.to_string())),
            }
        }
        std::future::pending().await
    };
    let code = tokio::select! {
        code = loopback.wait(&pending) => code,
        code = by_hand => code,
    };
    let code = code.map_err(|error| refused(&error))?;
    api.redeem(pending, code).await
}
