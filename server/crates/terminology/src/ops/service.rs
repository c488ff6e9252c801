//! The service: holds the current catalog and runs the operations on it.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use fhir::{Json as _, Parameters};
use serde_json::value::RawValue;

use super::closure::{ClosureRequest, ClosureTable};
use super::{expand, lookup, subsumes, translate, validate};
use crate::catalog::overlay::{OverlayCache, SentResources};
use crate::catalog::{Catalog, ConceptModelMode, PreferredVersions, ResourceProblem, TerminologyChange};
use crate::code_system::CodeSystemIndex;
use crate::interface::parameters::{CACHE_ID, TX_RESOURCE};
use crate::interface::{OperationInput, OperationLevel, TerminologyOperation};
use crate::membership::imports::{self, ValueSetScope};
use crate::membership::search::{CodeQuery, CodeSearch};
use crate::membership::version_pins::VersionPins;
use crate::model::dialects::SnomedDialects;
use crate::model::editions::describe_default;
use crate::model::known_systems::SNOMED_CT;
use crate::model::{Budget, TxError, canonical};

/// The answer of an operation.
#[derive(Debug, Clone)]
pub enum OperationAnswer {
    /// A Parameters resource: of all operations but `$expand`.
    Parameters(Parameters),
    /// A ValueSet with its expansion, as JSON.
    ValueSet(Box<RawValue>),
}

impl OperationAnswer {
    /// The answer as JSON.
    pub fn to_json(&self) -> Vec<u8> {
        match self {
            Self::Parameters(parameters) => parameters.to_json(),
            Self::ValueSet(value_set) => value_set.to_json(),
        }
    }

    /// The Parameters resource, or `None` for a ValueSet.
    pub fn into_parameters(self) -> Option<Parameters> {
        match self {
            Self::Parameters(parameters) => Some(parameters),
            Self::ValueSet(_) => None,
        }
    }
}

/// Code systems and value sets, and the operations on them.
///
/// Clones share the content. Reading takes no lock. [`apply`](Self::apply) replaces the catalog as a whole,
/// so that each request sees all changes of a batch or none.
#[derive(Debug, Clone, Default)]
pub struct Terminology {
    catalog: Arc<ArcSwap<Catalog>>,
    overlays: Arc<OverlayCache>,
    dialects: Arc<SnomedDialects>,
}

impl Terminology {
    /// A terminology without content that prefers terms of SNOMED CT in these dialects.
    pub fn with_dialects(dialects: SnomedDialects) -> Self {
        Self { dialects: Arc::new(dialects), ..Self::default() }
    }

    /// Applies a batch of changes atomically.
    ///
    /// An invalid resource does not stop the batch. It is stored with the reason, which
    /// [`problems`](Self::problems) and every use report. Only the header of a resource is read here; the
    /// rest is compiled on first use. Each call copies the maps of ids and URLs, so combine changes into one
    /// batch.
    pub fn apply(&self, changes: impl IntoIterator<Item = TerminologyChange>) {
        let changes: Vec<_> = changes.into_iter().collect();
        for change in &changes {
            if let TerminologyChange::Index { index, .. } = change {
                index.0.prefer_dialects(&self.dialects);
            }
        }
        // Runs again if another batch was applied in the meantime, so that no batch is lost.
        self.catalog.rcu(|catalog| catalog.with_changes(changes.iter().cloned()));
        self.overlays.drop_overlays();
    }

    /// Replaces the versions that are preferred if a request names none.
    pub fn prefer_versions(&self, preferred: PreferredVersions) {
        let preferred = Arc::new(preferred);
        self.catalog.rcu(|catalog| catalog.with_preferred_versions(Arc::clone(&preferred)));
        self.overlays.drop_overlays();
    }

    /// Sets how expressions of SNOMED CT are checked against its concept model.
    pub fn check_concept_model(&self, mode: ConceptModelMode) {
        self.catalog.rcu(|catalog| catalog.with_concept_model(mode));
        self.overlays.drop_overlays();
    }

    fn current_catalog(&self) -> Guard<Arc<Catalog>> {
        let catalog = self.catalog.load();
        if !catalog.is_stale() {
            return catalog;
        }
        self.catalog.rcu(|catalog| catalog.refreshed());
        self.overlays.drop_overlays();
        self.catalog.load()
    }

    /// Runs an operation. `now` is the time of an expansion as a FHIR instant.
    ///
    /// # Errors
    /// Returns [`TxError`] if the request cannot be evaluated. An invalid code is not an error, but an answer
    /// with `result=false`; an error of one item of a batch is part of the answer.
    pub fn run(
        &self,
        operation: TerminologyOperation,
        level: OperationLevel<'_>,
        input: OperationInput<'_>,
        now: impl Display,
    ) -> Result<OperationAnswer, TxError> {
        // From here on, parameters are read by the rows of this operation.
        let input = input.for_operation(operation);
        self.with_overlay(input, |catalog, budget| {
            let parameters = match operation {
                TerminologyOperation::ValidateCode => {
                    validate::answer_validate_code(catalog, level, input, budget)
                }
                TerminologyOperation::ValidateCodeInSystem => {
                    validate::answer_code_system(catalog, level, input, budget)
                }
                TerminologyOperation::BatchValidateCode => validate::answer_batch(
                    catalog,
                    input,
                    budget,
                    TerminologyOperation::ValidateCode,
                    validate::answer_validate_code,
                ),
                TerminologyOperation::BatchValidateCodeInSystem => validate::answer_batch(
                    catalog,
                    input,
                    budget,
                    TerminologyOperation::ValidateCodeInSystem,
                    validate::answer_code_system,
                ),
                TerminologyOperation::Lookup => lookup::answer_lookup(catalog, input, budget),
                TerminologyOperation::Subsumes => subsumes::answer_subsumes(catalog, level, input, budget),
                TerminologyOperation::Translate => translate::answer_translate(catalog, level, input, budget),
                TerminologyOperation::Expand => {
                    let value_set = expand::answer_expand(catalog, level, input, &now.to_string(), budget)?;
                    return Ok(OperationAnswer::ValueSet(value_set));
                }
            };
            parameters.map(OperationAnswer::Parameters)
        })
    }

    /// Answers `$closure` with a ConceptMap, whose date is `now`. Returns the changed table, which the caller
    /// stores, and the map.
    ///
    /// # Errors
    /// Returns [`TxError`] if a code cannot be added, or if a code system of the table is no longer stored.
    pub fn closure(
        &self,
        name: &str,
        table: &ClosureTable,
        request: ClosureRequest<'_>,
        now: impl Display,
        budget: &Budget<'_>,
    ) -> Result<(ClosureTable, Box<RawValue>), TxError> {
        let catalog = self.current_catalog();
        let (table, since) = match request {
            ClosureRequest::Add(codings) => (table.with_codes(&catalog, codings, budget)?, table.version),
            ClosureRequest::Since(version) => (table.clone(), version),
        };
        let map = table.concept_map(&catalog, name, since, &now.to_string(), budget)?;
        Ok((table, map))
    }

    /// Runs an operation on the catalog, including the resources of the request.
    fn with_overlay<T>(
        &self,
        input: OperationInput<'_>,
        operation: impl FnOnce(&Catalog, &Budget<'_>) -> Result<T, TxError>,
    ) -> Result<T, TxError> {
        let catalog = self.current_catalog();
        let full = Budget::default();
        let budget = input.own_budget().unwrap_or(&full);
        let resources = SentResources {
            resources: input.resources(TX_RESOURCE)?,
            caller: input.caller_name(),
            cache_id: input.text(CACHE_ID)?,
        };
        match self.overlays.overlay_for(&catalog, resources, budget)? {
            Some(overlay) => {
                let response = operation(&overlay.catalog, budget);
                self.overlays.update_sizes(&overlay);
                response
            }
            None => operation(&catalog, budget),
        }
    }

    /// Returns whether a code is in the value set with this canonical URL. This is the membership test of
    /// `$validate-code` without the other validation.
    ///
    /// # Errors
    /// Returns [`TxError`] if the value set is unknown or cannot be used.
    pub fn has_member(&self, value_set: &str, system: &str, code: &str) -> Result<bool, TxError> {
        let catalog = self.current_catalog();
        let budget = &Budget::default();
        let search = CodeSearch::new(
            &catalog,
            CodeQuery { system, version: None, code },
            VersionPins::NONE,
            true,
            budget,
        );
        search.prefetch();
        let (url, version) = canonical::split(value_set);
        let unknown = || TxError::UnknownValueSet { url: value_set.to_owned(), ecosystem: false };
        let set = catalog.value_set(url, version, budget)?.ok_or_else(unknown)?;
        imports::check_value_set(
            &catalog,
            ValueSetScope::uncontained(set),
            VersionPins::NONE,
            false,
            budget,
        )?;
        search.is_member(ValueSetScope::uncontained(set))
    }

    /// Returns the index of the CodeSystem with this id, after building it if necessary, or `None` if there
    /// is no such CodeSystem or it is invalid, which [`problems`](Self::problems) reports.
    pub fn index(&self, id: &str) -> Option<CodeSystemIndex> {
        self.catalog.load().index(id)
    }

    /// The number of stored CodeSystem resources, including invalid ones.
    pub fn code_system_count(&self) -> usize {
        self.catalog.load().code_system_count()
    }

    /// The number of stored ValueSet resources, including invalid ones.
    pub fn value_set_count(&self) -> usize {
        self.catalog.load().value_set_count()
    }

    /// Returns canonical URL and version of each readable code system, sorted.
    pub fn code_systems(&self) -> Vec<(String, Option<String>)> {
        self.catalog.load().code_systems()
    }

    /// The versions of each code system by canonical URL, the default version first, for
    /// `TerminologyCapabilities.codeSystem`.
    pub fn code_systems_by_url(&self) -> BTreeMap<String, Vec<Option<String>>> {
        self.catalog.load().code_systems_by_url()
    }

    /// Describes which of several stored editions of SNOMED CT answers a request without a version, and how
    /// to choose another one; `None` if there is at most one edition.
    pub fn describe_default_edition(&self) -> Option<String> {
        let versions = self.catalog.load().code_systems_by_url().remove(SNOMED_CT)?;
        describe_default(&versions.into_iter().flatten().collect::<Vec<_>>())
    }

    /// The stored resources that are known to be invalid, by type and id. The content of a resource is
    /// validated on first use.
    pub fn problems(&self) -> Vec<ResourceProblem> {
        self.catalog.load().problems()
    }
}
