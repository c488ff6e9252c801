//! The service: holds the current catalog and answers the two operations from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use bytes::Bytes;
use fhir::Parameters;
use serde_json::value::RawValue;

use crate::catalog::Catalog;
use crate::overlay::Overlays;
use crate::value_set::imports::{self, Home, Pins};
use crate::value_set::search::{Asked, Search};
use crate::{Budget, Index, Input, Level, TxError, expand, lookup, subsumes, validate, version};

/// One change of the stored terminology, as the edge's change feed tells it.
#[derive(Debug, Clone)]
pub enum Change {
    /// A resource was created or replaced.
    Put {
        /// Resource type; anything but `CodeSystem`, `ValueSet` and `StructureDefinition` is passed over.
        kind: &'static str,
        /// Resource id.
        id: String,
        /// The resource as JSON.
        bytes: Bytes,
    },
    /// A code system is there whose index was made before.
    Index {
        /// Its id: that of the resource it was made from, or one that the loader chose.
        id: String,
        /// The index.
        index: Index,
    },
    /// A resource was deleted.
    Delete {
        /// Resource type.
        kind: &'static str,
        /// Resource id.
        id: String,
    },
}

/// A stored resource that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Resource type.
    pub kind: &'static str,
    /// Resource id.
    pub id: String,
    /// What is wrong with it.
    pub why: String,
}

/// Code systems and value sets and the questions about them.
///
/// Clones share their content. Reading takes no lock of it; [`apply`](Self::apply) swaps a new catalog in
/// whole, so that a question sees all of a batch of changes or nothing of it.
#[derive(Debug, Clone, Default)]
pub struct Terminology {
    catalog: Arc<ArcSwap<Catalog>>,
    overlays: Arc<Overlays>,
}

impl Terminology {
    /// Takes in a batch of changes, all at once.
    ///
    /// A resource that cannot be read is kept with its reason: it is reported by
    /// [`problems`](Self::problems) and when it is used, and it never stops the batch. Only the
    /// head of a resource is read here; the rest is compiled when it is first used. Each call copies
    /// the index of ids and URLs, so give many changes as one batch.
    pub fn apply(&self, changes: impl IntoIterator<Item = Change>) {
        let changes: Vec<_> = changes.into_iter().collect();
        // Run again if another batch came between: `rcu` loses none.
        self.catalog.rcu(|catalog| catalog.with(changes.iter().cloned()));
        self.overlays.forget_catalogs();
    }

    /// The catalog as it is now.
    fn now(&self) -> Guard<Arc<Catalog>> {
        let catalog = self.catalog.load();
        if !catalog.is_stale() {
            return catalog;
        }
        self.catalog.rcu(|catalog| catalog.refreshed());
        self.catalog.load()
    }

    /// `ValueSet/$validate-code`.
    ///
    /// # Errors
    /// When the question cannot be judged; a code that is not valid is an answer with
    /// `result=false`, not an error.
    pub fn validate_code(&self, level: Level<'_>, input: Input<'_>) -> Result<Parameters, TxError> {
        self.with_overlay(input, |catalog, budget| validate::answer(catalog, level, input, budget))
    }

    /// `CodeSystem/$validate-code`.
    ///
    /// # Errors
    /// When the question cannot be judged; a code that is not valid is an answer with
    /// `result=false`, not an error.
    pub fn validate_code_in_system(&self, level: Level<'_>, input: Input<'_>) -> Result<Parameters, TxError> {
        self.with_overlay(input, |catalog, budget| {
            validate::answer_code_system(catalog, level, input, budget)
        })
    }

    /// `ValueSet/$batch-validate-code` (HL7's terminology ecosystem).
    ///
    /// # Errors
    /// When there is no question in it; a question that cannot be judged is answered in its place.
    pub fn batch_validate_code(&self, input: Input<'_>) -> Result<Parameters, TxError> {
        self.with_overlay(input, |catalog, budget| validate::answer_batch(catalog, input, budget))
    }

    /// Asks the catalog, with the resources that the request brings along.
    fn with_overlay<T>(
        &self,
        input: Input<'_>,
        ask: impl FnOnce(&Catalog, &Budget<'_>) -> Result<T, TxError>,
    ) -> Result<T, TxError> {
        let catalog = self.now();
        let full = Budget::default();
        let budget = input.own_budget().unwrap_or(&full);
        match self.overlays.over(&catalog, input, budget)? {
            Some(overlay) => {
                let answer = ask(&overlay.catalog, budget);
                self.overlays.weigh(&overlay);
                answer
            }
            None => ask(&catalog, budget),
        }
    }

    /// Is a code in the value set of this canonical URL? The question inside of `$validate-code`, with nothing judged
    /// but membership.
    ///
    /// # Errors
    /// When the value set is unknown or cannot be used.
    pub fn has_member(&self, value_set: &str, system: &str, code: &str) -> Result<bool, TxError> {
        let catalog = self.now();
        let budget = &Budget::default();
        let search = Search::new(&catalog, Asked { system, version: None, code }, Pins::NONE, true, budget);
        search.look_ahead();
        let (url, version) = version::split(value_set);
        let unknown = || TxError::UnknownValueSet { url: value_set.to_owned(), ecosystem: false };
        let set = catalog.value_set(url, version, budget)?.ok_or_else(unknown)?;
        imports::check(&catalog, Home::own(set), Pins::NONE, false, budget)?;
        search.is_member(Home::own(set))
    }

    /// `CodeSystem/$subsumes`: a Parameters resource with the one parameter `outcome`.
    ///
    /// # Errors
    /// When the relationship cannot be determined.
    pub fn subsumes(&self, level: Level<'_>, input: Input<'_>) -> Result<Parameters, TxError> {
        self.with_overlay(input, |catalog, budget| subsumes::answer(catalog, level, input, budget))
    }

    /// `CodeSystem/$lookup`: what is known about one concept.
    ///
    /// # Errors
    /// When the concept or its system is not known, or a parameter cannot be used.
    pub fn lookup(&self, input: Input<'_>) -> Result<Parameters, TxError> {
        self.with_overlay(input, |catalog, budget| lookup::answer(catalog, input, budget))
    }

    /// `ValueSet/$expand`: a ValueSet whose `expansion` holds the codes, or a page of them. `now` is
    /// the time of the expansion as FHIR writes it.
    ///
    /// # Errors
    /// When the value set cannot be expanded, or has more codes than [`expand::LIMIT`] to show.
    pub fn expand(&self, level: Level<'_>, input: Input<'_>, now: &str) -> Result<Box<RawValue>, TxError> {
        self.with_overlay(input, |catalog, budget| expand::answer(catalog, level, input, now, budget))
    }

    /// The index of the CodeSystem with this id, made now where it was not made yet. `None` where there is no such
    /// CodeSystem or it is broken, which [`problems`](Self::problems) tells.
    pub fn index(&self, id: &str) -> Option<Index> {
        self.catalog.load().index(id)
    }

    /// How many CodeSystem resources are held, broken ones included.
    pub fn code_system_count(&self) -> usize {
        self.catalog.load().code_system_count()
    }

    /// How many ValueSet resources are held, broken ones included.
    pub fn value_set_count(&self) -> usize {
        self.catalog.load().value_set_count()
    }

    /// Canonical URL and version of each readable code system, sorted: what
    /// `TerminologyCapabilities.codeSystem` lists.
    pub fn code_systems(&self) -> Vec<(String, Option<String>)> {
        self.catalog.load().code_systems()
    }

    /// The versions of each code system by its canonical URL, the one that is used where none is
    /// named first: what `TerminologyCapabilities.codeSystem` tells.
    pub fn code_systems_by_url(&self) -> BTreeMap<String, Vec<Option<String>>> {
        self.catalog.load().code_systems_by_url()
    }

    /// The stored resources that are known to be unusable, by type and id. What a resource holds
    /// beyond its head is judged when it is first used.
    pub fn problems(&self) -> Vec<Problem> {
        self.catalog.load().problems()
    }
}
