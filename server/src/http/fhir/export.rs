//! Bulk Data export: kick-off, status, delete (SPEC, bulk export; Bulk Data Access 2.0.0 and
//! 3.0.0).

use bulk::{JobError, KickOff, KickOffError, Level, Method, Status, TypeAccess};
use fhir::IssueCode;
use http::{StatusCode, header};
use identity::token::Access;

use super::{access, check_accept};
use crate::audit::Entry;
use crate::http::extract::Call;
use crate::http::problem::{self, Dialect};
use crate::http::reply::{self, Response};

/// Media types of NDJSON files, which may stand in `Accept` here.
const NDJSON: [&str; 3] = ["application/fhir+ndjson", "application/ndjson", "application/x-ndjson"];

/// GET, POST {fhir_base}/$export
pub async fn system(call: Call) -> Response {
    kick_off(call, Level::System).await
}

/// GET, POST {fhir_base}/Patient/$export
pub async fn patient(call: Call) -> Response {
    kick_off(call, Level::Patient).await
}

/// GET, POST {fhir_base}/Group/{id}/$export
pub async fn group(call: Call) -> Response {
    let id = call.args[0].clone();
    kick_off(call, Level::Group(id)).await
}

/// The types that the token's `system/` scopes let the client read.
fn readable(call: &Call, access: &Access) -> TypeAccess {
    let may = |kind: &str| access::exports(call, access, kind);
    if may("*") {
        TypeAccess::All
    } else {
        TypeAccess::only(fhir::RESOURCE_TYPES.iter().copied().filter(|kind| may(kind)))
    }
}

/// `Prefer: handling=lenient`, among whatever else is preferred; of two that differ the first counts (RFC 7240
/// 2).
fn is_lenient(call: &Call) -> bool {
    let values = call.headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    let mut preferences = values.flat_map(|value| value.split(',')).filter_map(|preference| {
        let (name, value) = preference.split(';').next()?.split_once('=')?;
        name.trim().eq_ignore_ascii_case("handling").then(|| value.trim().trim_matches('"'))
    });
    preferences.next().is_some_and(|handling| handling.eq_ignore_ascii_case("lenient"))
}

/// The parameters of a kick-off: of the query by GET, of the body by POST.
async fn parameters(call: &mut Call) -> Result<(Method, Vec<(String, String)>), Response> {
    let in_query: Vec<_> = form_urlencoded::parse(call.query.as_bytes()).into_owned().collect();
    if call.method != http::Method::POST {
        return Ok((Method::Get, in_query));
    }
    if let Some((name, _)) = in_query.iter().find(|(name, _)| name != "_format") {
        let text = format!("'{name}' stands in the address; parameters of a POST stand in its body");
        return Err(problem::fhir(StatusCode::BAD_REQUEST, IssueCode::Invalid, text));
    }
    // Without a body there is no media type to name.
    if call.content_type().is_none() && call.bytes(0).await.is_ok() {
        return Ok((Method::Post, Vec::new()));
    }
    let body = super::json_body(call).await?;
    let body = fhir::Parameters::from_json(&body).map_err(|error| {
        let text = format!("the body is not a Parameters resource: {error}");
        problem::fhir(StatusCode::BAD_REQUEST, IssueCode::Structure, text)
    })?;
    bulk::kick_off::pairs(body).map(|pairs| (Method::Post, pairs)).map_err(|error| refused(&error))
}

async fn kick_off(mut call: Call, level: Level) -> Response {
    let access = match access::token(&call).await {
        Ok(access) => access,
        Err(response) => return response,
    };
    let types = readable(&call, &access);
    if types.is_empty() {
        return access::lacking("an export needs system/ read scopes, which client_credentials gives");
    }
    if let Err(response) = check_accept(&call, &NDJSON) {
        return response;
    }
    let groups = match call.app.identity.client(&access.token.client_id, call.now).await {
        Ok(client) => client.and_then(|client| client.groups),
        Err(error) => return problem::store(Dialect::Fhir, &error),
    };
    if groups.is_some() && !matches!(level, Level::Group(_)) {
        return access::lacking("this client may export its Groups and nothing else");
    }
    let (by, parameters) = match parameters(&mut call).await {
        Ok(parameters) => parameters,
        Err(response) => return response,
    };
    let query = if call.query.is_empty() { String::new() } else { format!("?{}", call.query) };
    let request = KickOff {
        level,
        parameters,
        by,
        request_url: format!("{}{}{query}", call.app.base_url, call.path),
        client_id: access.token.client_id.clone(),
        types,
        groups,
        lenient: is_lenient(&call),
    };
    let (asked, parameters) = (request.request_url.clone(), request.parameters.clone());
    match call.app.bulk.kick_off(request, call.now).await {
        Ok(job) => {
            let (client_id, job_id) = (access.token.client_id.clone(), job.to_string());
            call.app.audit.add(&Entry::Export { client_id, job: job_id, request: asked.clone() });
            if let Some(log) = &call.app.export_log {
                log.kickoff(&job, &asked, &parameters).await;
            }
            let text = "the export has begun; its status is at the address in Content-Location";
            let outcome = fhir::OperationOutcome::from(fhir::Issue::new(
                fhir::Severity::Information,
                IssueCode::Informational,
                text,
            ));
            let at = format!("{}/bulk/{job}", call.app.fhir_base);
            reply::with(problem::outcome(StatusCode::ACCEPTED, &outcome), header::CONTENT_LOCATION, &at)
        }
        Err(error) => refused(&error),
    }
}

fn refused(error: &KickOffError) -> Response {
    let (status, code) = match error {
        KickOffError::Parameter { .. } => (StatusCode::BAD_REQUEST, IssueCode::Invalid),
        KickOffError::Unsupported { .. } => (StatusCode::BAD_REQUEST, IssueCode::NotSupported),
        KickOffError::UnknownPatients { .. } => (StatusCode::BAD_REQUEST, IssueCode::NotFound),
        KickOffError::BadGroup(_) => (StatusCode::UNPROCESSABLE_ENTITY, IssueCode::Processing),
        KickOffError::UnknownGroup { .. } => (StatusCode::NOT_FOUND, IssueCode::NotFound),
        KickOffError::Forbidden { .. } => return access::lacking(&error.to_string()),
        KickOffError::TooMany { retry_after_s, .. } => {
            let response =
                problem::fhir(StatusCode::TOO_MANY_REQUESTS, IssueCode::Throttled, error.to_string());
            return reply::with(response, header::RETRY_AFTER, &retry_after_s.to_string());
        }
        KickOffError::Resource(error) => return problem::resource(error),
        KickOffError::Store(error) => return problem::store(Dialect::Fhir, error),
    };
    problem::fhir(status, code, error.to_string())
}

fn no_job(error: &JobError) -> Response {
    match error {
        JobError::NotFound { .. } => {
            problem::fhir(StatusCode::NOT_FOUND, IssueCode::NotFound, error.to_string())
        }
        JobError::Store(error) => {
            // The job is not at fault, only this poll: the code is one of the transient kind.
            tracing::error!(%error, "status of an export");
            let text = "the status cannot be read at the moment; ask again";
            let response = problem::fhir(StatusCode::SERVICE_UNAVAILABLE, IssueCode::Transient, text);
            reply::with(response, header::RETRY_AFTER, "5")
        }
    }
}

/// The client of a request on a job, and what its token may read: status, files and delete are its
/// own alone.
///
/// # Errors
/// 401 without a good token, 403 without any `system/` scope.
pub async fn owner(call: &Call) -> Result<(String, TypeAccess), Response> {
    let access = access::token(call).await?;
    let types = readable(call, &access);
    if types.is_empty() {
        return Err(access::lacking("exports need system/ read scopes"));
    }
    Ok((access.token.client_id.clone(), types))
}

/// GET {fhir_base}/bulk/{job}: the status, with the first page of the manifest; `?page=` names another one, whose address
/// stands in the page before.
pub async fn status(call: Call) -> Response {
    let (client_id, types) = match owner(&call).await {
        Ok(owner) => owner,
        Err(response) => return response,
    };
    if let Err(response) = check_accept(&call, &NDJSON) {
        return response;
    }
    let Ok(page) = call.params().get("page").unwrap_or("1").parse() else {
        let text = "'page' is a number; take the address of the link in the page before";
        return problem::fhir(StatusCode::BAD_REQUEST, IssueCode::Value, text);
    };
    let status = call.app.bulk.status(&call.args[0], page, &client_id, &types, call.now).await;
    if let (Some(log), Ok(status)) = (&call.app.export_log, &status) {
        log.status(&call.args[0], page, status).await;
    }
    match status {
        Ok(Status::InProgress { progress, retry_after_s, manifest }) => {
            let response = match manifest {
                Some(manifest) => reply::body(StatusCode::ACCEPTED, "application/json", manifest),
                None => reply::empty(StatusCode::ACCEPTED),
            };
            let response = reply::no_store(response);
            let response = reply::with(response, header::RETRY_AFTER, &retry_after_s.to_string());
            reply::with(response, header::HeaderName::from_static("x-progress"), &progress)
        }
        Ok(Status::TooSoon { retry_after_s }) => {
            let text = format!("the status was asked for too often; ask again in {retry_after_s} s");
            let response = problem::fhir(StatusCode::TOO_MANY_REQUESTS, IssueCode::Throttled, text);
            reply::with(response, header::RETRY_AFTER, &retry_after_s.to_string())
        }
        Ok(Status::Forbidden { kind }) => {
            access::lacking(&format!("the export holds {kind}, which the token has no scope to read"))
        }
        Ok(Status::Complete { manifest, expires }) => {
            let response = reply::body(StatusCode::OK, "application/json", manifest);
            let response = reply::with(response, header::CACHE_CONTROL, "private, no-cache");
            reply::with(response, header::EXPIRES, &reply::http_date(expires))
        }
        Ok(Status::Failed { by_data, reason }) => {
            let (status, code) = if by_data {
                (StatusCode::UNPROCESSABLE_ENTITY, IssueCode::Processing)
            } else {
                (StatusCode::INTERNAL_SERVER_ERROR, IssueCode::Exception)
            };
            problem::fhir(status, code, reason)
        }
        Err(error) => no_job(&error),
    }
}

/// DELETE {fhir_base}/bulk/{job}
pub async fn delete(call: Call) -> Response {
    let (client_id, _) = match owner(&call).await {
        Ok(owner) => owner,
        Err(response) => return response,
    };
    match call.app.bulk.delete(&call.args[0], &client_id, call.now).await {
        Ok(()) => {
            let outcome = fhir::OperationOutcome::from(fhir::Issue::new(
                fhir::Severity::Information,
                IssueCode::Informational,
                "the export and its files are deleted",
            ));
            problem::outcome(StatusCode::ACCEPTED, &outcome)
        }
        Err(error) => no_job(&error),
    }
}
