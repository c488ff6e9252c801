//! The session of the signed-in user: its tokens, their renewal, and its end.
//!
//! Tokens are stored in a file that only the user may read, so that a later run of the program continues the
//! session.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use oauth2::{RefreshToken, TokenResponse as _};

use super::sign_in::{TokenAnswer, check_id_token, token_error};
use super::user_tokens::{SignedInSession, UserTokens};
use super::{Api, ApiError};
use crate::private_files::{create_private_folder, private_file, replace_private_file};

/// Time before the expiry of an access token at which it is renewed.
const RENEW_AHEAD: SignedDuration = SignedDuration::from_secs(20);
/// Lifetime of an access token if the server does not state it.
const DEFAULT_LIFE: Duration = Duration::from_secs(300);

/// Notice if only the token file of an earlier version exists.
pub const SIGN_IN_AGAIN: &str =
    "Sign in again: tokens are now stored for each profile, and those stored before may be another person's.";

fn describe(
    response: &TokenAnswer,
    subject: Option<String>,
    requested_scope: &str,
    asked_at: Timestamp,
) -> SignedInSession {
    // RFC 6749 5.1: a response without `scope` means that all requested scopes were granted.
    let scope =
        response.scopes().map(|all| all.iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join(" "));
    let life = SignedDuration::try_from(response.expires_in().unwrap_or(DEFAULT_LIFE)).unwrap_or_default();
    SignedInSession {
        subject,
        requested_scope: requested_scope.to_owned(),
        scope: scope.unwrap_or_else(|| requested_scope.to_owned()),
        expires_at: asked_at.saturating_add(life).unwrap_or(asked_at),
        renewable: response.refresh_token().is_some(),
        not_stored: None,
    }
}

/// Locks the token file against other processes until the returned file is dropped.
async fn lock_tokens(path: &Path) -> Result<File, ApiError> {
    let path = path.with_extension("lock");
    let lock_path = path.clone();
    let lock = move || {
        if let Some(folder) = path.parent() {
            create_private_folder(folder)?;
        }
        let file = private_file(&path, false)?;
        file.lock()?;
        Ok(file)
    };
    // Waiting for the lock blocks.
    let locked = tokio::task::spawn_blocking(lock).await.map_err(std::io::Error::other);
    locked.and_then(|locked| locked).map_err(|error| file_error(&lock_path, &error))
}

/// Reads the tokens of an earlier run of the program, if the file contains valid ones.
fn read_tokens(path: &Path) -> Option<UserTokens> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

fn write_tokens(path: &Path, tokens: &UserTokens) -> Result<(), ApiError> {
    let text = serde_json::to_vec(tokens).expect("all keys of a token response are strings");
    let folder = path.parent().unwrap_or(Path::new("."));
    let result = create_private_folder(folder).and_then(|()| replace_private_file(path, &text));
    result.map_err(|error| file_error(path, &error))
}

pub(super) fn file_error(path: &Path, error: &std::io::Error) -> ApiError {
    ApiError::File { path: path.display().to_string(), reason: error.to_string() }
}

impl Api {
    /// The session of an earlier run of the program, if it can still be used.
    pub async fn restore_session(&self) -> Option<SignedInSession> {
        let tokens = read_tokens(self.profile().token_file.as_ref()?)?;
        let session = tokens.session.clone();
        if !session.is_usable(self.now()) {
            return None;
        }
        *self.user_tokens().await = Some(tokens);
        Some(session)
    }

    /// Returns whether an earlier version of this program stored tokens for all profiles of this server. They
    /// are not used, because they may be those of another person.
    pub fn has_shared_session(&self) -> bool {
        let profile = self.profile();
        let exists = |file: &Option<std::path::PathBuf>| file.as_deref().is_some_and(Path::exists);
        exists(&profile.shared_token_file) && !exists(&profile.token_file)
    }

    /// The session of the signed-in user.
    pub async fn session(&self) -> Option<SignedInSession> {
        self.user_tokens().await.as_ref().map(|tokens| tokens.session.clone())
    }

    /// Checks the ID token of a response and stores the tokens.
    pub(super) async fn store_session(
        &self,
        response: TokenAnswer,
        requested_scope: &str,
        nonce: Option<&str>,
        asked_at: Timestamp,
    ) -> Result<UserTokens, ApiError> {
        let subject = self.check_subject(&response, nonce, asked_at).await?;
        let session = describe(&response, subject, requested_scope, asked_at);
        Ok(self.keep(UserTokens { answer: response, session }).await)
    }

    /// Checks the ID token of a response, if it has one, and returns its subject.
    async fn check_subject(
        &self,
        response: &TokenAnswer,
        nonce: Option<&str>,
        asked_at: Timestamp,
    ) -> Result<Option<String>, ApiError> {
        let Some(id_token) = &response.extra_fields().id_token else { return Ok(None) };
        let client_id = self.profile().client_id.as_deref().unwrap_or_default();
        let issuer = &self.openid().await?.issuer;
        check_id_token(id_token, issuer, client_id, nonce, asked_at).map(Some).map_err(|reason| {
            ApiError::SignIn(format!("the ID token does not belong to this sign-in: {reason}"))
        })
    }

    /// Keeps the tokens in the file of the profile and in memory, or only in memory if the file cannot be
    /// written.
    async fn keep(&self, mut tokens: UserTokens) -> UserTokens {
        if let Some(path) = &self.profile().token_file
            && let Err(error) = write_tokens(path, &tokens)
        {
            // The tokens in it are older. A second use of their refresh token would end the session.
            let _ = std::fs::remove_file(path);
            tokens.session.not_stored = Some(error.to_string());
        }
        *self.user_tokens().await = Some(tokens.clone());
        tokens
    }

    /// The access token of the user. It is renewed shortly before it expires.
    ///
    /// # Errors
    /// [`ApiError::NotSignedIn`], or the error of the renewal.
    pub(super) async fn user_token(&self) -> Result<String, ApiError> {
        let tokens = self.user_tokens().await.clone().ok_or(ApiError::NotSignedIn)?;
        if !self.is_due(&tokens) {
            return Ok(tokens.answer.access_token().secret().clone());
        }
        // The task continues if the caller is cancelled: a refresh token that rotates must not be lost.
        let api = self.clone();
        let renewal = tokio::spawn(async move { api.renew_when_due().await });
        renewal.await.map_err(|error| ApiError::SignIn(error.to_string()))?
    }

    /// Returns whether the access token must be renewed, and can be.
    fn is_due(&self, tokens: &UserTokens) -> bool {
        let due =
            tokens.session.expires_at.saturating_sub(RENEW_AHEAD).unwrap_or(Timestamp::MIN) <= self.now();
        due && tokens.answer.refresh_token().is_some()
    }

    /// Renews the access token if no other task or process has renewed it in the meantime: with rotating
    /// refresh tokens, a second use of one ends the session.
    async fn renew_when_due(&self) -> Result<String, ApiError> {
        let _renewing = self.renewal().lock().await;
        // Without a lock, no process can store tokens either.
        let _file = match &self.profile().token_file {
            Some(path) => lock_tokens(path).await.ok(),
            None => None,
        };
        let mut tokens = self.user_tokens().await.clone().ok_or(ApiError::NotSignedIn)?;
        if let Some(file_tokens) = self.profile().token_file.as_deref().and_then(read_tokens) {
            *self.user_tokens().await = Some(file_tokens.clone());
            tokens = file_tokens;
        }
        let refresh_token = tokens.answer.refresh_token().filter(|_| self.is_due(&tokens));
        let Some(refresh_token) = refresh_token else {
            return Ok(tokens.answer.access_token().secret().clone());
        };
        let renewed = self.renew(&tokens, refresh_token).await?;
        Ok(renewed.answer.access_token().secret().clone())
    }

    /// Renews the tokens (RFC 6749 6). The subject and the ID token of the sign-in are kept if the response
    /// has none.
    async fn renew(&self, tokens: &UserTokens, refresh_token: &RefreshToken) -> Result<UserTokens, ApiError> {
        let openid = self.openid().await?;
        let client = self.oauth_client(&openid.token_endpoint)?;
        let asked_at = self.now();
        let sender = self.oauth2_sender(&openid.token_endpoint);
        let renewed = client.exchange_refresh_token(refresh_token).request_async(&sender).await;
        let mut response = renewed.map_err(|error| token_error(&openid.token_endpoint, error))?;
        if response.refresh_token().is_none() {
            response.set_refresh_token(Some(refresh_token.clone()));
        }
        if response.scopes().is_none() {
            response.set_scopes(tokens.answer.scopes().cloned());
        }
        let subject = match self.check_subject(&response, None, asked_at).await? {
            Some(subject) => Some(subject),
            None => {
                response.set_extra_fields(tokens.answer.extra_fields().clone());
                tokens.session.subject.clone()
            }
        };
        let session = describe(&response, subject, &tokens.session.requested_scope, asked_at);
        Ok(self.keep(UserTokens { answer: response, session }).await)
    }
}
