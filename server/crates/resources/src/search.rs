//! Searches of one type, page by page, at one moment from the first page to the last (FHIR R4, search); and the one
//! resource that a conditional request means.

use jiff::Timestamp;
use store::{PageLimit, ResourceKey, ScanOptions, Seq, Version, Versions};

use crate::compartment_view::Restriction;
use crate::filter::TypeFilter;
use crate::prepare::{IdSource, prepare};
use crate::service::{WrittenResource, stored};
use crate::{
    CompartmentView, DeleteResult, ExpectedVersion, ResourceBodyError, ResourceError, Resources,
    StoredResource,
};

/// Resources that one page looks at, at most: where few meet a search, its pages hold few.
const LOOKED_AT: usize = 20_000;
/// Bytes that one page holds, about.
const BYTES: usize = 16 << 20;
/// Maximum size of a page in memory.
const PAGE: PageLimit = PageLimit { count: 500, bytes: 512 * 1024 };

/// A page of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundResource {
    /// Resources that meet the search, in an order that is the same on all pages.
    pub resources: Vec<StoredResource>,
    /// Start of the next page; `None` on the last.
    pub next: Option<String>,
}

/// Most compartments that are scanned one after the other; for more of them the type is scanned.
const MAX_SCANNED_COMPARTMENTS: usize = 64;

/// Start of a page: the moment of the search, the compartment (empty for a scan of the type), and the id before it.
struct SearchCursor {
    at: Seq,
    compartment: String,
    after: Option<String>,
}

impl SearchCursor {
    fn read(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '~');
        let (at, compartment) = (parts.next()?.parse().ok()?, parts.next()?.to_owned());
        let after = parts.next()?;
        Some(Self { at: Seq(at), compartment, after: (!after.is_empty()).then(|| after.to_owned()) })
    }

    fn write(&self) -> String {
        format!("{}~{}~{}", self.at, self.compartment, self.after.as_deref().unwrap_or_default())
    }
}

impl CompartmentView<'_> {
    /// Up to `count` resources of a type that meet a search, where it has parameters, from the place on that an earlier
    /// page gave as [`FoundResource::next`].
    ///
    /// # Errors
    /// [`ResourceError::Page`] for a place that no page gave; the store's.
    pub async fn search(
        &self,
        kind: &'static str,
        filter: Option<&TypeFilter>,
        from: Option<&str>,
        count: usize,
    ) -> Result<FoundResource, ResourceError> {
        let store = self.resources().store();
        let mut cursor = match from {
            Some(text) => SearchCursor::read(text).ok_or(ResourceError::Page)?,
            None => SearchCursor { at: store.last_seq(), compartment: String::new(), after: None },
        };
        if let Some(ids) = filter.and_then(TypeFilter::ids) {
            return self.by_ids(kind, &ids, filter, cursor.at).await;
        }
        if let Restriction::ReadOnly(ids) = self.restriction() {
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            return self.by_ids(kind, &ids, filter, cursor.at).await;
        }
        let compartments = self.scanned_compartments();
        if let Some(compartments) = compartments {
            // Earlier compartments are complete; one that was removed since the last page is skipped.
            let next = compartments.partition_point(|own| *own < cursor.compartment);
            let Some(compartment) = compartments.get(next) else {
                return Ok(FoundResource { resources: Vec::new(), next: None });
            };
            if *compartment != cursor.compartment {
                (cursor.compartment, cursor.after) = (compartment.clone(), None);
            }
        }
        let mut resources = Vec::new();
        let (mut looked_at, mut bytes) = (0, 0);
        loop {
            let scan = ScanOptions::at(cursor.at).limit(PAGE).after(cursor.after.as_deref());
            let page = match compartments {
                None => store.scan_kind(kind, scan).await,
                Some(_) => store.scan_compartment(&cursor.compartment, kind, scan).await,
            };
            let page = page.map_err(|error| match error {
                store::StoreError::Key { .. } => ResourceError::Page,
                error => error.into(),
            })?;
            for version in page.versions {
                if resources.len() >= count || bytes >= BYTES {
                    return Ok(FoundResource { resources, next: Some(cursor.write()) });
                }
                looked_at += 1;
                cursor.after = Some(version.key.id.clone());
                let is_seen = match compartments {
                    None => self.contains(&version.key.id, &version.compartments),
                    Some(compartments) => is_first(compartments, &cursor.compartment, &version),
                };
                if is_seen && meets(filter, &version) {
                    let id = version.key.id.clone();
                    bytes += version.body.as_ref().map_or(0, |body| body.len());
                    resources.push(stored(kind, &id, Some(version))?);
                }
            }
            match page.next {
                Some(next) => cursor.after = Some(next),
                None => {
                    let following = compartments
                        .and_then(|own| own.get(own.partition_point(|own| *own <= cursor.compartment)));
                    let Some(following) = following else {
                        return Ok(FoundResource { resources, next: None });
                    };
                    (cursor.compartment, cursor.after) = (following.clone(), None);
                }
            }
            if looked_at >= LOOKED_AT {
                return Ok(FoundResource { resources, next: Some(cursor.write()) });
            }
        }
    }

    /// The resources of these ids, which needs no scan.
    async fn by_ids(
        &self,
        kind: &'static str,
        ids: &[&str],
        filter: Option<&TypeFilter>,
        at: Seq,
    ) -> Result<FoundResource, ResourceError> {
        let mut resources: Vec<StoredResource> = Vec::new();
        for id in ids.iter().filter(|id| fhir::is_id(id)) {
            let version = self.resources().store().read(&ResourceKey::new(kind, *id), at).await?;
            let Some(version) = version.filter(|v| !v.is_deleted() && self.contains(id, &v.compartments))
            else {
                continue;
            };
            if meets(filter, &version) && resources.iter().all(|known| known.id != *id) {
                resources.push(stored(kind, id, Some(version))?);
            }
        }
        Ok(FoundResource { resources, next: None })
    }

    /// Returns the only resource that meets a search, for a conditional request; `None` if there is none.
    ///
    /// # Errors
    /// Returns [`ResourceError::Several`] if there are several.
    pub async fn only(
        &self,
        kind: &'static str,
        filter: &TypeFilter,
    ) -> Result<Option<StoredResource>, ResourceError> {
        let mut only = None;
        let mut from: Option<String> = None;
        loop {
            let page = self.search(kind, Some(filter), from.as_deref(), 2).await?;
            for found in page.resources {
                if only.replace(found).is_some() {
                    return Err(ResourceError::Several { kind: kind.to_owned() });
                }
            }
            from = page.next;
            if from.is_none() {
                return Ok(only);
            }
        }
    }

    /// Writes the resource that meets a search, or a new one where none does: with the id of the body, else with
    /// `new_id` (FHIR R4, conditional update). `searched` is what the caller may search.
    ///
    /// # Errors
    /// [`ResourceError::Several`]; as of [`CompartmentView::update`].
    pub async fn update_only(
        &self,
        searched: &Self,
        filter: &TypeFilter,
        body: &[u8],
        new_id: String,
        now: Timestamp,
    ) -> Result<WrittenResource, ResourceError> {
        let kind = filter.kind;
        let own = self.resources().own_id(body, kind)?;
        let _turn = self.resources().one_conditional().await;
        match (searched.only(kind, filter).await?, own) {
            (Some(found), Some(own)) if own != found.id => {
                Err(ResourceBodyError::WrongId { expected: found.id, found: own }.into())
            }
            (Some(found), _) => self.replace(kind, &found, body, now).await,
            // Under a restriction the answer would reveal whether the id is taken outside.
            (None, Some(own)) if *self.restriction() != Restriction::None => {
                Err(ResourceError::Outside { kind: kind.to_owned(), id: own })
            }
            (None, own) => {
                let id = own.unwrap_or(new_id);
                Ok(WrittenResource { stored: self.create(kind, id, body, now).await?, created: true })
            }
        }
    }

    /// Adds a resource, unless one meets a search, which is then given (FHIR R4, conditional create).
    ///
    /// # Errors
    /// [`ResourceError::Several`]; as of [`CompartmentView::create`].
    pub async fn create_unless(
        &self,
        searched: &Self,
        filter: &TypeFilter,
        body: &[u8],
        new_id: String,
        now: Timestamp,
    ) -> Result<WrittenResource, ResourceError> {
        let _turn = self.resources().one_conditional().await;
        if let Some(stored) = searched.only(filter.kind, filter).await? {
            return Ok(WrittenResource { stored, created: false });
        }
        Ok(WrittenResource { stored: self.create(filter.kind, new_id, body, now).await?, created: true })
    }

    /// Deletes the resource that meets a search (FHIR R4, conditional delete).
    ///
    /// # Errors
    /// [`ResourceError::Several`]; as of [`CompartmentView::delete`].
    pub async fn delete_only(
        &self,
        searched: &Self,
        filter: &TypeFilter,
        now: Timestamp,
    ) -> Result<DeleteResult, ResourceError> {
        let _turn = self.resources().one_conditional().await;
        match searched.only(filter.kind, filter).await? {
            Some(found) => {
                self.delete(filter.kind, &found.id, ExpectedVersion::Version(found.version), now).await
            }
            None => Ok(DeleteResult::WasAbsent),
        }
    }

    /// The compartments to scan; `None` if the type is to be scanned.
    fn scanned_compartments(&self) -> Option<&[String]> {
        match self.restriction() {
            Restriction::Compartments(own) if own.len() <= MAX_SCANNED_COMPARTMENTS => Some(own),
            _ => None,
        }
    }
}

/// Returns true if this is the first of the scanned compartments that contain the resource; it was not found before.
fn is_first(scanned: &[String], compartment: &str, version: &Version) -> bool {
    scanned.iter().find(|own| version.compartments.contains(own)).is_some_and(|own| own == compartment)
}

impl Resources {
    /// The id that a body has, where it has one.
    pub(crate) fn own_id(
        &self,
        body: &[u8],
        kind: &'static str,
    ) -> Result<Option<String>, ResourceBodyError> {
        match prepare(body, Some(kind), IdSource::Own, &self.limits(), self.fhir_base()) {
            Ok(prepared) => Ok(Some(prepared.id)),
            Err(ResourceBodyError::NoId) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn meets(filter: Option<&TypeFilter>, version: &Version) -> bool {
    let body = version.body.as_deref();
    filter.is_none_or(|filter| body.is_some_and(|body| filter.is_met(body)))
}
