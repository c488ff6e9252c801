//! Conditional create, update and delete (FHIR R4, RESTful API): the write depends on the result of a search.
//!
//! Two equal requests at the same time must not both create a resource. If the search has an indexed parameter, the
//! write requires that nothing was added to its terms since the search, and the search is repeated if something was.
//! Otherwise such requests take turns: within this process by a lock, and between nodes on a shared store by a record of
//! the ledger, which expires if its node ends.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use store::{Expect, IndexCondition, Ledger as _, LedgerWrite, Store, StoreError, Versions};
use tokio::sync::MutexGuard;
use tokio::time::Instant;

use crate::compartment_view::Restriction;
use crate::filter::TypeFilter;
use crate::index::candidates;
use crate::prepare::{IdSource, prepare};
use crate::service::WrittenResource;
use crate::{
    CompartmentView, DeleteResult, ExpectedVersion, ResourceBodyError, ResourceError, Resources,
    StoredResource,
};

/// Ledger key of the turn on a shared store. The record expires after [`LONGEST_TURN`].
const TURN_KEY: &str = "conditional/turn";
/// Time after which another node takes the turn.
const LONGEST_TURN: SignedDuration = SignedDuration::from_secs(30);
/// Time between two attempts to take the turn from another node, and the number of attempts.
const TURN_PAUSE: Duration = Duration::from_millis(20);
const TURN_ATTEMPTS: u32 = 500;

/// The right to search and then write. It ends when it is dropped.
pub(crate) struct ConditionalTurn<'r> {
    _here: MutexGuard<'r, ()>,
    /// On a shared store: the record and the time at which it was written. It must be deleted.
    record: Option<(Store, u64, Timestamp)>,
}

impl Resources {
    /// Waits for the turn of a conditional request whose search has no indexed parameter.
    async fn conditional_turn(&self, now: Timestamp) -> Result<ConditionalTurn<'_>, ResourceError> {
        let begun = Instant::now();
        let mut turn = ConditionalTurn { _here: self.conditional().lock().await, record: None };
        let store = self.store();
        let mut attempts = 0;
        while store.is_shared() {
            // The time of the turn begins when it is taken, not when the request arrived.
            let now = now + SignedDuration::try_from(begun.elapsed()).unwrap_or(SignedDuration::MAX);
            let write = LedgerWrite::put(TURN_KEY, "", Expect::Absent).expiring(now + LONGEST_TURN);
            match store.write(vec![write], now).await {
                Ok(revisions) => {
                    turn.record = Some((store.clone(), revisions[0], now));
                    break;
                }
                Err(StoreError::Conflict { .. }) if attempts < TURN_ATTEMPTS => {
                    attempts += 1;
                    tokio::time::sleep(TURN_PAUSE).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(turn)
    }
}

impl Drop for ConditionalTurn<'_> {
    fn drop(&mut self) {
        if let Some((store, revision, now)) = self.record.take() {
            tokio::spawn(async move {
                // If this fails, the record expires.
                drop(store.write(vec![LedgerWrite::delete(TURN_KEY, Expect::Revision(revision))], now).await);
            });
        }
    }
}

/// Maximum number of searches of a request. Each repetition means that another request has created a resource with a
/// value of the search.
pub(crate) const MAX_SEARCHES: usize = 16;

impl<'r> CompartmentView<'r> {
    /// Performs the search of a conditional request. Returns the only match, and the condition under which the search
    /// still has this result. If no parameter is indexed, there is no such condition; the function then waits for
    /// its turn before the search, unless `turn` contains it, and the caller holds it until its write.
    pub(crate) async fn search_guarded(
        &self,
        filter: &TypeFilter,
        turn: &mut Option<ConditionalTurn<'r>>,
        now: Timestamp,
    ) -> Result<(Option<StoredResource>, Option<IndexCondition>), ResourceError> {
        let resources = self.resources();
        let since = resources.store().last_seq().await?;
        let clauses = filter.index_clauses();
        let clause = candidates::small_clause(resources.store(), &clauses).await?;
        let condition = clause.map(|clause| IndexCondition { ranges: clause.ranges.clone(), since });
        if condition.is_none() && turn.is_none() {
            *turn = Some(resources.conditional_turn(now).await?);
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
        let found = match &own {
            // Under a restriction, the response would reveal whether a resource outside of the view has the id.
            Some(own) if *self.restriction() != Restriction::None => {
                let outside = || ResourceError::Outside { kind: kind.to_owned(), id: own.clone() };
                searched.only(kind, filter).await?.ok_or_else(outside)?
            }
            _ => {
                let id = own.clone().unwrap_or(new_id);
                let done = self.create_unless(searched, filter, body, id, now).await?;
                if done.created {
                    return Ok(done);
                }
                done.stored
            }
        };
        if let Some(own) = own.filter(|own| *own != found.id) {
            return Err(ResourceBodyError::WrongId { expected: found.id, found: own }.into());
        }
        self.replace(kind, &found, body, now).await
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
        let mut searches = 0;
        loop {
            let mut turn = None;
            let (found, condition) = searched.search_guarded(filter, &mut turn, now).await?;
            if let Some(stored) = found {
                return Ok(WrittenResource { stored, created: false });
            }
            let created = self.create_if(filter.kind, new_id.clone(), body, condition, now).await;
            searches += 1;
            if !is_overtaken(&created) || searches == MAX_SEARCHES {
                return Ok(WrittenResource { stored: created?, created: true });
            }
        }
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
