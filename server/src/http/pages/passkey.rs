//! {base}/passkey: sign-in by passkey. The browser's part is `passkey.js`, which fills the forms here and
//! sends them; without script these forms stay hidden.

use http::{StatusCode, header};
use identity::audit::Event;
use identity::passkey::{Begun, PasskeyError};
use identity::pending::PendingKind;
use identity::user::User;
use maud::{Markup, html};

use super::sign_in::{self, Onward};
use super::{cookie, csrf, page_with_script};
use crate::http::extract::Call;
use crate::http::problem::{self, Dialect};
use crate::http::reply::{self, Response};

/// What is said of whatever did not hold.
const REFUSED: &str = "This passkey was not accepted here.";

/// The form that the script on the sign-in page shows.
pub fn sign_in_form(browser: &str, onward: &Onward) -> Markup {
    html! {
        form hidden method="post" action="/passkey" data-passkey="get" data-options="/passkey/options" {
            (csrf::field(browser))
            (onward.fields())
            input type="hidden" name="ceremony" value="";
            input type="hidden" name="credential" value="";
            button.second type="submit" { "Sign in with a passkey" }
            p.quiet role="status" {}
        }
    }
}

/// GET {base}/passkey.js
pub async fn script(_: Call) -> Response {
    let response = reply::body(StatusCode::OK, "text/javascript;charset=utf-8", include_str!("passkey.js"));
    reply::with(response, header::CACHE_CONTROL, "public, max-age=3600")
}

/// What the browser's part needs to begin, as JSON.
pub fn begun(begun: &Begun) -> Response {
    reply::no_store(reply::json(StatusCode::OK, begun))
}

/// POST {base}/passkey/options: begins a sign-in that names nobody.
pub async fn options(mut call: Call) -> Response {
    if let Err(response) = csrf::form(&mut call).await {
        return response;
    }
    if let Err(error) = call.add_pending(PendingKind::PasskeyCeremony, None) {
        return problem::pending(Dialect::Page, error);
    }
    let browser = cookie::known_browser(&call).unwrap_or_default();
    match call.app.identity.begin_passkey_sign_in(None, browser, call.now).await {
        Ok(ceremony) => begun(&ceremony),
        Err(error) => problem::passkey(&error),
    }
}

/// POST {base}/passkey: ends it.
pub async fn post(mut call: Call) -> Response {
    let sent = match csrf::form(&mut call).await {
        Ok(sent) => sent,
        Err(response) => return response,
    };
    let onward = Onward::read(&sent);
    let browser = cookie::known_browser(&call).unwrap_or_default();
    let (ceremony, credential) =
        (sent.get("ceremony").unwrap_or_default(), sent.get("credential").unwrap_or_default());
    let identity = &call.app.identity;
    match identity.finish_passkey_sign_in(ceremony, credential, browser, call.now).await {
        Ok((user, proof)) => match sign_in::complete(&call, &user, &proof, &onward).await {
            Ok(response) => response,
            Err(error) => problem::store(Dialect::Page, &error),
        },
        Err(PasskeyError::Store(error)) => problem::store(Dialect::Page, &error),
        Err(PasskeyError::Over) => {
            let text = PasskeyError::Over.to_string();
            sign_in::again(&call, &onward, "", StatusCode::BAD_REQUEST, &sentence(&text)).await
        }
        Err(error) => {
            tracing::info!(%error, "sign-in by passkey");
            identity.record(Event::SignInFailed { sub: None, reason: "passkey refused" });
            sign_in::again(&call, &onward, "", StatusCode::UNAUTHORIZED, REFUSED).await
        }
    }
}

/// The page between a right password and the session of a user who wants a passkey asked for as well.
pub async fn after_password(call: &Call, user: &User, onward: &Onward) -> Response {
    let (browser, set_cookie) = cookie::browser(call);
    let ceremony = match call.app.identity.begin_passkey_sign_in(Some(user), &browser, call.now).await {
        Ok(ceremony) => ceremony,
        Err(error) => return problem::passkey(&error),
    };
    let content = html! {
        p { "Your password was right. This account also asks for a passkey." }
        form hidden method="post" action="/passkey" data-passkey="get" data-begun=(ceremony.options) {
            (csrf::field(&browser))
            (onward.fields())
            input type="hidden" name="ceremony" value=(ceremony.ceremony);
            input type="hidden" name="credential" value="";
            button type="submit" { "Use a passkey" }
            p.quiet role="status" {}
        }
        noscript { p { "Passkeys need script in this browser. A recovery code works without." } }
        p { a href=(onward.at("/recovery")) { "Use a recovery code" } }
    };
    let response = reply::html(StatusCode::OK, page_with_script("Use your passkey", &content));
    reply::no_store(cookie::set(response, set_cookie))
}

/// An error's text as a sentence of a page.
pub fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}
