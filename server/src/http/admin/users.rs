//! `{base}/admin/users`: users by subject. A change can require the revision that was read (`ETag`,
//! `If-Match`). Disabling or deleting a user, or setting a password, ends all sessions and tokens of the user
//! immediately.

use http::{StatusCode, header};
use identity::directory::user_directory::{AccountsOfDeleted, OtherMethods, VersionedUser};
use identity::model::user::User;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    check_administrator, expected_revision, invalid_request, json, page_parameters, parse_body,
    precondition_failed,
};
use crate::administration::registration_warnings::user_warnings;
use crate::administration::user_change::{UserChange, new_user};
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};
use crate::node::hashing::PasswordToHash;

fn user_json(user: &User) -> Value {
    json!({
        "sub": user.sub,
        "username": user.username,
        "claims": user.claims,
        "allowed_scopes": user.allowed_scopes.to_string(),
        "fhir_user": user.fhir_user,
        "patients": user.patients,
        "groups": user.groups,
        "set_by_hand": user.set_by_hand,
        "administrator": user.administrator,
        "disabled": user.disabled,
        "has_password": user.password.is_some(),
    })
}

/// The response to a change, with warnings.
async fn changed_user_response(
    context: &RequestContext,
    status: StatusCode,
    entry: &VersionedUser,
) -> Response {
    let mut shown = user_json(&entry.user);
    let warnings = user_warnings(&context.app.resources, &entry.user).await;
    if !warnings.is_empty() {
        shown["warnings"] = warnings.into();
    }
    user_response(status, entry, &shown)
}

fn user_response(status: StatusCode, entry: &VersionedUser, shown: &Value) -> Response {
    let tag = format!("W/\"{}\"", entry.revision);
    reply::with(json(status, shown), header::ETAG, &tag)
}

async fn hash_new_password(
    context: &RequestContext,
    plain: String,
    username: String,
) -> Result<String, Problem> {
    let (app, policy) = (&context.app, context.app.settings().passwords);
    let new = PasswordToHash { plain, username, service: app.address.base_url.clone(), policy };
    Ok(app.capacity.hashing.hash_new_password(new, app.clock.random.clone()).await?)
}

pub(super) async fn addressed_user(context: &RequestContext, sub: &str) -> Result<VersionedUser, Problem> {
    let user = context.app.identity.users.versioned_user(sub, context.now).await?;
    user.ok_or_else(|| Problem::no_such("user"))
}

/// GET {base}/admin/users
pub async fn list_users(context: &RequestContext) -> Result<Response, Problem> {
    check_administrator(context).await?;
    let (after, count) = page_parameters(context)?;
    let page = context.app.identity.users.users_page(after.as_deref(), count, context.now).await;
    let (users, next) = page?;
    let users: Vec<_> = users.iter().map(user_json).collect();
    Ok(json(StatusCode::OK, &json!({ "users": users, "next": next })))
}

/// GET {base}/admin/users/{sub}
pub async fn read_user(context: &RequestContext, sub: String) -> Result<Response, Problem> {
    check_administrator(context).await?;
    let entry = addressed_user(context, &sub).await?;
    Ok(user_response(StatusCode::OK, &entry, &user_json(&entry.user)))
}

/// POST {base}/admin/users
pub async fn create_user(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    check_administrator(context).await?;
    let mut members: Map<String, Value> = parse_body(context, body).await?;
    let text = |value: Option<Value>, name: &str| match value {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(invalid_request(&format!("{name} must be a string"))),
    };
    let username = text(members.remove("username"), "username")?
        .ok_or_else(|| invalid_request("username is missing"))?;
    let password = text(members.remove("password"), "password")?;
    let change = UserChange::read(members).map_err(|error| invalid_request(&error.to_string()))?;
    let password = match password {
        Some(plain) => Some(hash_new_password(context, plain, username.clone()).await?),
        None => None,
    };
    let mut user = new_user(username, password);
    change.apply(&mut user);
    let identity = &context.app.identity;
    let user = identity.users.add_user(user, context.now).await?;
    let created = identity.users.versioned_user(&user.sub, context.now).await?;
    let created = created.ok_or_else(|| Problem::no_such("user"))?;
    let response = changed_user_response(context, StatusCode::CREATED, &created).await;
    let location = format!("{}/admin/users/{}", context.app.address.base_url, user.sub);
    Ok(reply::with(response, header::LOCATION, &location))
}

/// PATCH {base}/admin/users/{sub}: changes the members that are present; null removes a value (RFC 7396).
pub async fn change_user(
    context: &RequestContext,
    sub: String,
    body: &mut RequestBody,
) -> Result<Response, Problem> {
    check_administrator(context).await?;
    let members: Map<String, Value> = parse_body(context, body).await?;
    let change = UserChange::read(members).map_err(|error| invalid_request(&error.to_string()))?;
    let revision = expected_revision(context)?;
    let identity = &context.app.identity;
    let done =
        identity.users.change_versioned_user(&sub, revision, context.now, |user| change.apply(user)).await;
    Ok(changed_user_response(context, StatusCode::OK, &done?).await)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewPassword {
    password: String,
    /// Keep passkeys, recovery codes and linked accounts, which a reset removes, except the account for which
    /// the user was created.
    #[serde(default)]
    keep_sign_in_methods: bool,
}

/// PUT {base}/admin/users/{sub}/password
pub async fn set_password(
    context: &RequestContext,
    sub: String,
    body: &mut RequestBody,
) -> Result<Response, Problem> {
    check_administrator(context).await?;
    let new: NewPassword = parse_body(context, body).await?;
    let username = addressed_user(context, &sub).await?.user.username;
    let phc = hash_new_password(context, new.password.clone(), username).await?;
    let revision = expected_revision(context)?;
    let others = if new.keep_sign_in_methods { OtherMethods::Keep } else { OtherMethods::RemoveAdded };
    let done = context.app.identity.users.reset_password(&sub, revision, &phc, others, context.now).await;
    done?;
    Ok(reply::no_store(reply::empty(StatusCode::NO_CONTENT)))
}

/// POST {base}/admin/users/{sub}/sign-out
pub async fn sign_out_user(context: &RequestContext, sub: String) -> Result<Response, Problem> {
    check_administrator(context).await?;
    let username = addressed_user(context, &sub).await?.user.username;
    let done = context.app.identity.users.sign_out_everywhere(&username, context.now).await;
    done?;
    Ok(reply::no_store(reply::empty(StatusCode::NO_CONTENT)))
}

/// DELETE {base}/admin/users/{sub}, with `forget=true` to free the accounts of the user at providers.
pub async fn delete_user(context: &RequestContext, sub: String) -> Result<Response, Problem> {
    check_administrator(context).await?;
    let entry = addressed_user(context, &sub).await?;
    if expected_revision(context)?.is_some_and(|revision| revision != entry.revision) {
        return Err(precondition_failed("the user was changed since it was read; read it again"));
    }
    let accounts = match context.params().get("forget") {
        None | Some("false") => AccountsOfDeleted::Remember,
        Some("true") => AccountsOfDeleted::Forget,
        Some(_) => return Err(invalid_request("forget must be true or false")),
    };
    let done = context.app.identity.users.delete_user(&entry.user.username, accounts, context.now).await;
    done?;
    Ok(reply::no_store(reply::empty(StatusCode::NO_CONTENT)))
}

/// GET {base}/admin/users/{sub}/sessions
pub async fn list_sessions(context: &RequestContext, sub: String) -> Result<Response, Problem> {
    check_administrator(context).await?;
    let user = addressed_user(context, &sub).await?.user;
    let active = context.app.identity.sessions.user_sessions(&user, context.now).await?;
    let user_json: Vec<_> = active
        .iter()
        .map(|session| {
            json!({
                "sid": session.sid,
                "auth_time": session.auth_time.map(fhir::instant::format),
                "last_seen": fhir::instant::format(session.last_seen),
                "amr": session.amr,
                "provider": session.provider,
                "address": session.origin.address,
                "user_agent": session.origin.agent,
            })
        })
        .collect();
    Ok(json(StatusCode::OK, &json!({ "sessions": user_json })))
}

/// DELETE {base}/admin/users/{sub}/sessions/{sid}: ends the session and all tokens issued in it.
pub async fn end_session(context: &RequestContext, sub: String, sid: String) -> Result<Response, Problem> {
    check_administrator(context).await?;
    let sub = addressed_user(context, &sub).await?.user.sub;
    let done = context.app.identity.sessions.end_user_session(&sub, &sid, context.now).await;
    if !done? {
        return Err(Problem::no_such("session"));
    }
    Ok(reply::no_store(reply::empty(StatusCode::NO_CONTENT)))
}

/// GET {base}/admin/users/{sub}/consents
pub async fn list_consents(context: &RequestContext, sub: String) -> Result<Response, Problem> {
    check_administrator(context).await?;
    let sub = addressed_user(context, &sub).await?.user.sub;
    let consents = context.app.identity.consents.user_consents(&sub, context.now).await?;
    let user_json: Vec<_> = consents
        .iter()
        .map(|consent| {
            let granted = fhir::instant::format(consent.at);
            json!({ "client_id": consent.client_id, "scope": consent.scopes.to_string(), "at": granted })
        })
        .collect();
    Ok(json(StatusCode::OK, &json!({ "consents": user_json })))
}

/// DELETE {base}/admin/users/{sub}/consents/{client_id}: withdraws the consent and ends the grants based on
/// it.
pub async fn withdraw_consent(
    context: &RequestContext,
    sub: String,
    client_id: String,
) -> Result<Response, Problem> {
    check_administrator(context).await?;
    let sub = addressed_user(context, &sub).await?.user.sub;
    let done = context.app.identity.consents.withdraw_consent(&sub, &client_id, context.now).await;
    done?;
    Ok(reply::no_store(reply::empty(StatusCode::NO_CONTENT)))
}
