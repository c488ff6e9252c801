//! The sections about passkeys and recovery codes.

use http::StatusCode;
use identity::sign_in::passkey_error::PasskeyError;
use maud::html;

use super::page::show_error;
use super::visit::{AccountVisit, read_fresh_form, read_method_form, redirect_done};
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::pages::frame::page;
use crate::http::pages::passkey;
use crate::http::pages::texts::as_sentence;
use crate::http::pages::texts::t;
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};

/// POST {base}/account/passkeys/options
pub async fn begin_registration(
    context: &RequestContext,
    body: &mut RequestBody,
) -> Result<Response, Problem> {
    let (visit, _) = read_method_form(context, body).await?;
    let identity = &context.app.identity;
    let start = identity.sign_in.begin_passkey_registration(&visit.user, &visit.browser, context.now).await?;
    Ok(passkey::ceremony_options(&start))
}

/// POST {base}/account/passkeys
pub async fn add_passkey(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    let (visit, form) = read_method_form(context, body).await?;
    let [ceremony, credential, name] =
        ["ceremony", "credential", "name"].map(|name| form.get(name).unwrap_or_default());
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
    let (visit, form) = read_fresh_form(context, body).await?;
    let id = form.get("id").unwrap_or_default();
    let removed = context.app.identity.sign_in.remove_passkey(&visit.user, id, context.now).await;
    ceremony_result(context, &visit, removed, "removed").await
}

/// POST {base}/account/passkeys/ask: sets whether a passkey is required after the password.
pub async fn require_passkey(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    let (visit, form) = read_method_form(context, body).await?;
    let ask = form.get("ask") == Some("yes");
    let result = context.app.identity.sign_in.require_passkey(&visit.user.sub, ask, context.now).await;
    ceremony_result(context, &visit, result, "saved").await
}

/// POST {base}/account/recovery-codes: generates new codes and shows them once.
pub async fn replace_recovery_codes(
    context: &RequestContext,
    body: &mut RequestBody,
) -> Result<Response, Problem> {
    let (visit, _) = read_method_form(context, body).await?;
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
        Err(PasskeyError::Rejected(reason)) => {
            tracing::info!(reason, "a passkey was not added");
            show_error(
                context,
                visit,
                StatusCode::BAD_REQUEST,
                t("This passkey was not accepted. Please try again."),
            )
            .await
        }
        Err(error) => {
            show_error(context, visit, StatusCode::CONFLICT, &as_sentence(&error.to_string())).await
        }
    }
}
