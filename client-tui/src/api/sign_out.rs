//! The end of a session: its tokens are deleted here at once, and revoked at the server (RFC 7009).
//!
//! If the server cannot be reached, the refresh token is kept in a file of its own, only to be revoked: by
//! the next start of the screens, or by the next `sign-out`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use oauth2::TokenResponse as _;
use url::Url;

use super::session::file_error;
use super::user_tokens::UserTokens;
use super::{Api, ApiError};
use crate::private_files::{create_private_folder, replace_private_file};

/// The end of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedOut {
    pub revocation: Revocation,
    /// Address that ends the session of the browser (OpenID Connect RP-Initiated Logout), if the server has
    /// one.
    pub end_session: Option<String>,
}

/// The state of the tokens at the server after a sign-out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Revocation {
    Revoked,
    /// The server has no revocation endpoint.
    NotOffered,
    /// The tokens could not be revoked for this reason. The refresh token is kept, and revoked later.
    Pending(String),
    /// The tokens could not be revoked for this reason, and nothing is kept.
    Failed(String),
}

impl SignedOut {
    /// The address that ends the session of the browser.
    ///
    /// # Errors
    /// [`ApiError::SignIn`] if the server does not have one.
    pub fn browser_sign_out(&self) -> Result<&str, ApiError> {
        self.end_session.as_deref().ok_or_else(|| {
            ApiError::SignIn("the server does not offer to end the session of the browser".to_owned())
        })
    }

    pub fn sentence(&self) -> String {
        match &self.revocation {
            Revocation::Revoked => "Signed out; the token is revoked.".to_owned(),
            Revocation::NotOffered => {
                "Signed out here; the server offers no revocation, so the token is valid until it expires."
                    .to_owned()
            }
            Revocation::Failed(reason) => format!(
                "Signed out here; the token is not revoked ({reason}), and is valid until it expires."
            ),
            Revocation::Pending(reason) => format!(
                "Signed out here; the token is not revoked yet ({reason}). The next start and 'sign-out' try \
                 again, and 'sign-out --forget' gives up."
            ),
        }
    }
}

impl Api {
    /// Deletes the tokens here, and revokes them.
    ///
    /// # Errors
    /// [`ApiError::NotSignedIn`], or the error of a file that cannot be changed.
    pub async fn sign_out(&self) -> Result<SignedOut, ApiError> {
        // Before the tokens are deleted here.
        self.check_writable("revokes tokens")?;
        let Some(tokens) = self.user_tokens().await.take() else { return Err(ApiError::NotSignedIn) };
        let mut pending = self.read_pending();
        pending.extend(tokens.answer.refresh_token().map(|token| token.secret().clone()));
        let result = self.write_pending(&pending);
        // A file that cannot be removed does not keep its tokens valid.
        let removed = self.profile().token_file.as_deref().map_or(Ok(false), remove_file);
        let end_session = self.end_session().await;
        let revocation = match self.revoke(&pending, Some(&tokens)).await {
            Ok(revocation) => {
                self.forget_pending()?;
                revocation
            }
            Err(error) if result => Revocation::Pending(error.to_string()),
            Err(error) => Revocation::Failed(error.to_string()),
        };
        removed?;
        Ok(SignedOut { revocation, end_session })
    }

    /// Revokes the tokens of earlier sign-outs. Returns `None` if there are none.
    ///
    /// # Errors
    /// The error of the request, after which the tokens are still kept.
    pub async fn revoke_pending(&self) -> Result<Option<SignedOut>, ApiError> {
        let pending = self.read_pending();
        if pending.is_empty() {
            return Ok(None);
        }
        self.check_writable("revokes tokens")?;
        let revocation = self.revoke(&pending, None).await?;
        self.forget_pending()?;
        Ok(Some(SignedOut { revocation, end_session: self.end_session().await }))
    }

    /// Deletes the tokens of earlier sign-outs without revoking them. Returns whether there were any.
    ///
    /// # Errors
    /// The error of the file.
    pub fn forget_pending(&self) -> Result<bool, ApiError> {
        self.pending_file().map_or(Ok(false), |path| remove_file(&path))
    }

    /// Revokes refresh tokens, and the access token of the session that ends.
    async fn revoke(&self, pending: &[String], session: Option<&UserTokens>) -> Result<Revocation, ApiError> {
        let openid = self.openid().await?;
        let Some(url) = &openid.revocation_endpoint else { return Ok(Revocation::NotOffered) };
        super::discovery::check_safe(url)?;
        let refresh = pending.iter().map(|token| ("refresh_token", token));
        let access = session.map(|tokens| ("access_token", tokens.answer.access_token().secret()));
        for (hint, token) in refresh.chain(access) {
            let form = vec![("token", token.clone()), ("token_type_hint", hint.to_owned())];
            let client = self.user_client().ok_or(ApiError::NotSignedIn)?;
            let response =
                self.call(self.client_request(url, form, &client, &openid.token_endpoint)?).await?;
            if !response.status.is_success() {
                return Err(ApiError::refused(url, &response));
            }
        }
        Ok(Revocation::Revoked)
    }

    /// The address that ends the session of the browser, if the server can be reached and has one.
    async fn end_session(&self) -> Option<String> {
        let mut url = Url::parse(self.openid().await.ok()?.end_session_endpoint.as_ref()?).ok()?;
        // The address is an argument of the program that opens the browser, which everybody on this machine
        // can read: it has no token.
        if let Some(client_id) = &self.profile().client_id {
            url.query_pairs_mut().append_pair("client_id", client_id);
        }
        Some(url.to_string())
    }

    /// The file with the refresh tokens that are still to be revoked.
    fn pending_file(&self) -> Option<PathBuf> {
        self.profile().token_file.as_ref().map(|path| path.with_extension("revoke"))
    }

    fn read_pending(&self) -> Vec<String> {
        let text = self.pending_file().and_then(|path| std::fs::read(path).ok());
        text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    /// Keeps tokens that are still to be revoked. Returns whether that was possible.
    fn write_pending(&self, tokens: &[String]) -> bool {
        let Some(path) = self.pending_file().filter(|_| !tokens.is_empty()) else { return false };
        let text = serde_json::to_vec(tokens).expect("texts are JSON");
        let folder = path.parent().unwrap_or(Path::new("."));
        create_private_folder(folder).and_then(|()| replace_private_file(&path, &text)).is_ok()
    }
}

/// Removes a file. Returns whether it existed.
fn remove_file(path: &Path) -> Result<bool, ApiError> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
        Err(error) => Err(file_error(path, &error)),
    }
}
