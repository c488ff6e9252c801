//! Conditional references of transactions (FHIR R4, transaction): `Practitioner?identifier=…` in place of
//! `Practitioner/id` refers to the only resource that matches the search, either stored or written by the
//! same transaction.

use std::collections::{BTreeMap, HashSet};

use jiff::Timestamp;
use store::{ResourceKey, VersionWrite};

use super::planned_entry::PlannedEntry;
use crate::body::references::conditional_texts;
use crate::search::filter::TypeFilter;
use crate::write::prepare::PreparedResource;
use crate::write::scan::RenamedReferences;
use crate::{EntryAction, ResourceBodyError, ResourceError, Resources, Restriction};

/// Maximum number of different conditional references in one transaction. Each of them is a search.
const MAX_REFERENCES: usize = 1_000;
/// Maximum product of the numbers of conditional references and of entries, because each reference is
/// compared with each entry.
const MAX_COMPARISONS: usize = 1_000_000;

/// A conditional reference, with its search.
#[derive(Debug, Clone)]
pub(super) struct ConditionalReference {
    text: String,
    filter: TypeFilter,
}

impl ConditionalReference {
    /// The type of the referenced resource.
    pub fn kind(&self) -> &'static str {
        self.filter.kind
    }

    /// Finds the conditional references in the entries of a transaction. Relative dates in searches refer to
    /// `now`.
    pub fn in_entries(
        entries: &[&PlannedEntry],
        fhir_base: &str,
        now: Timestamp,
    ) -> Result<Vec<Self>, ResourceBodyError> {
        let mut references = BTreeMap::new();
        for (index, entry) in entries.iter().enumerate() {
            let Some(PreparedResource { draft, .. }) = &entry.prepared else { continue };
            for text in conditional_texts(&draft.bytes) {
                if references.contains_key(&text) {
                    continue;
                }
                let filter = TypeFilter::read(&text, fhir_base, now).map_err(|reason| {
                    ResourceBodyError::Search(format!("reference '{text}': {reason}")).in_entry(index)
                })?;
                references.insert(text, filter);
                if references.len() > MAX_REFERENCES || references.len() * entries.len() > MAX_COMPARISONS {
                    let reason = "the transaction has too many different conditional references: at most 1,000, and at most \
                               1,000,000 divided by the number of entries";
                    return Err(ResourceBodyError::Entry(reason).in_entry(index));
                }
            }
        }
        Ok(references.into_iter().map(|(text, filter)| Self { text, filter }).collect())
    }
}

impl Resources {
    /// Adds the resources that conditional references refer to. `entries` are those of the transaction, after
    /// their own conditions were resolved. Returns the conditions that the stored ones still exist.
    pub(super) async fn resolve_references(
        &self,
        references: &[ConditionalReference],
        entries: &[PlannedEntry],
        names: &mut RenamedReferences,
    ) -> Result<Vec<VersionWrite>, ResourceError> {
        let mut checks = Vec::new();
        let targets: HashSet<(&str, &str)> = entries
            .iter()
            .filter(|entry| entry.action != EntryAction::Read && !entry.is_left_out())
            .map(|entry| (entry.kind, entry.id.as_str()))
            .collect();
        let view = self.restricted_to(Restriction::None);
        for ConditionalReference { text, filter } in references {
            let kind = filter.kind;
            let matches = |entry: &&PlannedEntry| {
                let body = entry.prepared.as_ref().map(|prepared| &prepared.draft.bytes[..]);
                entry.kind == kind && !entry.is_left_out() && body.is_some_and(|body| filter.is_met(body))
            };
            let mut matches_of_search: Vec<(String, Option<u64>)> =
                entries.iter().filter(matches).map(|entry| (entry.id.clone(), None)).collect();
            let mut from: Option<String> = None;
            while matches_of_search.len() < 2 {
                let page = view.search(kind, Some(filter), from.as_deref(), 2).await?;
                let others = page.resources.into_iter();
                let others = others.filter(|resource| !targets.contains(&(kind, resource.id.as_str())));
                matches_of_search.extend(others.map(|resource| (resource.id, Some(resource.version))));
                from = page.next;
                if from.is_none() {
                    break;
                }
            }
            match &matches_of_search[..] {
                [(only, version)] => {
                    let key = ResourceKey::new(kind, &**only);
                    checks.extend(version.map(|version| VersionWrite::check(key, version)));
                    names.insert(text.clone(), format!("{kind}/{only}"))
                }
                [] => return Err(ResourceError::NoMatch { reference: text.clone() }),
                _ => return Err(ResourceError::Several { kind: kind.to_owned() }),
            };
        }
        Ok(checks)
    }
}
