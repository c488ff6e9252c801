//! Entries of Bundles that depend on what a search finds (FHIR R4, conditional create, update and delete): the search, and
//! what becomes of an entry once it is made. Searches see what is stored before the Bundle.

use jiff::Timestamp;
use store::ExpectVersion;

use super::check_once;
use crate::Restriction;
use crate::bundle::BundleEntry;
use crate::filter::TypeFilter;
use crate::prepare::{IdSource, prepare_named};
use crate::scan::RenamedReferences;
use crate::{EntryAction, PlannedEntry, ResourceBodyError, ResourceError, Resources};

/// Condition of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EntryCondition {
    /// The result of a search.
    Search {
        /// `Type?parameter=value&…`, which can be read.
        text: String,
        /// Time for comparisons with now.
        at: Timestamp,
        /// The id that the resource of the entry has itself.
        own: Option<String>,
    },
    /// The search was run, and the entry writes nothing.
    LeftOut,
}

impl EntryCondition {
    /// Reads the search of an entry.
    pub fn read(
        entry: &BundleEntry<'_>,
        action: EntryAction,
        kind: &'static str,
        search: &str,
        resources: &Resources,
        now: Timestamp,
    ) -> Result<Self, ResourceBodyError> {
        // FHIR writes the search of a POST with or without the type before it.
        let search = search.strip_prefix(kind).unwrap_or(search);
        let text = format!("{kind}?{}", search.strip_prefix('?').unwrap_or(search));
        TypeFilter::read(&text, resources.fhir_base(), now).map_err(ResourceBodyError::Search)?;
        let own = match (action, entry.resource) {
            (EntryAction::Update, Some(resource)) => resources.own_id(resource.get().as_bytes(), kind)?,
            _ => None,
        };
        Ok(Self::Search { text, at: now, own })
    }

    /// The id that the resource of the entry has itself.
    pub fn own_id(&self) -> Option<&str> {
        match self {
            Self::Search { own, .. } => own.as_deref(),
            Self::LeftOut => None,
        }
    }
}

impl Resources {
    /// Runs the searches of the entries of one commit and determines the write of each entry. A resource that is
    /// found replaces the planned one, also in references of other entries.
    pub(crate) async fn resolve(&self, entries: &mut [PlannedEntry]) -> Result<(), ResourceError> {
        let mut names = RenamedReferences::new();
        for entry in entries.iter_mut() {
            let Some(EntryCondition::Search { text, at, own }) = entry.condition.take() else { continue };
            let filter = TypeFilter::read(&text, self.fhir_base(), at).map_err(ResourceBodyError::Search)?;
            let found = self.restricted_to(Restriction::None).only(entry.kind, &filter).await?;
            let is_there = found.is_some();
            if let Some(found) = found {
                if let Some(own) = own.filter(|own| *own != found.id) {
                    return Err(ResourceBodyError::WrongId { expected: found.id, found: own }.into());
                }
                names.insert(format!("{}/{}", entry.kind, entry.id), format!("{}/{}", entry.kind, found.id));
                (entry.id, entry.expect) = (found.id, ExpectVersion::Version(found.version));
            } else {
                entry.expect = ExpectVersion::Absent;
            }
            if is_there == (entry.action == EntryAction::Create) && entry.action != EntryAction::Update {
                entry.condition = Some(EntryCondition::LeftOut);
            }
        }
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
