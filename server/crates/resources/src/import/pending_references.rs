//! Conditional references in imported resources (`Practitioner?identifier=…`, as bulk data and transactions
//! have them). A reference is replaced by that to the only match: before its resource is written if the match
//! is stored already, else after all files were read.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use jiff::Timestamp;
use store::{ExpectVersion, ResourceKey, Seq, StoreError, VersionWrite, Versions as _};

use crate::body::references::conditional_texts;
use crate::search::filter::TypeFilter;
use crate::write::prepare::{IdSource, PreparedResource, ResourceRules, Validation, prepare_named};
use crate::write::scan::RenamedReferences;
use crate::{ResourceError, Resources, Restriction};

/// Maximum number of matches that are remembered.
const MAX_REMEMBERED: usize = 100_000;
/// Maximum number of resources that are looked at again after all files were read.
const MAX_PENDING: usize = 1_000_000;
/// Maximum number of unresolved references that are reported with their text.
const MAX_NAMED: usize = 100;
/// Number of resources that are read and written together.
const PAGE: usize = 500;

/// The result of a search for a reference.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FoundTarget {
    One(String),
    None,
    /// There are several matches, or the search is not supported.
    Unusable(String),
}

/// References that stayed as they were.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnresolvedReferences {
    /// Number of references in all resources.
    pub total: u64,
    /// The first different ones: the reference, and the reason.
    pub named: Vec<(String, String)>,
    /// Number of resources that were not looked at again, because there were too many.
    pub not_looked_at: u64,
}

/// The references to the matches, by conditional reference. The reader replaces them while it reads a
/// resource, which is cheaper than preparing the resource twice.
pub(super) type KnownMatches = Arc<RwLock<RenamedReferences>>;

/// Resolves the conditional references of an import.
pub(super) struct PendingReferences<'a> {
    resources: &'a Resources,
    rules: ResourceRules,
    matches: KnownMatches,
    /// References without a usable match, by the type that they search. They are forgotten when a resource of
    /// this type is stored.
    missing: HashMap<String, HashMap<String, FoundTarget>>,
    /// Resources with references that had no match when they were written.
    pending: Vec<ResourceKey>,
    unresolved: UnresolvedReferences,
    is_last_pass: bool,
}

impl<'a> PendingReferences<'a> {
    pub(super) fn new(resources: &'a Resources, rules: ResourceRules, matches: KnownMatches) -> Self {
        Self {
            resources,
            // The reader has validated the resources.
            rules: ResourceRules { validation: Validation::Off, ..rules },
            matches,
            missing: HashMap::new(),
            pending: Vec::new(),
            unresolved: UnresolvedReferences::default(),
            is_last_pass: false,
        }
    }

    /// Replaces the references of a write whose matches are stored.
    pub(super) async fn resolve(
        &mut self,
        write: VersionWrite,
        now: Timestamp,
    ) -> Result<VersionWrite, ResourceError> {
        let Some(draft) = &write.body else { return Ok(write) };
        let texts = conditional_texts(&draft.bytes);
        if texts.is_empty() {
            return Ok(write);
        }
        let (resolved, missing) =
            self.resolved(write.key.kind.as_str(), &write.key.id, &draft.bytes, texts, now).await?;
        if missing > 0 {
            match self.pending.len() < MAX_PENDING {
                true => self.pending.push(write.key.clone()),
                false => self.unresolved.not_looked_at += 1,
            }
        }
        Ok(match resolved {
            None => write,
            Some(PreparedResource { draft, compartments, terms, .. }) => {
                VersionWrite { body: Some(draft), compartments, terms, ..write }
            }
        })
    }

    /// The resource with resolved references, if any was resolved, and the number of those that were not.
    async fn resolved(
        &mut self,
        kind: &str,
        id: &str,
        body: &[u8],
        texts: Vec<String>,
        now: Timestamp,
    ) -> Result<(Option<PreparedResource>, usize), ResourceError> {
        let (mut names, mut missing) = (RenamedReferences::new(), 0);
        for text in texts {
            match self.target(&text, now).await? {
                FoundTarget::One(target) => drop(names.insert(text, target)),
                FoundTarget::None if self.is_last_pass => self.report(text, "it has no match"),
                FoundTarget::None => missing += 1,
                FoundTarget::Unusable(reason) if self.is_last_pass => self.report(text, &reason),
                FoundTarget::Unusable(_) => missing += 1,
            }
        }
        if names.is_empty() {
            return Ok((None, missing));
        }
        let (kind, id) = (fhir::resource_type(kind), IdSource::Given(id));
        let base = self.resources.fhir_base();
        Ok((Some(prepare_named(body, kind, id, &self.rules, base, Some(&names))?), missing))
    }

    fn report(&mut self, text: String, reason: &str) {
        self.unresolved.total += 1;
        let references = &mut self.unresolved.named;
        if references.len() < MAX_NAMED && !references.iter().any(|(known, _)| *known == text) {
            references.push((text, reason.to_owned()));
        }
    }

    async fn target(&mut self, text: &str, now: Timestamp) -> Result<FoundTarget, ResourceError> {
        if let Some(target) = self.known(text) {
            return Ok(FoundTarget::One(target));
        }
        let kind = text.split('?').next().unwrap_or_default();
        if let Some(target) = self.missing.get(kind).and_then(|missing| missing.get(text)) {
            return Ok(target.clone());
        }
        let target_found = match TypeFilter::read(text, self.resources.fhir_base(), now) {
            Err(reason) => FoundTarget::Unusable(reason),
            Ok(filter) => {
                let view = self.resources.restricted_to(Restriction::None);
                match view.only(filter.kind, &filter).await {
                    Ok(Some(resource)) => FoundTarget::One(format!("{}/{}", filter.kind, resource.id)),
                    Ok(None) => FoundTarget::None,
                    Err(ResourceError::Several { .. }) => {
                        FoundTarget::Unusable("it has several matches".to_owned())
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        if let FoundTarget::One(target) = &target_found {
            let mut matches = self.matches.write().expect("no thread panics while it holds the lock");
            if matches.len() >= MAX_REMEMBERED {
                matches.clear();
            }
            matches.insert(text.to_owned(), target.clone());
        } else {
            let missing = self.missing.entry(kind.to_owned()).or_default();
            if missing.len() >= MAX_REMEMBERED {
                missing.clear();
            }
            missing.insert(text.to_owned(), target_found.clone());
        }
        Ok(target_found)
    }

    fn known(&self, text: &str) -> Option<String> {
        self.matches.read().expect("no thread panics while it holds the lock").get(text).cloned()
    }

    /// Called when a resource of a type is stored. References may match it now.
    pub(super) fn stored(&mut self, kind: &str) {
        self.missing.remove(kind);
    }

    /// Resolves the references of the resources that were written before their targets. A resource that was
    /// changed meanwhile by another request stays as it is.
    pub(super) async fn finish(
        mut self,
        now: impl Fn() -> Timestamp,
    ) -> Result<UnresolvedReferences, ResourceError> {
        self.is_last_pass = true;
        let store = self.resources.store();
        let mut pending = std::mem::take(&mut self.pending);
        pending.sort_unstable();
        pending.dedup();
        for page in pending.chunks(PAGE) {
            let mut writes = Vec::new();
            for key in page {
                let Some(version) = store.read(key, Seq::LATEST).await? else { continue };
                let Some(body) = version.body else { continue };
                let texts = conditional_texts(&body);
                let (resolved, _) = self.resolved(&key.kind, &key.id, &body, texts, now()).await?;
                if let Some(PreparedResource { draft, compartments, terms, .. }) = resolved {
                    let write = VersionWrite::put(key.clone(), draft, compartments).indexed(terms);
                    let write = write.from_source(version.source_time);
                    writes.push(write.expecting(ExpectVersion::Version(version.version)));
                }
            }
            match store.commit(writes.clone(), now()).await {
                Ok(_) => {}
                Err(StoreError::Conflict { .. }) => {
                    for write in writes {
                        match store.commit(vec![write], now()).await {
                            Ok(_) | Err(StoreError::Conflict { .. }) => {}
                            Err(error) => return Err(error.into()),
                        }
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.unresolved)
    }
}
