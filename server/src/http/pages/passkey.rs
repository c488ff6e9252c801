//! {base}/passkey: sign-in by passkey. The script `passkey.js` fills in and sends the forms; without it they
//! stay hidden.

use http::{StatusCode, header};
use identity::audit::AuditEvent;
use identity::sign_in::passkey::PasskeyCeremonyStart;
use identity::sign_in::passkey_error::PasskeyError;
use identity::sign_in::pending_quota::PendingKind;

use super::csrf;
use super::sign_in;
use super::sign_in::destination::SignInDestination;
use super::texts::as_sentence;
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};

/// The only text for a rejected passkey; the reason is logged.
const REFUSED: &str = "This passkey was not accepted.";

/// GET {base}/passkey.js
pub async fn passkey_script(_: &RequestContext) -> Result<Response, Problem> {
    let response = reply::body(StatusCode::OK, "text/javascript;charset=utf-8", include_str!("passkey.js"));
    Ok(reply::with(response, header::CACHE_CONTROL, "public, max-age=3600"))
}

/// The options of a ceremony as JSON, for the script.
pub fn ceremony_options(start: &PasskeyCeremonyStart) -> Response {
    reply::no_store(reply::json(StatusCode::OK, start))
}

/// POST {base}/passkey/options: begins a sign-in without a user name.
pub async fn begin_sign_in(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    csrf::read_form(context, body).await?;
    context.add_pending(PendingKind::PasskeyCeremony, None)?;
    let browser = context.cookies.browser.as_deref().unwrap_or_default();
    let ceremony = context.app.identity.sign_in.begin_passkey_sign_in(None, browser, context.now).await?;
    Ok(ceremony_options(&ceremony))
}

/// POST {base}/passkey: completes a sign-in.
pub async fn complete_sign_in(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    let fields = csrf::read_form(context, body).await?;
    let onward = SignInDestination::read(&fields);
    let browser = context.cookies.browser.as_deref().unwrap_or_default();
    let (ceremony, credential) =
        (fields.get("ceremony").unwrap_or_default(), fields.get("credential").unwrap_or_default());
    let identity = &context.app.identity;
    match identity.sign_in.finish_passkey_sign_in(ceremony, credential, browser, context.now).await {
        Ok((user, proof)) => {
            Ok(super::sign_in::completion::complete_sign_in(context, &user, &proof, &onward).await?)
        }
        Err(PasskeyError::Store(error)) => Err(error.into()),
        Err(PasskeyError::CeremonyExpired) => {
            let text = PasskeyError::CeremonyExpired.to_string();
            Ok(sign_in::form::show_error(context, &onward, "", StatusCode::BAD_REQUEST, &as_sentence(&text))
                .await)
        }
        Err(error) => {
            tracing::info!(%error, "sign-in by passkey");
            identity.audit.record(AuditEvent::SignInFailed { sub: None, reason: "passkey refused" });
            Ok(sign_in::form::show_error(context, &onward, "", StatusCode::UNAUTHORIZED, REFUSED).await)
        }
    }
}
