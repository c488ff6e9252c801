//! Conditional entries of Bundles (FHIR R4, conditional create, update and delete): the search, and the
//! action that its result determines. The searches do not see writes of the same Bundle.

use store::ExpectVersion;

use super::entry_condition::EntryCondition;
use super::planned_entry::check_once;
use super::reference::ConditionalReference;
use crate::Restriction;
use crate::search::filter::TypeFilter;
use crate::write::prepare::{IdSource, prepare_named};
use crate::write::scan::RenamedReferences;
use crate::{EntryAction, PlannedEntry, ResourceBodyError, ResourceError, Resources};

impl Resources {
    /// Runs the searches of the entries in one commit and determines the write of each entry. If a search
    /// finds a resource, its id replaces the planned id, also in references of other entries.
    pub(super) async fn resolve(
        &self,
        entries: &mut [PlannedEntry],
        references: &[ConditionalReference],
    ) -> Result<(), ResourceError> {
        let mut names = RenamedReferences::new();
        let view = self.restricted_to(Restriction::None);
        for entry in entries.iter_mut() {
            let Some(EntryCondition::Search { text, at, own }) = entry.condition.take() else { continue };
            let filter = TypeFilter::read(&text, self.fhir_base(), at).map_err(ResourceBodyError::Search)?;
            let (matches, guard) = view.search_guarded(&filter).await?;
            entry.guard = Some(guard).filter(|_| matches.is_none());
            let is_there = matches.is_some();
            if let Some(matches) = matches {
                if let Some(own) = own.filter(|own| *own != matches.id) {
                    return Err(ResourceBodyError::WrongId { expected: matches.id, found: own }.into());
                }
                names
                    .insert(format!("{}/{}", entry.kind, entry.id), format!("{}/{}", entry.kind, matches.id));
                (entry.id, entry.expect) = (matches.id, ExpectVersion::Version(matches.version));
            } else {
                entry.expect = ExpectVersion::Absent;
            }
            if is_there == (entry.action == EntryAction::Create) && entry.action != EntryAction::Update {
                entry.condition = Some(EntryCondition::LeftOut);
            }
        }
        self.resolve_references(references, entries, &mut names).await?;
        if names.is_empty() {
            return Ok(());
        }
        check_once(&*entries)?;
        let limits = self.limits();
        for entry in entries.iter_mut() {
            if let Some(prepared) = &entry.prepared {
                let (text, id) = (&prepared.draft.bytes, IdSource::Given(&entry.id));
                let prepared =
                    prepare_named(text, Some(entry.kind), id, &limits, self.fhir_base(), Some(&names))?;
                entry.prepared = Some(prepared);
            }
        }
        Ok(())
    }
}
