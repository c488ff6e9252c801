//! Searches of one type, and the searches of conditional requests (FHIR R4, RESTful API and search).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fhir::{Issue, IssueCode, OperationOutcome, Severity};
use http::StatusCode;
use identity::model::scope::ScopePermissions;
use identity::tokens::access_token::TokenAccess;
use resources::filter::TypeFilter;
use resources::result::sort::SortKey;
use resources::{ChangeOrder, CompartmentView, ResourceError, ResourcePage, SearchLimit, StoredResource};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::access::permitted_view;
use super::bundle_writer::BundleWriter;
use super::included::{CONTINUED_MATCHES, IncludePosition, IncludeReader, IncludedPage};
use super::missing_scope::{NeededAccess, missing_scope};
use super::search_result::{SearchResultOptions, bad_parameter, is_result_parameter};
use super::{access, check_accept, recording};
use crate::http::answer_memory::AnswerMemory;
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::path_parameters::ResourceType;
use crate::http::problem::Problem;
use crate::http::reply::Response;

/// Default and maximum number of resources on a page.
const COUNT: usize = 100;
const COUNT_LIMIT: usize = 1_000;
/// Maximum size of the form of a search by POST, in bytes.
const FORM_LIMIT: usize = 64 * 1024;

/// The paging parameters of a search, and all others.
pub(super) struct SearchPage {
    /// Maximum number of results.
    pub count: usize,
    pub from: Option<String>,
    /// The other parameters, in their order.
    pub rest: Vec<(String, String)>,
}

impl SearchPage {
    /// Reads the parameters of a query.
    ///
    /// # Errors
    /// A 400 problem if `_count` is not a number.
    pub fn read(query: &str) -> Result<Self, Problem> {
        let mut page = Self { count: COUNT, from: None, rest: Vec::new() };
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "_count" => {
                    let count =
                        value.parse::<usize>().map_err(|_| bad_parameter("_count", "it must be a number"))?;
                    page.count = count.min(COUNT_LIMIT);
                }
                "_page" => page.from = Some(value.into_owned()),
                // `_format` is checked elsewhere; `_pretty` is ignored. fhirpy adds `_totalMethod` to
                // `_count=0`, which by itself asks for the number of matches.
                "_format" | "_pretty" | "_totalMethod" => {}
                _ => page.rest.push((name.into_owned(), value.into_owned())),
            }
        }
        Ok(page)
    }

    /// Removes the search parameters that are not supported (`Prefer: handling=lenient`; FHIR R4, search).
    /// Returns a warning about each.
    fn ignore_unsupported(&mut self, context: &RequestContext, kind: &str) -> Vec<Issue> {
        let mut ignored = Vec::new();
        self.rest.retain(|(name, value)| {
            let parameter = [(name.clone(), value.clone())];
            let fault = match is_result_parameter(name) {
                true => None,
                false => supported_filter(context, kind, &parameter).err(),
            };
            let warning =
                |reason| Issue::new(Severity::Warning, IssueCode::NotSupported, format!("ignored: {reason}"));
            ignored.extend(fault.as_ref().map(warning));
            fault.is_none()
        });
        ignored
    }

    /// The URL of the page with this cursor.
    pub fn address(&self, base: &str, from: Option<&str>) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(&self.rest).append_pair("_count", &self.count.to_string());
        if let Some(from) = from {
            query.append_pair("_page", from);
        }
        format!("{base}?{}", query.finish())
    }
}

/// Parses the search parameters of a type.
fn parse_filter(
    context: &RequestContext,
    kind: &str,
    rest: &[(String, String)],
) -> Result<TypeFilter, Problem> {
    supported_filter(context, kind, rest)
        .map_err(|reason| Problem::fhir(StatusCode::BAD_REQUEST, IssueCode::NotSupported, reason))
}

/// Parses the search parameters of a type, or returns what is not supported.
fn supported_filter(
    context: &RequestContext,
    kind: &str,
    rest: &[(String, String)],
) -> Result<TypeFilter, String> {
    let filters = rest.iter().filter(|(name, _)| !is_result_parameter(name));
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(filters).finish();
    TypeFilter::read(&format!("{kind}?{query}"), &context.app.address.fhir_base, context.now)
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
    let access = access::authenticate_for(context, kind, ScopePermissions::SEARCH).await?;
    check_accept(context, &[])?;
    search_with(context, &access, kind, query).await
}

/// Searches a type for the client of a token.
///
/// # Errors
/// A 403 problem without the scope, and a 400 problem for a parameter that is not supported.
pub async fn search_with(
    context: &RequestContext,
    access: &TokenAccess,
    kind: &'static str,
    query: &str,
) -> Result<Response, Problem> {
    if !access::has_access(context, access, kind, ScopePermissions::SEARCH) {
        let permissions = ScopePermissions::SEARCH;
        return Err(missing_scope(context, access, kind, permissions, NeededAccess::Some).await);
    }
    let mut page = SearchPage::read(query)?;
    let ignored = if context.is_lenient() { page.ignore_unsupported(context, kind) } else { Vec::new() };
    let parameters = page.rest.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let options = SearchResultOptions::read(kind, parameters)?;
    let has_filter = page.rest.iter().any(|(name, _)| !is_result_parameter(name));
    let filter = if has_filter { Some(parse_filter(context, kind, &page.rest)?) } else { None };
    let from = page.from.as_deref().map(|cursor| verified_cursor(context, kind, cursor)).transpose()?;
    let reader = IncludeReader { context, token: access, options: &options };
    if let Some(rest) = from.as_deref().and_then(IncludeCursor::parse) {
        return included_page(&reader, kind, query, &page, rest?).await;
    }
    let view = permitted_view(context, access, kind, ScopePermissions::SEARCH).await?;
    let base = format!("{}/{kind}", context.app.address.fhir_base);
    let mut bundle = BundleWriter::new("searchset");
    // FHIR R4, search count: `_count=0` is a request for the total alone.
    if options.is_count || page.count == 0 {
        bundle.member("total", &view.count(kind, filter.as_ref()).await?);
        bundle.member("link", &[json!({ "relation": "self", "url": page.address(&base, None) })]);
        recording::search(context, access, query, []);
        return Ok(bundle.answer(AnswerMemory::new(context, Some(access))));
    }
    let mut count = page.count;
    let (mut matches, mut total, mut included, memory) = loop {
        let mut memory = AnswerMemory::new(context, Some(access));
        let limit = SearchLimit { count, bytes: AnswerMemory::page_bytes(context) };
        let search = StepwiseSearch { view: &view, kind, filter: filter.as_ref(), limit };
        let change_order = SortKey::change_order(&options.sort);
        let way = match options.sort.is_empty() || change_order.is_some() {
            true => SearchWay::Changes(change_order),
            false => SearchWay::Index(&options.sort),
        };
        let in_order = search.read(way, from.as_deref(), &mut memory).await?;
        let (matches, total) = match (in_order, &options.sort[..]) {
            (Some(matches), _) => (matches, None),
            (None, []) => {
                let matches = search.read(SearchWay::Candidates, from.as_deref(), &mut memory).await?;
                (matches.unwrap_or_default(), None)
            }
            (None, keys) => {
                let read = || async {
                    Ok::<_, Problem>(
                        view.search_sorted(kind, filter.as_ref(), keys, from.as_deref(), limit).await?,
                    )
                };
                let sorted = memory.hold_for_bundle(read, |(page, _)| bytes_of(&page.resources)).await?;
                (sorted.0, Some(sorted.1))
            }
        };
        let included = reader.read(&matches.resources, None, &mut memory).await?;
        if included.next.is_none() || matches.resources.len() <= CONTINUED_MATCHES {
            break (matches, total, included, memory);
        }
        count = CONTINUED_MATCHES;
    };
    if options.has_total && total.is_none() {
        total = Some(view.count(kind, filter.as_ref()).await?);
    }
    let is_only_page = page.from.is_none() && matches.next.is_none();
    recording::search(context, access, query, matches.resources.iter().chain(&included.resources));
    if let Some(position) = included.next.take() {
        let ids = matches.resources.iter().map(|resource| resource.id.clone()).collect();
        matches.next = Some(IncludeCursor { ids, position, next: matches.next }.text());
    }
    // A cursor contains ids of the store, and must not be made up by clients.
    matches.next = matches.next.map(|cursor| signed_cursor(context, kind, &cursor));
    if let Some(total) = total.or(is_only_page.then_some(matches.resources.len())) {
        bundle.member("total", &total);
    }
    let mut links = vec![json!({ "relation": "self", "url": page.address(&base, page.from.as_deref()) })];
    links.extend(
        matches.next.iter().map(|next| json!({ "relation": "next", "url": page.address(&base, Some(next)) })),
    );
    bundle.member("link", &links);
    for mut resource in matches.resources {
        options.project(&mut resource);
        let address = format!("{base}/{}", resource.id);
        bundle.entry(&address, Some(resource.bytes), "search", &json!({ "mode": "match" }));
    }
    if !ignored.is_empty() {
        bundle.outcome(&OperationOutcome::new(ignored));
    }
    add_included(context, &mut bundle, included);
    Ok(bundle.answer(memory))
}

fn add_included(context: &RequestContext, bundle: &mut BundleWriter, included: IncludedPage) {
    for resource in included.resources {
        let address = format!("{}/{}/{}", context.app.address.fhir_base, resource.kind, resource.id);
        bundle.entry(&address, Some(resource.bytes), "search", &json!({ "mode": "include" }));
    }
}

/// Cursor of a page that has only resources which are included for the matches of an earlier page.
#[derive(Serialize, Deserialize)]
struct IncludeCursor {
    ids: Vec<String>,
    position: IncludePosition,
    /// Cursor of the page with the next matches.
    next: Option<String>,
}

impl IncludeCursor {
    /// Beginning of such cursors.
    const PREFIX: &str = "include.";

    fn text(&self) -> String {
        let json = serde_json::to_vec(self).expect("a cursor has texts and numbers only");
        format!("{}{}", Self::PREFIX, URL_SAFE_NO_PAD.encode(json))
    }

    /// `None` for a cursor of matches.
    fn parse(text: &str) -> Option<Result<Self, ResourceError>> {
        let encoded = text.strip_prefix(Self::PREFIX)?;
        let json = URL_SAFE_NO_PAD.decode(encoded).ok();
        Some(json.and_then(|json| serde_json::from_slice(&json).ok()).ok_or(ResourceError::Page))
    }
}

/// A page of further resources that are included for the matches of an earlier page.
async fn included_page(
    reader: &IncludeReader<'_>,
    kind: &'static str,
    query: &str,
    page: &SearchPage,
    cursor: IncludeCursor,
) -> Result<Response, Problem> {
    let IncludeReader { context, token, .. } = *reader;
    let IncludeCursor { ids, position, next } = cursor;
    let mut memory = AnswerMemory::new(context, Some(token));
    let view = permitted_view(context, token, kind, ScopePermissions::SEARCH).await?;
    let mut matches = Vec::with_capacity(ids.len());
    for id in &ids {
        let read = || async {
            match view.read(kind, id).await {
                Ok(resource) => Ok(Some(resource)),
                Err(ResourceError::Store(error)) => Err(Problem::from(error)),
                // Nothing more is included for a match that was deleted meanwhile.
                Err(_) => Ok(None),
            }
        };
        let size = |resource: &Option<StoredResource>| resource.as_ref().map_or(0, |it| it.bytes.len());
        matches.extend(memory.hold_for_bundle(read, size).await?);
    }
    let included = reader.read(&matches, Some(position), &mut memory).await?;
    recording::search(context, token, query, &included.resources);
    let next = match included.next.clone() {
        Some(position) => Some(IncludeCursor { ids, position, next }.text()),
        None => next,
    };
    let base = format!("{}/{kind}", context.app.address.fhir_base);
    let mut bundle = BundleWriter::new("searchset");
    let mut links = vec![json!({ "relation": "self", "url": page.address(&base, page.from.as_deref()) })];
    links.extend(next.map(|cursor| {
        let cursor = signed_cursor(context, kind, &cursor);
        json!({ "relation": "next", "url": page.address(&base, Some(&cursor)) })
    }));
    bundle.member("link", &links);
    add_included(context, &mut bundle, included);
    Ok(bundle.answer(memory))
}

/// Purpose of the message authentication code of a cursor.
const CURSOR: &str = "search cursor";

/// A cursor for `_page` with a message authentication code. The cursor contains a moment of the store: a
/// client that could choose the moment could read resources deleted since.
pub fn signed_cursor(context: &RequestContext, kind: &str, cursor: &str) -> String {
    format!("{}~{cursor}", context.app.identity.server_secret.mac(CURSOR, &format!("{kind} {cursor}")))
}

/// Verifies the message authentication code of a cursor, and returns the cursor.
///
/// # Errors
/// A problem if this server did not sign the cursor.
pub fn verified_cursor(context: &RequestContext, kind: &str, signed: &str) -> Result<String, Problem> {
    let parts = signed.split_once('~').filter(|(code, cursor)| {
        context.app.identity.server_secret.verify_mac(CURSOR, &format!("{kind} {cursor}"), code)
    });
    let (_, cursor) = parts.ok_or(ResourceError::Page)?;
    Ok(cursor.to_owned())
}

/// Size in bytes of the steps in which a page is read; the memory of each step is reserved before the next
/// one.
const STEP: usize = 1 << 20;

/// A search whose page is read in steps.
struct StepwiseSearch<'a> {
    view: &'a CompartmentView<'a>,
    kind: &'static str,
    filter: Option<&'a TypeFilter>,
    limit: SearchLimit,
}

/// The way in which a search is read.
#[derive(Debug, Clone, Copy)]
enum SearchWay<'a> {
    /// By the search index, compartments or the type.
    Candidates,
    /// By the change feed.
    Changes(Option<ChangeOrder>),
    /// By the index, in the order of these keys.
    Index(&'a [SortKey]),
}

impl StepwiseSearch<'_> {
    /// Reads a page, or returns `None` if the search cannot be read in this way.
    async fn read(
        &self,
        way: SearchWay<'_>,
        from: Option<&str>,
        memory: &mut AnswerMemory,
    ) -> Result<Option<ResourcePage>, Problem> {
        let mut page = ResourcePage { resources: Vec::new(), next: from.map(str::to_owned) };
        let mut bytes = 0;
        loop {
            let limit = SearchLimit {
                count: self.limit.count - page.resources.len(),
                bytes: STEP.min(self.limit.bytes - bytes),
            };
            let cursor = page.next.take();
            let read = || async { Ok::<_, Problem>(self.step(way, cursor.as_deref(), limit).await?) };
            let size =
                |step: &Option<ResourcePage>| step.as_ref().map_or(0, |step| bytes_of(&step.resources));
            let step = match page.resources.is_empty() {
                true => match memory.hold_for_bundle(read, size).await? {
                    Some(step) => step,
                    None => return Ok(None),
                },
                false => {
                    let Some(step) = read().await? else { return Ok(Some(page)) };
                    // A page that waited would hold memory for which others wait. It ends here; the next one
                    // continues.
                    if memory.hold_for_bundle_now(bytes_of(&step.resources)).is_err() {
                        return Ok(Some(ResourcePage { next: cursor, ..page }));
                    }
                    step
                }
            };
            let step_bytes = bytes_of(&step.resources);
            // A step that is not full has examined as many resources as a page may.
            let is_full = step.resources.len() >= limit.count || step_bytes >= limit.bytes;
            page.resources.extend(step.resources);
            page.next = step.next;
            bytes += step_bytes;
            let has_room = page.resources.len() < self.limit.count && bytes < self.limit.bytes;
            if page.next.is_none() || !is_full || !has_room {
                return Ok(Some(page));
            }
        }
    }

    async fn step(
        &self,
        way: SearchWay<'_>,
        from: Option<&str>,
        limit: SearchLimit,
    ) -> Result<Option<ResourcePage>, ResourceError> {
        match way {
            SearchWay::Candidates => self.view.search(self.kind, self.filter, from, limit).await.map(Some),
            SearchWay::Changes(order) => {
                self.view.search_by_change(self.kind, self.filter, order, from, limit).await
            }
            // Of a small type, all matches are read and sorted, which also finds their number.
            SearchWay::Index(_) if from.is_none() && self.view.is_small(self.kind).await? => Ok(None),
            SearchWay::Index(keys) => {
                self.view.search_by_index(self.kind, self.filter, keys, from, limit).await
            }
        }
    }
}

fn bytes_of(resources: &[StoredResource]) -> usize {
    resources.iter().map(|resource| resource.bytes.len()).sum()
}

/// The query of a conditional create, from the header `If-None-Exist`.
pub fn if_none_exist(context: &RequestContext) -> Option<String> {
    let value = context.headers.get("if-none-exist")?.to_str().ok()?;
    // Some clients send a complete URL.
    Some(value.split_once('?').map_or(value, |(_, query)| query).to_owned())
}
