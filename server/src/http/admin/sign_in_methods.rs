//! `{base}/admin/users/{sub}/sign-in-methods` and its parts: passkeys, recovery codes and linked accounts of a user, listed
//! and removed.

use http::StatusCode;
use identity::sign_in::sign_in_methods::MethodsToRemove;
use serde_json::json;

use super::users::{addressed_user, change_error};
use super::{check_administrator, json, not_found, store_error};
use crate::http::extract::RequestContext;
use crate::http::reply::{self, Response};

/// GET {base}/admin/users/{sub}/sign-in-methods
pub async fn list_methods(context: RequestContext) -> Response {
    answer_list(&context).await.unwrap_or_else(|response| response)
}

async fn answer_list(context: &RequestContext) -> Result<Response, Response> {
    check_administrator(context).await?;
    let user = addressed_user(context).await?.user;
    let found = context
        .app
        .identity
        .sign_in
        .sign_in_methods(&user.sub, context.now)
        .await
        .map_err(|error| store_error(&error))?;
    let at = fhir::instant::format;
    let passkeys = found.passkeys.iter().map(|passkey| {
        json!({
            "id": passkey.id,
            "name": passkey.name,
            "since": at(passkey.since),
            "last_used": passkey.last_used.map(at),
        })
    });
    let linked_accounts = found.linked_accounts.iter().map(|link| {
        json!({ "id": link.id, "provider": link.provider, "label": link.label, "since": at(link.since) })
    });
    let user_json = json!({
        "password": user.password.is_some(),
        "passkeys": passkeys.collect::<Vec<_>>(),
        "recovery_codes": found.recovery_codes,
        "linked_accounts": linked_accounts.collect::<Vec<_>>(),
    });
    Ok(json(StatusCode::OK, &user_json))
}

/// DELETE {base}/admin/users/{sub}/sign-in-methods: all but the password.
pub async fn remove_all_methods(context: RequestContext) -> Response {
    answer_remove(&context, MethodsToRemove::All).await.unwrap_or_else(|response| response)
}

/// DELETE {base}/admin/users/{sub}/passkeys/{id}
pub async fn remove_passkey(context: RequestContext) -> Response {
    let methods = MethodsToRemove::Passkey(context.args[1].clone());
    answer_remove(&context, methods).await.unwrap_or_else(|response| response)
}

/// DELETE {base}/admin/users/{sub}/recovery-codes
pub async fn remove_recovery_codes(context: RequestContext) -> Response {
    answer_remove(&context, MethodsToRemove::RecoveryCodes).await.unwrap_or_else(|response| response)
}

/// DELETE {base}/admin/users/{sub}/linked-accounts/{id}
pub async fn remove_linked_account(context: RequestContext) -> Response {
    let methods = MethodsToRemove::LinkedAccount(context.args[1].clone());
    answer_remove(&context, methods).await.unwrap_or_else(|response| response)
}

/// Removes sign-in methods, which ends all sessions and tokens of the user.
async fn answer_remove(context: &RequestContext, methods: MethodsToRemove) -> Result<Response, Response> {
    check_administrator(context).await?;
    addressed_user(context).await?;
    match context.app.identity.sign_in.remove_sign_in_methods(&context.args[0], &methods, context.now).await {
        Ok(true) => Ok(reply::no_store(reply::empty(StatusCode::NO_CONTENT))),
        Ok(false) => Err(not_found("way to sign in")),
        Err(error) => Err(change_error(&error)),
    }
}
