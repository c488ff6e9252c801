//! Bulk Data export: kick-off, status, delete (Bulk Data Access 2.0.0 and 3.0.0).

use std::sync::Arc;

use bulk::{ExportLevel, JobStatus, KickOff, KickOffError, KickOffMethod, TypeAccess};
use fhir::IssueCode;
use http::{StatusCode, header};
use identity::model::scope::ScopePermissions;
use identity::tokens::access_token::TokenAccess;

use super::missing_scope::{NeededAccess, missing_scope};
use super::{access, check_accept};
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::problem::{self, Problem};
use crate::http::reply::{self, Response};
use crate::records::audit::AuditEntry;

/// Media types of NDJSON files, which are accepted in `Accept`, too.
const NDJSON: [&str; 3] = ["application/fhir+ndjson", "application/ndjson", "application/x-ndjson"];

/// GET, POST {fhir_base}/$export
pub async fn export_system(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    kick_off(context, body, ExportLevel::System).await
}

/// GET, POST {fhir_base}/Patient/$export
pub async fn export_patients(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    kick_off(context, body, ExportLevel::Patient).await
}

/// GET, POST {fhir_base}/Group/{id}/$export
pub async fn export_group(
    context: &RequestContext,
    id: String,
    body: &mut RequestBody,
) -> Result<Response, Problem> {
    kick_off(context, body, ExportLevel::Group(id)).await
}

/// The types that the `system/` scopes of the token allow to read.
fn readable_types(context: &RequestContext, access: &TokenAccess) -> TypeAccess {
    let may = |kind: &str| access::may_export(context, access, kind);
    if may("*") {
        TypeAccess::All
    } else {
        TypeAccess::only(fhir::RESOURCE_TYPES.iter().copied().filter(|kind| may(kind)))
    }
}

/// Reads the parameters of a kick-off: from the query of a GET, from the body of a POST.
async fn kick_off_parameters(
    context: &RequestContext,
    body: &mut RequestBody,
) -> Result<(KickOffMethod, Vec<(String, String)>), Problem> {
    let in_query: Vec<_> = form_urlencoded::parse(context.query.as_bytes()).into_owned().collect();
    if context.method != http::Method::POST {
        return Ok((KickOffMethod::Get, in_query));
    }
    if let Some((name, _)) = in_query.iter().find(|(name, _)| name != "_format") {
        let text = format!("send '{name}' in the request body: a POST kick-off takes no query parameters");
        return Err(Problem::fhir(StatusCode::BAD_REQUEST, IssueCode::Invalid, text));
    }
    // A request without a body needs no media type.
    if context.content_type().is_none() && body.bytes(0).await.is_ok() {
        return Ok((KickOffMethod::Post, Vec::new()));
    }
    let body = super::json_body(context, body).await?;
    let body = fhir::Parameters::from_json(&body).map_err(|error| {
        let text = format!("the body is not a Parameters resource: {error}");
        Problem::fhir(StatusCode::BAD_REQUEST, IssueCode::Structure, text)
    })?;
    Ok((KickOffMethod::Post, bulk::request::kick_off::pairs(body)?))
}

async fn kick_off(
    context: &RequestContext,
    body: &mut RequestBody,
    level: ExportLevel,
) -> Result<Response, Problem> {
    let access = access::authenticate(context).await?;
    let types = readable_types(context, &access);
    if types.is_empty() {
        return Err(missing_export_scope(context, &access, "*").await);
    }
    check_accept(context, &NDJSON)?;
    let client = context.app.identity.clients.active_client(&access.token.client_id, context.now).await?;
    let groups = client.and_then(|client| client.groups);
    // An export of all patients would contain patients outside of the Groups.
    if groups.is_some() && !matches!(level, ExportLevel::Group(_)) {
        return Err(Problem::insufficient_scope("this client may export only its Groups", None));
    }
    if level != ExportLevel::System && !context.app.patient_assignment.is_complete() {
        let text = "exports of patients and Groups are not available yet: after an upgrade, the server still determines to \
                    which patients stored resources belong; try again in a minute";
        return Err(Problem::fhir_later(text, "60"));
    }
    let (by, parameters) = kick_off_parameters(context, body).await?;
    let query = if context.query.is_empty() { String::new() } else { format!("?{}", context.query) };
    let request = KickOff {
        level,
        parameters,
        by,
        request_url: format!("{}{}{query}", context.app.address.base_url, context.path),
        client_id: access.token.client_id.clone(),
        types,
        groups,
        lenient: context.is_lenient(),
    };
    let request_url = request.request_url.clone();
    let job = match context.app.bulk.kick_off(request, context.now).await {
        Err(KickOffError::Forbidden { kind }) => {
            return Err(missing_export_scope(context, &access, &kind).await);
        }
        started => started?,
    };
    context.app.logs.audit.add(&AuditEntry::Export {
        client_id: access.token.client_id.clone(),
        job: job.to_string(),
        request: request_url,
    });
    let response = information("the export has started; its status is at the URL in Content-Location");
    let location = format!("{}/bulk/{job}", context.app.address.fhir_base);
    Ok(reply::with(response, header::CONTENT_LOCATION, &location))
}

/// The response to a request that the server has accepted.
fn information(text: &str) -> Response {
    let issue = fhir::Issue::new(fhir::Severity::Information, IssueCode::Informational, text);
    problem::outcome_response(StatusCode::ACCEPTED, &fhir::OperationOutcome::from(issue))
}

/// The 403 problem for a token that may not read a type, or any type.
pub async fn missing_export_scope(context: &RequestContext, access: &TokenAccess, kind: &str) -> Problem {
    missing_scope(context, access, kind, ScopePermissions::READ, NeededAccess::Export).await
}

/// The access of a request on a job, and the types that its token allows to read.
///
/// # Errors
/// A 401 problem without a valid token, and a 403 problem without any `system/` scope.
pub async fn job_owner(context: &RequestContext) -> Result<(Arc<TokenAccess>, TypeAccess), Problem> {
    let access = access::authenticate(context).await?;
    let types = readable_types(context, &access);
    if types.is_empty() {
        return Err(missing_export_scope(context, &access, "*").await);
    }
    Ok((access, types))
}

/// GET {fhir_base}/bulk/{job}: the status, with the first page of the manifest. `?page=` selects another
/// page, whose URL is a link in the page before it.
pub async fn export_status(context: &RequestContext, job: String) -> Result<Response, Problem> {
    let (access, types) = job_owner(context).await?;
    check_accept(context, &NDJSON)?;
    let Ok(page) = context.params().get("page").unwrap_or("1").parse() else {
        let text = "'page' must be a number; use the link in the previous page";
        return Err(Problem::fhir(StatusCode::BAD_REQUEST, IssueCode::Value, text));
    };
    let status = context.app.bulk.status(&job, page, &access.token.client_id, &types, context.now).await?;
    Ok(match status {
        JobStatus::InProgress { progress, retry_after_s, manifest } => {
            let response = match manifest {
                Some(manifest) => reply::body(StatusCode::ACCEPTED, "application/json", manifest),
                None => reply::empty(StatusCode::ACCEPTED),
            };
            let response = reply::no_store(response);
            let response = reply::with(response, header::RETRY_AFTER, &retry_after_s.to_string());
            reply::with(response, header::HeaderName::from_static("x-progress"), &progress)
        }
        JobStatus::TooSoon { retry_after_s } => {
            let text = format!("too many status requests; try again in {retry_after_s} s");
            let response = problem::fhir_error(StatusCode::TOO_MANY_REQUESTS, IssueCode::Throttled, text);
            reply::with(response, header::RETRY_AFTER, &retry_after_s.to_string())
        }
        JobStatus::Forbidden { kind } => {
            return Err(missing_export_scope(context, &access, &kind).await);
        }
        JobStatus::Complete { manifest, expires } => {
            let response = reply::body(StatusCode::OK, "application/json", manifest);
            let response = reply::with(response, header::CACHE_CONTROL, "private, no-cache");
            reply::with(response, header::EXPIRES, &reply::http_date(expires))
        }
        JobStatus::Failed { by_data, reason } => {
            let (status, code) = if by_data {
                (StatusCode::UNPROCESSABLE_ENTITY, IssueCode::Processing)
            } else {
                (StatusCode::INTERNAL_SERVER_ERROR, IssueCode::Exception)
            };
            return Err(Problem::fhir(status, code, reason));
        }
    })
}

/// DELETE {fhir_base}/bulk/{job}
pub async fn delete_export(context: &RequestContext, job: String) -> Result<Response, Problem> {
    let (access, _) = job_owner(context).await?;
    context.app.bulk.delete(&job, &access.token.client_id, context.now).await?;
    Ok(information("the export and its files are deleted"))
}
