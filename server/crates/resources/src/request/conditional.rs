//! Conditional create, update and delete (FHIR R4, RESTful API): the write depends on the result of a search.
//!
//! Two equal requests at the same time must not both create a resource, on one node or on several. Each
//! resource that such a request creates is therefore indexed under a term for the search. The write requires
//! that nothing was added to this term since the search, nor to the terms of an indexed parameter with few
//! entries; if something was, the search is repeated.

use std::borrow::Cow;

use jiff::Timestamp;
use store::Versions as _;

use crate::search::filter::TypeFilter;
use crate::search::index::candidates;
use crate::view::restriction::Restriction;
use crate::write::bundle::ResourceHead;
use crate::write::prepare::{IdSource, prepare};
use crate::write::search_guard::SearchGuard;
use crate::write::service::WrittenResource;
use crate::{
    CompartmentView, DeleteResult, ExpectedVersion, ResourceBodyError, ResourceError, Resources,
    StoredResource,
};

/// Maximum number of searches of a request. Each repetition means that another request has created a resource
/// with a value of the search, or has changed the resource that was found.
pub(crate) const MAX_SEARCHES: usize = 100;

impl CompartmentView<'_> {
    /// Performs the search of a conditional request. Returns the only match, or the condition under which the
    /// search still has none.
    pub(crate) async fn search_guarded(
        &self,
        filter: &TypeFilter,
    ) -> Result<(Option<StoredResource>, Option<SearchGuard>), ResourceError> {
        let store = self.resources().store();
        // The condition is about all writes after this one, so it may be read after the search.
        let since = store.last_seq().await?;
        let clauses = filter.index_clauses();
        let small = candidates::small_clause(store, &clauses).await?;
        // Without an entry in the index, no resource needs to be read.
        let may_match = small.as_ref().is_none_or(|(_, ids)| !ids.is_empty());
        if may_match && let Some(resource) = self.only(filter.kind, filter).await? {
            return Ok((Some(resource), None));
        }
        Ok((None, Some(SearchGuard::new(filter, small.map(|(clause, _)| clause), since))))
    }

    /// The only resource that matches the search of a conditional request, or `None` if no resource matches.
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
            for resource in page.resources {
                if only.replace(resource).is_some() {
                    return Err(ResourceError::Several { kind: kind.to_owned() });
                }
            }
            from = page.next;
            if from.is_none() {
                return Ok(only);
            }
        }
    }

    /// Updates the resource that matches a search (FHIR R4, conditional update). If none matches, creates one
    /// with the id of the body, or else with `new_id`. `search_view` is the view in which the caller may
    /// search. `expected` is a precondition on the resource that matches (RFC 9110 section 13.1.1). If
    /// another request changes the resource meanwhile, search and write are repeated.
    ///
    /// # Errors
    /// Returns [`ResourceError::Several`] if several resources match, and the errors of
    /// [`CompartmentView::update`].
    pub async fn update_only(
        &self,
        search_view: &Self,
        filter: &TypeFilter,
        body: &[u8],
        new_id: String,
        expected: ExpectedVersion,
        now: Timestamp,
    ) -> Result<WrittenResource, ResourceError> {
        let mut searches = 0;
        loop {
            let result = self.update_found(search_view, filter, body, new_id.clone(), expected, now).await;
            searches += 1;
            if !is_stale(&result, expected) || searches == MAX_SEARCHES {
                return result;
            }
        }
    }

    async fn update_found(
        &self,
        search_view: &Self,
        filter: &TypeFilter,
        body: &[u8],
        new_id: String,
        expected: ExpectedVersion,
        now: Timestamp,
    ) -> Result<WrittenResource, ResourceError> {
        let kind = filter.kind;
        let own = self.resources().own_id(body, kind)?;
        let current = match &own {
            _ if matches!(expected, ExpectedVersion::Present | ExpectedVersion::Version(_)) => {
                let current = search_view.only(kind, filter).await?;
                let version = current.as_ref().map(|resource| resource.version);
                current.filter(|_| expected.is_met(version)).ok_or_else(|| unmet(filter, version))?
            }
            // Under a restriction, the response would reveal whether a resource outside of the view has the
            // id.
            Some(own) if *self.restriction() != Restriction::None => {
                let outside = || ResourceError::Outside { kind: kind.to_owned(), id: own.clone() };
                search_view.only(kind, filter).await?.ok_or_else(outside)?
            }
            _ => {
                let id = own.clone().unwrap_or(new_id);
                let result = self.create_unless(search_view, filter, body, id, now).await?;
                if result.created {
                    return Ok(result);
                }
                if expected == ExpectedVersion::Absent {
                    return Err(unmet(filter, Some(result.stored.version)));
                }
                result.stored
            }
        };
        if let Some(own) = own.filter(|own| *own != current.id) {
            return Err(ResourceBodyError::WrongId { expected: current.id, found: own }.into());
        }
        self.replace(kind, &current, body, now).await
    }

    /// Creates a resource, unless a resource matches a search. In that case the existing resource is returned
    /// (FHIR R4, conditional create).
    ///
    /// # Errors
    /// Returns [`ResourceError::Several`] if several resources match, and the errors of
    /// [`CompartmentView::create`].
    pub async fn create_unless(
        &self,
        search_view: &Self,
        filter: &TypeFilter,
        body: &[u8],
        new_id: String,
        now: Timestamp,
    ) -> Result<WrittenResource, ResourceError> {
        let mut searches = 0;
        loop {
            let (matches, guard) = search_view.search_guarded(filter).await?;
            if let Some(resource) = matches {
                return Ok(WrittenResource { stored: resource, created: false });
            }
            let created = self.create_if(filter.kind, new_id.clone(), body, guard, now).await;
            searches += 1;
            if !is_overtaken(&created) || searches == MAX_SEARCHES {
                return Ok(WrittenResource { stored: created?, created: true });
            }
        }
    }

    /// Deletes the resource that matches a search (FHIR R4, conditional delete). `expected` is a precondition
    /// on this resource. If another request changes the resource meanwhile, search and deletion are repeated.
    ///
    /// # Errors
    /// Returns [`ResourceError::Several`] if several resources match, and the errors of
    /// [`CompartmentView::delete`].
    pub async fn delete_only(
        &self,
        search_view: &Self,
        filter: &TypeFilter,
        expected: ExpectedVersion,
        now: Timestamp,
    ) -> Result<DeleteResult, ResourceError> {
        let mut searches = 0;
        loop {
            let current = search_view.only(filter.kind, filter).await?;
            let version = current.as_ref().map(|resource| resource.version);
            if expected != ExpectedVersion::Anything && !expected.is_met(version) {
                return Err(unmet(filter, version));
            }
            let Some(resource) = current else { return Ok(DeleteResult::WasAbsent) };
            let current = ExpectedVersion::Version(resource.version);
            let result = self.delete(filter.kind, &resource.id, current, now).await;
            searches += 1;
            if !is_stale(&result, expected) || searches == MAX_SEARCHES {
                return result;
            }
        }
    }
}

/// The error of a precondition on the match of a search.
fn unmet(filter: &TypeFilter, version: Option<u64>) -> ResourceError {
    ResourceError::PreconditionFailed { search: filter.text.clone(), found: version }
}

/// Returns whether a write failed because another request has changed the resource since the search. With a
/// precondition of the client, this is its answer.
fn is_stale<T>(result: &Result<T, ResourceError>, expected: ExpectedVersion) -> bool {
    let is_changed =
        matches!(result, Err(ResourceError::VersionConflict { .. } | ResourceError::SearchChanged { .. }));
    expected == ExpectedVersion::Anything && is_changed
}

/// Returns whether a create failed because another request was faster.
pub(crate) fn is_overtaken<T>(created: &Result<T, ResourceError>) -> bool {
    matches!(created, Err(ResourceError::SearchChanged { .. }))
}

impl Resources {
    /// The id in a body, if it has one.
    pub(crate) fn own_id(
        &self,
        body: &[u8],
        kind: &'static str,
    ) -> Result<Option<String>, ResourceBodyError> {
        // The text is checked when it is written. Here only its id is read, unless its head is invalid.
        if let Some(head) = ResourceHead::of(body)
            && head.kind.is_some_and(|own_kind| own_kind == kind)
            && head.id.as_deref().is_none_or(fhir::is_id)
        {
            return Ok(head.id.map(Cow::into_owned));
        }
        match prepare(body, Some(kind), IdSource::Own, &self.rules(), self.fhir_base()) {
            Ok(prepared) => Ok(Some(prepared.id)),
            Err(ResourceBodyError::NoId) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
