//! Searches of one type, the history of a resource, and the searches of conditional requests (FHIR R4, RESTful API
//! and search).

use fhir::IssueCode;
use http::StatusCode;
use identity::model::scope::ScopePermissions;
use identity::tokens::access_token::TokenAccess;
use resources::ResourceError;
use resources::filter::TypeFilter;
use serde_json::json;
use store::{PageLimit, Seq};

use super::access::permitted_view;
use super::missing_scope::{NeededAccess, missing_scope};
use super::resource::check_addressed;
use super::search_result::{SearchResultOptions, is_result_parameter};
use super::{access, check_accept, recording};
use crate::http::extract::{RequestBody, RequestContext, ResourceType};
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};

/// Default and maximum number of resources on a page.
const COUNT: usize = 100;
const COUNT_LIMIT: usize = 1_000;
/// Maximum size of the form of a search by POST, in bytes.
const FORM_LIMIT: usize = 64 * 1024;

/// The paging parameters of a search, and all others.
struct SearchPage {
    count: usize,
    /// Cursor of the page.
    from: Option<String>,
    /// The other parameters, in their order.
    rest: Vec<(String, String)>,
}

impl SearchPage {
    fn read(query: &str) -> Result<Self, Problem> {
        let mut page = Self { count: COUNT, from: None, rest: Vec::new() };
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "_count" => {
                    let count =
                        value.parse::<usize>().map_err(|_| bad_parameter("_count", "it must be a number"))?;
                    page.count = count.min(COUNT_LIMIT);
                }
                "_page" => page.from = Some(value.into_owned()),
                // `_format` is checked elsewhere; `_pretty` is ignored.
                "_format" | "_pretty" => {}
                _ => page.rest.push((name.into_owned(), value.into_owned())),
            }
        }
        Ok(page)
    }

    /// Returns the URL of the page with this cursor.
    fn address(&self, at: &str, from: Option<&str>) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(&self.rest).append_pair("_count", &self.count.to_string());
        if let Some(from) = from {
            query.append_pair("_page", from);
        }
        format!("{at}?{}", query.finish())
    }
}

pub(super) fn bad_parameter(parameter: &str, why: &str) -> Problem {
    Problem::fhir(StatusCode::BAD_REQUEST, IssueCode::Value, format!("parameter '{parameter}': {why}"))
}

/// Parses the search parameters of a type.
fn parse_filter(
    context: &RequestContext,
    kind: &str,
    rest: &[(String, String)],
) -> Result<TypeFilter, Problem> {
    let filters = rest.iter().filter(|(name, _)| !is_result_parameter(name));
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(filters).finish();
    TypeFilter::read(&format!("{kind}?{query}"), &context.app.fhir_base, context.now)
        .map_err(|why| Problem::fhir(StatusCode::BAD_REQUEST, IssueCode::NotSupported, why))
}

/// Parses the search of a conditional request. The token must grant the search, too.
pub async fn parse_condition(
    context: &RequestContext,
    kind: &'static str,
    query: &str,
    access: &TokenAccess,
) -> Result<TypeFilter, Problem> {
    if access::resource_access(context, access, kind, ScopePermissions::SEARCH)
        == identity::tokens::access_token::ResourceAccess::Nothing
    {
        let permissions = ScopePermissions::SEARCH;
        return Err(missing_scope(context, access, kind, permissions, NeededAccess::Some).await);
    }
    let page = SearchPage::read(query)?;
    if let Some((name, _)) = page.rest.iter().find(|(name, _)| is_result_parameter(name)) {
        return Err(bad_parameter(name, "a conditional request has no search results"));
    }
    if page.rest.is_empty() || page.from.is_some() {
        let text = format!("identify the resource by its id, or by a search such as {kind}?identifier=…");
        return Err(Problem::fhir(StatusCode::BAD_REQUEST, IssueCode::Required, text));
    }
    parse_filter(context, kind, &page.rest)
}

/// GET {fhir_base}/{type}?…
pub async fn search_by_get(
    context: &RequestContext,
    ResourceType(kind): ResourceType,
) -> Result<Response, Problem> {
    search(context, kind, &context.query).await
}

/// POST {fhir_base}/{type}/_search: the parameters in a form.
pub async fn search_by_post(
    context: &RequestContext,
    ResourceType(kind): ResourceType,
    body: &mut RequestBody,
) -> Result<Response, Problem> {
    if context.content_type().as_deref() != Some("application/x-www-form-urlencoded") {
        let text = "send the parameters as application/x-www-form-urlencoded";
        return Err(Problem::fhir(StatusCode::UNSUPPORTED_MEDIA_TYPE, IssueCode::NotSupported, text));
    }
    let form = body.bytes(FORM_LIMIT).await?;
    let query = [context.query.as_str(), &String::from_utf8_lossy(&form)].join("&");
    search(context, kind, &query).await
}

async fn search(context: &RequestContext, kind: &'static str, query: &str) -> Result<Response, Problem> {
    let access = access::require_some(context, kind, ScopePermissions::SEARCH).await?;
    check_accept(context, &[])?;
    let page = SearchPage::read(query)?;
    let parameters = page.rest.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let options = SearchResultOptions::read(kind, parameters)?;
    let has_filter = page.rest.iter().any(|(name, _)| !is_result_parameter(name));
    let filter = if has_filter { Some(parse_filter(context, kind, &page.rest)?) } else { None };
    let from = page.from.as_deref().map(|cursor| verified_cursor(context, kind, cursor)).transpose()?;
    let view = permitted_view(context, &access, kind, ScopePermissions::SEARCH).await?;
    let at = format!("{}/{kind}", context.app.fhir_base);
    let mut bundle = BundleWriter::new("searchset");
    if options.is_count || page.count == 0 {
        bundle.member("total", &view.count(kind, filter.as_ref()).await?);
        bundle.member("link", &[json!({ "relation": "self", "url": page.address(&at, None) })]);
        recording::search(context, &access, query, &[]);
        return Ok(bundle.answer());
    }
    let (mut found, mut total) = match &options.sort[..] {
        [] => (view.search(kind, filter.as_ref(), from.as_deref(), page.count).await?, None),
        keys => {
            let sorted = view.search_sorted(kind, filter.as_ref(), keys, from.as_deref(), page.count).await?;
            (sorted.0, Some(sorted.1))
        }
    };
    if options.has_total && total.is_none() {
        total = Some(view.count(kind, filter.as_ref()).await?);
    }
    let is_only_page = page.from.is_none() && found.next.is_none();
    let included = options.included(context, &access, &found.resources).await?;
    let read: Vec<_> = found.resources.iter().chain(&included).cloned().collect();
    recording::search(context, &access, query, &read);
    found.next = found.next.map(|cursor| signed_cursor(context, kind, &cursor));
    if let Some(total) = total.or(is_only_page.then_some(found.resources.len())) {
        bundle.member("total", &total);
    }
    let mut links = vec![json!({ "relation": "self", "url": page.address(&at, page.from.as_deref()) })];
    links.extend(
        found.next.iter().map(|next| json!({ "relation": "next", "url": page.address(&at, Some(next)) })),
    );
    bundle.member("link", &links);
    for mut resource in found.resources {
        options.project(&mut resource);
        let address = format!("{at}/{}", resource.id);
        bundle.entry(&address, Some(&resource.bytes), "search", &json!({ "mode": "match" }));
    }
    for resource in included {
        let address = format!("{}/{}/{}", context.app.fhir_base, resource.kind, resource.id);
        bundle.entry(&address, Some(&resource.bytes), "search", &json!({ "mode": "include" }));
    }
    Ok(bundle.answer())
}

/// Purpose of the message authentication code of a cursor.
const CURSOR: &str = "search cursor";

/// Returns a cursor for `_page` with a message authentication code. The cursor contains a moment of the store: a
/// client that could choose the moment could read resources deleted since.
fn signed_cursor(context: &RequestContext, kind: &str, cursor: &str) -> String {
    format!("{}~{cursor}", context.app.identity.server_secret.mac(CURSOR, &format!("{kind} {cursor}")))
}

/// Verifies the message authentication code of a cursor, and returns the cursor.
fn verified_cursor(context: &RequestContext, kind: &str, signed: &str) -> Result<String, Problem> {
    let found = signed.split_once('~').filter(|(code, cursor)| {
        context.app.identity.server_secret.verify_mac(CURSOR, &format!("{kind} {cursor}"), code)
    });
    let (_, cursor) = found.ok_or(ResourceError::Page)?;
    Ok(cursor.to_owned())
}

/// GET {fhir_base}/{type}/{id}/_history
pub async fn instance_history(
    context: &RequestContext,
    ResourceType(kind): ResourceType,
    id: String,
) -> Result<Response, Problem> {
    let access = check_addressed(context, kind, &id, ScopePermissions::GET).await?;
    let page = SearchPage::read(&context.query)?;
    if let Some((name, _)) = page.rest.first() {
        return Err(bad_parameter(name, "not supported; a history takes only _count"));
    }
    let before = match page.from.as_deref().map(str::parse) {
        None => Seq::LATEST,
        Some(Ok(before)) => Seq(before),
        Some(Err(_)) => return Err(ResourceError::Page.into()),
    };
    let limit = PageLimit { count: page.count.max(1), ..PageLimit::default() };
    let view = permitted_view(context, &access, kind, ScopePermissions::GET).await?;
    let (versions, next) = view.history(kind, &id, before, limit).await?;
    recording::history(context, &access, kind, &id, &versions);
    let at = format!("{}/{kind}/{id}", context.app.fhir_base);
    let mut bundle = BundleWriter::new("history");
    let address = |from: Option<&str>| page.address(&format!("{at}/_history"), from);
    let mut links = vec![json!({ "relation": "self", "url": address(page.from.as_deref()) })];
    links.extend(next.map(|next| json!({ "relation": "next", "url": address(Some(&next.to_string())) })));
    bundle.member("link", &links);
    for version in versions {
        let method = if version.is_deleted() { "DELETE" } else { "PUT" };
        bundle.member_of_next("request", &json!({ "method": method, "url": format!("{kind}/{id}") }));
        let response = json!({
            "status": if version.is_deleted() { "204" } else { "200" },
            "etag": format!("W/\"{}\"", version.version),
            "lastModified": fhir::instant::format(version.updated),
        });
        bundle.entry(&at, version.body.as_deref(), "response", &response);
    }
    Ok(bundle.answer())
}

/// Writes a Bundle. Stored resources are copied into it without being parsed.
struct BundleWriter {
    text: Vec<u8>,
    entries: Vec<u8>,
    /// Members of the next entry.
    ahead: Vec<u8>,
}

impl BundleWriter {
    fn new(kind: &str) -> Self {
        let text = format!("{{\"resourceType\":\"Bundle\",\"type\":\"{kind}\"").into_bytes();
        Self { text, entries: Vec::new(), ahead: Vec::new() }
    }

    fn member(&mut self, name: &str, value: &impl serde::Serialize) {
        write_member(&mut self.text, name, value);
    }

    fn member_of_next(&mut self, name: &str, value: &impl serde::Serialize) {
        write_member(&mut self.ahead, name, value);
    }

    fn entry(&mut self, address: &str, resource: Option<&[u8]>, name: &str, value: &impl serde::Serialize) {
        self.entries.extend_from_slice(if self.entries.is_empty() { b"{" } else { b",{" });
        let mut members = Vec::new();
        write_member(&mut members, "fullUrl", &address);
        if let Some(resource) = resource {
            members.extend_from_slice(b",\"resource\":");
            members.extend_from_slice(resource);
        }
        members.append(&mut self.ahead);
        write_member(&mut members, name, value);
        // Without the leading comma.
        self.entries.extend_from_slice(&members[1..]);
        self.entries.push(b'}');
    }

    fn answer(mut self) -> Response {
        if !self.entries.is_empty() {
            self.text.extend_from_slice(b",\"entry\":[");
            self.text.append(&mut self.entries);
            self.text.push(b']');
        }
        self.text.push(b'}');
        reply::no_store(reply::body(StatusCode::OK, reply::FHIR_JSON, self.text))
    }
}

fn write_member(text: &mut Vec<u8>, name: &str, value: &impl serde::Serialize) {
    text.extend_from_slice(format!(",\"{name}\":").as_bytes());
    serde_json::to_writer(text, value).expect("these values serialise to JSON");
}

/// Returns the query of a conditional create, from the header `If-None-Exist`.
pub fn if_none_exist(context: &RequestContext) -> Option<String> {
    let value = context.headers.get("if-none-exist")?.to_str().ok()?;
    // Some clients send a complete URL.
    Some(value.split_once('?').map_or(value, |(_, query)| query).to_owned())
}
