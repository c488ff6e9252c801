//! `{base}/admin/users`: users by subject. A change can require the revision that was read (`ETag`, `If-Match`).
//! Disabling or deleting a user, or setting a password, ends all sessions and tokens of the user immediately.

use http::{StatusCode, header};
use identity::directory::user_directory::{OtherMethods, VersionedUser};
use identity::model::scope::Scopes;
use identity::model::user::{StandardClaims, User};
use identity::sign_in::password::{self, PasswordError};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::{
    check_administrator, expected_revision, invalid_request, json, page_parameters, parse_body,
    precondition_failed,
};
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};

/// Maximum length of a claim, in bytes.
const TEXT: usize = 500;

fn user_json(user: &User) -> Value {
    json!({
        "sub": user.sub,
        "username": user.username,
        "claims": user.claims,
        "allowed_scopes": user.allowed_scopes.to_string(),
        "fhir_user": user.fhir_user,
        "administrator": user.administrator,
        "disabled": user.disabled,
        "has_password": user.password.is_some(),
    })
}

fn user_response(status: StatusCode, entry: &VersionedUser) -> Response {
    let tag = format!("W/\"{}\"", entry.revision);
    reply::with(json(status, &user_json(&entry.user)), header::ETAG, &tag)
}

/// Deserializes a present member. Its value is `None` for null, which removes the value of the user.
fn present_or_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// A change of a user; members that are absent do not change.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct UserChange {
    #[serde(deserialize_with = "present_or_null")]
    name: Option<Option<String>>,
    #[serde(deserialize_with = "present_or_null")]
    given_name: Option<Option<String>>,
    #[serde(deserialize_with = "present_or_null")]
    family_name: Option<Option<String>>,
    #[serde(deserialize_with = "present_or_null")]
    email: Option<Option<String>>,
    #[serde(deserialize_with = "present_or_null")]
    email_verified: Option<Option<bool>>,
    #[serde(deserialize_with = "present_or_null")]
    phone_number: Option<Option<String>>,
    #[serde(deserialize_with = "present_or_null")]
    phone_number_verified: Option<Option<bool>>,
    #[serde(deserialize_with = "present_or_null")]
    fhir_user: Option<Option<String>>,
    allowed_scopes: Option<String>,
    administrator: Option<bool>,
    disabled: Option<bool>,
}

/// A valid change.
struct CheckedUserChange {
    change: UserChange,
    scopes: Option<Scopes>,
}

impl UserChange {
    fn check_administrator(self) -> Result<CheckedUserChange, Problem> {
        let texts = [
            &self.name,
            &self.given_name,
            &self.family_name,
            &self.email,
            &self.phone_number,
            &self.fhir_user,
        ];
        let is_bad =
            |text: &String| text.is_empty() || text.len() > TEXT || text.chars().any(char::is_control);
        if texts.into_iter().flatten().flatten().any(is_bad) {
            return Err(invalid_request("a text must have 1 to 500 bytes and no control characters"));
        }
        let is_reference = |text: &String| {
            text.split_once('/')
                .is_some_and(|(kind, id)| fhir::resource_type(kind).is_some() && !id.is_empty())
        };
        if !self.fhir_user.iter().flatten().all(is_reference) {
            return Err(invalid_request("fhir_user must be a resource such as Patient/p1"));
        }
        let scopes = self.allowed_scopes.as_deref().map(Scopes::parse).transpose();
        let scopes = scopes.map_err(|error| invalid_request(&error.to_string()))?;
        Ok(CheckedUserChange { change: self, scopes })
    }
}

impl CheckedUserChange {
    fn apply(&self, user: &mut User) {
        fn set<T: Clone>(to: &mut T, present_or_null: &Option<T>) {
            if let Some(present_or_null) = present_or_null {
                to.clone_from(present_or_null);
            }
        }
        let change = &self.change;
        set(&mut user.claims.name, &change.name);
        set(&mut user.claims.given_name, &change.given_name);
        set(&mut user.claims.family_name, &change.family_name);
        if change.email.is_some() || change.email_verified.is_some() {
            // The provider verified the previous address.
            user.claims.email_verified = None;
            user.email_verified_by = None;
        }
        set(&mut user.claims.email, &change.email);
        set(&mut user.claims.email_verified, &change.email_verified);
        set(&mut user.claims.phone_number, &change.phone_number);
        set(&mut user.claims.phone_number_verified, &change.phone_number_verified);
        set(&mut user.fhir_user, &change.fhir_user);
        set(&mut user.allowed_scopes, &self.scopes);
        let before = (user.disabled, user.administrator);
        set(&mut user.administrator, &change.administrator);
        set(&mut user.disabled, &change.disabled);
        // Tokens issued before must not become valid again, nor gain another right.
        if before != (user.disabled, user.administrator) {
            user.epoch += 1;
        }
    }
}

async fn hash_new_password(
    context: &RequestContext,
    plain: String,
    username: String,
) -> Result<String, Problem> {
    let (random, service) = (context.app.clock.random.clone(), context.app.base_url.clone());
    let policy = context.app.settings().passwords;
    let hash_new_password = move || {
        policy.check_password(&plain, &username, &service)?;
        Ok(password::hash_password(&plain, &*random))
    };
    let hashed: Result<String, PasswordError> = context.app.hashing.run(hash_new_password).await;
    Ok(hashed?)
}

pub(super) async fn addressed_user(context: &RequestContext, sub: &str) -> Result<VersionedUser, Problem> {
    let found = context.app.identity.users.versioned_user(sub, context.now).await?;
    found.ok_or_else(|| Problem::no_such("user"))
}

/// GET {base}/admin/users
pub async fn list_users(context: &RequestContext) -> Result<Response, Problem> {
    check_administrator(context).await?;
    let (after, count) = page_parameters(context)?;
    let found = context.app.identity.users.users_page(after.as_deref(), count, context.now).await;
    let (users, next) = found?;
    let users: Vec<_> = users.iter().map(user_json).collect();
    Ok(json(StatusCode::OK, &json!({ "users": users, "next": next })))
}

/// GET {base}/admin/users/{sub}
pub async fn read_user(context: &RequestContext, sub: String) -> Result<Response, Problem> {
    check_administrator(context).await?;
    Ok(user_response(StatusCode::OK, &addressed_user(context, &sub).await?))
}

/// POST {base}/admin/users
pub async fn create_user(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    check_administrator(context).await?;
    let mut members: serde_json::Map<String, Value> = parse_body(context, body).await?;
    let text = |value: Option<Value>, name: &str| match value {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(invalid_request(&format!("{name} must be a string"))),
    };
    let username = text(members.remove("username"), "username")?
        .ok_or_else(|| invalid_request("username is missing"))?;
    let password = text(members.remove("password"), "password")?;
    let change: UserChange = serde_json::from_value(Value::Object(members))
        .map_err(|error| invalid_request(&format!("the body is not valid: {error}")))?;
    let checked = change.check_administrator()?;
    let password = match password {
        Some(plain) => Some(hash_new_password(context, plain, username.clone()).await?),
        None => None,
    };
    let mut user = User {
        sub: String::new(),
        claims: StandardClaims { preferred_username: Some(username.clone()), ..StandardClaims::default() },
        username,
        email_verified_by: None,
        allowed_scopes: ["openid", "profile", "email", "phone"].into_iter().collect(),
        fhir_user: None,
        administrator: false,
        password,
        disabled: false,
        epoch: 0,
        demo: false,
    };
    checked.apply(&mut user);
    let identity = &context.app.identity;
    let user = identity.users.add_user(user, context.now).await?;
    let found = identity.users.versioned_user(&user.sub, context.now).await?;
    let response = user_response(StatusCode::CREATED, &found.ok_or_else(|| Problem::no_such("user"))?);
    let at = format!("{}/admin/users/{}", context.app.base_url, user.sub);
    Ok(reply::with(response, header::LOCATION, &at))
}

/// PATCH {base}/admin/users/{sub}: changes the members that are present; null removes a value (RFC 7396).
pub async fn change_user(
    context: &RequestContext,
    sub: String,
    body: &mut RequestBody,
) -> Result<Response, Problem> {
    check_administrator(context).await?;
    let change: UserChange = parse_body(context, body).await?;
    let checked = change.check_administrator()?;
    let revision = expected_revision(context)?;
    let identity = &context.app.identity;
    let done =
        identity.users.change_versioned_user(&sub, revision, context.now, |user| checked.apply(user)).await;
    Ok(user_response(StatusCode::OK, &done?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewPassword {
    password: String,
    /// Keep passkeys, recovery codes and linked accounts, which a reset removes.
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
    let others = if new.keep_sign_in_methods { OtherMethods::Keep } else { OtherMethods::Remove };
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

/// DELETE {base}/admin/users/{sub}
pub async fn delete_user(context: &RequestContext, sub: String) -> Result<Response, Problem> {
    check_administrator(context).await?;
    let found = addressed_user(context, &sub).await?;
    if expected_revision(context)?.is_some_and(|revision| revision != found.revision) {
        return Err(precondition_failed("the user was changed since it was read; read it again"));
    }
    let done = context.app.identity.users.delete_user(&found.user.username, context.now).await;
    done?;
    Ok(reply::no_store(reply::empty(StatusCode::NO_CONTENT)))
}

/// GET {base}/admin/users/{sub}/sessions
pub async fn list_sessions(context: &RequestContext, sub: String) -> Result<Response, Problem> {
    check_administrator(context).await?;
    let user = addressed_user(context, &sub).await?.user;
    let found = context.app.identity.sessions.user_sessions(&user, context.now).await?;
    let user_json: Vec<_> = found
        .iter()
        .map(|session| {
            json!({
                "sid": session.sid,
                "auth_time": fhir::instant::format(session.auth_time),
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
    let found = context.app.identity.consents.user_consents(&sub, context.now).await?;
    let user_json: Vec<_> = found
        .iter()
        .map(|consent| {
            let at = fhir::instant::format(consent.at);
            json!({ "client_id": consent.client_id, "scope": consent.scopes.to_string(), "at": at })
        })
        .collect();
    Ok(json(StatusCode::OK, &json!({ "consents": user_json })))
}

/// DELETE {base}/admin/users/{sub}/consents/{client_id}: withdraws the consent and ends the grants based on it.
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
