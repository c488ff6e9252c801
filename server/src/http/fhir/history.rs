//! The history of a resource, of a type, and of all types (FHIR R4, RESTful API, history).

use std::collections::HashMap;

use bytes::Bytes;
use identity::model::scope::ScopePermissions;
use identity::tokens::access_token::TokenAccess;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use store::{ChangePage, ChangesBefore, PageLimit, Seq, Version, Versions as _, cpu_budget};

use super::access::{self, check_addressed, permitted_view};
use super::bundle_writer::BundleWriter;
use super::missing_scope::{NeededAccess, missing_scope};
use super::search::SearchPage;
use super::search_result::bad_parameter;
use super::{check_accept, recording};
use crate::http::answer_memory::AnswerMemory;
use crate::http::extract::RequestContext;
use crate::http::path_parameters::ResourceType;
use crate::http::problem::Problem;
use crate::http::reply::Response;

/// A page of a history, in reverse order, so that a page continues before a sequence number.
struct HistoryPage {
    page: SearchPage,
    /// The value of `_since`, the only parameter besides those of the page.
    since: Option<Timestamp>,
    before: Seq,
    limit: PageLimit,
}

impl HistoryPage {
    fn read(context: &RequestContext) -> Result<Self, Problem> {
        let page = SearchPage::read(&context.query)?;
        let before = match page.from.as_deref().map(str::parse) {
            None => Seq::LATEST,
            Some(Ok(before)) => Seq(before),
            Some(Err(_)) => return Err(resources::ResourceError::Page.into()),
        };
        let mut since = None;
        for (name, value) in &page.rest {
            if name != "_since" {
                return Err(bad_parameter(name, "not supported; a history takes _count and _since"));
            }
            since = Some(fhir::instant::parse(value).map_err(|reason| bad_parameter(name, &reason))?);
        }
        let limit = PageLimit { count: page.count.max(1), ..PageLimit::default() };
        Ok(Self { page, since, before, limit })
    }

    /// The sequence number after which the history begins.
    async fn after(&self, context: &RequestContext) -> Result<Seq, Problem> {
        Ok(match self.since {
            // Versions of this instant are included, and the store has milliseconds.
            Some(since) => {
                context.app.resources.store().seq_at(since - SignedDuration::from_millis(1)).await?
            }
            None => Seq::ZERO,
        })
    }

    /// The versions since `_since`. If it is in the future, the sequence number of [`Self::after`] precedes
    /// what was written meanwhile.
    fn not_before_since(&self, mut versions: Vec<Version>) -> Vec<Version> {
        versions.retain(|version| self.since.is_none_or(|since| version.updated >= since));
        versions
    }

    /// The Bundle with the versions of this page. `path` is that of the history, and `next` the start of the
    /// next page.
    fn answer(
        self,
        context: &RequestContext,
        path: &str,
        memory: AnswerMemory,
        versions: Vec<Version>,
        next: Option<Seq>,
    ) -> Response {
        let fhir_base = &context.app.address.fhir_base;
        let address = |from: Option<&str>| self.page.address(&format!("{fhir_base}/{path}"), from);
        let mut links = vec![json!({ "relation": "self", "url": address(self.page.from.as_deref()) })];
        links.extend(next.map(|next| json!({ "relation": "next", "url": address(Some(&next.to_string())) })));
        let mut bundle = BundleWriter::new("history");
        bundle.member("link", &links);
        for version in versions {
            let resource = format!("{}/{}", version.key.kind, version.key.id);
            let method = if version.is_deleted() { "DELETE" } else { "PUT" };
            bundle.member_of_next("request", &json!({ "method": method, "url": resource }));
            let response = json!({
                "status": if version.is_deleted() { "204" } else { "200" },
                "etag": format!("W/\"{}\"", version.version),
                "lastModified": fhir::instant::format(version.updated),
            });
            bundle.entry(&format!("{fhir_base}/{resource}"), version.body, "response", &response);
        }
        bundle.answer(memory)
    }
}

fn size_of(versions: &[Version]) -> usize {
    versions.iter().map(|version| version.body.as_ref().map_or(0, Bytes::len)).sum()
}

/// GET {fhir_base}/{type}/{id}/_history
pub async fn instance_history(
    context: &RequestContext,
    ResourceType(kind): ResourceType,
    id: String,
) -> Result<Response, Problem> {
    let access = check_addressed(context, kind, &id, ScopePermissions::GET).await?;
    let page = HistoryPage::read(context)?;
    let view = permitted_view(context, &access, kind, ScopePermissions::GET).await?;
    let mut memory = AnswerMemory::new(context, Some(&access));
    let read = || async { Ok::<_, Problem>(view.history(kind, &id, page.before, page.limit).await?) };
    let (mut versions, mut next) = memory.hold_for_bundle(read, |(versions, _)| size_of(versions)).await?;
    if let Some(since) = page.since
        && let Some(earlier) = versions.iter().position(|version| version.updated < since)
    {
        versions.truncate(earlier);
        next = None;
    }
    let resource = format!("{kind}/{id}");
    recording::history(context, &access, Some(&resource), &versions);
    Ok(page.answer(context, &format!("{resource}/_history"), memory, versions, next))
}

/// GET {fhir_base}/{type}/_history
pub async fn type_history(
    context: &RequestContext,
    ResourceType(kind): ResourceType,
) -> Result<Response, Problem> {
    let access = access::require_some(context, kind, ScopePermissions::SEARCH).await?;
    check_accept(context, &[])?;
    let page = HistoryPage::read(context)?;
    let after = page.after(context).await?;
    let view = permitted_view(context, &access, kind, ScopePermissions::SEARCH).await?;
    let mut memory = AnswerMemory::new(context, Some(&access));
    let read = || async { Ok::<_, Problem>(view.type_history(kind, page.before, after, page.limit).await?) };
    let (versions, next) = memory.hold_for_bundle(read, |(versions, _)| size_of(versions)).await?;
    let versions = page.not_before_since(versions);
    recording::history(context, &access, None, &versions);
    Ok(page.answer(context, &format!("{kind}/_history"), memory, versions, next))
}

/// Maximum number of changes that a page of the history of all types examines.
const EXAMINED: usize = 20_000;

/// GET {fhir_base}/_history: the versions of the types that the token may search.
pub async fn system_history(context: &RequestContext) -> Result<Response, Problem> {
    let access = access::authenticate(context).await?;
    let may_search = |kind: &str| access::has_access(context, &access, kind, ScopePermissions::SEARCH);
    if !fhir::RESOURCE_TYPES.iter().any(|kind| may_search(kind)) {
        return Err(missing_scope(context, &access, "*", ScopePermissions::SEARCH, NeededAccess::Some).await);
    }
    check_accept(context, &[])?;
    let page = HistoryPage::read(context)?;
    let after = page.after(context).await?;
    let mut memory = AnswerMemory::new(context, Some(&access));
    let read = || read_system_page(context, &access, &page, after);
    let (versions, next) = memory.hold_for_bundle(read, |(versions, _)| size_of(versions)).await?;
    let versions = page.not_before_since(versions);
    recording::history(context, &access, None, &versions);
    Ok(page.answer(context, "_history", memory, versions, next))
}

/// A page of the history of all types, and the start of the next one. A page may contain fewer versions than
/// requested, because others are not in the view of the token.
async fn read_system_page(
    context: &RequestContext,
    access: &TokenAccess,
    page: &HistoryPage,
    after: Seq,
) -> Result<(Vec<Version>, Option<Seq>), Problem> {
    let range = ChangesBefore { before: page.before, after, count: page.limit.count, examined: EXAMINED };
    let ChangePage { changes, next } = context.app.resources.store().changes_before(None, range).await?;
    let mut views = HashMap::new();
    let (mut seen, mut bytes) = (Vec::with_capacity(changes.len()), 0);
    for change in changes {
        cpu_budget::check().map_err(resources::ResourceError::from)?;
        let kind = change.key.kind.as_str();
        if !views.contains_key(kind) {
            let view = match access::has_access(context, access, kind, ScopePermissions::SEARCH) {
                true => Some(permitted_view(context, access, kind, ScopePermissions::SEARCH).await?),
                false => None,
            };
            views.insert(kind.to_owned(), view);
        }
        let Some(Some(view)) = views.get(kind) else { continue };
        let version = view.changed_version(&change).await?;
        bytes += version.as_ref().and_then(|version| version.body.as_ref()).map_or(0, Bytes::len);
        seen.extend(version);
        if bytes >= page.limit.bytes {
            return Ok((seen, Some(change.seq)));
        }
    }
    Ok((seen, next))
}
