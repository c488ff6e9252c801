//! Searches of one type, page by page, at one moment from the first page to the last (FHIR R4, search); and the one
//! resource that a conditional request means.

use jiff::Timestamp;
use store::{Limit, ResourceKey, Scan, Seq, Version, Versions};

use crate::filter::TypeFilter;
use crate::prepare::{Id, prepare};
use crate::service::{Written, stored};
use crate::{BodyError, Confined, Deletion, Expected, ResourceError, Resources, Stored};

/// Resources that one page looks at, at most: where few meet a search, its pages hold few.
const LOOKED_AT: usize = 20_000;
/// Bytes that one page holds, about.
const BYTES: usize = 16 << 20;
/// How much of the store is held at once.
const PAGE: Limit = Limit { count: 500, bytes: 512 * 1024 };

/// A page of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// What meets the search, in an order that stays the same from page to page.
    pub resources: Vec<Stored>,
    /// Where the next page begins; `None` where this was the last.
    pub next: Option<String>,
}

/// Where a page of a search begins: the moment of the search, the compartment, and behind what.
struct Place {
    at: Seq,
    compartment: usize,
    after: Option<String>,
}

impl Place {
    fn read(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '~');
        let (at, compartment) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let after = parts.next()?;
        Some(Self { at: Seq(at), compartment, after: (!after.is_empty()).then(|| after.to_owned()) })
    }

    fn write(&self) -> String {
        format!("{}~{}~{}", self.at, self.compartment, self.after.as_deref().unwrap_or_default())
    }
}

impl Confined<'_> {
    /// Up to `count` resources of a type that meet a search, where it has parameters, from the place on that an earlier
    /// page gave as [`Found::next`].
    ///
    /// # Errors
    /// [`ResourceError::Page`] for a place that no page gave; the store's.
    pub async fn search(
        &self,
        kind: &'static str,
        filter: Option<&TypeFilter>,
        from: Option<&str>,
        count: usize,
    ) -> Result<Found, ResourceError> {
        let store = self.resources().store();
        let mut place = match from {
            Some(text) => Place::read(text).ok_or(ResourceError::Page)?,
            None => Place { at: store.last_seq(), compartment: 0, after: None },
        };
        if let Some(ids) = filter.and_then(TypeFilter::ids) {
            return self.by_ids(kind, &ids, filter, place.at).await;
        }
        let mut resources = Vec::new();
        let (mut looked_at, mut bytes) = (0, 0);
        loop {
            let scan = Scan::at(place.at).limit(PAGE).after(place.after.as_deref());
            let page = match self.compartments() {
                None if place.compartment == 0 => store.scan_kind(kind, scan).await,
                None => return Ok(Found { resources, next: None }),
                Some(compartments) => match compartments.get(place.compartment) {
                    Some(compartment) => store.scan_compartment(compartment, kind, scan).await,
                    None => return Ok(Found { resources, next: None }),
                },
            };
            let page = page.map_err(|error| match error {
                store::StoreError::Key { .. } => ResourceError::Page,
                error => error.into(),
            })?;
            for version in page.versions {
                if resources.len() >= count || bytes >= BYTES {
                    return Ok(Found { resources, next: Some(place.write()) });
                }
                looked_at += 1;
                place.after = Some(version.key.id.clone());
                if self.is_found_first(&version, place.compartment) && meets(filter, &version) {
                    let id = version.key.id.clone();
                    bytes += version.body.as_ref().map_or(0, |body| body.len());
                    resources.push(stored(kind, &id, Some(version))?);
                }
            }
            match page.next {
                Some(next) => place.after = Some(next),
                None => (place.compartment, place.after) = (place.compartment + 1, None),
            }
            if looked_at >= LOOKED_AT {
                let last = self.compartments().map_or(1, <[_]>::len);
                return Ok(Found { resources, next: (place.compartment < last).then(|| place.write()) });
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
    ) -> Result<Found, ResourceError> {
        let mut resources: Vec<Stored> = Vec::new();
        for id in ids.iter().filter(|id| fhir::is_id(id)) {
            let version = self.resources().store().read(&ResourceKey::new(kind, *id), at).await?;
            let Some(version) = version.filter(|v| !v.is_deleted() && self.holds(&v.compartments)) else {
                continue;
            };
            if meets(filter, &version) && resources.iter().all(|known| known.id != *id) {
                resources.push(stored(kind, id, Some(version))?);
            }
        }
        Ok(Found { resources, next: None })
    }

    /// The one resource that meets a search, for a conditional request; `None` where there is none.
    ///
    /// # Errors
    /// [`ResourceError::Several`] where there is more than one.
    pub async fn only(
        &self,
        kind: &'static str,
        filter: &TypeFilter,
    ) -> Result<Option<Stored>, ResourceError> {
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
    /// [`ResourceError::Several`]; as of [`Confined::update`].
    pub async fn update_only(
        &self,
        searched: &Self,
        filter: &TypeFilter,
        body: &[u8],
        new_id: String,
        now: Timestamp,
    ) -> Result<Written, ResourceError> {
        let kind = filter.kind;
        let own = self.resources().own_id(body, kind)?;
        let _turn = self.resources().one_conditional().await;
        match (searched.only(kind, filter).await?, own) {
            (Some(found), Some(own)) if own != found.id => {
                Err(BodyError::WrongId { expected: found.id, found: own }.into())
            }
            (Some(found), _) => {
                let prepared = self.prepared(body, kind, Id::Given(&found.id))?;
                let expect = self.expected(kind, &found.id, Expected::Version(found.version)).await?;
                self.resources().put(prepared, expect, now).await
            }
            (None, own) => {
                let id = own.unwrap_or(new_id);
                Ok(Written { stored: self.create(kind, id, body, now).await?, created: true })
            }
        }
    }

    /// Adds a resource, unless one meets a search, which is then given (FHIR R4, conditional create).
    ///
    /// # Errors
    /// [`ResourceError::Several`]; as of [`Confined::create`].
    pub async fn create_unless(
        &self,
        searched: &Self,
        filter: &TypeFilter,
        body: &[u8],
        new_id: String,
        now: Timestamp,
    ) -> Result<Written, ResourceError> {
        let _turn = self.resources().one_conditional().await;
        if let Some(stored) = searched.only(filter.kind, filter).await? {
            return Ok(Written { stored, created: false });
        }
        Ok(Written { stored: self.create(filter.kind, new_id, body, now).await?, created: true })
    }

    /// Deletes the resource that meets a search (FHIR R4, conditional delete).
    ///
    /// # Errors
    /// [`ResourceError::Several`]; as of [`Confined::delete`].
    pub async fn delete_only(
        &self,
        searched: &Self,
        filter: &TypeFilter,
        now: Timestamp,
    ) -> Result<Deletion, ResourceError> {
        let _turn = self.resources().one_conditional().await;
        match searched.only(filter.kind, filter).await? {
            Some(found) => self.delete(filter.kind, &found.id, Expected::Version(found.version), now).await,
            None => Ok(Deletion::WasAbsent),
        }
    }

    /// A resource in two of the compartments is found in the first of them.
    fn is_found_first(&self, version: &Version, compartment: usize) -> bool {
        self.compartments().is_none_or(|mine| {
            mine.iter().position(|mine| version.compartments.contains(mine)) == Some(compartment)
        })
    }
}

impl Resources {
    /// The id that a body has, where it has one.
    pub(crate) fn own_id(&self, body: &[u8], kind: &'static str) -> Result<Option<String>, BodyError> {
        match prepare(body, Some(kind), Id::Own, &self.limits(), self.fhir_base()) {
            Ok(prepared) => Ok(Some(prepared.id)),
            Err(BodyError::NoId) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn meets(filter: Option<&TypeFilter>, version: &Version) -> bool {
    let body = version.body.as_deref();
    filter.is_none_or(|filter| body.is_some_and(|body| filter.is_met(body)))
}
