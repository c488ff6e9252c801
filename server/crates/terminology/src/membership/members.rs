//! All codes of a value set, as sets of ordinals, for `$expand`.
//!
//! [`search`](super::search) tests one code without building the set; a property test checks that both agree.
//! Parts keep the order in which the value set mentions them, so pages are stable.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::imports::{ValueSetScope, resolve_import, version_day};
use super::member_part::{MemberCode, MemberPart};
use super::part_union::PartUnions;
use super::version_pins::{VersionPins, pinned};
use crate::catalog::{Catalog, built_in};
use crate::code_system::CodeSystem;
use crate::code_system::concept_set::ConceptSet;
use crate::expression::ExpressionFault;
use crate::model::known_systems::SNOMED_CT;
use crate::model::resource_json::ContentMode;
use crate::model::{Budget, TxError, Unprocessable, canonical};
use crate::value_set::filter::ValueSetFilter;
use crate::value_set::{CodeList, IncludeRule, ListedCode, ValueSet, include_cache};

/// Memory counted for a code of a grammar, in 64-bit words. Each such code is a code system of its own.
pub(crate) const GRAMMAR_CODE_WORDS: usize = 256;

/// The codes of a value set.
#[derive(Debug, Clone, Default)]
pub(crate) struct ValueSetMembers<'a> {
    pub(crate) parts: Vec<MemberPart<'a>>,
    /// Whether a part is from a fragment of a code system, so that the value set may have more codes.
    pub(crate) unclosed: bool,
    /// Whether a part of SNOMED CT also has expressions, which are not listed.
    pub(crate) has_expressions: bool,
    /// Union of the parts before any excludes.
    unions: PartUnions<'a>,
    /// Versions of code systems that have parts.
    versions: HashSet<(&'a str, Option<*const CodeSystem>)>,
    /// Imported value sets, in order of mention.
    pub(crate) imported: Vec<&'a ValueSet>,
    mentioned: HashSet<*const ValueSet>,
    pub(crate) excluded: bool,
    /// Code systems of the excludes, in order of mention.
    pub(crate) excluded_systems: Vec<(&'a str, Option<&'a CodeSystem>)>,
    known_excluded: HashSet<(&'a str, Option<*const CodeSystem>)>,
    /// Fixed versions that determined the version of an include or import, as name of the parameter and
    /// canonical URL.
    pub(crate) used_pins: HashSet<(&'static str, String)>,
    /// Error of an included code system that is not stored.
    pub(crate) missing: Option<Unprocessable>,
}

impl<'a> ValueSetMembers<'a> {
    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(MemberPart::len).sum()
    }

    /// Appends a part after removing the codes that earlier parts have from the same version of the code
    /// system. An empty part is kept only if it is the first of its version.
    fn push(&mut self, mut part: MemberPart<'a>, budget: &Budget<'_>) -> Result<(), TxError> {
        budget.spend(1)?;
        let before = part.bits.words();
        let is_first = self.versions.insert((part.url, part.system.map(std::ptr::from_ref)));
        if !is_first {
            self.unions.subtract_from(&mut part, true, budget)?;
        }
        let mut length = 0;
        if is_first || part.open || !part.is_empty() {
            length = part.bits.words();
            self.unions.add_part(&part, budget)?;
            self.parts.push(part);
        }
        // Of thousands of overlapping includes, most have few codes of their own.
        budget.restore_memory(budget.memory() + 8 * before.saturating_sub(length));
        Ok(())
    }

    fn merge(&mut self, other: Self, budget: &Budget<'_>) -> Result<(), TxError> {
        for part in other.parts {
            self.push(part, budget)?;
        }
        self.unclosed |= other.unclosed;
        self.has_expressions |= other.has_expressions;
        self.excluded |= other.excluded;
        self.mention_excluded(other.excluded_systems.iter().copied(), budget)?;
        self.mention_pins(&other.used_pins, budget)?;
        self.missing = self.missing.take().or(other.missing);
        self.mention(&other.imported, budget)
    }

    /// Adds code systems of excludes. Several import paths may lead to the same one.
    fn mention_excluded(
        &mut self,
        systems: impl Iterator<Item = (&'a str, Option<&'a CodeSystem>)>,
        budget: &Budget<'_>,
    ) -> Result<(), TxError> {
        for (url, system) in systems {
            budget.spend(1)?;
            if self.known_excluded.insert((url, system.map(std::ptr::from_ref))) {
                self.excluded_systems.push((url, system));
            }
        }
        Ok(())
    }

    fn mention_pins(
        &mut self,
        pins: &HashSet<(&'static str, String)>,
        budget: &Budget<'_>,
    ) -> Result<(), TxError> {
        budget.spend(pins.len())?;
        self.used_pins.extend(pins.iter().cloned());
        Ok(())
    }

    fn mention(&mut self, sets: &[&'a ValueSet], budget: &Budget<'_>) -> Result<(), TxError> {
        budget.spend(sets.len())?;
        for set in sets {
            if self.mentioned.insert(std::ptr::from_ref(set)) {
                self.imported.push(set);
            }
        }
        Ok(())
    }

    /// The union of the current parts.
    fn union(&self, budget: &Budget<'_>) -> Result<PartUnions<'a>, TxError> {
        let mut unions = PartUnions::default();
        self.parts.iter().try_for_each(|part| unions.add_part(part, budget))?;
        Ok(unions)
    }
}

/// Collects the codes of value sets that passed [`check_value_set`](super::imports::check_value_set).
#[derive(Debug)]
pub(crate) struct MemberCollector<'a, 'q> {
    catalog: &'a Catalog,
    pins: &'q VersionPins,
    trust_lists: bool,
    budget: &'q Budget<'q>,
    /// Codes of imported value sets, with their union. Several import paths may lead to the same value set.
    known: HashMap<*const ValueSet, Rc<(ValueSetMembers<'a>, PartUnions<'a>)>>,
}

impl<'a, 'q> MemberCollector<'a, 'q> {
    /// A collector. With `trust_lists`, listed codes of a code system that is not stored are members.
    pub(crate) fn new(
        catalog: &'a Catalog,
        pins: &'q VersionPins,
        trust_lists: bool,
        budget: &'q Budget<'q>,
    ) -> Self {
        Self { catalog, pins, trust_lists, budget, known: HashMap::new() }
    }

    /// All codes of a value set.
    ///
    /// # Errors
    /// [`TxError`] if an included code system is invalid or its version is not allowed, or if a filter does
    /// not fit it.
    pub(crate) fn collect(&mut self, scope: ValueSetScope<'a>) -> Result<ValueSetMembers<'a>, TxError> {
        let set = scope.set;
        let mut out = ValueSetMembers::default();
        for include in &set.compose.include {
            let collected = self.collect_include(scope, include)?;
            out.merge(collected, self.budget)?;
        }
        // Excludes of all versions of a code system, and of one version.
        let mut excluded = [PartUnions::default(), PartUnions::default()];
        for exclude in &set.compose.exclude {
            out.excluded = true;
            // `missing` is ignored: codes of an unknown code system are not in the set either.
            let collected = self.collect_include(scope, exclude)?;
            let union = &mut excluded[usize::from(exclude.own_version)];
            collected.parts.iter().try_for_each(|part| union.add_part(part, self.budget))?;
            let systems = collected.parts.iter().map(|part| (part.url, part.system));
            out.mention_excluded(systems.chain(collected.excluded_systems), self.budget)?;
            out.mention(&collected.imported, self.budget)?;
            out.mention_pins(&collected.used_pins, self.budget)?;
        }
        for part in &mut out.parts {
            if out.excluded {
                for (own_version, union) in [false, true].into_iter().zip(&excluded) {
                    union.subtract_from(part, own_version, self.budget)?;
                }
            }
            if set.compose.active_only {
                part.drop_inactive(self.budget)?;
            }
        }
        Ok(out)
    }

    fn collect_include(
        &mut self,
        scope: ValueSetScope<'a>,
        include: &'a IncludeRule,
    ) -> Result<ValueSetMembers<'a>, TxError> {
        let set = scope.set;
        self.budget.spend(1)?;
        self.budget.set_activity("gathering the codes of a value set");
        let mut here = ValueSetMembers::default();
        if let Some(system) = &include.system {
            self.collect_system(set, include, system, &mut here)?;
        }
        for (number, canonical) in include.value_sets.iter().enumerate() {
            let imported = resolve_import(self.catalog, scope, canonical, self.pins, self.budget)?
                .expect("imports are resolved before the search");
            let inner = self.imported(imported)?;
            let (inner, unions) = &*inner;
            if !canonical.starts_with('#') {
                here.mention(&[imported.set], self.budget)?;
            }
            here.mention(&inner.imported, self.budget)?;
            here.excluded |= inner.excluded;
            here.mention_excluded(inner.excluded_systems.iter().copied(), self.budget)?;
            here.mention_pins(&inner.used_pins, self.budget)?;
            here.used_pins.extend(self.pins.used_by_import(canonical));
            here.missing = here.missing.take().or_else(|| inner.missing.clone());
            if include.system.is_none() && number == 0 {
                for part in &inner.parts {
                    self.budget.spend_words(part.bits.words(), true)?;
                    self.budget.spend(part.listed.as_ref().map_or(0, Vec::len) + part.unknown_codes.len())?;
                    here.parts.push(MemberPart { is_imported: true, ..part.clone() });
                }
                here.unclosed = inner.unclosed;
                here.has_expressions = inner.has_expressions;
                continue;
            }
            // A code must satisfy all conditions of an include, as the comment in R4 and the text of R5 say.
            here.has_expressions &= inner.has_expressions;
            here.parts.iter_mut().try_for_each(|part| unions.intersect_with(part, self.budget))?;
        }
        Ok(here)
    }

    fn imported(
        &mut self,
        scope: ValueSetScope<'a>,
    ) -> Result<Rc<(ValueSetMembers<'a>, PartUnions<'a>)>, TxError> {
        let key = std::ptr::from_ref(scope.set);
        if let Some(members) = self.known.get(&key) {
            return Ok(members.clone());
        }
        let members = self.collect(scope)?;
        let unions = members.union(self.budget)?;
        let members = Rc::new((members, unions));
        self.known.insert(key, members.clone());
        Ok(members)
    }

    /// Collects the codes that the system, codes and filters of an include select.
    fn collect_system(
        &self,
        set: &'a ValueSet,
        include: &'a IncludeRule,
        url: &'a str,
        out: &mut ValueSetMembers<'a>,
    ) -> Result<(), TxError> {
        let include_version = include.version.as_deref();
        let requested = self.pins.replacing(url, include_version).or(include_version);
        let part = |system, bits, open| MemberPart {
            url,
            system,
            set,
            listed: None,
            bits,
            unknown_codes: HashSet::new(),
            open,
            is_imported: false,
        };
        out.used_pins.extend(self.pins.used_by_include(url, include_version));
        if requested.is_none() && self.catalog.is_endless(url) {
            return self.collect_grammar_codes(set, include, url, out);
        }
        let systems = self.code_systems(url, requested, version_day(set, self.pins))?;
        if systems.is_empty() {
            match &include.listed {
                // A value set that lists its codes can be expanded without the code system, as far as its
                // codes are right.
                Some(list) if self.trust_lists => {
                    let item = |(code, list)| MemberCode { code, concept: None, listed: Some(list) };
                    let items: Vec<_> = in_order(list).map(item).collect();
                    let mut part = part(None, ConceptSet::default(), false);
                    part.unknown_codes = items.iter().map(|item| item.code).collect();
                    part.listed = Some(items);
                    self.budget.spend(list.len())?;
                    out.push(part, self.budget)?;
                }
                _ => {
                    let versions = self.catalog.code_system_versions(url);
                    let version = requested.map(String::from);
                    out.missing = Some(Unprocessable::MissingCodeSystem {
                        system: url.to_owned(),
                        version,
                        known: versions,
                    });
                }
            }
        }
        for system in systems {
            let actual = system.version.as_deref().unwrap_or_default();
            if let Some(required) = pinned(&self.pins.check, url).filter(|r| !canonical::matches(r, actual)) {
                return Err(Unprocessable::VersionNotAllowed {
                    system: url.to_owned(),
                    version: actual.to_owned(),
                    required: required.to_owned(),
                }
                .into());
            }
            let is_fragment = system.content == ContentMode::Fragment;
            if let Some(list) = &include.listed {
                self.budget.spend(2 * list.len())?;
                let mut part = part(Some(system), ConceptSet::empty(system.len()), false);
                self.budget.spend_words(part.bits.words(), false)?;
                let mut items = Vec::with_capacity(list.len());
                let mut expressions = Vec::new();
                for (code, list) in in_order(list) {
                    let concept = system.find(code);
                    if concept.is_none()
                        && let Some(excerpt) = self.expression_in(system, code)?
                    {
                        expressions.push((code, list, excerpt));
                        continue;
                    }
                    let is_new = match concept {
                        // Codes that differ only in case can be the same concept.
                        Some(concept_number) => !part.bits.has(concept_number),
                        None => is_fragment && part.unknown_codes.insert(code),
                    };
                    if let Some(concept_number) = concept {
                        part.bits.insert(concept_number);
                    }
                    if is_new {
                        items.push(MemberCode { code, concept, listed: Some(list) });
                    }
                }
                part.listed = Some(items);
                part.bits.trim();
                self.budget.spend_words(part.bits.words(), true)?;
                out.push(part, self.budget)?;
                for (code, list, excerpt) in expressions {
                    self.push_single_code(set, url, excerpt, (code, list), out)?;
                }
                continue;
            }
            out.unclosed |= is_fragment;
            out.has_expressions |=
                url == SNOMED_CT && include.filters.iter().all(ValueSetFilter::admits_expressions);
            let bits = include_cache::passing_concepts(&include.filters, system, self.budget)?;
            let open = is_fragment && include.filters.is_empty();
            out.push(part(Some(system), bits, open), self.budget)?;
        }
        Ok(())
    }

    /// Collects the listed codes that the grammar of a code system accepts. The catalog has a code system of
    /// one concept for each of them.
    fn collect_grammar_codes(
        &self,
        set: &'a ValueSet,
        include: &'a IncludeRule,
        url: &'a str,
        out: &mut ValueSetMembers<'a>,
    ) -> Result<(), TxError> {
        let Some(list) = &include.listed else {
            return Err(Unprocessable::Endless { system: url.to_owned() }.into());
        };
        for (code, list) in in_order(list) {
            self.budget.spend_words(GRAMMAR_CODE_WORDS, true)?;
            let Some(resource) = self.catalog.code_system_for(url, None, code, self.budget)? else {
                continue;
            };
            let system = resource.get(self.budget)?;
            self.push_single_code(set, url, system, (code, list), out)?;
        }
        Ok(())
    }

    /// Adds a listed code whose code system contains nothing else to list.
    fn push_single_code(
        &self,
        set: &'a ValueSet,
        url: &'a str,
        system: &'a CodeSystem,
        (code, listed): (&'a str, &'a ListedCode),
        out: &mut ValueSetMembers<'a>,
    ) -> Result<(), TxError> {
        let Some(concept) = system.find(code) else { return Ok(()) };
        let mut bits = ConceptSet::empty(system.len());
        bits.insert(concept);
        let items = vec![MemberCode { code, concept: Some(concept), listed: Some(listed) }];
        let unknown_codes = HashSet::new();
        let part = MemberPart {
            url,
            system: Some(system),
            set,
            listed: Some(items),
            bits,
            unknown_codes,
            open: false,
            is_imported: false,
        };
        out.push(part, self.budget)
    }

    /// The excerpt of a code system that contains an expression, if the code is a valid one.
    fn expression_in(&self, system: &CodeSystem, code: &str) -> Result<Option<&'a CodeSystem>, TxError> {
        match self.catalog.expression_in(system, code, self.budget) {
            Err(ExpressionFault::Exhausted(exhausted)) => Err(exhausted.into()),
            excerpt => Ok(excerpt.ok().flatten()),
        }
    }

    /// The versions of a system that an include refers to: all for `*`, otherwise one.
    fn code_systems(
        &self,
        url: &str,
        version: Option<&str>,
        day: Option<&str>,
    ) -> Result<Vec<&'a CodeSystem>, TxError> {
        let find = |version: Option<&str>| -> Result<Option<&'a CodeSystem>, TxError> {
            let resource = match (version, day) {
                (None, Some(day)) => self.catalog.code_system_on(url, day).or_else(|| built_in::system(url)),
                (version, _) => self.catalog.code_system(url, version),
            };
            let Some(resource) = resource else { return Ok(None) };
            let system = resource.get(self.budget)?;
            let speaks = matches!(system.content, ContentMode::Complete | ContentMode::Fragment);
            Ok(speaks.then_some(system))
        };
        let mut resources = Vec::new();
        if version == Some("*") {
            let versions = self.catalog.code_system_versions(url);
            self.budget.spend(versions.len() * (1 + versions.len() / 8))?;
            for version in versions.iter().rev() {
                resources.extend(find(Some(version))?);
            }
        }
        if resources.is_empty() {
            resources.extend(find(version.filter(|version| *version != "*"))?);
        }
        Ok(resources)
    }
}

/// The listed codes in the order of the list.
fn in_order(codes: &CodeList) -> impl Iterator<Item = (&str, &ListedCode)> {
    let mut list: Vec<_> = codes.iter().map(|(code, codes)| (&**code, codes)).collect();
    list.sort_unstable_by_key(|(_, codes)| codes.place);
    list.into_iter()
}
