//! `{base}/admin/users`: users by subject. A change may demand the revision that was read (`ETag`,
//! `If-Match`). Who is disabled or deleted, or gets another password, loses all sessions and tokens at once.

use http::{StatusCode, header};
use identity::directory::{ChangeError, Entry, OtherMethods};
use identity::password::{self, PasswordError};
use identity::scope::Scopes;
use identity::user::{Claims, User, UserError};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::{body, check, json, page, refuse, revision, stale, store, unknown, wrong};
use crate::http::extract::Call;
use crate::http::reply::{self, Response};

/// Longest text of a claim, in bytes.
const TEXT: usize = 500;

fn shown(user: &User) -> Value {
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

fn with_tag(status: StatusCode, entry: &Entry) -> Response {
    let tag = format!("W/\"{}\"", entry.revision);
    reply::with(json(status, &shown(&entry.user)), header::ETAG, &tag)
}

/// A member that is there, perhaps with null, which takes the value away.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// What may be said of a user; what is left out stays as it is.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Change {
    #[serde(deserialize_with = "given")]
    name: Option<Option<String>>,
    #[serde(deserialize_with = "given")]
    given_name: Option<Option<String>>,
    #[serde(deserialize_with = "given")]
    family_name: Option<Option<String>>,
    #[serde(deserialize_with = "given")]
    email: Option<Option<String>>,
    #[serde(deserialize_with = "given")]
    email_verified: Option<Option<bool>>,
    #[serde(deserialize_with = "given")]
    phone_number: Option<Option<String>>,
    #[serde(deserialize_with = "given")]
    phone_number_verified: Option<Option<bool>>,
    #[serde(deserialize_with = "given")]
    fhir_user: Option<Option<String>>,
    allowed_scopes: Option<String>,
    administrator: Option<bool>,
    disabled: Option<bool>,
}

/// A change that was judged.
struct Checked {
    change: Change,
    scopes: Option<Scopes>,
}

impl Change {
    fn check(self) -> Result<Checked, Response> {
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
            return Err(wrong("a text is empty, longer than 500 bytes or has control characters"));
        }
        let is_reference = |text: &String| {
            text.split_once('/')
                .is_some_and(|(kind, id)| fhir::resource_type(kind).is_some() && !id.is_empty())
        };
        if !self.fhir_user.iter().flatten().all(is_reference) {
            return Err(wrong("fhir_user must be a resource such as Patient/p1"));
        }
        let scopes = self.allowed_scopes.as_deref().map(Scopes::parse).transpose();
        let scopes = scopes.map_err(|error| wrong(&error.to_string()))?;
        Ok(Checked { change: self, scopes })
    }
}

impl Checked {
    fn apply(&self, user: &mut User) {
        fn set<T: Clone>(to: &mut T, given: &Option<T>) {
            if let Some(given) = given {
                to.clone_from(given);
            }
        }
        let change = &self.change;
        set(&mut user.claims.name, &change.name);
        set(&mut user.claims.given_name, &change.given_name);
        set(&mut user.claims.family_name, &change.family_name);
        if change.email.is_some() || change.email_verified.is_some() {
            // What a provider verified was another address.
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
        // What was issued before comes back neither with `disabled = false` nor with another right.
        if before != (user.disabled, user.administrator) {
            user.epoch += 1;
        }
    }
}

/// A user who was not changed.
pub(super) fn change_error(error: &ChangeError) -> Response {
    match error {
        ChangeError::Unknown => unknown("user"),
        ChangeError::Stale => stale(&error.to_string()),
        ChangeError::User(error) => user_error(error),
        ChangeError::Store(error) => store(error),
    }
}

fn user_error(error: &UserError) -> Response {
    match error {
        UserError::Exists(_) => refuse(StatusCode::CONFLICT, "conflict", &error.to_string()),
        UserError::BadName(_) => wrong(&error.to_string()),
        UserError::Unknown(_) => unknown("user"),
        UserError::Store(error) => store(error),
    }
}

async fn hash(call: &Call, plain: String, username: String) -> Result<String, Response> {
    let (random, service) = (call.app.clock.random.clone(), call.app.base_url.clone());
    let policy = call.app.settings().passwords;
    let hash = move || {
        policy.check(&plain, &username, &service)?;
        Ok(password::hash(&plain, &*random))
    };
    let hashed: Result<String, PasswordError> = call.app.hashing.run(hash).await;
    hashed.map_err(|error| wrong(&error.to_string()))
}

pub(super) async fn entry(call: &Call) -> Result<Entry, Response> {
    let found = call.app.identity.user_entry(&call.args[0], call.now).await.map_err(|error| store(&error))?;
    found.ok_or_else(|| unknown("user"))
}

/// GET {base}/admin/users
pub async fn list(call: Call) -> Response {
    answer_list(&call).await.unwrap_or_else(|response| response)
}

async fn answer_list(call: &Call) -> Result<Response, Response> {
    check(call).await?;
    let (after, count) = page(call)?;
    let found = call.app.identity.users_page(after.as_deref(), count, call.now).await;
    let (users, next) = found.map_err(|error| store(&error))?;
    let users: Vec<_> = users.iter().map(shown).collect();
    Ok(json(StatusCode::OK, &json!({ "users": users, "next": next })))
}

/// GET {base}/admin/users/{sub}
pub async fn read(call: Call) -> Response {
    answer_read(&call).await.unwrap_or_else(|response| response)
}

async fn answer_read(call: &Call) -> Result<Response, Response> {
    check(call).await?;
    Ok(with_tag(StatusCode::OK, &entry(call).await?))
}

/// POST {base}/admin/users
pub async fn create(mut call: Call) -> Response {
    answer_create(&mut call).await.unwrap_or_else(|response| response)
}

async fn answer_create(call: &mut Call) -> Result<Response, Response> {
    check(call).await?;
    let mut said: serde_json::Map<String, Value> = body(call).await?;
    let text = |value: Option<Value>, name: &str| match value {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(wrong(&format!("{name} must be a text"))),
    };
    let username = text(said.remove("username"), "username")?.ok_or_else(|| wrong("username is missing"))?;
    let password = text(said.remove("password"), "password")?;
    let change: Change = serde_json::from_value(Value::Object(said))
        .map_err(|error| wrong(&format!("the body is not understood: {error}")))?;
    let checked = change.check()?;
    let password = match password {
        Some(plain) => Some(hash(call, plain, username.clone()).await?),
        None => None,
    };
    let mut user = User {
        sub: String::new(),
        claims: Claims { preferred_username: Some(username.clone()), ..Claims::default() },
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
    let identity = &call.app.identity;
    let user = identity.add_user(user, call.now).await.map_err(|error| user_error(&error))?;
    let found = identity.user_entry(&user.sub, call.now).await.map_err(|error| store(&error))?;
    let response = with_tag(StatusCode::CREATED, &found.ok_or_else(|| unknown("user"))?);
    let at = format!("{}/admin/users/{}", call.app.base_url, user.sub);
    Ok(reply::with(response, header::LOCATION, &at))
}

/// PATCH {base}/admin/users/{sub}: members that are there are changed, null takes a value away (RFC 7396).
pub async fn change(mut call: Call) -> Response {
    answer_change(&mut call).await.unwrap_or_else(|response| response)
}

async fn answer_change(call: &mut Call) -> Result<Response, Response> {
    check(call).await?;
    let change: Change = body(call).await?;
    let checked = change.check()?;
    let revision = revision(call)?;
    let identity = &call.app.identity;
    let done = identity.change_entry(&call.args[0], revision, call.now, |user| checked.apply(user)).await;
    Ok(with_tag(StatusCode::OK, &done.map_err(|error| change_error(&error))?))
}

/// PUT {base}/admin/users/{sub}/password
pub async fn set_password(mut call: Call) -> Response {
    answer_set_password(&mut call).await.unwrap_or_else(|response| response)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewPassword {
    password: String,
    /// Keep passkeys, recovery codes and linked accounts, which a reset removes.
    #[serde(default)]
    keep_sign_in_methods: bool,
}

async fn answer_set_password(call: &mut Call) -> Result<Response, Response> {
    check(call).await?;
    let new: NewPassword = body(call).await?;
    let username = entry(call).await?.user.username;
    let phc = hash(call, new.password.clone(), username).await?;
    let revision = revision(call)?;
    let others = if new.keep_sign_in_methods { OtherMethods::Keep } else { OtherMethods::Remove };
    let done = call.app.identity.reset_password(&call.args[0], revision, &phc, others, call.now).await;
    done.map_err(|error| change_error(&error))?;
    Ok(reply::no_store(reply::empty(StatusCode::NO_CONTENT)))
}

/// POST {base}/admin/users/{sub}/sign-out
pub async fn sign_out(call: Call) -> Response {
    answer_sign_out(&call).await.unwrap_or_else(|response| response)
}

async fn answer_sign_out(call: &Call) -> Result<Response, Response> {
    check(call).await?;
    let username = entry(call).await?.user.username;
    let done = call.app.identity.sign_out_everywhere(&username, call.now).await;
    done.map_err(|error| user_error(&error))?;
    Ok(reply::no_store(reply::empty(StatusCode::NO_CONTENT)))
}

/// DELETE {base}/admin/users/{sub}
pub async fn delete(call: Call) -> Response {
    answer_delete(&call).await.unwrap_or_else(|response| response)
}

async fn answer_delete(call: &Call) -> Result<Response, Response> {
    check(call).await?;
    let found = entry(call).await?;
    if revision(call)?.is_some_and(|revision| revision != found.revision) {
        return Err(stale("the user was changed since; read it again"));
    }
    let done = call.app.identity.delete_user(&found.user.username, call.now).await;
    done.map_err(|error| user_error(&error))?;
    Ok(reply::no_store(reply::empty(StatusCode::NO_CONTENT)))
}

/// GET {base}/admin/users/{sub}/sessions
pub async fn sessions(call: Call) -> Response {
    answer_sessions(&call).await.unwrap_or_else(|response| response)
}

async fn answer_sessions(call: &Call) -> Result<Response, Response> {
    check(call).await?;
    let user = entry(call).await?.user;
    let found = call.app.identity.sessions_of(&user, call.now).await.map_err(|error| store(&error))?;
    let shown: Vec<_> = found
        .iter()
        .map(|session| {
            json!({
                "sid": session.sid,
                "auth_time": fhir::instant::format(session.auth_time),
                "last_seen": fhir::instant::format(session.last_seen),
                "amr": session.amr,
                "provider": session.provider,
                "address": session.place.address,
                "user_agent": session.place.agent,
            })
        })
        .collect();
    Ok(json(StatusCode::OK, &json!({ "sessions": shown })))
}

/// DELETE {base}/admin/users/{sub}/sessions/{sid}: with every token that was issued from it.
pub async fn end_session(call: Call) -> Response {
    answer_end_session(&call).await.unwrap_or_else(|response| response)
}

async fn answer_end_session(call: &Call) -> Result<Response, Response> {
    check(call).await?;
    let sub = entry(call).await?.user.sub;
    let done = call.app.identity.end_session_of(&sub, &call.args[1], call.now).await;
    if !done.map_err(|error| store(&error))? {
        return Err(unknown("session"));
    }
    Ok(reply::no_store(reply::empty(StatusCode::NO_CONTENT)))
}

/// GET {base}/admin/users/{sub}/consents
pub async fn consents(call: Call) -> Response {
    answer_consents(&call).await.unwrap_or_else(|response| response)
}

async fn answer_consents(call: &Call) -> Result<Response, Response> {
    check(call).await?;
    let sub = entry(call).await?.user.sub;
    let found = call.app.identity.consents(&sub, call.now).await.map_err(|error| store(&error))?;
    let shown: Vec<_> = found
        .iter()
        .map(|consent| {
            let at = fhir::instant::format(consent.at);
            json!({ "client_id": consent.client_id, "scope": consent.scopes.to_string(), "at": at })
        })
        .collect();
    Ok(json(StatusCode::OK, &json!({ "consents": shown })))
}

/// DELETE {base}/admin/users/{sub}/consents/{client_id}: what was granted on it ends.
pub async fn withdraw(call: Call) -> Response {
    answer_withdraw(&call).await.unwrap_or_else(|response| response)
}

async fn answer_withdraw(call: &Call) -> Result<Response, Response> {
    check(call).await?;
    let sub = entry(call).await?.user.sub;
    let done = call.app.identity.withdraw(&sub, &call.args[1], call.now).await;
    done.map_err(|error| store(&error))?;
    Ok(reply::no_store(reply::empty(StatusCode::NO_CONTENT)))
}
