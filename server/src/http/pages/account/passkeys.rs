//! The sections about passkeys and recovery codes.

use http::StatusCode;
use identity::sign_in::passkey::MAX_NAME_LENGTH;
use identity::sign_in::passkey_error::PasskeyError;
use maud::{Markup, html};
use store::StoreError;

use super::{AccountVisit, date_time, read_fresh_form, redirect_done, show_error};
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::pages::texts::{fill, phrase, t};
use crate::http::pages::{csrf, page, passkey};
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};

/// Returns the section about passkeys.
pub(super) async fn section(context: &RequestContext, visit: &AccountVisit) -> Result<Markup, StoreError> {
    let identity = &context.app.identity;
    if !identity.sign_in.supports_passkeys() {
        return Ok(html! {
            h2 { (t("Passkeys")) }
            p.quiet { (t("Passkeys require a server with a host name; this one is used by its IP address.")) }
        });
    }
    let passkeys = identity.sign_in.user_passkeys(&visit.user.sub, context.now).await?;
    let is_required = identity.sign_in.requires_passkey(&visit.user.sub, context.now).await?;
    Ok(html! {
        h2 { (t("Passkeys")) }
        p.quiet { (t("A passkey lets you sign in with your fingerprint, face or PIN. It cannot be phished.")) }
        @if !passkeys.is_empty() {
            ul.rows {
                @for passkey in &passkeys {
                    li {
                        div {
                            strong { (passkey.name) }
                            div.quiet {
                                (phrase("added {}", &[date_time(passkey.since)])) br;
                                @match passkey.last_used {
                                    Some(at) => { (phrase("last used {}", &[date_time(at)])) }
                                    None => { (t("not used yet")) }
                                }
                            }
                        }
                        (visit.button("/account/passkeys/remove", &[("id", &passkey.id)], t("Remove"),
                            Some(&fill("Remove the passkey {}", &[&passkey.name]))))
                    }
                }
            }
        }
        form hidden method="post" action="/account/passkeys" data-passkey="create" data-options="/account/passkeys/options" {
            (csrf::hidden_field(&visit.browser))
            input type="hidden" name="ceremony" value="";
            input type="hidden" name="credential" value="";
            label for="passkey-name" { (t("Name of a new passkey")) }
            input #passkey-name name="name" autocomplete="off" maxlength=(MAX_NAME_LENGTH) aria-describedby="passkey-hint";
            p #passkey-hint .quiet { (t("For example, the name of the device that it is on.")) }
            button.second type="submit" { (t("Add a passkey")) }
            (passkey::ceremony_status())
        }
        noscript { p.quiet { (t("Adding a passkey requires JavaScript.")) } }
        @if visit.user.password.is_some() && !passkeys.is_empty() {
            @if is_required {
                p { (t("Signing in with your password also requires a passkey.")) }
                (visit.button("/account/passkeys/ask", &[("ask", "no")], t("Do not require a passkey after the password"), None))
            } @else {
                p { (t("You can sign in with your password alone.")) }
                (visit.button("/account/passkeys/ask", &[("ask", "yes")], t("Require a passkey after the password"), None))
            }
        }
    })
}

/// Returns the section about recovery codes.
pub(super) async fn recovery_section(
    context: &RequestContext,
    visit: &AccountVisit,
) -> Result<Markup, StoreError> {
    let left = context.app.identity.sign_in.count_recovery_codes(&visit.user.sub, context.now).await?;
    Ok(html! {
        h2 { (t("Recovery codes")) }
        p {
            @match left {
                0 => { (t("You have no recovery codes. Each one signs you in once if you lose all other ways to sign in.")) }
                1 => { (t("You have one recovery code left.")) }
                left => { (fill("You have {} recovery codes left.", &[&left])) }
            }
        }
        (visit.button("/account/recovery-codes", &[], t("Generate new recovery codes"), None))
    })
}

/// POST {base}/account/passkeys/options
pub async fn begin_registration(
    context: &RequestContext,
    body: &mut RequestBody,
) -> Result<Response, Problem> {
    let (visit, _) = read_fresh_form(context, body).await?;
    let identity = &context.app.identity;
    let begun = identity.sign_in.begin_passkey_registration(&visit.user, &visit.browser, context.now).await?;
    Ok(passkey::ceremony_options(&begun))
}

/// POST {base}/account/passkeys
pub async fn add_passkey(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    let (visit, sent) = read_fresh_form(context, body).await?;
    let [ceremony, credential, name] =
        ["ceremony", "credential", "name"].map(|name| sent.get(name).unwrap_or_default());
    let added = context
        .app
        .identity
        .sign_in
        .finish_passkey_registration(&visit.user, ceremony, credential, name, &visit.browser, context.now)
        .await;
    ceremony_result(context, &visit, added, "passkey").await
}

/// POST {base}/account/passkeys/remove
pub async fn remove_passkey(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    let (visit, sent) = read_fresh_form(context, body).await?;
    let id = sent.get("id").unwrap_or_default();
    let removed = context.app.identity.sign_in.remove_passkey(&visit.user, id, context.now).await;
    ceremony_result(context, &visit, removed, "removed").await
}

/// POST {base}/account/passkeys/ask: sets whether a passkey is required after the password.
pub async fn require_passkey(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    let (visit, sent) = read_fresh_form(context, body).await?;
    let ask = sent.get("ask") == Some("yes");
    let changed = context.app.identity.sign_in.require_passkey(&visit.user.sub, ask, context.now).await;
    ceremony_result(context, &visit, changed, "saved").await
}

/// POST {base}/account/recovery-codes: generates new codes and shows them once.
pub async fn replace_recovery_codes(
    context: &RequestContext,
    body: &mut RequestBody,
) -> Result<Response, Problem> {
    let (visit, _) = read_fresh_form(context, body).await?;
    let codes = match context.app.identity.sign_in.replace_recovery_codes(&visit.user.sub, context.now).await
    {
        Ok(codes) => codes,
        Err(error) => return ceremony_result(context, &visit, Err(error), "").await,
    };
    let content = html! {
        p { (t("Write these down or print them, and keep them away from this device. Each signs you in once.")) " "
            strong { (t("They are not shown again, and older ones have stopped working.")) } }
        ol.codes { @for code in &codes { li { code { (code) } } } }
        p { a.button href="/account" { (t("I have saved them")) } }
    };
    Ok(reply::no_store(reply::html(StatusCode::OK, page(t("Your recovery codes"), &content))))
}

async fn ceremony_result(
    context: &RequestContext,
    visit: &AccountVisit,
    outcome: Result<(), PasskeyError>,
    notice: &str,
) -> Result<Response, Problem> {
    match outcome {
        Ok(()) => Ok(redirect_done(context, notice)),
        Err(error @ (PasskeyError::Store(_) | PasskeyError::NoHostName)) => Err(error.into()),
        Err(PasskeyError::Rejected(why)) => {
            tracing::info!(why, "a passkey was not added");
            show_error(
                context,
                visit,
                StatusCode::BAD_REQUEST,
                t("This passkey was not accepted. Please try again."),
            )
            .await
        }
        Err(error) => {
            show_error(context, visit, StatusCode::CONFLICT, &passkey::as_sentence(&error.to_string())).await
        }
    }
}
