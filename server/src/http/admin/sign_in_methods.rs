//! `{base}/admin/users/{sub}/sign-in-methods` and its parts: passkeys, recovery codes and linked accounts of
//! a user, listed and removed.

use http::StatusCode;
use identity::sign_in::sign_in_methods::MethodsToRemove;
use serde_json::json;

use super::users::addressed_user;
use super::{check_administrator, json};
use crate::http::extract::RequestContext;
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};

/// GET {base}/admin/users/{sub}/sign-in-methods
pub async fn list_methods(context: &RequestContext, sub: String) -> Result<Response, Problem> {
    check_administrator(context).await?;
    let user = addressed_user(context, &sub).await?.user;
    let methods = context.app.identity.sign_in.sign_in_methods(&user.sub, context.now).await?;
    let time = fhir::instant::format;
    let passkeys = methods.passkeys.iter().map(|passkey| {
        json!({
            "id": passkey.id,
            "name": passkey.name,
            "since": time(passkey.since),
            "last_used": passkey.last_used.map(time),
        })
    });
    let linked_accounts = methods.linked_accounts.iter().map(|link| {
        json!({ "id": link.id, "provider": link.provider, "label": link.label, "since": time(link.since) })
    });
    let removed_accounts = methods.removed_accounts.iter().map(|link| {
        json!({
            "id": link.id, "provider": link.provider, "label": link.label, "removed": link.removed.map(time),
        })
    });
    let user_json = json!({
        "password": user.password.is_some(),
        "passkeys": passkeys.collect::<Vec<_>>(),
        "recovery_codes": methods.recovery_codes,
        "linked_accounts": linked_accounts.collect::<Vec<_>>(),
        "removed_accounts": removed_accounts.collect::<Vec<_>>(),
    });
    Ok(json(StatusCode::OK, &user_json))
}

/// DELETE {base}/admin/users/{sub}/sign-in-methods: all but the password.
pub async fn remove_all_methods(context: &RequestContext, sub: String) -> Result<Response, Problem> {
    remove_methods(context, &sub, MethodsToRemove::All).await
}

/// DELETE {base}/admin/users/{sub}/passkeys/{id}
pub async fn remove_passkey(context: &RequestContext, sub: String, id: String) -> Result<Response, Problem> {
    remove_methods(context, &sub, MethodsToRemove::Passkey(id)).await
}

/// DELETE {base}/admin/users/{sub}/recovery-codes
pub async fn remove_recovery_codes(context: &RequestContext, sub: String) -> Result<Response, Problem> {
    remove_methods(context, &sub, MethodsToRemove::RecoveryCodes).await
}

/// DELETE {base}/admin/users/{sub}/linked-accounts/{id}
pub async fn remove_linked_account(
    context: &RequestContext,
    sub: String,
    id: String,
) -> Result<Response, Problem> {
    remove_methods(context, &sub, MethodsToRemove::LinkedAccount(id)).await
}

/// Removes sign-in methods, which ends all sessions and tokens of the user.
async fn remove_methods(
    context: &RequestContext,
    sub: &str,
    methods: MethodsToRemove,
) -> Result<Response, Problem> {
    check_administrator(context).await?;
    addressed_user(context, sub).await?;
    if !context.app.identity.sign_in.remove_sign_in_methods(sub, &methods, context.now).await? {
        return Err(Problem::no_such("sign-in method"));
    }
    Ok(reply::no_store(reply::empty(StatusCode::NO_CONTENT)))
}
