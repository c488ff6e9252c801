//! Resources by type and id: create, read, update, delete (FHIR R4, RESTful API).

use std::sync::Arc;

use fhir::IssueCode;
use http::{StatusCode, header};
use identity::model::scope::ScopePermissions;
use identity::tokens::access_token::TokenAccess;
use resources::filter::TypeFilter;
use resources::{
    CompartmentView, DeleteResult, ExpectedVersion, ResourceError, StoredResource, WrittenResource,
};

use super::{access, check_accept, json_body, recording, search};
use crate::clock::resource_id;
use crate::http::extract::RequestContext;
use crate::http::problem::{self, Dialect};
use crate::http::reply::{self, Response};
use crate::records::audit::rest::RestInteraction;

/// Returns the resource type in the path.
pub(super) fn path_type(context: &RequestContext) -> Result<&'static str, Response> {
    let named = &context.args[0];
    fhir::resource_type(named).ok_or_else(|| {
        let named: String = named.chars().filter(|c| !c.is_control()).take(100).collect();
        problem::fhir_error(
            StatusCode::NOT_FOUND,
            IssueCode::NotSupported,
            format!("'{named}' is not a resource type of FHIR R4"),
        )
    })
}

/// Checks that the token grants `permissions` on some resources of the type. Returns type and id of the path, and the
/// access.
pub(super) async fn addressed_resource(
    context: &RequestContext,
    permissions: ScopePermissions,
) -> Result<(&'static str, String, Arc<TokenAccess>), Response> {
    let kind = path_type(context)?;
    let access = access::require_some(context, kind, permissions).await?;
    check_accept(context, &[])?;
    let id = &context.args[1];
    if fhir::is_id(id) {
        return Ok((kind, id.clone(), access));
    }
    let text = "an id has 1 to 64 letters, digits, '-' and '.'";
    Err(problem::fhir_error(StatusCode::BAD_REQUEST, IssueCode::Value, text))
}

/// Returns a view of the resources that the token grants access to.
pub(super) async fn permitted_view<'a>(
    context: &'a RequestContext,
    access: &TokenAccess,
    kind: &str,
    permissions: ScopePermissions,
) -> Result<CompartmentView<'a>, Response> {
    Ok(context.app.resources.restricted_to(access::restriction(context, access, kind, permissions).await?))
}

/// Returns the precondition of a write (RFC 9110 sections 13.1.1 and 13.1.2): the ETag of a version, or the existence
/// of the resource.
fn expected_version(context: &RequestContext) -> Result<ExpectedVersion, Response> {
    if let Some(value) = context.header(header::IF_NONE_MATCH) {
        if value.trim() == "*" && context.header(header::IF_MATCH).is_none() {
            return Ok(ExpectedVersion::Absent);
        }
        let text = "If-None-Match of a write must be '*'";
        return Err(problem::fhir_error(StatusCode::BAD_REQUEST, IssueCode::Value, text));
    }
    let Some(value) = context.header(header::IF_MATCH).map(str::trim) else {
        return Ok(ExpectedVersion::Anything);
    };
    if value == "*" {
        return Ok(ExpectedVersion::Present);
    }
    let version = value.trim_start_matches("W/").trim_matches('"').parse();
    version.map(ExpectedVersion::Version).map_err(|_| {
        let text = "If-Match must be '*' or the ETag of a version, such as W/\"3\"";
        problem::fhir_error(StatusCode::BAD_REQUEST, IssueCode::Value, text)
    })
}

/// Returns the response with a stored resource.
fn resource_response(status: StatusCode, stored: StoredResource) -> Response {
    let (version, updated) = (format!("W/\"{}\"", stored.version), reply::http_date(stored.updated));
    let response = reply::body(status, reply::FHIR_JSON, stored.bytes);
    reply::no_store(reply::with(
        reply::with(response, header::ETAG, &version),
        header::LAST_MODIFIED,
        &updated,
    ))
}

/// Returns the response to a write. The terminology is updated first, so that the next request uses the new resource.
async fn write_response(context: &RequestContext, status: StatusCode, resource: StoredResource) -> Response {
    if let Err(error) = context.app.terminology_sync.apply_changes().await {
        return problem::store_error(Dialect::Fhir, &error);
    }
    let at =
        format!("{}/{}/{}/_history/{}", context.app.fhir_base, resource.kind, resource.id, resource.version);
    reply::with(resource_response(status, resource), header::LOCATION, &at)
}

/// Returns the response to an update or a conditional create. `otherwise` is the interaction if nothing was created.
async fn update_response(
    context: &RequestContext,
    access: &TokenAccess,
    otherwise: RestInteraction,
    done: Result<WrittenResource, ResourceError>,
) -> Response {
    let (status, interaction, stored) = match done {
        Ok(done) if done.created => (StatusCode::CREATED, RestInteraction::Create, done.stored),
        Ok(done) => (StatusCode::OK, otherwise, done.stored),
        Err(error) => return problem::resource_error(&error),
    };
    recording::version(context, access, interaction, &stored);
    write_response(context, status, stored).await
}

/// POST {fhir_base}/{type}: the server assigns the id. With `If-None-Exist`, the resource is created only if no
/// resource matches that search.
pub async fn create_resource(context: RequestContext) -> Response {
    answer_create(context).await.unwrap_or_else(|response| response)
}

async fn answer_create(mut context: RequestContext) -> Result<Response, Response> {
    let kind = path_type(&context)?;
    let access = access::require_some(&context, kind, ScopePermissions::CREATE).await?;
    check_accept(&context, &[])?;
    let body = json_body(&mut context).await?;
    let id = resource_id(&*context.app.clock.random);
    let view = permitted_view(&context, &access, kind, ScopePermissions::CREATE).await?;
    if let Some(query) = search::if_none_exist(&context) {
        let filter = search::parse_condition(&context, kind, &query, &access).await?;
        let searched = self::permitted_view(&context, &access, kind, ScopePermissions::SEARCH).await?;
        let done = view.create_unless(&searched, &filter, &body, id, context.now).await;
        return Ok(update_response(&context, &access, RestInteraction::Read, done).await);
    }
    let created =
        view.create(kind, id, body, context.now).await.map_err(|error| problem::resource_error(&error))?;
    recording::version(&context, &access, RestInteraction::Create, &created);
    Ok(write_response(&context, StatusCode::CREATED, created).await)
}

/// GET {fhir_base}/{type}/{id}
pub async fn read_resource(context: RequestContext) -> Response {
    answer_read(context).await.unwrap_or_else(|response| response)
}

async fn answer_read(context: RequestContext) -> Result<Response, Response> {
    let (kind, id, access) = addressed_resource(&context, ScopePermissions::GET).await?;
    let view = permitted_view(&context, &access, kind, ScopePermissions::GET).await?;
    let resource = view.read(kind, &id).await.map_err(|error| problem::resource_error(&error))?;
    recording::version(&context, &access, RestInteraction::Read, &resource);
    if !search::is_known(&context, resource.version) {
        return Ok(resource_response(StatusCode::OK, resource));
    }
    let mut response = resource_response(StatusCode::NOT_MODIFIED, resource);
    *response.body_mut() = bytes::Bytes::new().into();
    response.headers_mut().remove(header::CONTENT_TYPE);
    Ok(response)
}

/// GET {fhir_base}/{type}/{id}/_history/{version}
pub async fn read_version(context: RequestContext) -> Response {
    answer_read_version(context).await.unwrap_or_else(|response| response)
}

async fn answer_read_version(context: RequestContext) -> Result<Response, Response> {
    let (kind, id, access) = addressed_resource(&context, ScopePermissions::GET).await?;
    let version = context.args[2].parse().map_err(|_| {
        problem::fhir_error(StatusCode::NOT_FOUND, IssueCode::NotFound, "the version must be a number")
    })?;
    let view = permitted_view(&context, &access, kind, ScopePermissions::GET).await?;
    let found =
        view.read_version(kind, &id, version).await.map_err(|error| problem::resource_error(&error))?;
    recording::version(&context, &access, RestInteraction::ReadVersion, &found);
    Ok(resource_response(StatusCode::OK, found))
}

/// PUT {fhir_base}/{type}/{id}: creates or replaces.
pub async fn update_resource(context: RequestContext) -> Response {
    answer_update(context).await.unwrap_or_else(|response| response)
}

async fn answer_update(mut context: RequestContext) -> Result<Response, Response> {
    let (kind, id, access) = addressed_resource(&context, ScopePermissions::UPDATE).await?;
    let expected = expected_version(&context)?;
    let body = json_body(&mut context).await?;
    let view = permitted_view(&context, &access, kind, ScopePermissions::UPDATE).await?;
    let done = view.update(kind, &id, body, expected, context.now).await;
    Ok(update_response(&context, &access, RestInteraction::Update, done).await)
}

/// PUT {fhir_base}/{type}?…: updates the only match of the search, or creates a resource.
pub async fn conditional_update(context: RequestContext) -> Response {
    answer_conditional_update(context).await.unwrap_or_else(|response| response)
}

async fn answer_conditional_update(mut context: RequestContext) -> Result<Response, Response> {
    let (kind, access, filter) = conditional_request(&context, ScopePermissions::UPDATE).await?;
    let body = json_body(&mut context).await?;
    let id = resource_id(&*context.app.clock.random);
    let searched = permitted_view(&context, &access, kind, ScopePermissions::SEARCH).await?;
    let view = permitted_view(&context, &access, kind, ScopePermissions::UPDATE).await?;
    let done = view.update_only(&searched, &filter, &body, id, context.now).await;
    Ok(update_response(&context, &access, RestInteraction::Update, done).await)
}

/// DELETE {fhir_base}/{type}?…: deletes the only match of the search.
pub async fn conditional_delete(context: RequestContext) -> Response {
    answer_conditional_delete(context).await.unwrap_or_else(|response| response)
}

async fn answer_conditional_delete(context: RequestContext) -> Result<Response, Response> {
    let (kind, access, filter) = conditional_request(&context, ScopePermissions::DELETE).await?;
    let searched = permitted_view(&context, &access, kind, ScopePermissions::SEARCH).await?;
    let view = permitted_view(&context, &access, kind, ScopePermissions::DELETE).await?;
    Ok(delete_response(&context, &access, view.delete_only(&searched, &filter, context.now).await).await)
}

/// Checks that the token grants `permissions` on some resources of the type. Returns the type of the path, the access
/// and the search of the query.
async fn conditional_request(
    context: &RequestContext,
    permissions: ScopePermissions,
) -> Result<(&'static str, Arc<TokenAccess>, TypeFilter), Response> {
    let kind = path_type(context)?;
    let access = access::require_some(context, kind, permissions).await?;
    check_accept(context, &[])?;
    let filter = search::parse_condition(context, kind, &context.query, &access).await?;
    Ok((kind, access, filter))
}

/// DELETE {fhir_base}/{type}/{id}: succeeds also if there is nothing to delete.
pub async fn delete_resource(context: RequestContext) -> Response {
    answer_delete(context).await.unwrap_or_else(|response| response)
}

async fn answer_delete(context: RequestContext) -> Result<Response, Response> {
    let (kind, id, access) = addressed_resource(&context, ScopePermissions::DELETE).await?;
    let expected = expected_version(&context)?;
    let view = permitted_view(&context, &access, kind, ScopePermissions::DELETE).await?;
    Ok(delete_response(&context, &access, view.delete(kind, &id, expected, context.now).await).await)
}

/// Returns the response to a delete.
async fn delete_response(
    context: &RequestContext,
    access: &TokenAccess,
    done: Result<DeleteResult, ResourceError>,
) -> Response {
    if let Ok(deletion) = &done {
        recording::deleted(context, access, deletion);
    }
    match done {
        Ok(DeleteResult::Deleted(tombstone)) => {
            if let Err(error) = context.app.terminology_sync.apply_changes().await {
                return problem::store_error(Dialect::Fhir, &error);
            }
            reply::with(
                reply::empty(StatusCode::NO_CONTENT),
                header::ETAG,
                &format!("W/\"{}\"", tombstone.version),
            )
        }
        Ok(DeleteResult::WasAbsent) => reply::empty(StatusCode::NO_CONTENT),
        Err(error) => problem::resource_error(&error),
    }
}
