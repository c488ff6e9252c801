//! Resources by type and id: create, read, update, delete (FHIR R4, RESTful API).

use std::sync::Arc;

use fhir::IssueCode;
use http::{StatusCode, header};
use identity::scope::Permissions;
use identity::token::Access;
use resources::filter::TypeFilter;
use resources::{CompartmentView, Deletion, Expected, ResourceError, Stored, Written};

use super::{access, check_accept, json_body, recording, search};
use crate::audit::rest::Interaction;
use crate::clock::resource_id;
use crate::http::extract::Call;
use crate::http::problem::{self, Dialect};
use crate::http::reply::{self, Response};

/// The type in the path.
pub(super) fn kind(call: &Call) -> Result<&'static str, Response> {
    let named = &call.args[0];
    fhir::resource_type(named).ok_or_else(|| {
        let named: String = named.chars().filter(|c| !c.is_control()).take(100).collect();
        problem::fhir(
            StatusCode::NOT_FOUND,
            IssueCode::NotSupported,
            format!("'{named}' is not a resource type of FHIR R4"),
        )
    })
}

/// The type and id in the path, once the token allows this on some resources of the type, and the token.
pub(super) async fn addressed(
    call: &Call,
    permissions: Permissions,
) -> Result<(&'static str, String, Arc<Access>), Response> {
    let kind = kind(call)?;
    let access = access::demand(call, kind, permissions).await?;
    check_accept(call, &[])?;
    let id = &call.args[1];
    if fhir::is_id(id) {
        return Ok((kind, id.clone(), access));
    }
    let text = "an id has 1 to 64 letters, digits, '-' and '.'";
    Err(problem::fhir(StatusCode::BAD_REQUEST, IssueCode::Value, text))
}

/// The resources of a type that the token opens.
pub(super) async fn view<'a>(
    call: &'a Call,
    access: &Access,
    kind: &str,
    permissions: Permissions,
) -> Result<CompartmentView<'a>, Response> {
    Ok(call.app.resources.restricted_to(access::restriction(call, access, kind, permissions).await?))
}

/// What a write expects to find (RFC 9110 13.1.1, 13.1.2): the ETag of a version, or whether there is one at all.
fn expected(call: &Call) -> Result<Expected, Response> {
    if let Some(value) = call.header(header::IF_NONE_MATCH) {
        if value.trim() == "*" && call.header(header::IF_MATCH).is_none() {
            return Ok(Expected::Absent);
        }
        let text = "of a write, If-None-Match can only be '*'";
        return Err(problem::fhir(StatusCode::BAD_REQUEST, IssueCode::Value, text));
    }
    let Some(value) = call.header(header::IF_MATCH).map(str::trim) else { return Ok(Expected::Anything) };
    if value == "*" {
        return Ok(Expected::Present);
    }
    let version = value.trim_start_matches("W/").trim_matches('"').parse();
    version.map(Expected::Version).map_err(|_| {
        let text = "If-Match must be '*' or the ETag of a version, such as W/\"3\"";
        problem::fhir(StatusCode::BAD_REQUEST, IssueCode::Value, text)
    })
}

/// A stored resource as an answer.
fn stored(status: StatusCode, stored: Stored) -> Response {
    let (version, updated) = (format!("W/\"{}\"", stored.version), reply::http_date(stored.updated));
    let response = reply::body(status, reply::FHIR_JSON, stored.bytes);
    reply::no_store(reply::with(
        reply::with(response, header::ETAG, &version),
        header::LAST_MODIFIED,
        &updated,
    ))
}

/// The answer to a write that was acknowledged: the index knows of it before the caller does.
async fn written(call: &Call, status: StatusCode, resource: Stored) -> Response {
    if let Err(error) = call.app.follow().await {
        return problem::store(Dialect::Fhir, &error);
    }
    let at =
        format!("{}/{}/{}/_history/{}", call.app.fhir_base, resource.kind, resource.id, resource.version);
    reply::with(stored(status, resource), header::LOCATION, &at)
}

/// The answer to an update, or to a create that was conditional: `otherwise` is what was done if nothing was created.
async fn updated(
    call: &Call,
    access: &Access,
    otherwise: Interaction,
    done: Result<Written, ResourceError>,
) -> Response {
    let (status, interaction, stored) = match done {
        Ok(done) if done.created => (StatusCode::CREATED, Interaction::Create, done.stored),
        Ok(done) => (StatusCode::OK, otherwise, done.stored),
        Err(error) => return problem::resource(&error),
    };
    recording::version(call, access, interaction, &stored);
    written(call, status, stored).await
}

/// POST {fhir_base}/{type}: the server gives the id. With `If-None-Exist`, only where no resource meets that search.
pub async fn create(call: Call) -> Response {
    answer_create(call).await.unwrap_or_else(|response| response)
}

async fn answer_create(mut call: Call) -> Result<Response, Response> {
    let kind = kind(&call)?;
    let access = access::demand(&call, kind, Permissions::CREATE).await?;
    check_accept(&call, &[])?;
    let body = json_body(&mut call).await?;
    let id = resource_id(&*call.app.clock.random);
    let view = view(&call, &access, kind, Permissions::CREATE).await?;
    if let Some(query) = search::if_none_exist(&call) {
        let filter = search::condition(&call, kind, &query, &access).await?;
        let searched = self::view(&call, &access, kind, Permissions::SEARCH).await?;
        let done = view.create_unless(&searched, &filter, &body, id, call.now).await;
        return Ok(updated(&call, &access, Interaction::Read, done).await);
    }
    let created = view.create(kind, id, body, call.now).await.map_err(|error| problem::resource(&error))?;
    recording::version(&call, &access, Interaction::Create, &created);
    Ok(written(&call, StatusCode::CREATED, created).await)
}

/// GET {fhir_base}/{type}/{id}
pub async fn read(call: Call) -> Response {
    answer_read(call).await.unwrap_or_else(|response| response)
}

async fn answer_read(call: Call) -> Result<Response, Response> {
    let (kind, id, access) = addressed(&call, Permissions::GET).await?;
    let view = view(&call, &access, kind, Permissions::GET).await?;
    let resource = view.read(kind, &id).await.map_err(|error| problem::resource(&error))?;
    recording::version(&call, &access, Interaction::Read, &resource);
    if !search::is_known(&call, resource.version) {
        return Ok(stored(StatusCode::OK, resource));
    }
    let mut response = stored(StatusCode::NOT_MODIFIED, resource);
    *response.body_mut() = bytes::Bytes::new().into();
    response.headers_mut().remove(header::CONTENT_TYPE);
    Ok(response)
}

/// GET {fhir_base}/{type}/{id}/_history/{version}
pub async fn read_version(call: Call) -> Response {
    answer_read_version(call).await.unwrap_or_else(|response| response)
}

async fn answer_read_version(call: Call) -> Result<Response, Response> {
    let (kind, id, access) = addressed(&call, Permissions::GET).await?;
    let version = call.args[2].parse().map_err(|_| {
        problem::fhir(StatusCode::NOT_FOUND, IssueCode::NotFound, "versions are numbered 1, 2, 3")
    })?;
    let view = view(&call, &access, kind, Permissions::GET).await?;
    let found = view.read_version(kind, &id, version).await.map_err(|error| problem::resource(&error))?;
    recording::version(&call, &access, Interaction::ReadVersion, &found);
    Ok(stored(StatusCode::OK, found))
}

/// PUT {fhir_base}/{type}/{id}: creates or replaces.
pub async fn update(call: Call) -> Response {
    answer_update(call).await.unwrap_or_else(|response| response)
}

async fn answer_update(mut call: Call) -> Result<Response, Response> {
    let (kind, id, access) = addressed(&call, Permissions::UPDATE).await?;
    let expected = expected(&call)?;
    let body = json_body(&mut call).await?;
    let view = view(&call, &access, kind, Permissions::UPDATE).await?;
    let done = view.update(kind, &id, body, expected, call.now).await;
    Ok(updated(&call, &access, Interaction::Update, done).await)
}

/// PUT {fhir_base}/{type}?…: the one resource that meets the search, or a new one.
pub async fn conditional_update(call: Call) -> Response {
    answer_conditional_update(call).await.unwrap_or_else(|response| response)
}

async fn answer_conditional_update(mut call: Call) -> Result<Response, Response> {
    let (kind, access, filter) = conditional(&call, Permissions::UPDATE).await?;
    let body = json_body(&mut call).await?;
    let id = resource_id(&*call.app.clock.random);
    let searched = view(&call, &access, kind, Permissions::SEARCH).await?;
    let view = view(&call, &access, kind, Permissions::UPDATE).await?;
    let done = view.update_only(&searched, &filter, &body, id, call.now).await;
    Ok(updated(&call, &access, Interaction::Update, done).await)
}

/// DELETE {fhir_base}/{type}?…: the one resource that meets the search.
pub async fn conditional_delete(call: Call) -> Response {
    answer_conditional_delete(call).await.unwrap_or_else(|response| response)
}

async fn answer_conditional_delete(call: Call) -> Result<Response, Response> {
    let (kind, access, filter) = conditional(&call, Permissions::DELETE).await?;
    let searched = view(&call, &access, kind, Permissions::SEARCH).await?;
    let view = view(&call, &access, kind, Permissions::DELETE).await?;
    Ok(deleted(&call, &access, view.delete_only(&searched, &filter, call.now).await).await)
}

/// The type in the path and the search in the query, once the token allows this on some resources of the type.
async fn conditional(
    call: &Call,
    permissions: Permissions,
) -> Result<(&'static str, Arc<Access>, TypeFilter), Response> {
    let kind = kind(call)?;
    let access = access::demand(call, kind, permissions).await?;
    check_accept(call, &[])?;
    let filter = search::condition(call, kind, &call.query, &access).await?;
    Ok((kind, access, filter))
}

/// DELETE {fhir_base}/{type}/{id}: also when there is nothing to delete.
pub async fn delete(call: Call) -> Response {
    answer_delete(call).await.unwrap_or_else(|response| response)
}

async fn answer_delete(call: Call) -> Result<Response, Response> {
    let (kind, id, access) = addressed(&call, Permissions::DELETE).await?;
    let expected = expected(&call)?;
    let view = view(&call, &access, kind, Permissions::DELETE).await?;
    Ok(deleted(&call, &access, view.delete(kind, &id, expected, call.now).await).await)
}

/// The answer to a delete.
async fn deleted(call: &Call, access: &Access, done: Result<Deletion, ResourceError>) -> Response {
    if let Ok(deletion) = &done {
        recording::deleted(call, access, deletion);
    }
    match done {
        Ok(Deletion::Deleted(tombstone)) => {
            if let Err(error) = call.app.follow().await {
                return problem::store(Dialect::Fhir, &error);
            }
            reply::with(
                reply::empty(StatusCode::NO_CONTENT),
                header::ETAG,
                &format!("W/\"{}\"", tombstone.version),
            )
        }
        Ok(Deletion::WasAbsent) => reply::empty(StatusCode::NO_CONTENT),
        Err(error) => problem::resource(&error),
    }
}
