//! Conditional entries of Bundles (FHIR R4, conditional create, update and delete): the search, and the
//! action that its result determines. A search finds what an earlier conditional entry of the same Bundle
//! creates, but no other writes of the Bundle.

use futures_util::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use store::{ExpectVersion, ResourceKey, VersionWrite};

use super::entry_condition::EntryCondition;
use super::planned_entry::check_once;
use super::reference::ConditionalReference;
use crate::Restriction;
use crate::search::filter::TypeFilter;
use crate::write::prepare::{IdSource, ResourceRules, Validation, prepare_named};
use crate::write::scan::RenamedReferences;
use crate::{EntryAction, ExpectedVersion, PlannedEntry, ResourceBodyError, ResourceError, Resources};

/// Number of searches of a transaction that run at the same time.
const SEARCHES_AT_ONCE: usize = 16;

impl Resources {
    /// Runs the searches of the entries in one commit and determines the write of each entry. If a search
    /// finds a resource, its id replaces the planned id, also in references of other entries. Returns the
    /// conditions that the found resources still exist, which the commit compares.
    pub(super) async fn resolve(
        &self,
        entries: &mut [PlannedEntry],
        references: &[ConditionalReference],
    ) -> Result<Vec<VersionWrite>, ResourceError> {
        let mut names = RenamedReferences::new();
        let mut checks = Vec::new();
        let mut conditions = Vec::new();
        for (index, entry) in entries.iter_mut().enumerate() {
            let Some(EntryCondition::Search { text, at, own, if_match }) = entry.condition.take() else {
                continue;
            };
            let filter = TypeFilter::read(&text, self.fhir_base(), at).map_err(ResourceBodyError::Search)?;
            conditions.push((index, text, filter, own, if_match));
        }
        // The searches do not depend on each other: some wait for the store together.
        let view = self.restricted_to(Restriction::None);
        let mut searches = Vec::with_capacity(conditions.len());
        for (_, _, filter, ..) in &conditions {
            searches.push(view.search_guarded(filter).boxed());
        }
        let matches_of_searches: Vec<_> =
            stream::iter(searches).buffered(SEARCHES_AT_ONCE).try_collect().await?;
        for ((index, text, filter, own, if_match), (matches, guard)) in
            conditions.into_iter().zip(matches_of_searches)
        {
            let (earlier, rest) = entries.split_at_mut(index);
            let entry = &mut rest[0];
            if let Some(version) = if_match.filter(|version| {
                !ExpectedVersion::Version(*version).is_met(matches.as_ref().map(|resource| resource.version))
            }) {
                let current = matches.map(|resource| resource.version);
                debug_assert_ne!(current, Some(version), "the precondition is not met");
                return Err(ResourceError::PreconditionFailed { search: text, found: current });
            }
            let place = format!("{}/{}", entry.kind, entry.id);
            // An entry of this Bundle that creates what the search is for.
            if matches.is_none()
                && let Some(first) = earlier.iter().find(|first| first.creates_match(entry, &filter, &text))
            {
                if entry.action != EntryAction::Create {
                    let twice =
                        "another entry of the transaction creates the resource that its search is for";
                    return Err(ResourceBodyError::Entry(twice).in_entry(index).into());
                }
                names.insert(place, format!("{}/{}", entry.kind, first.id));
                entry.id.clone_from(&first.id);
                entry.condition = Some(EntryCondition::LeftOut);
                continue;
            }
            entry.guard = guard;
            let is_there = matches.is_some();
            if let Some(matches) = matches {
                if let Some(own) = own.filter(|own| *own != matches.id) {
                    return Err(ResourceBodyError::WrongId { expected: matches.id, found: own }.into());
                }
                names.insert(place, format!("{}/{}", entry.kind, matches.id));
                if entry.action == EntryAction::Create {
                    checks.push(VersionWrite::check(
                        ResourceKey::new(entry.kind, &*matches.id),
                        matches.version,
                    ));
                }
                (entry.id, entry.expect) = (matches.id, ExpectVersion::Version(matches.version));
            } else {
                entry.expect = ExpectVersion::Absent;
                entry.created_for = Some(text);
            }
            if is_there == (entry.action == EntryAction::Create) && entry.action != EntryAction::Update {
                entry.condition = Some(EntryCondition::LeftOut);
            }
        }
        checks.extend(self.resolve_references(references, entries, &mut names).await?);
        if names.is_empty() {
            return Ok(checks);
        }
        check_once(&*entries)?;
        // The plan has validated the resource.
        let rules = ResourceRules { validation: Validation::Off, ..self.rules() };
        for entry in entries.iter_mut() {
            if let Some(prepared) = &entry.prepared {
                let (text, id) = (&prepared.draft.bytes, IdSource::Given(&entry.id));
                let prepared =
                    prepare_named(text, Some(entry.kind), id, &rules, self.fhir_base(), Some(&names))?;
                entry.prepared = Some(prepared);
            }
        }
        Ok(checks)
    }
}
