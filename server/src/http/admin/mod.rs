//! `{base}/admin/…`: administration over HTTP, in JSON, for tokens with the scope `trefoil/admin`.
//!
//! For a user's token, the user must be an administrator at the time of the request; for a client's own
//! token, the scope must be registered. Each request runs a command of
//! [`all_commands`](crate::administration::all_commands): its members are the values of the path and the query,
//! and the members of the body.
//!
//! | module | contents |
//! |---|---|
//! | `members` | the members of a command in a request |
//! | [`openapi`] | the description of the requests in OpenAPI |

mod members;
pub mod openapi;

use http::{Method, StatusCode, header};
use identity::model::scope::NamedScope;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::extract::{RequestBody, RequestContext, etag_version};
use super::path_parameters::PathParameters;
use super::problem::Problem;
use super::reply::{self, Response};
use crate::administration::AdminServices;
use crate::administration::all_commands::CommandRow;
use crate::administration::command::{
    AdminRoute, Answer, AnswerShape, Call, Caller, CommandError, ListAnswer, RecordAnswer,
};
use crate::records::audit::{self, AuditActor};

/// Maximum size of a body, in bytes.
const BODY: usize = 64 * 1024;
/// Number of entries of a page, by default.
const PAGE: usize = 50;

fn invalid_request(text: &str) -> Problem {
    Problem::admin(StatusCode::BAD_REQUEST, "invalid_request", text)
}

/// Checks that the token is one of an administrator, and returns its bearer.
pub(super) async fn check_administrator(context: &RequestContext) -> Result<Caller, Problem> {
    check_scope(context, &[NamedScope::Admin]).await
}

/// Checks that the token has one of these scopes, and that its user, if it has one, is an administrator.
/// Returns its bearer.
pub(super) async fn check_scope(context: &RequestContext, scopes: &[NamedScope]) -> Result<Caller, Problem> {
    let Some(credentials) = context.credentials()? else {
        let text = "send an access token as 'Authorization: Bearer TOKEN'";
        return Err(Problem::admin(StatusCode::UNAUTHORIZED, "invalid_request", text));
    };
    let identity = &context.app.identity;
    let access = context.authenticate_token(&credentials).await?;
    let lacking = |text: &str| Err(Problem::admin(StatusCode::FORBIDDEN, "insufficient_scope", text));
    let has_scope = scopes.iter().any(|scope| access.scopes.has(*scope));
    if !has_scope || !access.token.is_for_audience(&identity.issuer) {
        let names: Vec<&str> = scopes.iter().map(|scope| scope.name()).collect();
        return lacking(&format!("the token lacks the scope {}", names.join(" or ")));
    }
    match &access.user {
        None => {
            audit::set_actor(AuditActor::Client(access.token.client_id.clone()));
            Ok(Caller::Client)
        }
        Some(user) if user.administrator => {
            audit::set_actor(AuditActor::User(user.sub.clone()));
            let time = access.token.auth_time.and_then(|time| Timestamp::from_second(time).ok());
            Ok(Caller::User(time))
        }
        Some(_) => lacking("the user is not an administrator"),
    }
}

/// Runs the command of a request.
pub async fn run_command(
    context: &RequestContext,
    row: &CommandRow,
    route: &AdminRoute,
    path: PathParameters,
    body: &mut RequestBody,
) -> Result<Response, Problem> {
    let caller = check_administrator(context).await?;
    let mut body_members = match context.method {
        Method::POST | Method::PUT | Method::PATCH => read_body(context, row, body).await?,
        _ => Map::new(),
    };
    members::check_body(&body_members, row).map_err(|text| invalid_request(&text))?;
    members::add_path(&mut body_members, path);
    let query = context.params();
    members::add_query(&mut body_members, row, &query).map_err(|text| invalid_request(&text))?;
    if let Some(member) = route.sets {
        body_members.insert(member.to_owned(), true.into());
    }
    if members::has(row, "count") {
        body_members.entry("count").or_insert_with(|| PAGE.into());
    }
    let command = (row.from_members)(body_members.into()).map_err(|error| {
        let text = error.to_string();
        let missing = text.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`'));
        invalid_request(&match missing {
            Some(member) => format!("{member} is missing"),
            None => format!("the request is not valid: {text}"),
        })
    })?;
    let (app, stop) = (&context.app, CancellationToken::new());
    let services = AdminServices::of_running(app, &stop);
    let revision = expected_revision(context)?;
    let call = Call { services: &services, revision, caller };
    Ok(response(command.run(&call, &mut |_| {}).await?, row, &app.address.base_url))
}

/// Reads a JSON body. A command that needs no member needs no body.
async fn read_body(
    context: &RequestContext,
    row: &CommandRow,
    body: &mut RequestBody,
) -> Result<Map<String, Value>, Problem> {
    let bytes = body.bytes(BODY).await?;
    let content_type = context.content_type();
    if bytes.is_empty() && content_type.is_none() && !members::needs_body(row) {
        return Ok(Map::new());
    }
    if !matches!(content_type.as_deref(), Some("application/json" | "application/merge-patch+json")) {
        let text = "send application/json";
        return Err(Problem::admin(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_request", text));
    }
    serde_json::from_slice(&bytes)
        .map_err(|error| invalid_request(&format!("the body is not valid: {error}")))
}

fn response(answer: Answer, row: &CommandRow, base_url: &str) -> Response {
    match answer {
        Answer::Done(_) | Answer::Told(_) => reply::no_store(reply::empty(StatusCode::NO_CONTENT)),
        Answer::List(ListAnswer { entries, next, .. }) => {
            let AnswerShape::List(name, _) = row.answer else { unreachable!("the command states a list") };
            let entries: Vec<Value> = entries.into_iter().map(|(_, entry)| entry).collect();
            let mut list = json!({ name: entries });
            if members::has(row, "count") {
                list["next"] = next.into();
            }
            json(StatusCode::OK, &list)
        }
        Answer::Record(record) => {
            let RecordAnswer { json: mut shown, warnings, revision, location, .. } = *record;
            if !warnings.is_empty() {
                shown["warnings"] = warnings.into();
            }
            let status = if location.is_some() { StatusCode::CREATED } else { StatusCode::OK };
            let mut response = json(status, &shown);
            if let Some(revision) = revision {
                response = reply::with(response, header::ETAG, &format!("W/\"{revision}\""));
            }
            match location {
                Some(path) => reply::with(response, header::LOCATION, &format!("{base_url}/admin/{path}")),
                None => response,
            }
        }
    }
}

impl From<CommandError> for Problem {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::User(error) => error.into(),
            CommandError::ChangeUser(error) => error.into(),
            CommandError::Client(error) => error.into(),
            CommandError::Password(error) => error.into(),
            CommandError::Store(error) => error.into(),
            CommandError::Invalid(text) => invalid_request(&text),
            CommandError::Unknown { record, .. } => Self::no_such(record),
            CommandError::Conflict { code, text } => Self::admin(StatusCode::CONFLICT, code, &text),
            CommandError::Stale(text) => precondition_failed(&text),
            CommandError::Forbidden(text) => Self::admin(StatusCode::FORBIDDEN, "access_denied", text),
            CommandError::Other(error) => {
                tracing::error!("a command of an administrator failed: {error:#}");
                let text = "the command failed; the server's log has the reason";
                Self::admin(StatusCode::INTERNAL_SERVER_ERROR, "server_error", text)
            }
        }
    }
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
