//! One sign-in from its beginning to the tokens, as screens and subcommands both run it.

use tokio::sync::mpsc;

use crate::api::{Api, ApiError, UserTokens};
use crate::browser;
use crate::loopback::LoopbackListener;

/// Event of a sign-in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The browser has to go there. `browser` says why it was not opened, if it was not.
    GoTo {
        /// The authorization request.
        url: String,
        /// `Ok` when a browser was started.
        browser: Result<(), String>,
    },
    /// The pasted text is not valid; the sign-in continues.
    PasteRefused(String),
}

/// Signs a person in: by the browser's redirect to this machine, or by what comes over `pasted`.
///
/// # Errors
/// The server's; [`ApiError::SignIn`] when the server or the person refused.
pub async fn sign_in(
    api: &Api,
    scope: &str,
    mut pasted: mpsc::Receiver<String>,
    tell: impl Fn(Step),
) -> Result<UserTokens, ApiError> {
    let refused = |error: &dyn std::error::Error| ApiError::SignIn(error.to_string());
    let loopback = LoopbackListener::bind().await.map_err(|error| refused(&error))?;
    let pending = api.begin_sign_in(&loopback.redirect_uri(), scope).await?;
    let url = pending.url.to_string();
    let no_browser = || Err("--no-browser was given".to_owned());
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
