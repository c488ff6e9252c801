//! Parameters that affect the results of a search (FHIR R4, search): `_summary`, `_elements`, `_sort`,
//! `_include`, `_revinclude` and `_total`.

use std::collections::{BTreeSet, HashSet};

use fhir::IssueCode;
use http::StatusCode;
use identity::model::scope::ScopePermissions;
use identity::tokens::access_token::TokenAccess;
use resources::filter::TypeFilter;
use resources::result::elements::{ElementProjection, Summary, check_element};
use resources::result::include::{Include, ReverseInclude};
use resources::result::sort::SortKey;
use resources::{CompartmentView, ResourceError, ResourcePage, SearchLimit, StoredResource};

use super::access;
use super::access::permitted_view;
use crate::http::answer_memory::AnswerMemory;
use crate::http::extract::RequestContext;
use crate::http::problem::Problem;

/// Maximum number of resources that `_include` and `_revinclude` add to a page. Together they have at most
/// the size of a page.
const MAX_INCLUDED: usize = 1_000;
/// Maximum number of values of `_include`.
const MAX_INCLUDES: usize = 20;

/// The names of the parameters of this module. They are not search parameters of a type.
const NAMES: [&str; 6] = ["_summary", "_elements", "_sort", "_include", "_revinclude", "_total"];

/// `true` for a parameter that affects only the results.
pub fn is_result_parameter(name: &str) -> bool {
    NAMES.contains(&name)
}

/// The requested results of a search.
#[derive(Debug, Default)]
pub struct SearchResultOptions {
    /// The elements of matches. `None` means all.
    projection: Option<ElementProjection>,
    /// `true` if only the number of matches is returned.
    pub is_count: bool,
    /// `true` if each page must contain the number of all matches.
    pub has_total: bool,
    /// The order of matches. Empty for the order of the server.
    pub sort: Vec<SortKey>,
    includes: Vec<Include>,
    reverse_includes: Vec<ReverseInclude>,
}

impl SearchResultOptions {
    /// Parses the parameters of a request for resources of a type. Other parameters are ignored.
    pub fn read<'q>(
        kind: &str,
        query: impl IntoIterator<Item = (&'q str, &'q str)>,
    ) -> Result<Self, Problem> {
        let mut options = Self::default();
        let mut elements = Vec::new();
        let mut summary = None;
        for (name, value) in query {
            let not_supported = |why| Problem::fhir(StatusCode::BAD_REQUEST, IssueCode::NotSupported, why);
            match name {
                "_summary" => match value {
                    "true" => summary = Some(Summary::Summary),
                    "text" => summary = Some(Summary::Text),
                    "data" => summary = Some(Summary::Data),
                    "count" => options.is_count = true,
                    "false" => {}
                    _ => {
                        return Err(bad_parameter("_summary", "it must be true, text, data, count or false"));
                    }
                },
                "_elements" => {
                    for element in value.split(',').filter(|element| !element.is_empty()) {
                        check_element(element).map_err(|why| bad_parameter("_elements", &why))?;
                        elements.push(element.to_owned());
                    }
                }
                "_total" => match value {
                    "accurate" => options.has_total = true,
                    // An estimate may be left out.
                    "none" | "estimate" => {}
                    _ => return Err(bad_parameter("_total", "it must be accurate, estimate or none")),
                },
                "_sort" => options.sort.extend(SortKey::list(kind, value).map_err(not_supported)?),
                "_include" => options.includes.push(Include::read(kind, value).map_err(not_supported)?),
                "_revinclude" => {
                    let include = ReverseInclude::read(kind, value).map_err(not_supported)?;
                    options.reverse_includes.push(include);
                }
                _ => {}
            }
        }
        for (name, count) in
            [("_include", options.includes.len()), ("_revinclude", options.reverse_includes.len())]
        {
            if count > MAX_INCLUDES {
                return Err(bad_parameter(name, "at most 20 values are accepted"));
            }
        }
        if summary.is_some() && !elements.is_empty() {
            return Err(bad_parameter("_elements", "it cannot be combined with _summary"));
        }
        options.projection = match summary {
            Some(summary) => Some(ElementProjection::summary(kind, summary)),
            None => (!elements.is_empty()).then(|| ElementProjection::new(kind, &elements)),
        };
        Ok(options)
    }

    /// Reduces a resource to the requested elements.
    pub fn project(&self, resource: &mut StoredResource) {
        let Some(projection) = &self.projection else { return };
        // Stored resources are valid JSON, so an error is impossible; the complete resource is correct too.
        if let Ok(Some(projected)) = projection.apply(&resource.bytes) {
            resource.bytes = projected.into();
        }
    }

    /// The resources that matches refer to, as far as the token grants reading them.
    pub async fn included(
        &self,
        context: &RequestContext,
        token: &TokenAccess,
        matches: &[StoredResource],
        memory: &mut AnswerMemory,
    ) -> Result<Vec<StoredResource>, Problem> {
        let matched: HashSet<(&str, &str)> =
            matches.iter().map(|resource| (resource.kind, resource.id.as_str())).collect();
        let mut targets = BTreeSet::new();
        for resource in matches {
            for include in &self.includes {
                let limit = MAX_INCLUDED + matches.len();
                include.targets(&resource.bytes, &context.app.address.fhir_base, limit, &mut targets);
            }
        }
        targets.retain(|(kind, id)| !matched.contains(&(*kind, id.as_str())));
        let most_bytes = AnswerMemory::page_bytes(context);
        let (mut included, mut bytes) = (Vec::new(), 0);
        // The targets are sorted by type, and all of a type have the same view.
        let mut view: Option<(&str, Option<CompartmentView<'_>>)> = None;
        for (kind, id) in targets.into_iter().take(MAX_INCLUDED) {
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
            let Some((_, Some(view))) = &view else { continue };
            let read = || async {
                match view.read(kind, &id).await {
                    Ok(resource) => Ok(Some(resource)),
                    Err(ResourceError::Store(error)) => Err(Problem::from(error)),
                    // A missing, deleted or invisible target is left out.
                    Err(_) => Ok(None),
                }
            };
            let size = |resource: &Option<StoredResource>| resource.as_ref().map_or(0, |it| it.bytes.len());
            if let Some(resource) = memory.hold_for_bundle(read, size).await? {
                bytes += resource.bytes.len();
                included.push(resource);
            }
            if bytes >= most_bytes {
                break;
            }
        }
        self.add_referring(context, token, matches, memory, &mut included, bytes).await?;
        Ok(included)
    }

    /// Adds the resources that refer to matches, as far as the token grants searching them. `bytes` is the
    /// size of what is included already.
    async fn add_referring(
        &self,
        context: &RequestContext,
        token: &TokenAccess,
        matches: &[StoredResource],
        memory: &mut AnswerMemory,
        included: &mut Vec<StoredResource>,
        mut bytes: usize,
    ) -> Result<(), Problem> {
        let targets: Vec<_> = matches.iter().map(|resource| (resource.kind, resource.id.as_str())).collect();
        let mut known: HashSet<(&str, String)> =
            matches.iter().chain(&*included).map(|resource| (resource.kind, resource.id.clone())).collect();
        let most_bytes = AnswerMemory::page_bytes(context);
        for include in self.reverse_includes.iter().filter(|_| !targets.is_empty()) {
            // A missing right leaves out the type: an error would reveal that something refers to the
            // matches.
            if !access::has_access(context, token, include.kind, ScopePermissions::SEARCH) {
                continue;
            }
            let view = permitted_view(context, token, include.kind, ScopePermissions::SEARCH).await?;
            for search in include.searches(&targets) {
                let filter = TypeFilter::read(&search, &context.app.address.fhir_base, context.now)
                    .map_err(|why| bad_parameter("_revinclude", &why))?;
                let mut next: Option<String> = None;
                loop {
                    let (from, left) = (next.take(), MAX_INCLUDED.saturating_sub(included.len()));
                    if left == 0 || bytes >= most_bytes {
                        return Ok(());
                    }
                    let limit = SearchLimit { count: left, bytes: most_bytes - bytes };
                    let read = || async {
                        Ok::<_, Problem>(
                            view.search(include.kind, Some(&filter), from.as_deref(), limit).await?,
                        )
                    };
                    let size = |page: &ResourcePage| page.resources.iter().map(|it| it.bytes.len()).sum();
                    let page = memory.hold_for_bundle(read, size).await?;
                    for resource in page.resources {
                        if known.insert((resource.kind, resource.id.clone())) {
                            bytes += resource.bytes.len();
                            included.push(resource);
                        }
                    }
                    next = page.next;
                    if next.is_none() {
                        break;
                    }
                }
            }
        }
        Ok(())
    }
}

pub(super) fn bad_parameter(parameter: &str, why: &str) -> Problem {
    Problem::fhir(StatusCode::BAD_REQUEST, IssueCode::Value, format!("parameter '{parameter}': {why}"))
}
