//! Searches of one type, the history of one resource, and what a conditional request searches for (FHIR R4, RESTful
//! API and search).

use fhir::IssueCode;
use http::{StatusCode, header};
use identity::scope::Permissions;
use identity::token::Access;
use resources::filter::TypeFilter;
use serde_json::json;
use store::{Limit, Seq};

use super::resource::{addressed, kind, view};
use super::{access, check_accept, recording};
use crate::http::extract::Call;
use crate::http::problem::{self, Dialect};
use crate::http::reply::{self, Response};

/// Resources on a page where nothing is said, and at most.
const COUNT: usize = 100;
const COUNT_LIMIT: usize = 1_000;
/// Longest form of a search by POST, in bytes.
const FORM_LIMIT: usize = 64 * 1024;

/// What a search says beside what it searches for.
struct Page {
    count: usize,
    /// Where it begins.
    from: Option<String>,
    /// The other parameters, as they were sent.
    rest: Vec<(String, String)>,
}

impl Page {
    fn read(query: &str) -> Result<Self, Response> {
        let mut page = Self { count: COUNT, from: None, rest: Vec::new() };
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "_count" => {
                    let count = value.parse::<usize>().map_err(|_| bad("_count", "it is a number"))?;
                    page.count = count.clamp(1, COUNT_LIMIT);
                }
                "_page" => page.from = Some(value.into_owned()),
                // Looked at before; how an answer is laid out is ours.
                "_format" | "_pretty" => {}
                _ => page.rest.push((name.into_owned(), value.into_owned())),
            }
        }
        Ok(page)
    }

    /// The address of the page that begins there.
    fn address(&self, at: &str, from: Option<&str>) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(&self.rest).append_pair("_count", &self.count.to_string());
        if let Some(from) = from {
            query.append_pair("_page", from);
        }
        format!("{at}?{}", query.finish())
    }
}

fn bad(parameter: &str, why: &str) -> Response {
    problem::fhir(StatusCode::BAD_REQUEST, IssueCode::Value, format!("parameter '{parameter}': {why}"))
}

/// The search of a type that parameters ask for.
fn filter(call: &Call, kind: &str, rest: &[(String, String)]) -> Result<TypeFilter, Response> {
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(rest).finish();
    TypeFilter::read(&format!("{kind}?{query}"), &call.app.fhir_base, call.now)
        .map_err(|why| problem::fhir(StatusCode::BAD_REQUEST, IssueCode::NotSupported, why))
}

/// What a conditional request searches for, and the token, which must open both the search and the write.
pub async fn condition(
    call: &Call,
    kind: &'static str,
    query: &str,
    access: &Access,
) -> Result<TypeFilter, Response> {
    if access::reach(call, access, kind, Permissions::SEARCH) == identity::token::Reach::Nothing {
        return Err(access::lacking(&format!("a conditional request needs a scope to search {kind}")));
    }
    let page = Page::read(query)?;
    if page.rest.is_empty() || page.from.is_some() {
        let text = format!("name a resource by its id, or by a search such as {kind}?identifier=…");
        return Err(problem::fhir(StatusCode::BAD_REQUEST, IssueCode::Required, text));
    }
    filter(call, kind, &page.rest)
}

/// GET {fhir_base}/{type}?…
pub async fn get(call: Call) -> Response {
    let query = call.query.clone();
    search(call, &query).await.unwrap_or_else(|response| response)
}

/// POST {fhir_base}/{type}/_search: the parameters in a form.
pub async fn post(mut call: Call) -> Response {
    if call.content_type().as_deref() != Some("application/x-www-form-urlencoded") {
        let text = "send the parameters as application/x-www-form-urlencoded";
        return problem::fhir(StatusCode::UNSUPPORTED_MEDIA_TYPE, IssueCode::NotSupported, text);
    }
    let form = match call.bytes(FORM_LIMIT).await {
        Ok(form) => form,
        Err(error) => return problem::unreadable(Dialect::Fhir, &error),
    };
    let query = [call.query.as_str(), &String::from_utf8_lossy(&form)].join("&");
    search(call, &query).await.unwrap_or_else(|response| response)
}

async fn search(call: Call, query: &str) -> Result<Response, Response> {
    let kind = kind(&call)?;
    let access = access::demand(&call, kind, Permissions::SEARCH).await?;
    check_accept(&call, &[])?;
    let page = Page::read(query)?;
    let filter = if page.rest.is_empty() { None } else { Some(filter(&call, kind, &page.rest)?) };
    let from = page.from.as_deref().map(|cursor| verified_cursor(&call, kind, cursor)).transpose()?;
    let view = view(&call, &access, kind, Permissions::SEARCH).await?;
    let found = view.search(kind, filter.as_ref(), from.as_deref(), page.count).await;
    let mut found = found.map_err(|error| problem::resource(&error))?;
    recording::search(&call, &access, query, &found.resources);
    found.next = found.next.map(|cursor| signed_cursor(&call, kind, &cursor));
    let at = format!("{}/{kind}", call.app.fhir_base);
    let mut bundle = Bundle::new("searchset");
    if page.from.is_none() && found.next.is_none() {
        bundle.member("total", &found.resources.len());
    }
    let mut links = vec![json!({ "relation": "self", "url": page.address(&at, page.from.as_deref()) })];
    links.extend(
        found.next.iter().map(|next| json!({ "relation": "next", "url": page.address(&at, Some(next)) })),
    );
    bundle.member("link", &links);
    for resource in found.resources {
        let address = format!("{at}/{}", resource.id);
        bundle.entry(&address, Some(&resource.bytes), "search", &json!({ "mode": "match" }));
    }
    Ok(bundle.answer())
}

/// Purpose of the message authentication code of a cursor.
const CURSOR: &str = "search cursor";

/// A cursor for `_page`. It names a moment of the store, so it carries a message authentication code: a client that could
/// choose the moment could read what was deleted since.
fn signed_cursor(call: &Call, kind: &str, cursor: &str) -> String {
    format!("{}~{cursor}", call.app.identity.mark(CURSOR, &format!("{kind} {cursor}")))
}

/// The cursor of `_page` without its code.
fn verified_cursor(call: &Call, kind: &str, signed: &str) -> Result<String, Response> {
    let found = signed
        .split_once('~')
        .filter(|(code, cursor)| call.app.identity.is_marked(CURSOR, &format!("{kind} {cursor}"), code));
    let (_, cursor) = found.ok_or_else(|| problem::resource(&resources::ResourceError::Page))?;
    Ok(cursor.to_owned())
}

/// GET {fhir_base}/{type}/{id}/_history
pub async fn history(call: Call) -> Response {
    versions(call).await.unwrap_or_else(|response| response)
}

async fn versions(call: Call) -> Result<Response, Response> {
    let (kind, id, access) = addressed(&call, Permissions::GET).await?;
    let page = Page::read(&call.query)?;
    if let Some((name, _)) = page.rest.first() {
        return Err(bad(name, "a history takes _count only"));
    }
    let before = match page.from.as_deref().map(str::parse) {
        None => Seq::LATEST,
        Some(Ok(before)) => Seq(before),
        Some(Err(_)) => return Err(problem::resource(&resources::ResourceError::Page)),
    };
    let limit = Limit { count: page.count, ..Limit::default() };
    let view = view(&call, &access, kind, Permissions::GET).await?;
    let (versions, next) =
        view.history(kind, &id, before, limit).await.map_err(|error| problem::resource(&error))?;
    recording::history(&call, &access, kind, &id, &versions);
    let at = format!("{}/{kind}/{id}", call.app.fhir_base);
    let mut bundle = Bundle::new("history");
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

/// A Bundle as it is written: resources go in as they are stored, without being parsed.
struct Bundle {
    text: Vec<u8>,
    entries: Vec<u8>,
    /// Members of the entry that comes next.
    ahead: Vec<u8>,
}

impl Bundle {
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
        // Behind the first comma.
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
    serde_json::to_writer(text, value).expect("our own values serialise");
}

/// The header `If-None-Exist`, where it is sent: the query of a conditional create.
pub fn if_none_exist(call: &Call) -> Option<String> {
    let value = call.headers.get("if-none-exist")?.to_str().ok()?;
    // Some clients send the address before it.
    Some(value.split_once('?').map_or(value, |(_, query)| query).to_owned())
}

/// Does `If-None-Match` name this version?
pub fn is_known(call: &Call, version: u64) -> bool {
    let Some(value) = call.header(header::IF_NONE_MATCH) else { return false };
    let tag = format!("\"{version}\"");
    value.split(',').map(|tag| tag.trim().trim_start_matches("W/")).any(|known| known == "*" || known == tag)
}
