//! The search for one code in a value set, include by include. It does not compute the set of all members.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;

use hashbrown::DefaultHashBuilder;
use smallvec::{SmallVec, smallvec};

use super::imports::{ValueSetScope, resolve_import, version_day};
use super::version_pins::VersionPins;
use crate::catalog::{Catalog, StoredResource};
use crate::code_system::{CodeSystem, LocatedConcept};
use crate::expression;
use crate::model::filter_fault::FilterFault;
use crate::model::resource_json::ContentMode;
use crate::model::{Budget, TxError, Unprocessable, canonical};
use crate::value_set::{CodeList, IncludeRule, ListedCode, ValueSet, ValueSetCompose};

/// Number of matches that are compared in one step.
const COMPARED_PER_STEP: usize = 16;

#[derive(Debug, Clone, Copy)]
pub(crate) struct CodeQuery<'q> {
    pub(crate) system: &'q str,
    pub(crate) version: Option<&'q str>,
    pub(crate) code: &'q str,
}

/// One include that contains the code.
#[derive(Debug, Clone)]
pub(crate) struct CodeMatch<'a> {
    /// The code system; `None` if it is not stored and the value set lists the code.
    pub(crate) system: Option<&'a CodeSystem>,
    /// The concept; `None` if the code system is not stored or is a fragment without the code.
    pub(crate) concept: Option<u32>,
    /// The entry in the list of the value set, if there is one.
    pub(crate) listed: Option<&'a ListedCode>,
    /// The value set of the include: the requested one or one of its imports.
    pub(crate) set: &'a ValueSet,
    /// Version of the code system in the include.
    pub(crate) written_version: Option<&'a str>,
    /// Whether the include contains all codes of the system.
    pub(crate) is_of_all: bool,
    /// Imported value sets between the requested one and the one with the include.
    pub(crate) via: Vec<&'a ValueSet>,
}

impl CodeMatch<'_> {
    /// The version of the code system.
    pub(crate) fn version(&self) -> Option<&str> {
        self.system.and_then(|system| system.version.as_deref())
    }

    /// Returns whether both matches are from the same value set and the same version of the code system.
    fn is_same(&self, other: &Self) -> bool {
        let system = |member: &Self| member.system.map(std::ptr::from_ref);
        std::ptr::eq(self.set, other.set) && system(self) == system(other)
    }

    fn is_inactive(&self) -> bool {
        matches!((self.system, self.concept), (Some(system), Some(concept_number)) if system.is_inactive(concept_number))
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct SearchResult<'a> {
    /// The includes that contain the code. If there are none, it is not a member.
    pub(crate) members: Vec<CodeMatch<'a>>,
    /// Matches that are not members only because the concept is inactive.
    pub(crate) inactive: Vec<CodeMatch<'a>>,
    /// Code systems and versions that are needed for an answer but are not stored.
    pub(crate) unknown: Vec<(String, Option<String>)>,
    /// The first fault of an include that could not be evaluated, such as a filter with a concept that the
    /// stored edition does not have. There is none if no include contains the code: then the fault is an
    /// error.
    pub(crate) fault: Option<Box<FilterFault>>,
    /// Whether an include refers to exactly the requested version, so that matches in other versions are
    /// ignored.
    exact: bool,
}

impl<'a> SearchResult<'a> {
    /// A result that consists of this match, or of none.
    pub(crate) fn from_match(member: Option<CodeMatch<'a>>) -> Self {
        Self { members: member.into_iter().collect(), ..Self::default() }
    }

    fn is_empty(&self) -> bool {
        self.members.is_empty() && self.inactive.is_empty() && self.unknown.is_empty()
    }

    /// The number of steps for moving or copying the result.
    fn len(&self) -> usize {
        let ways =
            |members: &[CodeMatch<'_>]| members.iter().map(|member| 1 + member.via.len()).sum::<usize>();
        ways(&self.members) + ways(&self.inactive) + self.unknown.len()
    }

    /// Adds the result of another include. An include that several import paths reach is one match.
    fn merge(&mut self, other: Self, budget: &Budget<'_>) -> Result<(), TxError> {
        let here = self.members.len() + self.inactive.len() + self.unknown.len();
        budget.spend(1 + other.len() + other.len() * here / COMPARED_PER_STEP)?;
        for (mine, theirs) in [(&mut self.members, other.members), (&mut self.inactive, other.inactive)] {
            for member in theirs {
                if !mine.iter().any(|candidate| candidate.is_same(&member)) {
                    mine.push(member);
                }
            }
        }
        for unknown in other.unknown {
            if !self.unknown.contains(&unknown) {
                self.unknown.push(unknown);
            }
        }
        self.exact |= other.exact;
        self.fault = self.fault.take().or(other.fault);
        Ok(())
    }
}

#[derive(Debug)]
pub(crate) struct CodeSearch<'a, 'q> {
    catalog: &'a Catalog,
    query: CodeQuery<'q>,
    pins: &'q VersionPins,
    trust_lists: bool,
    budget: &'q Budget<'q>,
    /// Results of imported value sets. Several import paths may lead to the same value set.
    imported: RefCell<HashMap<*const ValueSet, SearchResult<'a>, DefaultHashBuilder>>,
    /// A search for the code in any version of its code system, shared by the excludes of all value sets.
    any_version: OnceCell<Box<CodeSearch<'a, 'q>>>,
    default_version: OnceCell<Option<&'a StoredResource<CodeSystem>>>,
    /// The code system of the last lookup, and its result.
    located: Cell<Option<(&'a CodeSystem, Option<LocatedConcept>)>>,
}

impl<'a, 'q> CodeSearch<'a, 'q> {
    /// A search for a code. With `trust_lists`, a listed code of a code system that is not stored is a
    /// member.
    pub(crate) fn new(
        catalog: &'a Catalog,
        query: CodeQuery<'q>,
        pins: &'q VersionPins,
        trust_lists: bool,
        budget: &'q Budget<'q>,
    ) -> Self {
        let (imported, default_version, located) = (RefCell::default(), OnceCell::new(), Cell::new(None));
        let any_version = OnceCell::new();
        Self { catalog, query, pins, trust_lists, budget, imported, any_version, default_version, located }
    }

    /// The search for the code in any version of its code system.
    fn any_version_search(&self) -> &Self {
        if self.query.version.is_none() {
            return self;
        }
        self.any_version.get_or_init(|| {
            let query = CodeQuery { version: None, ..self.query };
            Box::new(CodeSearch::new(self.catalog, query, self.pins, self.trust_lists, self.budget))
        })
    }

    /// Looks up the code in the default version of its code system before the value set is known, so that the
    /// memory for both is fetched at the same time.
    pub(crate) fn prefetch(&self) {
        if let Ok(Some(default_version)) = self.default_system()
            && let Ok(system) = default_version.get(self.budget)
        {
            self.locate(system);
        }
    }

    /// The default version of the code system.
    ///
    /// # Errors
    /// [`TxError`] if the budget is spent before an expression is classified.
    fn default_system(&self) -> Result<Option<&'a StoredResource<CodeSystem>>, TxError> {
        if let Some(version) = self.default_version.get() {
            return Ok(*version);
        }
        let CodeQuery { system, code, .. } = self.query;
        let default_version = self.catalog.code_system_for(system, None, code, self.budget)?;
        Ok(*self.default_version.get_or_init(|| default_version))
    }

    /// The concept of the code in a code system.
    fn locate(&self, system: &'a CodeSystem) -> Option<LocatedConcept> {
        match self.located.get() {
            Some((known, concept)) if std::ptr::eq(known, system) => concept,
            _ => {
                let concept = system.locate(self.query.code);
                self.located.set(Some((system, concept)));
                concept
            }
        }
    }

    /// Searches a value set that passed [`check_value_set`](super::imports::check_value_set).
    ///
    /// # Errors
    /// [`TxError`] if a code system that the search needs is invalid, or if a filter does not fit it.
    pub(crate) fn search_value_set(&self, scope: ValueSetScope<'a>) -> Result<SearchResult<'a>, TxError> {
        let set = scope.set;
        if self.quick_answer(&set.compose)? == Some(false) {
            return Ok(SearchResult::default());
        }
        self.budget.set_activity("searching the includes of a value set");
        let mut result = SearchResult::default();
        for include in set.compose.includes_of(self.query.system) {
            match self.include(scope, include, &mut result) {
                // Another include may contain the code.
                Err(TxError::Unprocessable(Unprocessable::Filter(fault))) if fault.is_of_other_version => {
                    result.fault.get_or_insert(fault);
                }
                included => included?,
            }
        }
        if let Some(fault) = result.fault.take_if(|_| result.members.is_empty()) {
            return Err(Unprocessable::Filter(fault).into());
        }
        let is_held = !(result.members.is_empty() && result.inactive.is_empty());
        if is_held && !set.compose.exclude.is_empty() {
            for exclude in set.compose.excludes_of(self.query.system) {
                let mut out = SearchResult::default();
                self.any_version_search().include(scope, exclude, &mut out)?;
                self.budget.spend(result.members.len() * out.members.len())?;
                let same =
                    |a: &CodeMatch<'_>, b: &CodeMatch<'_>| !exclude.own_version || a.version() == b.version();
                let stays = |member: &CodeMatch<'_>| !out.members.iter().any(|other| same(other, member));
                result.members.retain(stays);
                result.inactive.retain(stays);
            }
        }
        if result.exact {
            result.members.retain(|member| member.version() == self.query.version);
        }
        if set.compose.active_only {
            let (inactive, active) = result.members.into_iter().partition(CodeMatch::is_inactive);
            result.members = active;
            result.inactive.extend::<Vec<_>>(inactive);
        }
        Ok(result)
    }

    /// Returns whether the code is in a value set that passed
    /// [`check_value_set`](super::imports::check_value_set).
    ///
    /// # Errors
    /// The same errors as [`search_value_set`](Self::search_value_set).
    pub(crate) fn is_member(&self, scope: ValueSetScope<'a>) -> Result<bool, TxError> {
        match self.quick_answer(&scope.set.compose)? {
            Some(is_in) => Ok(is_in),
            None => Ok(!self.search_value_set(scope)?.members.is_empty()),
        }
    }

    /// The answer for a value set whose includes use only default versions of code systems and filters;
    /// `None` if a full search is needed.
    fn quick_answer(&self, compose: &'a ValueSetCompose) -> Result<Option<bool>, TxError> {
        let mut is_in = false;
        for include in compose.includes_of(self.query.system) {
            self.budget.spend(1)?;
            if !include.value_sets.is_empty() {
                return Ok(None);
            }
            if include.system.as_deref() != Some(self.query.system) {
                continue;
            }
            if include.listed.is_some() || compose.locked_date.is_some() || !self.pins.is_empty() {
                return Ok(None);
            }
            let Some(system) = self.default_system()? else { return Ok(None) };
            let system = system.get(self.budget)?;
            if include
                .version
                .as_deref()
                .is_some_and(|include_version| system.version.as_deref() != Some(include_version))
            {
                return Ok(None);
            }
            // Does not stop at the first include with the code, so that faults of later ones are reported
            // too.
            is_in |= match (system.content, self.locate(system)) {
                (ContentMode::Complete | ContentMode::Fragment, Some(concept)) => {
                    match include.cache.admits(&include.filters, system, concept, self.budget) {
                        Err(Unprocessable::Filter(fault)) if fault.is_of_other_version => return Ok(None),
                        admitted => admitted?,
                    }
                }
                (ContentMode::Complete, None) => false,
                _ => return Ok(None),
            };
        }
        let says_less = compose.active_only || !compose.exclude.is_empty() || self.query.version.is_some();
        Ok(Some(is_in).filter(|is_in| !(*is_in && says_less)))
    }

    fn include(
        &self,
        scope: ValueSetScope<'a>,
        include: &'a IncludeRule,
        result: &mut SearchResult<'a>,
    ) -> Result<(), TxError> {
        self.budget.spend(1)?;
        if include.system.as_deref().is_some_and(|system| system != self.query.system) {
            return Ok(());
        }
        if include.value_sets.is_empty() && result.is_empty() {
            return self.search_system(scope.set, include, result);
        }
        let mut here = SearchResult::default();
        if include.system.is_some() {
            self.search_system(scope.set, include, &mut here)?;
        }
        // A code must satisfy all conditions of an include, as the comment in R4 and the text of R5 say.
        for canonical in &include.value_sets {
            let imported = resolve_import(self.catalog, scope, canonical, self.pins, self.budget)?
                .expect("imports are resolved before the search");
            let mut inner = self.imported(imported)?;
            if inner.members.is_empty() {
                return result.merge(inner, self.budget);
            }
            for member in &mut inner.members {
                member.via.push(imported.set);
            }
            if include.system.is_none() && here.members.is_empty() {
                here = inner;
            }
        }
        result.merge(here, self.budget)
    }

    fn imported(&self, scope: ValueSetScope<'a>) -> Result<SearchResult<'a>, TxError> {
        let key = std::ptr::from_ref(scope.set);
        if let Some(result) = self.imported.borrow().get(&key) {
            self.budget.spend(1 + result.len())?;
            return Ok(result.clone());
        }
        let result = self.search_value_set(scope)?;
        self.imported.borrow_mut().insert(key, result.clone());
        Ok(result)
    }

    /// Searches the codes that the system, codes and filters of an include select.
    fn search_system(
        &self,
        set: &'a ValueSet,
        include: &'a IncludeRule,
        result: &mut SearchResult<'a>,
    ) -> Result<(), TxError> {
        let system = self.query.system;
        let requested = self.wanted_version(include);
        let lists = |code: &str| include.listed.as_ref().and_then(|list| list.get(code));
        let same_expression = self.listed_expression(include)?;
        let member = |system, concept, list_code| CodeMatch {
            system,
            concept,
            listed: list_code,
            set,
            written_version: include.version.as_deref(),
            is_of_all: include.listed.is_none() && include.filters.is_empty(),
            via: Vec::new(),
        };
        self.budget.spend(1 + self.pins.force.len() / 8)?;
        let systems = self.code_systems(system, requested, version_day(set, self.pins))?;
        if systems.is_empty() {
            // Of an unknown code system, only the listed codes are known.
            match lists(self.query.code) {
                Some(list_code) if self.trust_lists => {
                    result.members.push(member(None, None, Some(list_code)))
                }
                None if include.listed.is_some() => {}
                _ => result.unknown.push((system.to_owned(), requested.map(String::from))),
            }
        }
        for system in systems {
            result.exact |= self.query.version.is_some() && self.query.version == system.version.as_deref();
            let found_there = self.locate(system);
            let concept = found_there.map(|concept| concept.at);
            let list_code = include.listed.as_ref().and_then(|list| {
                let same = |code: &str| list.get(code);
                same(self.query.code).or(same_expression).or_else(|| same(system.code(concept?)))
            });
            let list_code = match &include.listed {
                Some(list) if list_code.is_none() && system.case_sensitive == Some(false) => {
                    self.budget.spend(list.len())?;
                    find_folded(list, system, self.query.code)
                }
                _ => list_code,
            };
            if include.listed.is_some() && list_code.is_none() {
                continue;
            }
            let is_in = match found_there {
                Some(concept) => include.cache.admits(&include.filters, system, concept, self.budget)?,
                // A fragment does not contain all codes, so the code may exist. Without its concept, no
                // filter can be evaluated.
                None => system.content == ContentMode::Fragment && include.filters.is_empty(),
            };
            if is_in {
                result.members.push(member(Some(system), concept, list_code));
            }
        }
        Ok(())
    }

    /// The listed code that states the same expression as the code, with other terms or blanks.
    fn listed_expression(&self, include: &'a IncludeRule) -> Result<Option<&'a ListedCode>, TxError> {
        let CodeQuery { system, code, .. } = self.query;
        let Some(list) = include.listed.as_ref().filter(|_| expression::is_expression(system, code)) else {
            return Ok(None);
        };
        let Some(stated) = expression::stated_form(code) else { return Ok(None) };
        self.budget.spend(list.len())?;
        let is_same = |text: &str| {
            expression::is_expression(system, text)
                && expression::stated_form(text).is_some_and(|form| form == stated)
        };
        Ok(list.iter().find(|(list, _)| is_same(list)).map(|(_, list)| list))
    }

    /// The version or pattern of the code system that an include refers to.
    fn wanted_version<'v>(&'v self, include: &'v IncludeRule) -> Option<&'v str> {
        self.pins.replacing(self.query.system, include.version.as_deref()).or(include.version.as_deref())
    }

    /// The versions of the code system to search. For `*`, these are all versions. For another pattern, it is
    /// the requested version if it matches, or else the newest match. Otherwise it is the wanted version;
    /// without one, the version of the day or the default version.
    fn code_systems(
        &self,
        url: &str,
        version: Option<&str>,
        day: Option<&str>,
    ) -> Result<SystemVersions<'a>, TxError> {
        let find = |version: Option<&str>| -> Result<Option<&'a CodeSystem>, TxError> {
            let systems = match version {
                None if day.is_none() => self.default_system()?,
                None => self.catalog.code_system_of(url, day, self.query.code, self.budget)?,
                version => self.catalog.code_system_for(url, version, self.query.code, self.budget)?,
            };
            let Some(resource) = systems else { return Ok(None) };
            let system = resource.get(self.budget)?;
            let speaks = matches!(system.content, ContentMode::Complete | ContentMode::Fragment);
            Ok(speaks.then_some(system))
        };
        if version == Some("*") {
            let versions = self.catalog.code_system_versions(url);
            self.budget.spend(versions.len() * (1 + versions.len() / 8))?;
            let systems = versions.iter().rev().filter_map(|version| find(Some(version)).transpose());
            let mut systems: SystemVersions<'a> = systems.collect::<Result<_, _>>()?;
            if systems.is_empty() {
                systems.extend(find(None)?);
            }
            return Ok(systems);
        }
        if let Some(pattern) = version.filter(|version| canonical::is_pattern(version)) {
            let query = self.query.version.filter(|query| canonical::matches(pattern, query));
            if let Some(system) = query.map(|query| find(Some(query))).transpose()?.flatten() {
                return Ok(smallvec![system]);
            }
        }
        Ok(find(version)?.into_iter().collect())
    }
}

/// Versions of a code system. Usually there is one, which needs no allocation.
type SystemVersions<'a> = SmallVec<[&'a CodeSystem; 1]>;

/// A listed code that differs by case only, if the code system ignores case.
fn find_folded<'a>(list: &'a CodeList, system: &CodeSystem, code: &str) -> Option<&'a ListedCode> {
    list.iter().find(|(list, _)| system.same_code(list, code)).map(|(_, list)| list)
}
