//! The completion of every sign-in.

use http::{StatusCode, header};
use identity::audit::AuditEvent;
use identity::model::user::User;
use identity::sign_in::linked_account::LinkError;
use identity::sign_in::session::{SessionOrigin, SignInProof};
use store::StoreError;

use super::destination::SignInDestination;
use crate::http::extract::RequestContext;
use crate::http::pages::texts::fill;
use crate::http::pages::{cookie, error_page, resume};
use crate::http::reply;
use crate::http::reply::Response;

/// Completes a sign-in: creates the session, links a pending external account, sets the cookies and
/// redirects.
///
/// # Errors
/// [`StoreError`] if the session or the link cannot be stored.
pub async fn complete_sign_in(
    context: &RequestContext,
    user: &User,
    proof: &SignInProof,
    onward: &SignInDestination,
) -> Result<Response, StoreError> {
    let (app, identity) = (&context.app, &context.app.identity);
    // The request time may be old, because the hash may have waited for its turn.
    let now = app.clock.now();
    if proof.provider.is_none()
        && let Some(provider) = identity.sign_in.only_provider(&user.sub, now).await?
    {
        let (sub, reason) = (Some(user.sub.clone()), "the provider of the user permits no own methods");
        identity.audit.record(AuditEvent::SignInFailed { sub, reason });
        return Ok(error_page::error(StatusCode::FORBIDDEN, &fill("Sign in with {}", &[&provider])));
    }
    let agent = context.header(header::USER_AGENT).unwrap_or_default().to_owned();
    let origin = SessionOrigin { address: context.address_text(), agent };
    let value =
        identity.sessions.begin_session(user, proof, origin, context.cookies.session.as_deref(), now).await?;
    if let (Some(link), Some(browser)) = (&onward.link, context.cookies.browser.as_deref()) {
        match identity.sign_in.link_pending_account(link, browser, user, now).await {
            Ok(()) => {}
            Err(LinkError::Store(error)) => return Err(error),
            Err(error) => tracing::warn!(%error, "an external account was not linked"),
        }
    }
    let status = if context.method == http::Method::GET { StatusCode::FOUND } else { StatusCode::SEE_OTHER };
    let response = reply::no_store(reply::redirect(status, &resume::destination_url(app, &onward.back)));
    let response = cookie::set(response, Some(cookie::set_session(app, &value)));
    let device = identity.throttle.device_cookie(user, context.cookies.device.as_deref());
    Ok(cookie::set(response, Some(cookie::set_device(app, &device))))
}
