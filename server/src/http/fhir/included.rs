//! The resources that `_include` and `_revinclude` add to a page of a search (FHIR R4, search).
//!
//! A page has at most [`MAX_INCLUDED`] of them, and the size of a page. If they are more, they continue on
//! the next pages, at an [`IncludePosition`]. A page that is continued has at most [`CONTINUED_MATCHES`]
//! matches, because the cursor has their ids.

use std::collections::{BTreeSet, HashSet};

use identity::model::scope::ScopePermissions;
use identity::tokens::access_token::TokenAccess;
use resources::filter::TypeFilter;
use resources::{CompartmentView, ResourceError, ResourcePage, SearchLimit, StoredResource};
use serde::{Deserialize, Serialize};

use super::access;
use super::access::permitted_view;
use super::search_result::{SearchResultOptions, bad_parameter};
use crate::http::answer_memory::AnswerMemory;
use crate::http::extract::RequestContext;
use crate::http::problem::Problem;

/// Maximum number of resources that are added to a page.
const MAX_INCLUDED: usize = 1_000;
/// Maximum number of matches of a page that is continued.
pub const CONTINUED_MATCHES: usize = 20;

/// The first resource that is not on a page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum IncludePosition {
    /// The targets of the matches after this type and id. They are sorted.
    Targets(String, String),
    /// The referrers, at a value of `_revinclude`, one of its searches, and the cursor of this search.
    Referrers(usize, usize, Option<String>),
}

/// The resources that are added to a page.
#[derive(Debug, Default)]
pub struct IncludedPage {
    pub resources: Vec<StoredResource>,
    /// The position of the next page of the same matches.
    pub next: Option<IncludePosition>,
    bytes: usize,
}

/// Reads the resources that are added to matches.
pub struct IncludeReader<'a> {
    pub context: &'a RequestContext,
    pub token: &'a TokenAccess,
    pub options: &'a SearchResultOptions,
}

impl IncludeReader<'_> {
    /// The resources of some matches from a position, as far as the token grants reading or searching them.
    pub async fn read(
        &self,
        matches: &[StoredResource],
        from: Option<IncludePosition>,
        memory: &mut AnswerMemory,
    ) -> Result<IncludedPage, Problem> {
        let mut page = IncludedPage::default();
        let referrers = match from {
            Some(IncludePosition::Referrers(include, search, cursor)) => (include, search, cursor),
            targets => {
                let after = targets.and_then(|position| match position {
                    IncludePosition::Targets(kind, id) => Some((kind, id)),
                    IncludePosition::Referrers(..) => None,
                });
                self.add_targets(matches, after, memory, &mut page).await?;
                (0, 0, None)
            }
        };
        if page.next.is_none() {
            self.add_referrers(matches, referrers, memory, &mut page).await?;
        }
        Ok(page)
    }

    fn is_full(&self, page: &IncludedPage) -> bool {
        page.resources.len() >= MAX_INCLUDED || page.bytes >= AnswerMemory::page_bytes(self.context)
    }

    /// Adds the resources that matches refer to.
    async fn add_targets(
        &self,
        matches: &[StoredResource],
        after: Option<(String, String)>,
        memory: &mut AnswerMemory,
        page: &mut IncludedPage,
    ) -> Result<(), Problem> {
        let (context, token) = (self.context, self.token);
        let matched: HashSet<(&str, &str)> =
            matches.iter().map(|resource| (resource.kind, resource.id.as_str())).collect();
        // Many matches with many targets become fewer matches.
        let limit = match matches.len() {
            ..=CONTINUED_MATCHES => usize::MAX,
            many => 2 * MAX_INCLUDED + many,
        };
        let mut targets = BTreeSet::new();
        for resource in matches {
            for include in &self.options.includes {
                include.targets(&resource.bytes, &context.app.address.fhir_base, limit, &mut targets);
            }
        }
        if targets.len() >= limit {
            page.next = Some(IncludePosition::Targets(String::new(), String::new()));
            return Ok(());
        }
        targets.retain(|(kind, id)| !matched.contains(&(*kind, id.as_str())));
        let version_of = |resource: &StoredResource| (resource.kind, resource.id.clone(), resource.version);
        let mut versions: HashSet<(&str, String, u64)> = matches.iter().map(version_of).collect();
        let is_later = |kind: &str, id: &str| {
            after.as_ref().is_none_or(|(last_kind, last)| (kind, id) > (&**last_kind, &**last))
        };
        let mut last: Option<(&str, String)> = None;
        // All targets of a type have the same view.
        let mut view: Option<(&str, Option<CompartmentView<'_>>)> = None;
        for (kind, id) in targets.into_iter().filter(|(kind, id)| is_later(kind, id)) {
            if let Some((kind, id)) = last.take_if(|_| self.is_full(page)) {
                page.next = Some(IncludePosition::Targets(kind.to_owned(), id));
                return Ok(());
            }
            if view.as_ref().is_none_or(|(matched, _)| *matched != kind) {
                let is_granted = access::has_access(context, token, kind, ScopePermissions::GET);
                view = Some((
                    kind,
                    match is_granted {
                        true => Some(permitted_view(context, token, kind, ScopePermissions::GET).await?),
                        false => None,
                    },
                ));
            }
            if let Some((_, Some(view))) = &view {
                let size =
                    |resource: &Option<StoredResource>| resource.as_ref().map_or(0, |it| it.bytes.len());
                let read = || read_target(view, kind, &id);
                if let Some(resource) = memory.hold_for_bundle(read, size).await?
                    && versions.insert(version_of(&resource))
                {
                    page.bytes += resource.bytes.len();
                    page.resources.push(resource);
                }
            }
            last = Some((kind, id));
        }
        Ok(())
    }

    /// Adds the resources that refer to matches. `from` is the value of `_revinclude`, its search, and the
    /// cursor of this search.
    async fn add_referrers(
        &self,
        matches: &[StoredResource],
        from: (usize, usize, Option<String>),
        memory: &mut AnswerMemory,
        page: &mut IncludedPage,
    ) -> Result<(), Problem> {
        let (context, token) = (self.context, self.token);
        let targets: Vec<_> = matches.iter().map(|resource| (resource.kind, resource.id.as_str())).collect();
        let mut ids: HashSet<(&str, String)> = matches
            .iter()
            .chain(&page.resources)
            .map(|resource| (resource.kind, resource.id.clone()))
            .collect();
        let most_bytes = AnswerMemory::page_bytes(context);
        let (first_include, mut first_search, mut cursor) = from;
        let includes = self.options.reverse_includes.iter().enumerate();
        for (number, include) in includes.skip(first_include).filter(|_| !targets.is_empty()) {
            // A missing right leaves out the type: an error would reveal that something refers to the
            // matches.
            if !access::has_access(context, token, include.kind, ScopePermissions::SEARCH) {
                continue;
            }
            let view = permitted_view(context, token, include.kind, ScopePermissions::SEARCH).await?;
            let searches = include.searches(&targets).into_iter().enumerate();
            for (position, search) in searches.skip(std::mem::take(&mut first_search)) {
                let filter = TypeFilter::read(&search, &context.app.address.fhir_base, context.now)
                    .map_err(|reason| bad_parameter("_revinclude", &reason))?;
                loop {
                    if self.is_full(page) {
                        page.next = Some(IncludePosition::Referrers(number, position, cursor));
                        return Ok(());
                    }
                    let count = MAX_INCLUDED - page.resources.len();
                    let limit = SearchLimit { count, bytes: most_bytes - page.bytes };
                    let read = || async {
                        Ok::<_, Problem>(
                            view.search(include.kind, Some(&filter), cursor.as_deref(), limit).await?,
                        )
                    };
                    let size = |page_result: &ResourcePage| {
                        page_result.resources.iter().map(|it| it.bytes.len()).sum()
                    };
                    let result_page = memory.hold_for_bundle(read, size).await?;
                    for resource in result_page.resources {
                        if ids.insert((resource.kind, resource.id.clone())) {
                            page.bytes += resource.bytes.len();
                            page.resources.push(resource);
                        }
                    }
                    cursor = result_page.next;
                    if cursor.is_none() {
                        break;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Reads the target of a reference: the version that it names, or the newest one if the store does not have
/// that version, because an import assigns new numbers. `None` if the target is missing, deleted or
/// invisible.
async fn read_target(
    view: &CompartmentView<'_>,
    kind: &'static str,
    target: &str,
) -> Result<Option<StoredResource>, Problem> {
    let if_exists = |read: Result<StoredResource, ResourceError>| match read {
        Ok(resource) => Ok(Some(resource)),
        Err(ResourceError::Store(error)) => Err(Problem::from(error)),
        Err(_) => Ok(None),
    };
    let (id, version) =
        target.split_once("/_history/").map_or((target, None), |(id, version)| (id, Some(version)));
    if let Some(version) = version.and_then(|version| version.parse().ok())
        && let Some(resource) = if_exists(view.read_version(kind, id, version).await)?
    {
        return Ok(Some(resource));
    }
    if_exists(view.read(kind, id).await)
}
