//! A sign-in from the authorization request to the tokens, used by screens and subcommands.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::api::{Api, ApiError, DevicePrompt, UserTokens};
use crate::browser;
use crate::loopback::{LoopbackListener, SignInResult, WaitingBrowser};

/// Longest time for which the browser is not opened, because the server is asked first.
const TRIAL: Duration = Duration::from_secs(3);
/// Longest time for which the browser waits for the exchange of the code.
const BROWSER_WAIT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The user must open `url` in a browser.
    GoTo {
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

/// How long a sign-in waits for the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Whether the user can paste an address, so that the sign-in needs no browser.
    pub can_paste: bool,
    /// Maximum time; `None` waits until the sign-in is cancelled.
    pub at_most: Option<Duration>,
}

impl Patience {
    /// Waits for a user who sees the address, and who can cancel.
    pub const ENDLESS: Self = Self { can_paste: true, at_most: None };
}

/// Signs in a user. The response arrives by the redirect of the browser to this machine, or as a text from
/// `pasted`.
///
/// # Errors
/// The error of a request, or [`ApiError::SignIn`] if the server or the user denied the sign-in, nobody can
/// sign in, or the time is over.
pub async fn sign_in(
    api: &Api,
    scope: &str,
    patience: Patience,
    mut pasted: mpsc::Receiver<String>,
    tell: impl Fn(Step),
) -> Result<UserTokens, ApiError> {
    let failure = |error: &dyn std::error::Error| ApiError::SignIn(error.to_string());
    let (host, path) = (&api.profile().redirect_host, &api.profile().redirect_path);
    let loopback = LoopbackListener::bind(host, path).await.map_err(|error| failure(&error))?;
    let redirect_uri = loopback.redirect_uri();
    let trial = api.try_authorization(&redirect_uri, scope);
    if let Ok(Some(reason)) = tokio::time::timeout(TRIAL, trial).await {
        return Err(ApiError::SignIn(reason));
    }
    let pending = api.begin_sign_in(&redirect_uri, scope).await?;
    let url = pending.url.to_string();
    let no_browser = || Err("--no-browser is set".to_owned());
    let browser = if api.profile().open_browser { browser::open(&url) } else { no_browser() };
    let is_alone = !patience.can_paste && api.profile().open_browser;
    let nobody = browser.as_ref().err().filter(|_| is_alone).map(|reason| {
        format!(
            "no browser was opened ({reason}), and without a terminal no address can be pasted; use --device, name a \
             browser by BROWSER, or send a token with --token"
        )
    });
    tell(Step::GoTo { url, browser });
    if let Some(text) = nobody {
        return Err(ApiError::SignIn(text));
    }
    let by_hand = async {
        while let Some(text) = pasted.recv().await {
            let code = match pending.judge_pasted(&text) {
                Ok(code) => code,
                Err(error) if error.ends_sign_in() => return Err(failure(&error)),
                Err(error) => {
                    tell(Step::PasteRefused(error.to_string()));
                    continue;
                }
            };
            match api.redeem(&pending, code).await {
                // Any word looks like a code. The code of this sign-in is not used up by a wrong one.
                Err(error @ ApiError::RejectedCode(_)) => tell(Step::PasteRefused(error.to_string())),
                redeemed => return redeemed,
            }
        }
        std::future::pending().await
    };
    let time_over = async {
        match patience.at_most {
            Some(time) => tokio::time::sleep(time).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        arrived = loopback.wait(&pending) => {
            let (code, browser) = arrived.map_err(|error| failure(&error))?;
            redeem_beside(api.redeem(&pending, code), browser).await
        }
        tokens = by_hand => tokens,
        () = time_over => {
            let seconds = patience.at_most.unwrap_or_default().as_secs();
            Err(ApiError::SignIn(format!("no user signed in within {seconds} s; sign in again, or raise --timeout")))
        }
    }
}

/// Exchanges the code while the browser waits, and shows the result there.
async fn redeem_beside(
    exchange: impl Future<Output = Result<UserTokens, ApiError>>,
    browser: WaitingBrowser,
) -> Result<UserTokens, ApiError> {
    let mut exchange = pin!(exchange);
    let Ok(redeemed) = tokio::time::timeout(BROWSER_WAIT, &mut exchange).await else {
        browser.show(SignInResult::Pending).await;
        return exchange.await;
    };
    match &redeemed {
        Ok(_) => browser.show(SignInResult::SignedIn).await,
        Err(error) => browser.show(SignInResult::Failed(&error.to_string())).await,
    }
    redeemed
}
