//! `{base}/admin/…`: administration over HTTP, in JSON, for tokens with the scope `trefoil/admin`.
//!
//! A user's token needs an administrator, each time anew; a client's own token needs the scope in its
//! registration. A page of a list ends with `next`, which is the `after` of the next one.

pub mod clients;
pub mod sign_in_methods;
pub mod users;

use http::{StatusCode, header};
use identity::scope::ADMIN;
use identity::token::BadToken;
use serde::de::DeserializeOwned;
use store::StoreError;

use super::extract::Call;
use super::problem::{self, Dialect};
use super::reply::{self, Response};
use crate::audit::{self, Actor};

/// Largest body, in bytes.
const BODY: usize = 64 * 1024;
/// Entries of a page: as a rule and at most.
const PAGE: usize = 50;
const LARGEST_PAGE: usize = 500;

fn refuse(status: StatusCode, error: &str, text: &str) -> Response {
    let response = problem::oauth(status, error, Some(text));
    let challenge = match status {
        StatusCode::UNAUTHORIZED if error == "invalid_request" => "Bearer realm=\"trefoil\"".to_owned(),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => problem::bearer_challenge(error, text),
        _ => return response,
    };
    let mut response = response;
    response.headers_mut().remove(header::WWW_AUTHENTICATE);
    reply::with(response, header::WWW_AUTHENTICATE, &challenge)
}

fn wrong(text: &str) -> Response {
    refuse(StatusCode::BAD_REQUEST, "invalid_request", text)
}

fn unknown(what: &str) -> Response {
    refuse(StatusCode::NOT_FOUND, "not_found", &format!("there is no such {what}"))
}

fn store(error: &StoreError) -> Response {
    problem::store(Dialect::OAuth, error)
}

/// Lets only administrators in.
async fn check(call: &Call) -> Result<(), Response> {
    let sent = match call.presented() {
        Ok(Some(sent)) => sent,
        Ok(None) => {
            let text = "send an access token as 'Authorization: Bearer TOKEN'";
            return Err(refuse(StatusCode::UNAUTHORIZED, "invalid_request", text));
        }
        Err(error) => return Err(problem::userinfo_token(&BadToken::Proof(error))),
    };
    let identity = &call.app.identity;
    let access = identity.judge(&sent, call.now).await.map_err(|error| problem::userinfo_token(&error))?;
    let lacking = |text: &str| Err(refuse(StatusCode::FORBIDDEN, "insufficient_scope", text));
    if !access.scopes.has(ADMIN) || !access.token.is_for(&identity.issuer) {
        return lacking("the token lacks the scope trefoil/admin");
    }
    match &access.user {
        None => audit::is_actor(Actor::Client(access.token.client_id.clone())),
        Some(user) if user.administrator => audit::is_actor(Actor::User(user.sub.clone())),
        Some(_) => return lacking("the user is no administrator"),
    }
    Ok(())
}

/// Where a page begins and how much it holds.
fn page(call: &Call) -> Result<(Option<String>, usize), Response> {
    let params = call.params();
    if let Some(defect) = params.defect() {
        return Err(wrong(&defect.to_string()));
    }
    let count = match params.get("count").map(str::parse::<usize>) {
        None => PAGE,
        Some(Ok(count @ 1..=LARGEST_PAGE)) => count,
        Some(_) => return Err(wrong("count must be a number from 1 to 500")),
    };
    Ok((params.get("after").map(str::to_owned), count))
}

/// A JSON body of this form; what is not known in it is refused.
async fn body<T: DeserializeOwned>(call: &mut Call) -> Result<T, Response> {
    if !matches!(call.content_type().as_deref(), Some("application/json" | "application/merge-patch+json")) {
        let text = "send application/json";
        return Err(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_request", text));
    }
    let bytes = call.bytes(BODY).await.map_err(|error| problem::unreadable(Dialect::OAuth, &error))?;
    serde_json::from_slice(&bytes).map_err(|error| wrong(&format!("the body is not understood: {error}")))
}

/// The revision that `If-Match` demands.
fn revision(call: &Call) -> Result<Option<u64>, Response> {
    match call.header(header::IF_MATCH) {
        None | Some("*") => Ok(None),
        Some(tag) => {
            let number = tag.trim().trim_start_matches("W/").trim_matches('"').parse();
            number.map(Some).map_err(|_| stale("If-Match names no revision of this record"))
        }
    }
}

fn stale(text: &str) -> Response {
    refuse(StatusCode::PRECONDITION_FAILED, "precondition_failed", text)
}

fn json(status: StatusCode, value: &impl serde::Serialize) -> Response {
    reply::no_store(reply::json(status, value))
}
