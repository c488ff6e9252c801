//! Searches of one type with pages (FHIR R4, search), and conditional requests. All pages of a search show the same
//! snapshot.

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

/// Maximum number of resources that are examined for one page. If few resources match, the pages contain few.
const LOOKED_AT: usize = 20_000;
/// Approximate maximum size of a page in bytes.
const BYTES: usize = 16 << 20;
/// Maximum size of a page of the underlying scan.
const PAGE: PageLimit = PageLimit { count: 500, bytes: 512 * 1024 };

/// A page of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundResource {
    /// Resources that match the search. All pages have the same order.
    pub resources: Vec<StoredResource>,
    /// Cursor of the next page. `None` on the last page.
    pub next: Option<String>,
}

/// Maximum number of compartments that are scanned one after the other. For more compartments, the whole type is
/// scanned.
const MAX_SCANNED_COMPARTMENTS: usize = 64;

/// Position of a page: the sequence number of the snapshot, the compartment (empty for a scan of the type), and the
/// last id before the page.
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
    /// Returns up to `count` resources of a type that match a search, if one is given. The cursor
    /// [`FoundResource::next`] of a page continues the search.
    ///
    /// # Errors
    /// Returns [`ResourceError::Page`] for a cursor that this server did not issue, or a store error.
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
            // Earlier compartments were scanned completely. If the compartment of the cursor was removed from the
            // restriction, the next one is scanned.
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

    /// Returns the resources with these ids, without a scan.
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

    /// Returns the only resource that matches the search of a conditional request, or `None` if no resource matches.
    ///
    /// # Errors
    /// Returns [`ResourceError::Several`] if several resources match.
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

    /// Updates the resource that matches a search (FHIR R4, conditional update). If none matches, creates one with the
    /// id of the body, or else with `new_id`. `searched` is the view in which the caller may search.
    ///
    /// # Errors
    /// Returns [`ResourceError::Several`] if several resources match, and the errors of [`CompartmentView::update`].
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
            // Under a restriction, the response would reveal whether a resource outside of the view has the id.
            (None, Some(own)) if *self.restriction() != Restriction::None => {
                Err(ResourceError::Outside { kind: kind.to_owned(), id: own })
            }
            (None, own) => {
                let id = own.unwrap_or(new_id);
                Ok(WrittenResource { stored: self.create(kind, id, body, now).await?, created: true })
            }
        }
    }

    /// Creates a resource, unless a resource matches a search. In that case the existing resource is returned (FHIR R4,
    /// conditional create).
    ///
    /// # Errors
    /// Returns [`ResourceError::Several`] if several resources match, and the errors of [`CompartmentView::create`].
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

    /// Deletes the resource that matches a search (FHIR R4, conditional delete).
    ///
    /// # Errors
    /// Returns [`ResourceError::Several`] if several resources match, and the errors of [`CompartmentView::delete`].
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

    /// Returns the compartments to scan, or `None` if the whole type is to be scanned.
    fn scanned_compartments(&self) -> Option<&[String]> {
        match self.restriction() {
            Restriction::Compartments(own) if own.len() <= MAX_SCANNED_COMPARTMENTS => Some(own),
            _ => None,
        }
    }
}

/// Returns `true` if no earlier scanned compartment contains the resource, so that the resource was not returned
/// before.
fn is_first(scanned: &[String], compartment: &str, version: &Version) -> bool {
    scanned.iter().find(|own| version.compartments.contains(own)).is_some_and(|own| own == compartment)
}

impl Resources {
    /// Returns the id in a body, if it has one.
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
