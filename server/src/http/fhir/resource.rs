//! Resources by type and id: create, read, update, delete (FHIR R4, RESTful API).

use std::sync::Arc;

use bytes::Bytes;
use fhir::validation::validate;
use fhir::{Issue, IssueCode, Json as _, OperationOutcome, Severity};
use http::{HeaderName, StatusCode, header};
use identity::model::scope::ScopePermissions;
use identity::tokens::access_token::TokenAccess;
use resources::filter::TypeFilter;
use resources::{
    CompartmentView, DeleteResult, ExpectedVersion, StoredResource, Validation, WrittenResource,
};

use super::access::{authorize_addressed, check_addressed, permitted_view};
use super::binary::{RequestedForm, WrittenBody, content_response, written_body};
use super::search_result::SearchResultOptions;
use super::{access, check_accept, recording, search};
use crate::clock::resource_id;
use crate::http::answer_memory::AnswerMemory;
use crate::http::extract::{RequestBody, RequestContext, etag_version};
use crate::http::path_parameters::ResourceType;
use crate::http::problem::{Problem, resource_issues};
use crate::http::reply::{self, Response};
use crate::records::audit::rest::RestInteraction;

/// The header with the preference that a response follows (RFC 7240 section 3).
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// The view of the search of a conditional request. Granular scopes do not extend it.
async fn searched_view<'a>(
    context: &'a RequestContext,
    access: &TokenAccess,
    kind: &str,
) -> Result<CompartmentView<'a>, Problem> {
    let restriction = access::restriction(context, access, kind, ScopePermissions::SEARCH).await?;
    Ok(context.app.resources.restricted_to(restriction))
}

/// The precondition of a write (RFC 9110 sections 13.1.1 and 13.1.2): the ETag of a version, or the existence
/// of the resource.
fn expected_version(context: &RequestContext) -> Result<ExpectedVersion, Problem> {
    if let Some(value) = context.header(header::IF_NONE_MATCH) {
        if value.trim() == "*" && context.header(header::IF_MATCH).is_none() {
            return Ok(ExpectedVersion::Absent);
        }
        let text =
            format!("If-None-Match is '{value}'; a write may have '*' without If-Match, or only If-Match");
        return Err(Problem::fhir(StatusCode::BAD_REQUEST, IssueCode::Value, &text));
    }
    let Some(value) = context.header(header::IF_MATCH).map(str::trim) else {
        return Ok(ExpectedVersion::Anything);
    };
    if value == "*" {
        return Ok(ExpectedVersion::Present);
    }
    etag_version(value).map(ExpectedVersion::Version).ok_or_else(|| {
        let text = "If-Match must be '*' or the ETag of a version, such as W/\"3\"";
        Problem::fhir(StatusCode::BAD_REQUEST, IssueCode::Value, text)
    })
}

/// The response with a stored resource that was read into the memory of the answer.
fn read_response(memory: AnswerMemory, resource: StoredResource) -> Response {
    let bytes = memory.attach(resource.bytes);
    resource_response(StatusCode::OK, StoredResource { bytes, ..resource })
}

/// The response with a stored resource.
fn resource_response(status: StatusCode, resource: StoredResource) -> Response {
    let (version, updated) = (format!("W/\"{}\"", resource.version), reply::http_date(resource.updated));
    let response = reply::body(status, reply::FHIR_JSON, resource.bytes);
    reply::no_store(reply::with(
        reply::with(response, header::ETAG, &version),
        header::LAST_MODIFIED,
        &updated,
    ))
}

/// The body of the response to a write (`Prefer: return=…`; FHIR R4, RESTful API).
#[derive(Clone, Copy)]
enum ReturnedBody {
    Nothing,
    Resource,
    Outcome,
}

impl ReturnedBody {
    /// The body that the client prefers. Without a preference, the resource is returned, but not raw content,
    /// which the client has just sent.
    fn of(context: &RequestContext, is_raw: bool) -> (Self, Option<&'static str>) {
        match context.preference("return").unwrap_or_default() {
            "minimal" => (Self::Nothing, Some("return=minimal")),
            "representation" => (Self::Resource, Some("return=representation")),
            "OperationOutcome" => (Self::Outcome, Some("return=OperationOutcome")),
            _ if is_raw => (Self::Nothing, None),
            _ => (Self::Resource, None),
        }
    }
}

/// The response to a write. The terminology is updated first, so that the next request uses the new resource.
async fn write_response(
    context: &RequestContext,
    status: StatusCode,
    mut version: StoredResource,
    is_raw: bool,
) -> Result<Response, Problem> {
    context.app.terminology_sync.apply_changes().await?;
    let resource = format!("{}/{}/_history/{}", version.kind, version.id, version.version);
    let location = format!("{}/{resource}", context.app.address.fhir_base);
    let (body, applied) = ReturnedBody::of(context, is_raw);
    match body {
        ReturnedBody::Resource => {}
        ReturnedBody::Nothing => version.bytes = Bytes::new(),
        ReturnedBody::Outcome => {
            let text = format!("stored {resource}");
            let mut issues = vec![Issue::new(Severity::Information, IssueCode::Informational, text)];
            let rules = context.app.settings().resource_rules();
            if rules.validation != Validation::Off {
                issues.extend(resource_issues(&validate(version.kind, &version.bytes, rules.ids)));
            }
            version.bytes = OperationOutcome::new(issues).to_json().into();
        }
    }
    let mut response = resource_response(status, version);
    if matches!(body, ReturnedBody::Nothing) {
        response.headers_mut().remove(header::CONTENT_TYPE);
    }
    if let Some(applied) = applied {
        response = reply::with_static(response, PREFERENCE_APPLIED, applied);
    }
    Ok(reply::with(response, header::LOCATION, &location))
}

/// The response to an update or a conditional create. `otherwise` is the interaction if nothing was created.
async fn update_response(
    context: &RequestContext,
    access: &TokenAccess,
    otherwise: RestInteraction,
    written_resource: WrittenResource,
    is_raw: bool,
) -> Result<Response, Problem> {
    let (status, interaction) = match written_resource.created {
        true => (StatusCode::CREATED, RestInteraction::Create),
        false => (StatusCode::OK, otherwise),
    };
    recording::version(context, access, interaction, &written_resource.stored);
    write_response(context, status, written_resource.stored, is_raw).await
}

/// POST {fhir_base}/{type}: the server assigns the id. With `If-None-Exist`, the resource is created only if
/// no resource matches that search.
pub async fn create_resource(
    context: &RequestContext,
    ResourceType(kind): ResourceType,
    body: &mut RequestBody,
) -> Result<Response, Problem> {
    let access = access::require_some(context, kind, ScopePermissions::CREATE).await?;
    check_accept(context, &[])?;
    let WrittenBody { resource, is_raw } = written_body(context, kind, None, body).await?;
    let id = resource_id(&*context.app.clock.random);
    let view = permitted_view(context, &access, kind, ScopePermissions::CREATE).await?;
    if let Some(query) = search::if_none_exist(context) {
        let filter = search::parse_condition(context, kind, &query, &access).await?;
        let view_of_search = searched_view(context, &access, kind).await?;
        let result = view.create_unless(&view_of_search, &filter, &resource, id, context.now).await?;
        return update_response(context, &access, RestInteraction::Read, result, is_raw).await;
    }
    let created = view.create(kind, id, resource, context.now).await?;
    recording::version(context, &access, RestInteraction::Create, &created);
    write_response(context, StatusCode::CREATED, created, is_raw).await
}

/// GET {fhir_base}/{type}/{id}: a Binary as its content, unless FHIR JSON is requested.
pub async fn read_resource(
    context: &RequestContext,
    ResourceType(kind): ResourceType,
    id: String,
) -> Result<Response, Problem> {
    let access = authorize_addressed(context, kind, &id, ScopePermissions::GET).await?;
    let form = RequestedForm::of(context, kind)?;
    let query: Vec<_> = form_urlencoded::parse(context.query.as_bytes()).collect();
    let options = query.iter().map(|(name, value)| (&**name, &**value));
    let options = options.filter(|(name, _)| matches!(*name, "_summary" | "_elements"));
    let options = SearchResultOptions::read(kind, options)?;
    let view = permitted_view(context, &access, kind, ScopePermissions::GET).await?;
    let mut memory = AnswerMemory::new(context, Some(&access));
    let read = || async { Ok::<_, Problem>(view.read(kind, &id).await?) };
    let mut resource = memory.hold(read, |resource| resource.bytes.len()).await?;
    recording::version(context, &access, RestInteraction::Read, &resource);
    if let Some(content) = form.content(&resource)? {
        return content_response(context, memory, resource, content);
    }
    options.project(&mut resource);
    if !context.has_version(&format!("W/\"{}\"", resource.version)) {
        return Ok(read_response(memory, resource));
    }
    let mut response = resource_response(StatusCode::NOT_MODIFIED, resource);
    *response.body_mut() = Bytes::new().into();
    response.headers_mut().remove(header::CONTENT_TYPE);
    Ok(response)
}

/// GET {fhir_base}/{type}/{id}/_history/{version}
pub async fn read_version(
    context: &RequestContext,
    ResourceType(kind): ResourceType,
    id: String,
    version: String,
) -> Result<Response, Problem> {
    let access = authorize_addressed(context, kind, &id, ScopePermissions::GET).await?;
    let form = RequestedForm::of(context, kind)?;
    let version = version.parse().map_err(|_| {
        Problem::fhir(StatusCode::NOT_FOUND, IssueCode::NotFound, "the version must be a number")
    })?;
    let view = permitted_view(context, &access, kind, ScopePermissions::GET).await?;
    let mut memory = AnswerMemory::new(context, Some(&access));
    let read = || async { Ok::<_, Problem>(view.read_version(kind, &id, version).await?) };
    let resource = memory.hold(read, |resource| resource.bytes.len()).await?;
    recording::version(context, &access, RestInteraction::ReadVersion, &resource);
    match form.content(&resource)? {
        Some(content) => content_response(context, memory, resource, content),
        None => Ok(read_response(memory, resource)),
    }
}

/// PUT {fhir_base}/{type}/{id}: creates or replaces.
pub async fn update_resource(
    context: &RequestContext,
    ResourceType(kind): ResourceType,
    id: String,
    body: &mut RequestBody,
) -> Result<Response, Problem> {
    let access = check_addressed(context, kind, &id, ScopePermissions::UPDATE).await?;
    let expected = expected_version(context)?;
    let WrittenBody { resource, is_raw } = written_body(context, kind, Some(&id), body).await?;
    let view = permitted_view(context, &access, kind, ScopePermissions::UPDATE).await?;
    let result = view.update(kind, &id, resource, expected, context.now).await?;
    update_response(context, &access, RestInteraction::Update, result, is_raw).await
}

/// PUT {fhir_base}/{type}?…: updates the only match of the search, or creates a resource.
pub async fn conditional_update(
    context: &RequestContext,
    ResourceType(kind): ResourceType,
    body: &mut RequestBody,
) -> Result<Response, Problem> {
    let (access, filter) = conditional_request(context, kind, ScopePermissions::UPDATE).await?;
    let expected = expected_version(context)?;
    let WrittenBody { resource, is_raw } = written_body(context, kind, None, body).await?;
    let id = resource_id(&*context.app.clock.random);
    let view_of_search = searched_view(context, &access, kind).await?;
    let view = permitted_view(context, &access, kind, ScopePermissions::UPDATE).await?;
    let result = view.update_only(&view_of_search, &filter, &resource, id, expected, context.now).await?;
    update_response(context, &access, RestInteraction::Update, result, is_raw).await
}

/// DELETE {fhir_base}/{type}?…: deletes the only match of the search.
pub async fn conditional_delete(
    context: &RequestContext,
    ResourceType(kind): ResourceType,
) -> Result<Response, Problem> {
    let (access, filter) = conditional_request(context, kind, ScopePermissions::DELETE).await?;
    let expected = expected_version(context)?;
    let view_of_search = searched_view(context, &access, kind).await?;
    let view = permitted_view(context, &access, kind, ScopePermissions::DELETE).await?;
    delete_response(
        context,
        &access,
        view.delete_only(&view_of_search, &filter, expected, context.now).await?,
    )
    .await
}

/// Checks that the token grants `permissions` on some resources of the type. Returns the access and the
/// search of the query.
async fn conditional_request(
    context: &RequestContext,
    kind: &'static str,
    permissions: ScopePermissions,
) -> Result<(Arc<TokenAccess>, TypeFilter), Problem> {
    let access = access::require_some(context, kind, permissions).await?;
    check_accept(context, &[])?;
    let filter = search::parse_condition(context, kind, &context.query, &access).await?;
    Ok((access, filter))
}

/// DELETE {fhir_base}/{type}/{id}: succeeds also if there is nothing to delete.
pub async fn delete_resource(
    context: &RequestContext,
    ResourceType(kind): ResourceType,
    id: String,
) -> Result<Response, Problem> {
    let access = check_addressed(context, kind, &id, ScopePermissions::DELETE).await?;
    let expected = expected_version(context)?;
    let view = permitted_view(context, &access, kind, ScopePermissions::DELETE).await?;
    delete_response(context, &access, view.delete(kind, &id, expected, context.now).await?).await
}

async fn delete_response(
    context: &RequestContext,
    access: &TokenAccess,
    result: DeleteResult,
) -> Result<Response, Problem> {
    recording::deleted(context, access, &result);
    let response = reply::empty(StatusCode::NO_CONTENT);
    let DeleteResult::Deleted(tombstone) = result else { return Ok(response) };
    context.app.terminology_sync.apply_changes().await?;
    Ok(reply::with(response, header::ETAG, &format!("W/\"{}\"", tombstone.version)))
}
