//! {base}/passkey: sign-in by passkey. The script `passkey.js` fills in and sends the forms; without it they stay
//! hidden.

use http::{StatusCode, header};
use identity::audit::AuditEvent;
use identity::model::user::User;
use identity::sign_in::passkey::PasskeyCeremonyStart;
use identity::sign_in::passkey_error::PasskeyError;
use identity::sign_in::pending_quota::PendingKind;
use maud::{Markup, html};

use super::sign_in::{self, SignInDestination};
use super::texts::t;
use super::{cookie, csrf, page_with_script};
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};

/// The only text for a rejected passkey; the reason is logged.
const REFUSED: &str = "This passkey was not accepted.";

/// Returns the form for the sign-in page, which the script shows.
pub fn sign_in_form(browser: &str, onward: &SignInDestination) -> Markup {
    html! {
        form hidden method="post" action="/passkey" data-passkey="get" data-options="/passkey/options" {
            (csrf::hidden_field(browser))
            (onward.fields())
            input type="hidden" name="ceremony" value="";
            input type="hidden" name="credential" value="";
            button.second type="submit" { (t("Sign in with a passkey")) }
            (ceremony_status())
        }
    }
}

/// Returns the element in which the script reports the state of a ceremony, with its texts.
pub fn ceremony_status() -> Markup {
    html! {
        p.quiet role="status" data-waiting=(t("Waiting for your passkey…"))
            data-known=(t("This device has a passkey for this account already."))
            data-unused=(t("No passkey was used. You can try again.")) {}
    }
}

/// GET {base}/passkey.js
pub async fn passkey_script(_: &RequestContext) -> Result<Response, Problem> {
    let response = reply::body(StatusCode::OK, "text/javascript;charset=utf-8", include_str!("passkey.js"));
    Ok(reply::with(response, header::CACHE_CONTROL, "public, max-age=3600"))
}

/// Returns the options of a ceremony as JSON, for the script.
pub fn ceremony_options(begun: &PasskeyCeremonyStart) -> Response {
    reply::no_store(reply::json(StatusCode::OK, begun))
}

/// POST {base}/passkey/options: begins a sign-in without a user name.
pub async fn begin_sign_in(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    csrf::read_form(context, body).await?;
    context.add_pending(PendingKind::PasskeyCeremony, None)?;
    let browser = cookie::known_browser(context).unwrap_or_default();
    let ceremony = context.app.identity.sign_in.begin_passkey_sign_in(None, browser, context.now).await?;
    Ok(ceremony_options(&ceremony))
}

/// POST {base}/passkey: completes a sign-in.
pub async fn complete_sign_in(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    let sent = csrf::read_form(context, body).await?;
    let onward = SignInDestination::read(&sent);
    let browser = cookie::known_browser(context).unwrap_or_default();
    let (ceremony, credential) =
        (sent.get("ceremony").unwrap_or_default(), sent.get("credential").unwrap_or_default());
    let identity = &context.app.identity;
    match identity.sign_in.finish_passkey_sign_in(ceremony, credential, browser, context.now).await {
        Ok((user, proof)) => Ok(sign_in::complete_sign_in(context, &user, &proof, &onward).await?),
        Err(PasskeyError::Store(error)) => Err(error.into()),
        Err(PasskeyError::CeremonyExpired) => {
            let text = PasskeyError::CeremonyExpired.to_string();
            Ok(sign_in::show_error(context, &onward, "", StatusCode::BAD_REQUEST, &as_sentence(&text)).await)
        }
        Err(error) => {
            tracing::info!(%error, "sign-in by passkey");
            identity.audit.record(AuditEvent::SignInFailed { sub: None, reason: "passkey refused" });
            Ok(sign_in::show_error(context, &onward, "", StatusCode::UNAUTHORIZED, REFUSED).await)
        }
    }
}

/// Shows the page that asks for a passkey after a correct password.
///
/// # Errors
/// Returns [`PasskeyError`] if the ceremony cannot begin.
pub async fn ask_after_password(
    context: &RequestContext,
    user: &User,
    onward: &SignInDestination,
) -> Result<Response, PasskeyError> {
    let (browser, set_cookie) = cookie::browser(context);
    let ceremony =
        context.app.identity.sign_in.begin_passkey_sign_in(Some(user), &browser, context.now).await?;
    let content = html! {
        p { (t("Your password is correct. This account also requires a passkey.")) }
        form hidden method="post" action="/passkey" data-passkey="get" data-begun=(ceremony.options) {
            (csrf::hidden_field(&browser))
            (onward.fields())
            input type="hidden" name="ceremony" value=(ceremony.ceremony);
            input type="hidden" name="credential" value="";
            button type="submit" { (t("Use a passkey")) }
            (ceremony_status())
        }
        noscript { p { (t("Passkeys require JavaScript. A recovery code does not.")) } }
        p { a href=(onward.at("/recovery")) { (t("Use a recovery code")) } }
    };
    let response = reply::html(StatusCode::OK, page_with_script(t("Use your passkey"), &content));
    Ok(reply::no_store(cookie::set(response, set_cookie)))
}

/// Returns the text of an error as a sentence.
pub fn as_sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}
