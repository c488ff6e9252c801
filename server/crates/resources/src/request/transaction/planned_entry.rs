//! An entry of a Bundle as it is planned.

use std::collections::HashSet;

use fhir::validation::ElementDefects;
use jiff::Timestamp;
use store::{ExpectVersion, ResourceKey, VersionWrite};

use super::entry_action::EntryAction;
use super::entry_condition::EntryCondition;
use super::plan_rules::ImportRules;
use crate::ResourceBodyError;
use crate::search::filter::TypeFilter;
use crate::write::prepare::PreparedResource;
use crate::write::search_guard::SearchGuard;

/// A checked entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedEntry {
    /// The action to perform.
    pub action: EntryAction,
    /// The type of the resource.
    pub kind: &'static str,
    /// The id of the resource; a new id for [`EntryAction::Create`]. The search of a conditional entry can
    /// replace it.
    pub id: String,
    pub(crate) expect: ExpectVersion,
    pub(crate) condition: Option<EntryCondition>,
    pub(crate) guard: Option<SearchGuard>,
    /// The search that found nothing, so that the entry creates a resource.
    pub(crate) created_for: Option<String>,
    pub(crate) prepared: Option<PreparedResource>,
    /// The rules of the import to which the entry belongs.
    pub(crate) import: Option<ImportRules>,
    /// Source time of the version that an import writes.
    pub(crate) source_time: Option<Timestamp>,
}

impl PlannedEntry {
    /// `true` if the write depends on a search.
    pub fn is_conditional(&self) -> bool {
        self.condition.is_some()
    }

    /// The defects with which the resource of the entry is accepted.
    pub fn defects(&self) -> Option<&ElementDefects> {
        self.prepared.as_ref().map(|prepared| &prepared.defects).filter(|defects| !defects.is_empty())
    }

    /// Returns whether this entry creates, for a search, the resource that another entry searches for.
    pub(super) fn creates_match(&self, other: &Self, filter: &TypeFilter, text: &str) -> bool {
        let Some(search) = self.created_for.as_deref().filter(|_| self.kind == other.kind) else {
            return false;
        };
        let body = self.prepared.as_ref().map(|prepared| &prepared.draft.bytes);
        search == text || body.is_some_and(|body| filter.is_met(body))
    }

    /// `true` if the search of the entry found a resource, so that the entry writes nothing.
    pub(super) fn is_left_out(&self) -> bool {
        matches!(self.condition, Some(EntryCondition::LeftOut))
    }
}

impl PlannedEntry {
    /// The write of this entry, if it writes, and removes the text from the entry.
    pub(super) fn write(&mut self) -> Option<VersionWrite> {
        let key = ResourceKey::new(self.kind, &*self.id);
        if self.action == EntryAction::Read || self.is_left_out() {
            return None;
        }
        let write = match self.prepared.take() {
            Some(PreparedResource { draft, compartments, terms, .. }) => {
                VersionWrite::put(key, draft, compartments).indexed(terms)
            }
            None => VersionWrite::delete(key),
        };
        let write = VersionWrite {
            source_time: self.source_time,
            unless_same: self.import.is_some(),
            unless_outdated: self.import.is_some_and(|rules| !rules.overwrite),
            ..write.expecting(self.expect)
        };
        Some(match self.guard.take() {
            Some(guard) => guard.apply(write),
            None => write,
        })
    }
}

/// Checks that a transaction contains no resource more than once.
pub(crate) fn check_once<'a>(
    entries: impl IntoIterator<Item = &'a PlannedEntry>,
) -> Result<(), ResourceBodyError> {
    let mut targets = HashSet::new();
    for (index, entry) in entries.into_iter().enumerate() {
        // An entry that only finds a resource does not write it.
        if !entry.is_left_out() && !targets.insert((entry.kind, &*entry.id)) {
            return Err(
                ResourceBodyError::Entry("the transaction contains its resource twice").in_entry(index)
            );
        }
    }
    Ok(())
}
