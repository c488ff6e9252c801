//! The forms for a sign-in by passkey.

use http::StatusCode;
use identity::model::user::User;
use identity::sign_in::passkey_error::PasskeyError;
use maud::{Markup, html};

use super::destination::SignInDestination;
use crate::http::extract::RequestContext;
use crate::http::pages::frame::page_with_script;
use crate::http::pages::texts::t;
use crate::http::pages::{cookie, csrf};
use crate::http::reply;
use crate::http::reply::Response;

/// The form for the sign-in page, which the script shows.
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

/// The element in which the script reports the state of a ceremony, with its texts.
pub fn ceremony_status() -> Markup {
    html! {
        p.quiet role="status" data-waiting=(t("Waiting for your passkey…"))
            data-known=(t("This device has a passkey for this account already."))
            data-unused=(t("No passkey was used. You can try again.")) {}
    }
}

/// Shows the page that asks for a passkey after a correct password.
///
/// # Errors
/// [`PasskeyError`] if the ceremony cannot begin.
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
