//! `{base}/admin/…`: administration over HTTP, in JSON, for tokens with the scope `trefoil/admin`.
//!
//! For a user's token, the user must be an administrator at the time of the request; for a client's own
//! token, the scope must be registered. A page of a list ends with `next`, the value of `after` for the next
//! page.

pub mod clients;
pub mod releases;
pub mod sign_in_methods;
pub mod users;

use http::{StatusCode, header};
use identity::model::scope::ADMIN_SCOPE;
use serde::de::DeserializeOwned;

use super::extract::{RequestBody, RequestContext, etag_version};
use super::problem::Problem;
use super::reply::{self, Response};
use crate::records::audit::{self, AuditActor};

/// Maximum size of a body, in bytes.
const BODY: usize = 64 * 1024;
/// Default and maximum number of entries of a page.
const PAGE: usize = 50;
const LARGEST_PAGE: usize = 500;

fn invalid_request(text: &str) -> Problem {
    Problem::admin(StatusCode::BAD_REQUEST, "invalid_request", text)
}

/// Checks that the token is one of an administrator.
pub(super) async fn check_administrator(context: &RequestContext) -> Result<(), Problem> {
    let Some(sent) = context.credentials()? else {
        let text = "send an access token as 'Authorization: Bearer TOKEN'";
        return Err(Problem::admin(StatusCode::UNAUTHORIZED, "invalid_request", text));
    };
    let identity = &context.app.identity;
    let access = context.authenticate_token(&sent).await?;
    let lacking = |text: &str| Err(Problem::admin(StatusCode::FORBIDDEN, "insufficient_scope", text));
    if !access.scopes.contains(ADMIN_SCOPE) || !access.token.is_for_audience(&identity.issuer) {
        return lacking("the token lacks the scope trefoil/admin");
    }
    match &access.user {
        None => audit::set_actor(AuditActor::Client(access.token.client_id.clone())),
        Some(user) if user.administrator => audit::set_actor(AuditActor::User(user.sub.clone())),
        Some(_) => return lacking("the user is not an administrator"),
    }
    Ok(())
}

/// The start and the maximum number of entries of a page.
fn page_parameters(context: &RequestContext) -> Result<(Option<String>, usize), Problem> {
    let params = context.params();
    if let Some(defect) = params.defect() {
        return Err(invalid_request(&defect.to_string()));
    }
    let count = match params.get("count").map(str::parse::<usize>) {
        None => PAGE,
        Some(Ok(count @ 1..=LARGEST_PAGE)) => count,
        Some(_) => return Err(invalid_request("count must be a number from 1 to 500")),
    };
    Ok((params.get("after").map(str::to_owned), count))
}

/// Parses a JSON body. Unknown members are rejected.
async fn parse_body<T: DeserializeOwned>(
    context: &RequestContext,
    body: &mut RequestBody,
) -> Result<T, Problem> {
    if !matches!(context.content_type().as_deref(), Some("application/json" | "application/merge-patch+json"))
    {
        let text = "send application/json";
        return Err(Problem::admin(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_request", text));
    }
    let bytes = body.bytes(BODY).await?;
    serde_json::from_slice(&bytes)
        .map_err(|error| invalid_request(&format!("the body is not valid: {error}")))
}

/// The revision that `If-Match` requires.
fn expected_revision(context: &RequestContext) -> Result<Option<u64>, Problem> {
    match context.header(header::IF_MATCH) {
        None | Some("*") => Ok(None),
        Some(tag) => etag_version(tag)
            .map(Some)
            .ok_or_else(|| precondition_failed("If-Match is not the revision of a record, such as W/\"3\"")),
    }
}

fn precondition_failed(text: &str) -> Problem {
    Problem::admin(StatusCode::PRECONDITION_FAILED, "precondition_failed", text)
}

fn json(status: StatusCode, value: &impl serde::Serialize) -> Response {
    reply::no_store(reply::json(status, value))
}
