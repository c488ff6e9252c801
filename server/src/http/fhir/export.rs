//! Bulk Data export: kick-off, status, delete (Bulk Data Access 2.0.0 and 3.0.0).

use bulk::{ExportLevel, JobRequestError, JobStatus, KickOff, KickOffError, KickOffMethod, TypeAccess};
use fhir::IssueCode;
use http::{StatusCode, header};
use identity::tokens::access_token::TokenAccess;

use super::{access, check_accept};
use crate::http::extract::RequestContext;
use crate::http::problem::{self, Dialect};
use crate::http::reply::{self, Response};
use crate::records::audit::AuditEntry;

/// Media types of NDJSON files, which are accepted in `Accept`, too.
const NDJSON: [&str; 3] = ["application/fhir+ndjson", "application/ndjson", "application/x-ndjson"];

/// GET, POST {fhir_base}/$export
pub async fn export_system(context: RequestContext) -> Response {
    kick_off(context, ExportLevel::System).await
}

/// GET, POST {fhir_base}/Patient/$export
pub async fn export_patients(context: RequestContext) -> Response {
    kick_off(context, ExportLevel::Patient).await
}

/// GET, POST {fhir_base}/Group/{id}/$export
pub async fn export_group(context: RequestContext) -> Response {
    let id = context.args[0].clone();
    kick_off(context, ExportLevel::Group(id)).await
}

/// Returns the types that the `system/` scopes of the token allow to read.
fn readable_types(context: &RequestContext, access: &TokenAccess) -> TypeAccess {
    let may = |kind: &str| access::may_export(context, access, kind);
    if may("*") {
        TypeAccess::All
    } else {
        TypeAccess::only(fhir::RESOURCE_TYPES.iter().copied().filter(|kind| may(kind)))
    }
}

/// Returns whether the request prefers `handling=lenient`. The first `handling` counts (RFC 7240 section 2).
fn is_lenient(context: &RequestContext) -> bool {
    let values = context.headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    let mut preferences = values.flat_map(|value| value.split(',')).filter_map(|preference| {
        let (name, value) = preference.split(';').next()?.split_once('=')?;
        name.trim().eq_ignore_ascii_case("handling").then(|| value.trim().trim_matches('"'))
    });
    preferences.next().is_some_and(|handling| handling.eq_ignore_ascii_case("lenient"))
}

/// Reads the parameters of a kick-off: from the query of a GET, from the body of a POST.
async fn kick_off_parameters(
    context: &mut RequestContext,
) -> Result<(KickOffMethod, Vec<(String, String)>), Response> {
    let in_query: Vec<_> = form_urlencoded::parse(context.query.as_bytes()).into_owned().collect();
    if context.method != http::Method::POST {
        return Ok((KickOffMethod::Get, in_query));
    }
    if let Some((name, _)) = in_query.iter().find(|(name, _)| name != "_format") {
        let text = format!("send '{name}' in the request body: a POST kick-off takes no query parameters");
        return Err(problem::fhir_error(StatusCode::BAD_REQUEST, IssueCode::Invalid, text));
    }
    // A request without a body needs no media type.
    if context.content_type().is_none() && context.bytes(0).await.is_ok() {
        return Ok((KickOffMethod::Post, Vec::new()));
    }
    let body = super::json_body(context).await?;
    let body = fhir::Parameters::from_json(&body).map_err(|error| {
        let text = format!("the body is not a Parameters resource: {error}");
        problem::fhir_error(StatusCode::BAD_REQUEST, IssueCode::Structure, text)
    })?;
    bulk::request::kick_off::pairs(body)
        .map(|pairs| (KickOffMethod::Post, pairs))
        .map_err(|error| kick_off_error(&error))
}

async fn kick_off(mut context: RequestContext, level: ExportLevel) -> Response {
    let access = match access::authenticate(&context).await {
        Ok(access) => access,
        Err(response) => return response,
    };
    let types = readable_types(&context, &access);
    if types.is_empty() {
        return access::insufficient_scope(
            "an export requires system/ read scopes, which a client gets by client_credentials",
        );
    }
    if let Err(response) = check_accept(&context, &NDJSON) {
        return response;
    }
    let groups = match context.app.identity.clients.active_client(&access.token.client_id, context.now).await
    {
        Ok(client) => client.and_then(|client| client.groups),
        Err(error) => return problem::store_error(Dialect::Fhir, &error),
    };
    if groups.is_some() && !matches!(level, ExportLevel::Group(_)) {
        return access::insufficient_scope("this client may export only its Groups");
    }
    let (by, parameters) = match kick_off_parameters(&mut context).await {
        Ok(parameters) => parameters,
        Err(response) => return response,
    };
    let query = if context.query.is_empty() { String::new() } else { format!("?{}", context.query) };
    let request = KickOff {
        level,
        parameters,
        by,
        request_url: format!("{}{}{query}", context.app.base_url, context.path),
        client_id: access.token.client_id.clone(),
        types,
        groups,
        lenient: is_lenient(&context),
    };
    let (request_url, parameters) = (request.request_url.clone(), request.parameters.clone());
    match context.app.bulk.kick_off(request, context.now).await {
        Ok(job) => {
            let (client_id, job_id) = (access.token.client_id.clone(), job.to_string());
            context.app.audit.add(&AuditEntry::Export {
                client_id,
                job: job_id,
                request: request_url.clone(),
            });
            if let Some(log) = &context.app.export_log {
                log.record_kick_off(&job, &request_url, &parameters).await;
            }
            let text = "the export has started; its status is at the URL in Content-Location";
            let outcome = fhir::OperationOutcome::from(fhir::Issue::new(
                fhir::Severity::Information,
                IssueCode::Informational,
                text,
            ));
            let at = format!("{}/bulk/{job}", context.app.fhir_base);
            reply::with(
                problem::outcome_response(StatusCode::ACCEPTED, &outcome),
                header::CONTENT_LOCATION,
                &at,
            )
        }
        Err(error) => kick_off_error(&error),
    }
}

fn kick_off_error(error: &KickOffError) -> Response {
    let (status, code) = match error {
        KickOffError::Parameter { .. } => (StatusCode::BAD_REQUEST, IssueCode::Invalid),
        KickOffError::Unsupported { .. } => (StatusCode::BAD_REQUEST, IssueCode::NotSupported),
        KickOffError::UnknownPatients { .. } => (StatusCode::BAD_REQUEST, IssueCode::NotFound),
        KickOffError::BadGroup(_) => (StatusCode::UNPROCESSABLE_ENTITY, IssueCode::Processing),
        KickOffError::UnknownGroup { .. } => (StatusCode::NOT_FOUND, IssueCode::NotFound),
        KickOffError::Forbidden { .. } => return access::insufficient_scope(&error.to_string()),
        KickOffError::TooManyExports { retry_after_s, .. } => {
            let response =
                problem::fhir_error(StatusCode::TOO_MANY_REQUESTS, IssueCode::Throttled, error.to_string());
            return reply::with(response, header::RETRY_AFTER, &retry_after_s.to_string());
        }
        KickOffError::Resource(error) => return problem::resource_error(error),
        KickOffError::Store(error) => return problem::store_error(Dialect::Fhir, error),
    };
    problem::fhir_error(status, code, error.to_string())
}

fn job_request_error(error: &JobRequestError) -> Response {
    match error {
        JobRequestError::NotFound { .. } => {
            problem::fhir_error(StatusCode::NOT_FOUND, IssueCode::NotFound, error.to_string())
        }
        JobRequestError::Store(error) => {
            // The job did not fail, only this status request: so the issue code is a transient one.
            tracing::error!(%error, "status of an export");
            let text = "the status cannot be read at the moment; try again";
            let response = problem::fhir_error(StatusCode::SERVICE_UNAVAILABLE, IssueCode::Transient, text);
            reply::with(response, header::RETRY_AFTER, "5")
        }
    }
}

/// Returns the client of a request on a job, and the types that its token allows to read.
///
/// # Errors
/// Returns a 401 response without a valid token, and a 403 response without any `system/` scope.
pub async fn job_owner(context: &RequestContext) -> Result<(String, TypeAccess), Response> {
    let access = access::authenticate(context).await?;
    let types = readable_types(context, &access);
    if types.is_empty() {
        return Err(access::insufficient_scope("exports need system/ read scopes"));
    }
    Ok((access.token.client_id.clone(), types))
}

/// GET {fhir_base}/bulk/{job}: the status, with the first page of the manifest. `?page=` selects another page, whose
/// URL is a link in the page before it.
pub async fn export_status(context: RequestContext) -> Response {
    let (client_id, types) = match job_owner(&context).await {
        Ok(owner) => owner,
        Err(response) => return response,
    };
    if let Err(response) = check_accept(&context, &NDJSON) {
        return response;
    }
    let Ok(page) = context.params().get("page").unwrap_or("1").parse() else {
        let text = "'page' must be a number; use the link in the previous page";
        return problem::fhir_error(StatusCode::BAD_REQUEST, IssueCode::Value, text);
    };
    let status = context.app.bulk.status(&context.args[0], page, &client_id, &types, context.now).await;
    if let (Some(log), Ok(status)) = (&context.app.export_log, &status) {
        log.record_status(&context.args[0], page, status).await;
    }
    match status {
        Ok(JobStatus::InProgress { progress, retry_after_s, manifest }) => {
            let response = match manifest {
                Some(manifest) => reply::body(StatusCode::ACCEPTED, "application/json", manifest),
                None => reply::empty(StatusCode::ACCEPTED),
            };
            let response = reply::no_store(response);
            let response = reply::with(response, header::RETRY_AFTER, &retry_after_s.to_string());
            reply::with(response, header::HeaderName::from_static("x-progress"), &progress)
        }
        Ok(JobStatus::TooSoon { retry_after_s }) => {
            let text = format!("too many status requests; try again in {retry_after_s} s");
            let response = problem::fhir_error(StatusCode::TOO_MANY_REQUESTS, IssueCode::Throttled, text);
            reply::with(response, header::RETRY_AFTER, &retry_after_s.to_string())
        }
        Ok(JobStatus::Forbidden { kind }) => access::insufficient_scope(&format!(
            "the export contains {kind}, for which the token has no read scope"
        )),
        Ok(JobStatus::Complete { manifest, expires }) => {
            let response = reply::body(StatusCode::OK, "application/json", manifest);
            let response = reply::with(response, header::CACHE_CONTROL, "private, no-cache");
            reply::with(response, header::EXPIRES, &reply::http_date(expires))
        }
        Ok(JobStatus::Failed { by_data, reason }) => {
            let (status, code) = if by_data {
                (StatusCode::UNPROCESSABLE_ENTITY, IssueCode::Processing)
            } else {
                (StatusCode::INTERNAL_SERVER_ERROR, IssueCode::Exception)
            };
            problem::fhir_error(status, code, reason)
        }
        Err(error) => job_request_error(&error),
    }
}

/// DELETE {fhir_base}/bulk/{job}
pub async fn delete_export(context: RequestContext) -> Response {
    let (client_id, _) = match job_owner(&context).await {
        Ok(owner) => owner,
        Err(response) => return response,
    };
    match context.app.bulk.delete(&context.args[0], &client_id, context.now).await {
        Ok(()) => {
            let outcome = fhir::OperationOutcome::from(fhir::Issue::new(
                fhir::Severity::Information,
                IssueCode::Informational,
                "the export and its files are deleted",
            ));
            problem::outcome_response(StatusCode::ACCEPTED, &outcome)
        }
        Err(error) => job_request_error(&error),
    }
}
