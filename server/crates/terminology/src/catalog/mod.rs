//! The stored resources, by id and by canonical URL. A catalog is immutable. Each batch of changes creates a
//! new one, which shares the unchanged resources. The catalog of a request with resources of its own has
//! these in a layer above the stored ones.

mod append_cache;
pub(crate) mod built_in;
mod change;
mod compiled_resource;
mod element_bindings;
mod lru_cache;
pub(crate) mod overlay;
mod preferred_versions;
mod resources_by_url;
mod stored_resource;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use self::append_cache::AppendCache;
use self::change::release_key;
pub use self::change::{ResourceProblem, TerminologyChange, pins_version, resource_faults};
pub(crate) use self::compiled_resource::CompiledResource;
use self::element_bindings::ElementBindings;
pub use self::preferred_versions::PreferredVersions;
use self::resources_by_url::{ResourcesByUrl, existed_on, is_supplement, preferred, reason};
pub(crate) use self::stored_resource::{BYTES_PER_STEP, StoredResource, TxResource};
use crate::code_system::{CodeSystem, CodeSystemIndex};
use crate::concept_map::ConceptMap;
use crate::expression::{self, ExpressionFault};
use crate::grammar::CodeGrammar;
use crate::model::editions::{EditionRelease, preference_of};
use crate::model::error::malformed;
use crate::model::known_systems::SNOMED_CT;
use crate::model::resource_json::{ContentMode, ResourceHeader};
use crate::model::{Budget, TxError, Unprocessable, canonical};
use crate::value_set::{ValueSet, implicit};

/// Maximum number of implicit value sets that are cached.
const IMPLICIT_KEPT: usize = 1_000;

/// The use of SNOMED CT's concept model in the validation of expressions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConceptModelMode {
    /// Expressions are not checked.
    Off,
    /// A part that the model forbids is a warning.
    #[default]
    Warn,
    /// An expression that the model forbids is not valid.
    Reject,
}

/// An immutable snapshot of the code systems, value sets and StructureDefinitions.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    code_systems: ResourcesByUrl<CodeSystem>,
    value_sets: ResourcesByUrl<ValueSet>,
    definitions: ResourcesByUrl<ElementBindings>,
    concept_maps: ResourcesByUrl<ConceptMap>,
    /// Supplements that apply without being requested, in the order of their ids.
    language_packs: Arc<[Arc<StoredResource<CodeSystem>>]>,
    /// Cached codes of grammars, shared by successive catalogs.
    built_in: Arc<built_in::GrammarCodeCache>,
    /// Implicit value sets. Their compiled form does not depend on the catalog, but their caches do, so each
    /// catalog has its own.
    implicit: AppendCache<ValueSet, IMPLICIT_KEPT>,
    preferred_versions: Arc<PreferredVersions>,
    concept_model: ConceptModelMode,
    /// The catalog of the stored resources, if this one contains those of a request.
    base: Option<Arc<Self>>,
}

impl Clone for Catalog {
    fn clone(&self) -> Self {
        Self {
            code_systems: self.code_systems.clone(),
            value_sets: self.value_sets.clone(),
            definitions: self.definitions.clone(),
            concept_maps: self.concept_maps.clone(),
            language_packs: Arc::clone(&self.language_packs),
            built_in: Arc::clone(&self.built_in),
            implicit: AppendCache::default(),
            preferred_versions: Arc::clone(&self.preferred_versions),
            concept_model: self.concept_model,
            base: self.base.clone(),
        }
    }
}

impl Catalog {
    /// A copy of this catalog with a batch of changes applied.
    pub(crate) fn with_changes(&self, changes: impl IntoIterator<Item = TerminologyChange>) -> Self {
        let mut next = self.clone();
        for change in changes {
            match change {
                TerminologyChange::Put { kind: CodeSystem::KIND, id, bytes } => {
                    next.code_systems.put(Arc::new(StoredResource::new(id, bytes)));
                }
                TerminologyChange::Put { kind: ValueSet::KIND, id, bytes } => {
                    next.value_sets.put(Arc::new(StoredResource::new(id, bytes)));
                }
                TerminologyChange::Index { id, index } => {
                    let header = index.0.header.clone();
                    next.code_systems.put(Arc::new(StoredResource::from_compiled(id, header, index.0)));
                }
                TerminologyChange::Delete { kind: CodeSystem::KIND, id } => next.code_systems.remove(&id),
                TerminologyChange::Put { kind: ElementBindings::KIND, id, bytes } => {
                    let definition = StoredResource::new(id, bytes);
                    // Compiled immediately, because the result is small. An invalid definition has no
                    // bindings.
                    drop(definition.compiled_arc());
                    next.definitions.put(Arc::new(definition));
                }
                TerminologyChange::Put { kind: ConceptMap::KIND, id, bytes } => {
                    next.concept_maps.put(Arc::new(StoredResource::new(id, bytes)));
                }
                TerminologyChange::Delete { kind: ConceptMap::KIND, id } => next.concept_maps.remove(&id),
                TerminologyChange::Delete { kind: ValueSet::KIND, id } => next.value_sets.remove(&id),
                TerminologyChange::Delete { kind: ElementBindings::KIND, id } => next.definitions.remove(&id),
                TerminologyChange::Put { .. } | TerminologyChange::Delete { .. } => {}
            }
        }
        next.collect_language_packs();
        next
    }

    /// A copy of this catalog that prefers these versions.
    pub(crate) fn with_preferred_versions(&self, preferred_versions: Arc<PreferredVersions>) -> Self {
        Self { preferred_versions, ..self.clone() }
    }

    /// A copy of this catalog with another mode of the concept model.
    pub(crate) fn with_concept_model(&self, concept_model: ConceptModelMode) -> Self {
        Self { concept_model, ..self.clone() }
    }

    /// The use of SNOMED CT's concept model in the validation of expressions.
    pub(crate) fn concept_model(&self) -> ConceptModelMode {
        self.base.as_ref().map_or(self.concept_model, |base| base.concept_model)
    }

    /// A catalog that also contains the resources of a request, which take precedence. Among resources of
    /// equal rank, the last one is preferred. Nothing is copied, so the cost does not depend on the stored
    /// resources.
    pub(crate) fn with_resources(self: &Arc<Self>, resources: impl IntoIterator<Item = TxResource>) -> Self {
        let built_in = Arc::clone(&self.built_in);
        let mut next = Self { built_in, base: Some(Arc::clone(self)), ..Self::default() };
        for resource in resources {
            match resource {
                TxResource::CodeSystem(resource) => next.code_systems.put(resource),
                TxResource::ValueSet(resource) => next.value_sets.put(resource),
                TxResource::Definition(resource) => next.definitions.put(resource),
                TxResource::ConceptMap(resource) => next.concept_maps.put(resource),
            }
        }
        next.collect_language_packs();
        next
    }

    fn collect_language_packs(&mut self) {
        let is_pack = |resource: &&Arc<StoredResource<CodeSystem>>| {
            resource
                .header()
                .is_some_and(|header| is_supplement(header) && header.extensions.is_language_pack)
        };
        let mut packs: Vec<_> = self.code_systems.by_id.values().filter(is_pack).cloned().collect();
        packs.sort_by(|a, b| a.id.cmp(&b.id));
        self.language_packs = packs.into();
    }

    /// Returns whether this catalog contains the resources of a request above this one.
    pub(crate) fn is_above(&self, base: &Arc<Self>) -> bool {
        self.base.as_ref().is_some_and(|own| Arc::ptr_eq(own, base))
    }

    /// This catalog and then the one below it, if there is any.
    fn layers(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |layer| layer.base.as_deref())
    }

    /// The preferred resource of a layer that matches a version or pattern: of stored resources the one that
    /// the operator prefers, if the request states no version.
    fn find_in_layer<'a, T: CompiledResource>(
        &'a self,
        resources: &'a ResourcesByUrl<T>,
        url: &str,
        version: Option<&str>,
    ) -> Option<&'a StoredResource<T>> {
        let is_unversioned = version.is_none() && self.base.is_none();
        let by_operator = is_unversioned
            .then(|| resources.find(url, Some(self.preferred_versions.version_of(url)?)))
            .flatten();
        let resource = by_operator.or_else(|| resources.find(url, version))?;
        if version.is_none() && tracing::enabled!(tracing::Level::DEBUG) {
            let others = || resources.versions(url).iter().filter(|other| !std::ptr::eq(&***other, resource));
            let reason = match (others().next().map(|other| (resource.header(), other.header())), &self.base)
            {
                _ if by_operator.is_some() => "the configuration prefers it",
                (Some((Some(header), Some(other))), _) => reason(header, other),
                (_, Some(_)) => "the request contains it",
                _ => return Some(resource),
            };
            let version = resource.header().and_then(|header| header.version.as_deref()).unwrap_or_default();
            tracing::debug!(resource = T::KIND, url, version, reason, "chose a version");
        }
        Some(resource)
    }

    /// The index of the code system with an id, if there is one and it is valid.
    pub(crate) fn index(&self, id: &str) -> Option<CodeSystemIndex> {
        self.code_systems.by_id.get(id)?.compiled_arc().ok().cloned().map(CodeSystemIndex)
    }

    /// The code system with an id.
    ///
    /// # Errors
    /// [`TxError`] if the code system does not exist or is invalid.
    pub(crate) fn code_system_by_id(&self, id: &str, budget: &Budget<'_>) -> Result<&CodeSystem, TxError> {
        // The resource that describes a release has the same id, and no concepts.
        if let Some(release) = self.layers().find_map(|layer| layer.code_systems.by_id.get(&release_key(id)))
        {
            return Ok(release.get(budget)?);
        }
        find_by_id(self.layers().map(|layer| &layer.code_systems), id, budget)
    }

    /// The value set with an id.
    ///
    /// # Errors
    /// [`TxError`] if the value set does not exist or is invalid.
    pub(crate) fn value_set_by_id(&self, id: &str, budget: &Budget<'_>) -> Result<&ValueSet, TxError> {
        find_by_id(self.layers().map(|layer| &layer.value_sets), id, budget)
    }

    /// The preferred code system that matches a version or pattern. Supplements are ignored. A built-in
    /// system takes precedence over a stored one that is not complete. For a grammar, the result is a code
    /// system without concepts: if the code is known, use [`code_system_for`](Self::code_system_for).
    pub(crate) fn code_system(
        &self,
        url: &str,
        version: Option<&str>,
    ) -> Option<&StoredResource<CodeSystem>> {
        self.with_built_in(url, version, || built_in::system(url))
    }

    /// The preferred code system for a code. For a grammar or an expression, the result contains the code if
    /// the code is valid.
    ///
    /// # Errors
    /// [`Unprocessable`] if the budget is spent before an expression is classified.
    pub(crate) fn code_system_for(
        &self,
        url: &str,
        version: Option<&str>,
        code: &str,
        budget: &Budget<'_>,
    ) -> Result<Option<&StoredResource<CodeSystem>>, Unprocessable> {
        let system_result = self.with_built_in(url, version, || match CodeGrammar::for_system(url) {
            Some(grammar) => self.built_in.concept(grammar, code).or_else(|| built_in::system(url)),
            None => built_in::system(url),
        });
        self.with_expression(system_result, url, code, budget)
    }

    /// A code system, or the excerpt of it that contains an expression if the code is a valid one.
    fn with_expression<'a>(
        &'a self,
        system: Option<&'a StoredResource<CodeSystem>>,
        url: &str,
        code: &str,
        budget: &Budget<'_>,
    ) -> Result<Option<&'a StoredResource<CodeSystem>>, Unprocessable> {
        let Some(code_system) = system.filter(|_| expression::is_expression(url, code)) else {
            return Ok(system);
        };
        match self.built_in.expression(code_system.get(budget)?, code, budget) {
            Err(ExpressionFault::Exhausted(exhausted)) => Err(exhausted.into()),
            excerpt => Ok(Some(excerpt.unwrap_or(code_system))),
        }
    }

    /// The excerpt of a code system that contains an expression; `None` if the code is not an expression.
    ///
    /// # Errors
    /// [`ExpressionFault`] if the expression is not valid in this code system, or the budget is spent.
    pub(crate) fn expression_in(
        &self,
        system: &CodeSystem,
        code: &str,
        budget: &Budget<'_>,
    ) -> Result<Option<&CodeSystem>, ExpressionFault> {
        // A listed expression already has an excerpt of its own.
        if system.is_excerpt() || !expression::is_expression(&system.url, code) {
            return Ok(None);
        }
        let resource = self.built_in.expression(system, code, budget)?;
        Ok(Some(resource.get(budget).expect("an excerpt is compiled")))
    }

    /// The reason why a code of this system is not a valid expression, if it is meant as one.
    ///
    /// # Errors
    /// [`Unprocessable`] if the budget is spent.
    pub(crate) fn expression_fault(
        &self,
        system: &CodeSystem,
        code: &str,
        budget: &Budget<'_>,
    ) -> Result<Option<String>, Unprocessable> {
        match self.expression_in(system, code, budget) {
            Err(ExpressionFault::Exhausted(exhausted)) => Err(exhausted.into()),
            excerpt => Ok(excerpt.err().map(|fault| fault.to_string())),
        }
    }

    /// Names the newest release of another edition of SNOMED CT that has a code, and how to use it.
    ///
    /// # Errors
    /// [`Unprocessable`] if the budget is spent.
    pub(crate) fn edition_with(
        &self,
        system: &CodeSystem,
        code: &str,
        budget: &Budget<'_>,
    ) -> Result<Option<String>, Unprocessable> {
        if system.url != SNOMED_CT {
            return Ok(None);
        }
        let own = system.version.as_deref();
        let versions = self.layers().flat_map(|layer| layer.code_systems.versions(SNOMED_CT));
        let mut releases: Vec<_> = versions
            .filter_map(|resource| Some((EditionRelease::of(resource.header()?)?, resource)))
            .collect();
        releases.sort_by(|(a, _), (b, _)| b.date.cmp(a.date));
        for (EditionRelease { edition, date, .. }, resource) in releases {
            let version = format!("{edition}/version/{date}");
            if own != Some(&version) && resource.get(budget)?.find(code).is_some() {
                let preference = preference_of(edition);
                return Ok(Some(format!(
                    "it is in {version}; name this version, or make it the default by {preference}"
                )));
            }
        }
        Ok(None)
    }

    /// Returns whether a grammar alone defines the codes of a system, so that the codes cannot be listed.
    pub(crate) fn is_endless(&self, url: &str) -> bool {
        // The cheap test comes first, because every `$subsumes` request runs it.
        CodeGrammar::for_system(url).is_some()
            && self.code_system(url, None).map(std::ptr::from_ref)
                == built_in::system(url).map(std::ptr::from_ref)
    }

    fn with_built_in<'a>(
        &'a self,
        url: &str,
        version: Option<&str>,
        built_in: impl FnOnce() -> Option<&'a StoredResource<CodeSystem>>,
    ) -> Option<&'a StoredResource<CodeSystem>> {
        let own_system = self.stored_code_system(url, version);
        let complete = |r: &&StoredResource<CodeSystem>| {
            r.header().is_some_and(|h| h.content.is_none_or(|c| c == ContentMode::Complete))
        };
        if own_system.as_ref().is_some_and(complete) {
            return own_system;
        }
        let Some(requested) = version.filter(|requested| *requested != "*") else {
            return built_in().or(own_system);
        };
        // Most built-in systems have no version, so a requested version is matched against the stored
        // resource.
        let has_version = |r: &&StoredResource<CodeSystem>| {
            r.header()
                .and_then(|h| h.version.as_deref())
                .is_some_and(|have| canonical::matches(requested, have))
        };
        match own_system {
            Some(own) => Some(built_in().unwrap_or(own)),
            None => built_in().filter(has_version),
        }
    }

    /// The preferred code system that matches a version or pattern, without those that are built in. One of
    /// the request takes precedence over a stored one, unless it contains no codes to validate.
    fn stored_code_system(&self, url: &str, version: Option<&str>) -> Option<&StoredResource<CodeSystem>> {
        let mut without_codes = None;
        for layer in self.layers() {
            let Some(candidate) = layer.find_in_layer(&layer.code_systems, url, version) else { continue };
            match candidate.header().and_then(|header| header.content).unwrap_or_default() {
                ContentMode::Complete | ContentMode::Fragment => return Some(candidate),
                ContentMode::Example | ContentMode::NotPresent => {
                    without_codes.get_or_insert(candidate);
                }
                ContentMode::Supplement => {}
            }
        }
        without_codes
    }

    /// Returns whether [`refreshed`](Self::refreshed) should be called.
    pub(crate) fn is_stale(&self) -> bool {
        self.built_in.is_full() || self.implicit.is_full()
    }

    /// A copy of this catalog with empty caches for codes of grammars and implicit value sets.
    pub(crate) fn refreshed(&self) -> Self {
        Self { built_in: Arc::default(), ..self.clone() }
    }

    /// The code system that was preferred for a code on a day, or the current one if `day` is `None`.
    /// Built-in systems exist on every day.
    ///
    /// # Errors
    /// [`Unprocessable`] if the budget is spent before an expression is classified.
    pub(crate) fn code_system_of(
        &self,
        url: &str,
        day: Option<&str>,
        code: &str,
        budget: &Budget<'_>,
    ) -> Result<Option<&StoredResource<CodeSystem>>, Unprocessable> {
        let Some(day) = day else { return self.code_system_for(url, None, code, budget) };
        match self.code_system_on(url, day) {
            None if built_in::system(url).is_some() => self.code_system_for(url, None, code, budget),
            stored => self.with_expression(stored, url, code, budget),
        }
    }

    /// The stored code system that was preferred on a day.
    pub(crate) fn code_system_on(&self, url: &str, day: &str) -> Option<&StoredResource<CodeSystem>> {
        self.layers().find_map(|layer| {
            let versions = layer.code_systems.versions(url).iter().map(|resource| &**resource);
            preferred(
                versions.filter(|r| r.header().is_some_and(|h| !is_supplement(h) && existed_on(h, day))),
            )
        })
    }

    /// The value set that was preferred on a day, or the current one if `day` is `None`.
    ///
    /// # Errors
    /// [`TxError`] if the value set is invalid.
    pub(crate) fn value_set_of(
        &self,
        url: &str,
        day: Option<&str>,
        budget: &Budget<'_>,
    ) -> Result<Option<&ValueSet>, TxError> {
        let Some(day) = day else { return self.value_set(url, None, budget) };
        let on_day = self.layers().find_map(|layer| {
            let versions = layer.value_sets.versions(url).iter().map(|resource| &**resource);
            preferred(versions.filter(|r| r.header().is_some_and(|h| existed_on(h, day))))
        });
        match on_day {
            Some(resource) => Ok(Some(resource.get(budget)?)),
            None => self.value_set(url, None, budget),
        }
    }

    /// The supplement with this canonical URL.
    pub(crate) fn supplement(&self, canonical: &str) -> Option<&StoredResource<CodeSystem>> {
        let (url, version) = canonical::split(canonical);
        let mut supplements = self.layers().filter_map(|layer| layer.code_systems.find(url, version));
        supplements.find(|r| r.header().is_some_and(is_supplement))
    }

    /// The supplements that apply without being requested.
    pub(crate) fn language_packs(&self) -> impl Iterator<Item = &StoredResource<CodeSystem>> {
        self.layers().flat_map(|layer| layer.language_packs.iter().map(|pack| &**pack))
    }

    /// The stored versions of a code system, oldest first.
    pub(crate) fn code_system_versions(&self, url: &str) -> Vec<String> {
        let headers =
            self.layers().flat_map(|layer| layer.code_systems.versions(url)).filter_map(|r| r.header());
        let mut versions: Vec<_> =
            headers.filter(|h| !is_supplement(h)).filter_map(|h| h.version.clone()).collect();
        versions.sort_by(|a, b| canonical::compare(a, b));
        versions.dedup();
        versions
    }

    /// The value set with this canonical URL: a stored one, the one that a code system names in
    /// `CodeSystem.valueSet`, or one that the URL itself defines; `None` if no such value set exists.
    ///
    /// # Errors
    /// [`TxError`] if the value set is invalid.
    pub(crate) fn value_set(
        &self,
        url: &str,
        version: Option<&str>,
        budget: &Budget<'_>,
    ) -> Result<Option<&ValueSet>, TxError> {
        let mut layers = self.layers();
        if let Some(resource) = layers.find_map(|layer| layer.find_in_layer(&layer.value_sets, url, version))
        {
            return Ok(Some(resource.get(budget)?));
        }
        if let Some(set) = self.all_codes_value_set(url, version, budget)? {
            return Ok(Some(set));
        }
        let set = self.implicit.get(url).or_else(|| {
            let set = implicit::implicit_value_set(url)?;
            Some(self.implicit.insert(url.to_owned(), set, 256 + 64 * url.len()))
        });
        let fits = |set: &&ValueSet| match (version, set.version.as_deref()) {
            (Some(requested), Some(have)) => canonical::matches(requested, have),
            _ => true,
        };
        Ok(set.filter(fits))
    }

    /// The value set of all codes of the preferred code system that names this URL in `CodeSystem.valueSet`.
    fn all_codes_value_set(
        &self,
        url: &str,
        version: Option<&str>,
        budget: &Budget<'_>,
    ) -> Result<Option<&ValueSet>, Unprocessable> {
        let matches = |header: &ResourceHeader| {
            let have = header.version.as_deref();
            !is_supplement(header)
                && version
                    .is_none_or(|requested| have.is_some_and(|have| canonical::matches(requested, have)))
        };
        for layer in self.layers() {
            let Some(all) = layer.code_systems.by_value_set.get(url) else { continue };
            let systems = all.iter().map(|all| &*all.resource).filter(|r| r.header().is_some_and(matches));
            if let Some(system) = preferred(systems) {
                system.get(budget)?;
                let own = all.iter().find(|all| std::ptr::eq(&*all.resource, system));
                return Ok(own.map(|all| &*all.set));
            }
        }
        Ok(None)
    }

    /// The canonical URL of the value set that the element in `context` is bound to: an element of a
    /// StructureDefinition, as `url[|version]#element`.
    ///
    /// # Errors
    /// [`TxError`] if there is no such definition, element or binding, or if the definition is invalid.
    pub(crate) fn bound_value_set(&self, context: &str, budget: &Budget<'_>) -> Result<&str, TxError> {
        let wrong = |reason: String| malformed("context", reason);
        let (canonical, element) = context.split_once('#').ok_or_else(|| {
            wrong(format!("'{context}' names no element; write it as StructureDefinition-URL#element"))
        })?;
        let (url, version) = canonical::split(canonical);
        let definition_of =
            self.layers().find_map(|layer| layer.find_in_layer(&layer.definitions, url, version));
        let definition = definition_of.ok_or_else(|| {
            wrong(format!(
                "the StructureDefinition '{canonical}' is not stored here; send 'url' or 'valueSet'"
            ))
        })?;
        definition.get(budget)?.binding(element).ok_or_else(|| {
            wrong(format!("'{canonical}' has no element '{element}' that is bound to a value set"))
        })
    }

    /// The concept map with this canonical URL.
    ///
    /// # Errors
    /// [`Unprocessable`] if the concept map is invalid.
    pub(crate) fn concept_map(
        &self,
        url: &str,
        version: Option<&str>,
        budget: &Budget<'_>,
    ) -> Result<Option<&ConceptMap>, Unprocessable> {
        let mut layers = self.layers();
        let resource = layers.find_map(|layer| layer.find_in_layer(&layer.concept_maps, url, version));
        resource.map(|map| map.get(budget)).transpose()
    }

    /// The preferred version of every concept map that is not retired, in the order of their URLs, those of
    /// the request first.
    ///
    /// # Errors
    /// [`Unprocessable`] if the budget is spent. An invalid concept map is left out.
    pub(crate) fn concept_maps(&self, budget: &Budget<'_>) -> Result<Vec<&ConceptMap>, Unprocessable> {
        let mut maps: Vec<&ConceptMap> = Vec::new();
        for layer in self.layers() {
            let mut urls: Vec<&String> = layer.concept_maps.by_url.keys().collect();
            urls.sort_unstable();
            budget.spend(urls.len())?;
            for url in urls {
                let named_map = layer.find_in_layer(&layer.concept_maps, url, None);
                let status = named_map.and_then(|resource| resource.header()?.status.as_deref());
                match layer.concept_map(url, None, budget) {
                    _ if status == Some("retired") => {}
                    Ok(Some(map)) if maps.iter().all(|other| other.url != map.url) => maps.push(map),
                    Err(Unprocessable::Broken { .. }) | Ok(_) => {}
                    Err(exhausted) => return Err(exhausted),
                }
            }
        }
        Ok(maps)
    }

    /// The concept map with an id.
    ///
    /// # Errors
    /// [`TxError`] if the concept map does not exist or is invalid.
    pub(crate) fn concept_map_by_id(&self, id: &str, budget: &Budget<'_>) -> Result<&ConceptMap, TxError> {
        find_by_id(self.layers().map(|layer| &layer.concept_maps), id, budget)
    }

    pub(crate) fn code_system_count(&self) -> usize {
        self.code_systems.by_id.len()
    }

    pub(crate) fn value_set_count(&self) -> usize {
        self.value_sets.by_id.len()
    }

    /// Returns URL and version of each readable code system, sorted.
    pub(crate) fn code_systems(&self) -> Vec<(String, Option<String>)> {
        let headers = self.code_systems.by_id.values().filter_map(|r| r.header());
        let mut list: Vec<_> = headers
            .filter(|h| !is_supplement(h))
            .filter_map(|h| Some((h.url.clone()?, h.version.clone())))
            .collect();
        list.sort();
        list.dedup();
        list
    }

    /// The versions of each code system, the default one first.
    pub(crate) fn code_systems_by_url(&self) -> BTreeMap<String, Vec<Option<String>>> {
        let versions = |url: &String, list: &[Arc<StoredResource<CodeSystem>>]| {
            let headers = list.iter().filter_map(|r| r.header()).filter(|h| !is_supplement(h));
            let mut versions: Vec<_> = headers.map(|header| header.version.clone()).collect();
            let default = self.find_in_layer(&self.code_systems, url, None).and_then(|r| r.header());
            let is_default = |version: &Option<String>| default.is_some_and(|h| h.version == *version);
            versions.sort_by(|a, b| {
                let newest_first =
                    || canonical::compare(b.as_deref().unwrap_or(""), a.as_deref().unwrap_or(""));
                is_default(b).cmp(&is_default(a)).then_with(newest_first)
            });
            versions.dedup();
            versions
        };
        let of_store = self.code_systems.by_url.iter().map(|(url, list)| (url.clone(), versions(url, list)));
        let mut all: BTreeMap<_, _> = of_store.filter(|(_, versions)| !versions.is_empty()).collect();
        for url in built_in::URLS {
            let built_in = built_in::system(url).map(std::ptr::from_ref);
            if self.code_system(url, None).map(std::ptr::from_ref) == built_in {
                let header = built_in::system(url).and_then(|system| system.header());
                let version = header.and_then(|header| header.version.clone());
                all.entry((*url).to_owned()).or_default().insert(0, version);
            }
        }
        all
    }

    /// Every resource that is known to be invalid, sorted by type and id.
    pub(crate) fn problems(&self) -> Vec<ResourceProblem> {
        let code_systems = self.code_systems.by_id.values().filter_map(|r| r.problem());
        let value_sets = self.value_sets.by_id.values().filter_map(|r| r.problem());
        let definitions = self.definitions.by_id.values().filter_map(|r| r.problem());
        let concept_maps = self.concept_maps.by_id.values().filter_map(|r| r.problem());
        let mut list: Vec<_> =
            code_systems.chain(value_sets).chain(definitions).chain(concept_maps).collect();
        list.sort_by(|a, b| (a.kind, &a.id).cmp(&(b.kind, &b.id)));
        list
    }
}

fn find_by_id<'a, T: CompiledResource + 'a>(
    mut layers: impl Iterator<Item = &'a ResourcesByUrl<T>>,
    id: &str,
    budget: &Budget<'_>,
) -> Result<&'a T, TxError> {
    let unknown = || TxError::UnknownInstance { kind: T::KIND, id: id.to_owned() };
    Ok(layers.find_map(|layer| layer.by_id.get(id)).ok_or_else(unknown)?.get(budget)?)
}
