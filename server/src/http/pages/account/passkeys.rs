//! Passkeys and recovery codes of the user.

use http::StatusCode;
use identity::passkey::{LONGEST_NAME, PasskeyError};
use maud::{Markup, html};
use store::StoreError;

use super::{Visit, begin_fresh, done, when, wrong};
use crate::http::extract::Call;
use crate::http::pages::{csrf, page, passkey};
use crate::http::problem;
use crate::http::reply::{self, Response};

/// The section about passkeys.
pub(super) async fn section(call: &Call, visit: &Visit) -> Result<Markup, StoreError> {
    let identity = &call.app.identity;
    if !identity.has_passkeys() {
        return Ok(html! {
            h2 { "Passkeys" }
            p.quiet { "Passkeys need a server with a host name; this one is reached by a number." }
        });
    }
    let passkeys = identity.passkeys_of(&visit.user.sub, call.now).await?;
    let asked = identity.needs_passkey(&visit.user.sub, call.now).await?;
    Ok(html! {
        h2 { "Passkeys" }
        p.quiet { "A passkey signs you in with your device's fingerprint, face or PIN, and no page can steal it." }
        @if !passkeys.is_empty() {
            ul.rows {
                @for passkey in &passkeys {
                    li {
                        div {
                            strong { (passkey.name) }
                            div.quiet {
                                "added " (when(passkey.since)) br;
                                @match passkey.last_used {
                                    Some(at) => { "last used " (when(at)) }
                                    None => "not used yet",
                                }
                            }
                        }
                        (visit.button("/account/passkeys/remove", &[("id", &passkey.id)], "Remove",
                            Some(&format!("Remove the passkey {}", passkey.name))))
                    }
                }
            }
        }
        form hidden method="post" action="/account/passkeys" data-passkey="create" data-options="/account/passkeys/options" {
            (csrf::field(&visit.browser))
            input type="hidden" name="ceremony" value="";
            input type="hidden" name="credential" value="";
            label for="passkey-name" { "Name of a new passkey" }
            input #passkey-name name="name" autocomplete="off" maxlength=(LONGEST_NAME) aria-describedby="passkey-hint";
            p #passkey-hint .quiet { "Such as the device that it is on." }
            button.second type="submit" { "Add a passkey" }
            p.quiet role="status" {}
        }
        noscript { p.quiet { "Adding a passkey needs script in this browser." } }
        @if visit.user.password.is_some() && !passkeys.is_empty() {
            @if asked {
                p { "Your password alone does not sign you in: a passkey is asked for after it." }
                (visit.button("/account/passkeys/ask", &[("ask", "no")], "Let the password alone do", None))
            } @else {
                p { "Your password signs you in without a passkey." }
                (visit.button("/account/passkeys/ask", &[("ask", "yes")], "Ask for a passkey after the password", None))
            }
        }
    })
}

/// The section about recovery codes.
pub(super) async fn recovery_section(call: &Call, visit: &Visit) -> Result<Markup, StoreError> {
    let left = call.app.identity.recovery_codes_left(&visit.user.sub, call.now).await?;
    Ok(html! {
        h2 { "Recovery codes" }
        p {
            @match left {
                0 => "You have no recovery codes. Each one signs you in once, when you have lost everything else.",
                1 => "You have one recovery code left.",
                left => { "You have " (left) " recovery codes left." }
            }
        }
        (visit.button("/account/recovery-codes", &[], "Make new recovery codes", None))
    })
}

/// POST {base}/account/passkeys/options
pub async fn options(mut call: Call) -> Response {
    let (visit, _) = match begin_fresh(&mut call).await {
        Ok(begun) => begun,
        Err(response) => return response,
    };
    let identity = &call.app.identity;
    match identity.begin_passkey_registration(&visit.user, &visit.browser, call.now).await {
        Ok(begun) => passkey::begun(&begun),
        Err(error) => problem::passkey(&error),
    }
}

/// POST {base}/account/passkeys
pub async fn add(mut call: Call) -> Response {
    let (visit, sent) = match begin_fresh(&mut call).await {
        Ok(begun) => begun,
        Err(response) => return response,
    };
    let [ceremony, credential, name] =
        ["ceremony", "credential", "name"].map(|name| sent.get(name).unwrap_or_default());
    let added = call
        .app
        .identity
        .finish_passkey_registration(&visit.user, ceremony, credential, name, &visit.browser, call.now)
        .await;
    answer(&call, &visit, added, "passkey").await
}

/// POST {base}/account/passkeys/remove
pub async fn remove(mut call: Call) -> Response {
    let (visit, sent) = match begin_fresh(&mut call).await {
        Ok(begun) => begun,
        Err(response) => return response,
    };
    let id = sent.get("id").unwrap_or_default();
    let removed = call.app.identity.remove_passkey(&visit.user, id, call.now).await;
    answer(&call, &visit, removed, "removed").await
}

/// POST {base}/account/passkeys/ask: is a passkey asked for after the password?
pub async fn ask(mut call: Call) -> Response {
    let (visit, sent) = match begin_fresh(&mut call).await {
        Ok(begun) => begun,
        Err(response) => return response,
    };
    let ask = sent.get("ask") == Some("yes");
    let asked = call.app.identity.ask_for_passkey(&visit.user.sub, ask, call.now).await;
    answer(&call, &visit, asked, "saved").await
}

/// POST {base}/account/recovery-codes: makes new ones and shows them, once.
pub async fn recovery_codes(mut call: Call) -> Response {
    let (visit, _) = match begin_fresh(&mut call).await {
        Ok(begun) => begun,
        Err(response) => return response,
    };
    let codes = match call.app.identity.new_recovery_codes(&visit.user.sub, call.now).await {
        Ok(codes) => codes,
        Err(error) => return answer(&call, &visit, Err(error), "").await,
    };
    let content = html! {
        p { "Write these down or print them, and keep them away from this device. Each signs you in once. "
            strong { "They are not shown again" } ", and older ones have stopped working." }
        ol.codes { @for code in &codes { li { code { (code) } } } }
        p { a.button href="/account" { "I have kept them" } }
    };
    reply::no_store(reply::html(StatusCode::OK, page("Your recovery codes", &content)))
}

async fn answer(call: &Call, visit: &Visit, outcome: Result<(), PasskeyError>, said: &str) -> Response {
    match outcome {
        Ok(()) => done(call, said),
        Err(error @ (PasskeyError::Store(_) | PasskeyError::NoHostName)) => problem::passkey(&error),
        Err(PasskeyError::Refused(why)) => {
            tracing::info!(why, "a passkey was not added");
            wrong(call, visit, StatusCode::BAD_REQUEST, "This passkey was not accepted. Please try again.")
                .await
        }
        Err(error) => wrong(call, visit, StatusCode::CONFLICT, &passkey::sentence(&error.to_string())).await,
    }
}
