//! Searches of one type with pages (FHIR R4, search). All pages of a search show the same snapshot.
//!
//! A search reads the candidates of the search index if one of its parameters limits it to few, else the
//! compartments of the Patients that it is limited to, else the candidates of its best parameter, else the
//! whole type.

use std::collections::BTreeSet;
use std::sync::Arc;

use fhir::patient_references::{WithoutPatient, without_patient};
use store::{IndexLookup, KeyOrder, PageLimit, ScanOptions, Seq, StoreError, Version, Versions, cpu_budget};

use crate::search::filter::TypeFilter;
use crate::search::index::candidates::{Candidates, SOME};
use crate::search::index::clauses::{CompartmentClause, IndexClause};
use crate::view::compartment_view::ViewPart;
use crate::view::patient_set::PatientSet;
use crate::view::restriction::{OtherTypes, Restriction};
use crate::write::assignment::{UNASSIGNED, mention_of};
use crate::write::service::stored;
use crate::{CompartmentView, ResourceError, StoredResource};

/// Maximum number of resources that are examined for one page. If few resources match, the pages contain few.
pub(super) const LOOKED_AT: usize = 20_000;
/// Maximum number of resources that are examined for a page without a match, in a search with an order.
pub(super) const LOOKED_AT_FOR_ONE: usize = 10 * LOOKED_AT;
/// Minimum number of candidates that are read at a time.
const FEWEST_READ: usize = 16;
/// Maximum size of a page of the underlying scan.
const PAGE: PageLimit = PageLimit { count: 500, bytes: 512 * 1024 };

/// Maximum size of a page of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchLimit {
    /// Maximum number of resources.
    pub count: usize,
    /// Size in bytes at which a page ends. The last resource may exceed it.
    pub bytes: usize,
}

impl SearchLimit {
    /// Default size at which a page ends: 16 MiB.
    pub const BYTES: usize = 16 << 20;
}

impl From<usize> for SearchLimit {
    /// A limit of `count` resources with the default size.
    fn from(count: usize) -> Self {
        Self { count, bytes: Self::BYTES }
    }
}

/// A page of a search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourcePage {
    /// Resources that match the search. All pages have the same order.
    pub resources: Vec<StoredResource>,
    /// Cursor of the next page. `None` on the last page.
    pub next: Option<String>,
}

/// Maximum number of compartments that are scanned one after the other. For more compartments, the whole type
/// is scanned.
const MAX_SCANNED_COMPARTMENTS: usize = 64;

/// Position of a page: the sequence number of the snapshot, the order of the results, and the last id before
/// the page.
struct SearchCursor {
    at: Seq,
    order: SearchOrder,
    after: Option<String>,
}

/// The order in which a search reads resources. All its pages have the same.
#[derive(Clone, PartialEq, Eq)]
enum SearchOrder {
    /// The order of a scan of the type.
    Type,
    /// The candidates of the search index, by id.
    Index,
    /// Compartments one after the other, now this one.
    Compartment(String),
}

/// The text of [`SearchOrder::Index`] in a cursor. No compartment has this name.
const INDEX_ORDER: &str = "index";

impl SearchCursor {
    fn read(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '~');
        let (seq, order, after) = (parts.next()?.parse().ok()?, parts.next()?, parts.next()?);
        let order = match order {
            "" => SearchOrder::Type,
            INDEX_ORDER => SearchOrder::Index,
            compartment => SearchOrder::Compartment(compartment.to_owned()),
        };
        Some(Self { at: Seq(seq), order, after: (!after.is_empty()).then(|| after.to_owned()) })
    }

    fn write(&self) -> String {
        let order = match &self.order {
            SearchOrder::Type => "",
            SearchOrder::Index => INDEX_ORDER,
            SearchOrder::Compartment(compartment) => compartment,
        };
        format!("{}~{order}~{}", self.at, self.after.as_deref().unwrap_or_default())
    }
}

/// A condition on the body of a resource.
pub(super) type BodyCondition<'a> = &'a (dyn Fn(&[u8]) -> bool + Send + Sync);

/// A page that is being filled.
pub(super) struct FillingPage<'a> {
    filter: Option<&'a TypeFilter>,
    /// The page takes only resources whose bodies meet this condition.
    condition: Option<BodyCondition<'a>>,
    pub limit: SearchLimit,
    resources: Vec<StoredResource>,
    /// Number of resources that were examined.
    pub looked_at: usize,
    bytes: usize,
}

impl<'a> FillingPage<'a> {
    pub fn new(filter: Option<&'a TypeFilter>, limit: SearchLimit) -> Self {
        Self { filter, condition: None, limit, resources: Vec::new(), looked_at: 0, bytes: 0 }
    }

    /// The page, which from now on takes only resources whose bodies meet a condition.
    pub fn only(self, condition: BodyCondition<'a>) -> Self {
        Self { condition: Some(condition), ..self }
    }

    pub fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }

    /// `true` if the page ends although it is not full, so that a request has a bounded cost.
    fn is_examined(&self) -> bool {
        self.looked_at
            >= if self.condition.is_some() && self.is_empty() { LOOKED_AT_FOR_ONE } else { LOOKED_AT }
    }

    /// The number of resources that the page can take.
    pub fn missing(&self) -> usize {
        self.limit.count - self.resources.len()
    }

    /// Counts a resource that was read and has another place.
    pub fn pass(&mut self) {
        self.looked_at += 1;
    }

    fn is_full(&self) -> bool {
        self.resources.len() >= self.limit.count || self.bytes >= self.limit.bytes
    }

    /// Examines a resource, and adds it if the caller may see it and it matches. Returns `false` if it
    /// belongs to the next page. A page thus has a successor only if that has a match: otherwise the link to
    /// it would reveal that resources exist that the caller may not see.
    pub fn examine(&mut self, version: Version, is_visible: bool) -> Result<bool, ResourceError> {
        self.looked_at += 1;
        let body = version.body.as_deref().unwrap_or_default();
        if !is_visible
            || !meets(self.filter, &version)
            || self.condition.is_some_and(|condition| !condition(body))
        {
            return Ok(true);
        }
        if self.is_full() {
            return Ok(false);
        }
        let (kind, id) = (fhir::resource_type(&version.key.kind), version.key.id.clone());
        self.bytes += version.body.as_ref().map_or(0, |body| body.len());
        self.resources.push(stored(kind.unwrap_or_default(), &id, Some(version))?);
        Ok(true)
    }

    fn end_before(self, next: &SearchCursor) -> ResourcePage {
        self.end_at(next.write())
    }

    /// The page, if another one follows with this cursor.
    pub fn end_at(self, next: String) -> ResourcePage {
        ResourcePage { resources: self.resources, next: Some(next) }
    }

    /// The page, if it is the last one.
    pub fn end_last(self) -> ResourcePage {
        ResourcePage { resources: self.resources, next: None }
    }
}

impl CompartmentView<'_> {
    /// Returns resources of a type that match a search, if one is given, up to a limit. The cursor
    /// [`ResourcePage::next`] of a page continues the search.
    ///
    /// # Errors
    /// Returns [`ResourceError::Page`] for a cursor that this server did not issue, or a store error.
    pub async fn search(
        &self,
        kind: &'static str,
        filter: Option<&TypeFilter>,
        from: Option<&str>,
        limit: impl Into<SearchLimit>,
    ) -> Result<ResourcePage, ResourceError> {
        let limit = limit.into();
        self.search_at(kind, filter, from, self.resources().store().last_seq().await?, limit).await
    }

    /// Like [`CompartmentView::search`], with a sequence number for the first page.
    pub(crate) async fn search_at(
        &self,
        kind: &'static str,
        filter: Option<&TypeFilter>,
        from: Option<&str>,
        seq: Seq,
        limit: SearchLimit,
    ) -> Result<ResourcePage, ResourceError> {
        self.search_page(kind, FillingPage::new(filter, limit), from, seq).await
    }

    /// Fills a page with the matches of its search, from a cursor or as of a sequence number.
    pub(super) async fn search_page(
        &self,
        kind: &'static str,
        page: FillingPage<'_>,
        from: Option<&str>,
        seq: Seq,
    ) -> Result<ResourcePage, ResourceError> {
        let (store, filter) = (self.resources().store(), page.filter);
        let cursor = match from {
            Some(text) => Some(SearchCursor::read(text).ok_or(ResourceError::Page)?),
            None => None,
        };
        let seq = cursor.as_ref().map_or(seq, |cursor| cursor.at);
        if let Some(ids) = filter.and_then(TypeFilter::ids) {
            let ids: BTreeSet<_> = ids.into_iter().filter(|id| fhir::is_id(id)).map(str::to_owned).collect();
            let cursor = cursor.unwrap_or(SearchCursor { at: seq, order: SearchOrder::Index, after: None });
            let ids = Candidates::Collected(ids.into_iter().collect());
            return self.read_candidates(kind, page, cursor, &ids).await;
        }
        let clauses = self.all_clauses(filter);
        let compartments = self.scanned_compartments(kind, filter).await?;
        if let Restriction::ReadOnly(ids) = self.restriction() {
            let cursor = cursor.unwrap_or(SearchCursor { at: seq, order: SearchOrder::Index, after: None });
            return self.read_candidates(kind, page, cursor, &Candidates::Collected(ids.to_vec())).await;
        }
        if let Some(cursor) = cursor {
            return match (&cursor.order, compartments) {
                (SearchOrder::Type, _) => self.scan_type(kind, page, cursor).await,
                (SearchOrder::Compartment(_), Some(compartments)) => {
                    self.scan_compartments(kind, page, cursor, &compartments).await
                }
                (SearchOrder::Compartment(_), None) => Err(ResourceError::Page),
                (SearchOrder::Index, _) => {
                    let candidates = Candidates::best(store, &clauses).await?;
                    self.read_candidates(kind, page, cursor, &candidates.ok_or(ResourceError::Page)?).await
                }
            };
        }
        let start = |order| SearchCursor { at: seq, order, after: None };
        // In a restricted view, the index of the whole store must not influence the pages.
        if (compartments.is_none() || *self.restriction() == Restriction::None)
            && let Some(few) = Candidates::few(store, &clauses).await?
        {
            return self.read_candidates(kind, page, start(SearchOrder::Index), &few).await;
        }
        if let Some(compartments) = compartments {
            let Some(first) = compartments.first().cloned() else { return Ok(page.end_last()) };
            let cursor = start(SearchOrder::Compartment(first));
            return self.scan_compartments(kind, page, cursor, &compartments).await;
        }
        match Candidates::best(store, &clauses).await? {
            Some(best) => self.read_candidates(kind, page, start(SearchOrder::Index), &best).await,
            None => self.scan_type(kind, page, start(SearchOrder::Type)).await,
        }
    }

    async fn scan_type(
        &self,
        kind: &'static str,
        mut page: FillingPage<'_>,
        mut cursor: SearchCursor,
    ) -> Result<ResourcePage, ResourceError> {
        loop {
            cpu_budget::check()?;
            let scan = ScanOptions::at(cursor.at).limit(PAGE).after(cursor.after.as_deref());
            let scanned = self.resources().store().scan_kind(kind, scan).await.map_err(unknown_position)?;
            for version in scanned.versions {
                let (id, is_visible) = (version.key.id.clone(), self.contains_version(&version).await?);
                if !page.examine(version, is_visible)? {
                    return Ok(page.end_before(&cursor));
                }
                cursor.after = Some(id);
            }
            if scanned.next.is_none() {
                return Ok(page.end_last());
            }
            cursor.after = scanned.next;
            if page.is_examined() {
                return Ok(page.end_before(&cursor));
            }
        }
    }

    /// Scans the compartments one after the other, beginning with that of the cursor. If it was removed from
    /// the restriction, the next one is scanned.
    async fn scan_compartments(
        &self,
        kind: &'static str,
        mut page: FillingPage<'_>,
        mut cursor: SearchCursor,
        compartments: &[String],
    ) -> Result<ResourcePage, ResourceError> {
        let first = match &cursor.order {
            SearchOrder::Compartment(current) => compartments.partition_point(|own| own < current),
            SearchOrder::Type | SearchOrder::Index => 0,
        };
        for compartment in &compartments[first..] {
            let order = SearchOrder::Compartment(compartment.clone());
            if cursor.order != order {
                (cursor.order, cursor.after) = (order, None);
            }
            loop {
                cpu_budget::check()?;
                let scan = ScanOptions::at(cursor.at).limit(PAGE).after(cursor.after.as_deref());
                let scanned = self.resources().store().scan_compartment(compartment, kind, scan).await;
                let scanned = scanned.map_err(unknown_position)?;
                for version in scanned.versions {
                    let is_visible = is_first(compartments, compartment, &version)
                        && self.contains_version(&version).await?;
                    let id = version.key.id.clone();
                    if !page.examine(version, is_visible)? {
                        return Ok(page.end_before(&cursor));
                    }
                    cursor.after = Some(id);
                }
                // A page ends after some work even if it is not full, so that a request has a bounded cost.
                if page.is_examined() {
                    return Ok(page.end_before(&cursor));
                }
                if scanned.next.is_none() {
                    break;
                }
                cursor.after = scanned.next;
            }
        }
        Ok(page.end_last())
    }

    /// Reads the candidates of the search index.
    async fn read_candidates(
        &self,
        kind: &'static str,
        mut page: FillingPage<'_>,
        mut cursor: SearchCursor,
        candidates: &Candidates,
    ) -> Result<ResourcePage, ResourceError> {
        let store = self.resources().store();
        loop {
            cpu_budget::check()?;
            let fetched = page.missing().saturating_add(1).clamp(FEWEST_READ, PAGE.count);
            let ids = candidates.next(store, cursor.after.as_deref(), fetched).await?;
            if ids.is_empty() {
                return Ok(page.end_last());
            }
            let versions = store.read_many(kind, ids.clone(), cursor.at, PAGE.bytes).await?;
            for (id, version) in ids.into_iter().zip(versions) {
                if let Some(version) = version {
                    let is_visible = !version.is_deleted() && self.contains_version(&version).await?;
                    if !page.examine(version, is_visible)? {
                        return Ok(page.end_before(&cursor));
                    }
                }
                cursor.after = Some(id);
            }
            if page.is_examined() {
                return Ok(page.end_before(&cursor));
            }
        }
    }

    /// `true` if other things than its order limit a search to few resources, or the caller may see few. The
    /// entries of the whole store must not influence the pages of a restricted view.
    pub(super) async fn is_limited(
        &self,
        kind: &'static str,
        filter: Option<&TypeFilter>,
    ) -> Result<bool, ResourceError> {
        Ok(matches!(self.restriction(), Restriction::ReadOnly(_))
            || filter.is_some_and(|filter| filter.ids().is_some())
            || self.scanned_compartments(kind, filter).await?.is_some())
    }

    /// `true` if the store has few resources of a type, so that reading all of them costs little.
    ///
    /// # Errors
    /// A store error.
    pub async fn is_small(&self, kind: &'static str) -> Result<bool, StoreError> {
        let ids = self.resources().store().ids(kind, KeyOrder::Ascending, None, SOME + 1).await?;
        Ok(ids.len() <= SOME)
    }

    /// The clauses of a search and of the only search of the view.
    pub(super) fn all_clauses(&self, filter: Option<&TypeFilter>) -> Vec<IndexClause> {
        let mut clauses = filter.map(TypeFilter::index_clauses).unwrap_or_default();
        if let [ViewPart { filter: Some(filter), .. }] = self.parts() {
            clauses.extend(filter.index_clauses());
        }
        clauses
    }

    /// The compartments that a search is limited to, by its filter or by the restriction, if they are few.
    pub(super) async fn scanned_compartments(
        &self,
        kind: &str,
        filter: Option<&TypeFilter>,
    ) -> Result<Option<Arc<[String]>>, ResourceError> {
        if let Some(CompartmentClause { compartments, others }) = filter.and_then(TypeFilter::compartments)
            && compartments.len() <= MAX_SCANNED_COMPARTMENTS
        {
            let lookups = others.into_iter().map(|range| IndexLookup::first(range, 1)).collect();
            let entries = self.resources().store().index_entries(lookups).await?;
            if entries.iter().all(Vec::is_empty) {
                return Ok(Some(compartments.into()));
            }
        }
        Ok(match self.restriction() {
            Restriction::Patients { patients, others } if patients.len() <= MAX_SCANNED_COMPARTMENTS => {
                names_of(kind, patients, *others).map(Arc::from)
            }
            _ => None,
        })
    }
}

/// The names under which the store finds the resources of a type that refer to these Patients, or to none;
/// sorted. `None` if the type has no such names, because all its resources may be visible.
fn names_of(kind: &str, patients: &PatientSet, others: OtherTypes) -> Option<Vec<String>> {
    let rule = without_patient(kind);
    if rule == WithoutPatient::Visible && others == OtherTypes::Visible {
        return None;
    }
    let mut names: Vec<String> = patients.to_vec();
    // A Patient mentions nobody, and a Group decides by its id.
    if !matches!(kind, "Patient" | "Group") {
        names.extend(patients.iter().map(|patient| mention_of(patient)));
    }
    if rule == WithoutPatient::ByReference {
        names.push(UNASSIGNED.to_owned());
    }
    names.sort_unstable();
    Some(names)
}

/// `true` if no earlier scanned compartment contains the resource, so that the resource was not returned
/// before.
fn is_first(scanned: &[String], compartment: &str, version: &Version) -> bool {
    scanned.iter().find(|own| version.compartments.contains(own)).is_some_and(|own| own == compartment)
}

fn meets(filter: Option<&TypeFilter>, version: &Version) -> bool {
    let body = version.body.as_deref();
    filter.is_none_or(|filter| body.is_some_and(|body| filter.is_met(body)))
}

/// Converts the error of a store for an unknown id in a cursor.
fn unknown_position(error: StoreError) -> ResourceError {
    match error {
        StoreError::Key { .. } => ResourceError::Page,
        error => error.into(),
    }
}
