//! The session of this browser.

use identity::model::user::User;
use identity::sign_in::session::Session;
use store::StoreError;

use crate::http::extract::RequestContext;
use crate::records::audit;

/// The session and the user of this browser.
///
/// # Errors
/// [`StoreError`] if the session cannot be read.
pub async fn signed_in(context: &RequestContext) -> Result<Option<(Session, User)>, StoreError> {
    match context.cookies.session.as_deref() {
        Some(value) => {
            let session = context.app.identity.sessions.active_session(value, context.now).await?;
            if session.is_some() {
                audit::mark_authenticated();
            }
            Ok(session)
        }
        None => Ok(None),
    }
}
