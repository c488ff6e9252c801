//! `{base}/admin/users/{sub}/sign-in-methods` and its parts: passkeys, recovery codes and linked accounts of a user, listed
//! and removed.

use http::StatusCode;
use identity::sign_in_methods::MethodsToRemove;
use serde_json::json;

use super::users::{change_error, entry};
use super::{check, json, store, unknown};
use crate::http::extract::Call;
use crate::http::reply::{self, Response};

/// GET {base}/admin/users/{sub}/sign-in-methods
pub async fn list(call: Call) -> Response {
    answer_list(&call).await.unwrap_or_else(|response| response)
}

async fn answer_list(call: &Call) -> Result<Response, Response> {
    check(call).await?;
    let user = entry(call).await?.user;
    let found =
        call.app.identity.sign_in_methods(&user.sub, call.now).await.map_err(|error| store(&error))?;
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
    let shown = json!({
        "password": user.password.is_some(),
        "passkeys": passkeys.collect::<Vec<_>>(),
        "recovery_codes": found.recovery_codes,
        "linked_accounts": linked_accounts.collect::<Vec<_>>(),
    });
    Ok(json(StatusCode::OK, &shown))
}

/// DELETE {base}/admin/users/{sub}/sign-in-methods: all but the password.
pub async fn remove_all(call: Call) -> Response {
    answer_remove(&call, MethodsToRemove::All).await.unwrap_or_else(|response| response)
}

/// DELETE {base}/admin/users/{sub}/passkeys/{id}
pub async fn remove_passkey(call: Call) -> Response {
    let methods = MethodsToRemove::Passkey(call.args[1].clone());
    answer_remove(&call, methods).await.unwrap_or_else(|response| response)
}

/// DELETE {base}/admin/users/{sub}/recovery-codes
pub async fn remove_recovery_codes(call: Call) -> Response {
    answer_remove(&call, MethodsToRemove::RecoveryCodes).await.unwrap_or_else(|response| response)
}

/// DELETE {base}/admin/users/{sub}/linked-accounts/{id}
pub async fn remove_linked_account(call: Call) -> Response {
    let methods = MethodsToRemove::LinkedAccount(call.args[1].clone());
    answer_remove(&call, methods).await.unwrap_or_else(|response| response)
}

/// Removes ways to sign in, which ends all sessions and tokens of the user.
async fn answer_remove(call: &Call, methods: MethodsToRemove) -> Result<Response, Response> {
    check(call).await?;
    entry(call).await?;
    match call.app.identity.remove_sign_in_methods(&call.args[0], &methods, call.now).await {
        Ok(true) => Ok(reply::no_store(reply::empty(StatusCode::NO_CONTENT))),
        Ok(false) => Err(unknown("way to sign in")),
        Err(error) => Err(change_error(&error)),
    }
}
