//! Conditional create, update and delete (FHIR R4, RESTful API): the write depends on the result of a search.
//!
//! Two equal requests at the same time must not both create a resource. If the search has an indexed parameter, the
//! write requires that nothing was added to its terms since the search, and the search is repeated if something was.
//! Otherwise a lock makes such requests of this process wait for each other.

use jiff::Timestamp;
use store::{IndexCondition, Versions};
use tokio::sync::MutexGuard;

use crate::compartment_view::Restriction;
use crate::filter::TypeFilter;
use crate::index::candidates;
use crate::prepare::{IdSource, prepare};
use crate::service::WrittenResource;
use crate::{
    CompartmentView, DeleteResult, ExpectedVersion, ResourceBodyError, ResourceError, Resources,
    StoredResource,
};

/// Maximum number of searches of a request. Each repetition means that another request has created a resource with a
/// value of the search.
pub(crate) const MAX_SEARCHES: usize = 16;

/// Result of the search of a conditional request.
struct ConditionalSearch<'a> {
    /// The only match.
    found: Option<StoredResource>,
    /// The condition under which there is still no other match.
    condition: Option<IndexCondition>,
    /// The turn of this request, if there is no such condition. The caller holds it until its write.
    turn: Option<MutexGuard<'a, ()>>,
}

impl<'r> CompartmentView<'r> {
    /// Performs the search of a conditional request.
    async fn search_once(&self, filter: &TypeFilter) -> Result<ConditionalSearch<'r>, ResourceError> {
        let mut turn = None;
        let (found, condition) = self.search_in_turn(filter, &mut turn).await?;
        Ok(ConditionalSearch { found, condition, turn })
    }

    /// Performs a search. If no condition on the search index can protect its result, takes the turn first.
    pub(crate) async fn search_in_turn(
        &self,
        filter: &TypeFilter,
        turn: &mut Option<MutexGuard<'r, ()>>,
    ) -> Result<(Option<StoredResource>, Option<IndexCondition>), ResourceError> {
        let resources = self.resources();
        let since = resources.store().last_seq();
        let clauses = filter.index_clauses();
        let clause = candidates::small_clause(resources.store(), &clauses).await?;
        let condition = clause.map(|clause| IndexCondition { ranges: clause.ranges.clone(), since });
        if condition.is_none() && turn.is_none() {
            *turn = Some(resources.one_conditional().await);
        }
        Ok((self.only(filter.kind, filter).await?, condition))
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
        for searches in 1.. {
            let ConditionalSearch { found, condition, turn } = searched.search_once(filter).await?;
            let Some(found) = found else {
                // Under a restriction, the response would reveal whether a resource outside of the view has the id.
                if let Some(own) = own.as_ref().filter(|_| *self.restriction() != Restriction::None) {
                    return Err(ResourceError::Outside { kind: kind.to_owned(), id: own.clone() });
                }
                let id = own.clone().unwrap_or_else(|| new_id.clone());
                let created = self.create_if(kind, id, body, condition, now).await;
                if is_overtaken(&created) && searches < MAX_SEARCHES {
                    continue;
                }
                drop(turn);
                return Ok(WrittenResource { stored: created?, created: true });
            };
            if let Some(own) = own.filter(|own| *own != found.id) {
                return Err(ResourceBodyError::WrongId { expected: found.id, found: own }.into());
            }
            return self.replace(kind, &found, body, now).await;
        }
        unreachable!("the loop ends with the last search")
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
        for searches in 1.. {
            let ConditionalSearch { found, condition, turn } = searched.search_once(filter).await?;
            if let Some(stored) = found {
                return Ok(WrittenResource { stored, created: false });
            }
            let created = self.create_if(filter.kind, new_id.clone(), body, condition, now).await;
            if is_overtaken(&created) && searches < MAX_SEARCHES {
                continue;
            }
            drop(turn);
            return Ok(WrittenResource { stored: created?, created: true });
        }
        unreachable!("the loop ends with the last search")
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
        match searched.only(filter.kind, filter).await? {
            Some(found) => {
                self.delete(filter.kind, &found.id, ExpectedVersion::Version(found.version), now).await
            }
            None => Ok(DeleteResult::WasAbsent),
        }
    }
}

/// Returns whether a create failed because another request was faster.
pub(crate) fn is_overtaken<T>(created: &Result<T, ResourceError>) -> bool {
    matches!(created, Err(ResourceError::SearchChanged { .. }))
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
