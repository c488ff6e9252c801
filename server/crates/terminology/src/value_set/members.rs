//! Which codes are in a value set? All of them, as bits by ordinal: the question of `$expand`.
//!
//! [`search`](super::search) answers for one code without building the set; a law holds the two
//! against one another. Parts keep the order in which the set mentions them, so pages are stable.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::bits::Bits;
use super::held::Held;
use super::imports::{Home, Pins, day, import, pinned};
use super::{Include, List, Listed, ValueSet, often};
use crate::catalog::Catalog;
use crate::code_system::CodeSystem;
use crate::wire::Content;
use crate::{Budget, TxError, Unprocessable, built_in, version};

/// Words of memory that a code of a grammar takes, which is a code system of its own.
pub(crate) const WORD_OF_GRAMMAR: usize = 256;

/// What one include takes from one version of a code system.
#[derive(Debug, Clone)]
pub(crate) struct Part<'a> {
    /// Canonical URL of the code system.
    pub(crate) url: &'a str,
    /// The code system; `None` where it is not on this server and the set lists the codes itself.
    pub(crate) system: Option<&'a CodeSystem>,
    /// The set whose include this is: the one asked for or one that it imports.
    pub(crate) set: &'a ValueSet,
    /// Where the include lists its codes: those that are in, in the order of the list.
    pub(crate) listed: Option<Vec<Item<'a>>>,
    /// The ordinals that are in.
    pub(crate) bits: Bits,
    /// Listed codes that are in and have no ordinal.
    pub(super) beside: HashSet<&'a str>,
    /// Does it hold every code that nobody here knows: all of a fragment?
    pub(super) open: bool,
}

/// A code of a part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item<'a> {
    pub(crate) code: &'a str,
    /// The concept; `None` where the system is absent or a fragment without the code.
    pub(crate) concept: Option<u32>,
    /// How the set lists it, where it does.
    pub(crate) listed: Option<&'a Listed>,
}

impl<'a> Part<'a> {
    /// How many codes it holds.
    pub(crate) fn len(&self) -> usize {
        self.bits.count() + self.beside.len()
    }

    fn is_empty(&self) -> bool {
        self.beside.is_empty() && self.bits.is_empty()
    }

    /// Keeps the codes that pass a test, which sees the concept where there is one, and the code.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(Option<u32>, &str) -> bool) {
        if let Some(system) = self.system {
            self.bits.retain(|at| keep(Some(at), system.code(at)));
        }
        self.beside.retain(|code| keep(None, code));
    }

    /// Its codes in order, without the first `skip`.
    pub(crate) fn iter_after(&self, skip: usize) -> Box<dyn Iterator<Item = Item<'a>> + '_> {
        if let Some(items) = &self.listed {
            let is_in = |item: &&Item<'a>| match item.concept {
                Some(at) => self.bits.has(at),
                None => self.beside.contains(item.code),
            };
            return Box::new(items.iter().filter(is_in).skip(skip).copied());
        }
        let Some(system) = self.system else { return Box::new(std::iter::empty()) };
        let item = |at| Item { code: system.code(at), concept: Some(at), listed: None };
        Box::new(self.bits.iter_after(skip).map(item))
    }

    /// Leaves out the concepts that are out of use.
    ///
    /// # Errors
    /// When the budget ends.
    pub(crate) fn drop_inactive(&mut self, budget: &Budget<'_>) -> Result<(), TxError> {
        let Some(system) = self.system.filter(|system| system.has_inactive()) else { return Ok(()) };
        budget.spend(self.bits.count() / 8)?;
        self.bits.retain(|at| !system.is_inactive(at));
        Ok(())
    }
}

/// The codes of a value set.
#[derive(Debug, Clone, Default)]
pub(crate) struct Members<'a> {
    pub(crate) parts: Vec<Part<'a>>,
    /// Is a part of the set a fragment of a code system, so that there may be more codes?
    pub(crate) unclosed: bool,
    /// What the parts hold together, before anything is left out by `exclude`.
    held: Held<'a>,
    /// The versions of code systems of which there are parts.
    versions: HashSet<(&'a str, Option<*const CodeSystem>)>,
    /// Sets that were imported, in order of mention.
    pub(crate) imported: Vec<&'a ValueSet>,
    mentioned: HashSet<*const ValueSet>,
    /// Was anything left out by `exclude`?
    pub(crate) excluded: bool,
    /// A code system that the set includes and that is not here, so that codes may be lacking.
    pub(crate) missing: Option<Unprocessable>,
}

impl<'a> Members<'a> {
    /// How many codes there are.
    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(Part::len).sum()
    }

    /// Appends a part without the codes that are there already in the same version of the system. A part without codes is
    /// kept as the first of its version only.
    fn push(&mut self, mut part: Part<'a>, budget: &Budget<'_>) -> Result<(), TxError> {
        budget.spend(1)?;
        let is_first = self.versions.insert((part.url, part.system.map(std::ptr::from_ref)));
        if !is_first {
            self.held.take_from(&mut part, true, budget)?;
        }
        if is_first || part.open || !part.is_empty() {
            self.held.add(&part, budget)?;
            self.parts.push(part);
        }
        Ok(())
    }

    fn append(&mut self, other: Self, budget: &Budget<'_>) -> Result<(), TxError> {
        for part in other.parts {
            self.push(part, budget)?;
        }
        self.unclosed |= other.unclosed;
        self.excluded |= other.excluded;
        self.missing = self.missing.take().or(other.missing);
        self.mention(&other.imported, budget)
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

    /// The union of the parts as they are.
    fn union(&self, budget: &Budget<'_>) -> Result<Held<'a>, TxError> {
        let mut held = Held::default();
        self.parts.iter().try_for_each(|part| held.add(part, budget))?;
        Ok(held)
    }
}

/// Gathers the codes of value sets that passed [`check`](super::imports::check).
#[derive(Debug)]
pub(crate) struct Gather<'a, 'q> {
    catalog: &'a Catalog,
    pins: &'q Pins,
    trust_lists: bool,
    budget: &'q Budget<'q>,
    /// What was gathered of imported sets, and their union: many paths may lead to the same one.
    known: HashMap<*const ValueSet, Rc<(Members<'a>, Held<'a>)>>,
}

impl<'a, 'q> Gather<'a, 'q> {
    /// With `trust_lists`, listed codes of a system that is not on this server count as members.
    pub(crate) fn new(
        catalog: &'a Catalog,
        pins: &'q Pins,
        trust_lists: bool,
        budget: &'q Budget<'q>,
    ) -> Self {
        Self { catalog, pins, trust_lists, budget, known: HashMap::new() }
    }

    /// All codes of a set.
    ///
    /// # Errors
    /// When a code system that the set includes is broken or not allowed, or a filter does not fit it.
    pub(crate) fn run(&mut self, home: Home<'a>) -> Result<Members<'a>, TxError> {
        let set = home.set;
        let mut out = Members::default();
        for include in &set.compose.include {
            let found = self.include(home, include)?;
            out.append(found, self.budget)?;
        }
        let mut excluded = Held::default();
        for exclude in &set.compose.exclude {
            out.excluded = true;
            // What nobody knows here cannot be in the set either, so `missing` is passed over.
            let found = self.include(home, exclude)?;
            found.parts.iter().try_for_each(|part| excluded.add(part, self.budget))?;
        }
        for part in &mut out.parts {
            if out.excluded {
                excluded.take_from(part, set.compose.versions_apart, self.budget)?;
            }
            if set.compose.active_only {
                part.drop_inactive(self.budget)?;
            }
        }
        Ok(out)
    }

    fn include(&mut self, home: Home<'a>, include: &'a Include) -> Result<Members<'a>, TxError> {
        let set = home.set;
        self.budget.spend(1)?;
        self.budget.during("gathering the codes of a value set");
        let mut here = Members::default();
        if let Some(system) = &include.system {
            self.by_system(set, include, system, &mut here)?;
        }
        for (number, canonical) in include.value_sets.iter().enumerate() {
            let imported = import(self.catalog, home, canonical, self.pins, self.budget)?
                .expect("imports were resolved before the search");
            let inner = self.imported(imported)?;
            let (inner, held) = &*inner;
            here.mention(&[imported.set], self.budget)?;
            here.mention(&inner.imported, self.budget)?;
            here.excluded |= inner.excluded;
            here.missing = here.missing.take().or_else(|| inner.missing.clone());
            if include.system.is_none() && number == 0 {
                for part in &inner.parts {
                    self.budget.words(part.bits.words(), true)?;
                    self.budget.spend(part.listed.as_ref().map_or(0, Vec::len) + part.beside.len())?;
                    here.parts.push(part.clone());
                }
                here.unclosed = inner.unclosed;
                continue;
            }
            // Everything that an include names must hold the code: R4's comment and R5 say so.
            here.parts.iter_mut().try_for_each(|part| held.keep_in(part, self.budget))?;
        }
        Ok(here)
    }

    fn imported(&mut self, home: Home<'a>) -> Result<Rc<(Members<'a>, Held<'a>)>, TxError> {
        let key = std::ptr::from_ref(home.set);
        if let Some(known) = self.known.get(&key) {
            return Ok(known.clone());
        }
        let members = self.run(home)?;
        let held = members.union(self.budget)?;
        let members = Rc::new((members, held));
        self.known.insert(key, members.clone());
        Ok(members)
    }

    /// The part of an include that its system, codes and filters say.
    fn by_system(
        &self,
        set: &'a ValueSet,
        include: &'a Include,
        url: &'a str,
        out: &mut Members<'a>,
    ) -> Result<(), TxError> {
        let written = include.version.as_deref();
        let wanted = self.pins.replacing(url, written).or(written);
        let part =
            |system, bits, open| Part { url, system, set, listed: None, bits, beside: HashSet::new(), open };
        if wanted.is_none() && self.catalog.is_endless(url) {
            return self.by_grammar(set, include, url, out);
        }
        let systems = self.code_systems(url, wanted, day(set, self.pins))?;
        if systems.is_empty() {
            match &include.listed {
                Some(listed) if self.trust_lists => {
                    let item = |(code, listed)| Item { code, concept: None, listed: Some(listed) };
                    let items: Vec<_> = in_order(listed).map(item).collect();
                    let mut part = part(None, Bits::default(), false);
                    part.beside = items.iter().map(|item| item.code).collect();
                    part.listed = Some(items);
                    self.budget.spend(listed.len())?;
                    out.push(part, self.budget)?;
                }
                _ => {
                    let known = self.catalog.code_system_versions(url);
                    let version = wanted.map(String::from);
                    out.missing =
                        Some(Unprocessable::MissingCodeSystem { system: url.to_owned(), version, known });
                }
            }
        }
        for system in systems {
            let means = system.version.as_deref().unwrap_or_default();
            if let Some(required) = pinned(&self.pins.check, url).filter(|r| !version::matches(r, means)) {
                return Err(Unprocessable::VersionNotAllowed {
                    system: url.to_owned(),
                    version: means.to_owned(),
                    required: required.to_owned(),
                }
                .into());
            }
            let is_fragment = system.content == Content::Fragment;
            if let Some(listed) = &include.listed {
                self.budget.spend(2 * listed.len())?;
                let mut part = part(Some(system), Bits::empty(system.len()), false);
                self.budget.words(part.bits.words(), false)?;
                let mut items = Vec::with_capacity(listed.len());
                for (code, listed) in in_order(listed) {
                    let concept = system.find(code);
                    let is_new = match concept {
                        Some(at) => !part.bits.has(at),
                        None => is_fragment && part.beside.insert(code),
                    };
                    if let Some(at) = concept {
                        part.bits.insert(at);
                    }
                    if is_new {
                        items.push(Item { code, concept, listed: Some(listed) });
                    }
                }
                part.listed = Some(items);
                part.bits.trim();
                self.budget.words(part.bits.words(), true)?;
                out.push(part, self.budget)?;
                continue;
            }
            out.unclosed |= is_fragment;
            let bits = often::members(&include.filters, system, self.budget)?;
            let open = is_fragment && include.filters.is_empty();
            out.push(part(Some(system), bits, open), self.budget)?;
        }
        Ok(())
    }

    /// The listed codes that the grammar of a system accepts, each from a system of its own.
    fn by_grammar(
        &self,
        set: &'a ValueSet,
        include: &'a Include,
        url: &'a str,
        out: &mut Members<'a>,
    ) -> Result<(), TxError> {
        let Some(listed) = &include.listed else {
            return Err(Unprocessable::Endless { system: url.to_owned() }.into());
        };
        for (code, listed) in in_order(listed) {
            self.budget.words(WORD_OF_GRAMMAR, true)?;
            let Some(resource) = self.catalog.code_system_for(url, None, code) else { continue };
            let system = resource.get(self.budget)?;
            let Some(at) = system.find(code) else { continue };
            let mut bits = Bits::empty(system.len());
            bits.insert(at);
            let items = vec![Item { code, concept: Some(at), listed: Some(listed) }];
            let beside = HashSet::new();
            let part =
                Part { url, system: Some(system), set, listed: Some(items), bits, beside, open: false };
            out.push(part, self.budget)?;
        }
        Ok(())
    }

    /// The versions of a system that an include stands for: for `*` all, else one.
    fn code_systems(
        &self,
        url: &str,
        wanted: Option<&str>,
        day: Option<&str>,
    ) -> Result<Vec<&'a CodeSystem>, TxError> {
        let find = |version: Option<&str>| -> Result<Option<&'a CodeSystem>, TxError> {
            let found = match (version, day) {
                (None, Some(day)) => self.catalog.code_system_on(url, day).or_else(|| built_in::system(url)),
                (version, _) => self.catalog.code_system(url, version),
            };
            let Some(resource) = found else { return Ok(None) };
            let system = resource.get(self.budget)?;
            let speaks = matches!(system.content, Content::Complete | Content::Fragment);
            Ok(speaks.then_some(system))
        };
        let mut found = Vec::new();
        if wanted == Some("*") {
            let versions = self.catalog.code_system_versions(url);
            self.budget.spend(versions.len() * (1 + versions.len() / 8))?;
            for version in versions.iter().rev() {
                found.extend(find(Some(version))?);
            }
        }
        if found.is_empty() {
            found.extend(find(wanted.filter(|wanted| *wanted != "*"))?);
        }
        Ok(found)
    }
}

/// The listed codes in the order of the list.
fn in_order(listed: &List) -> impl Iterator<Item = (&str, &Listed)> {
    let mut list: Vec<_> = listed.iter().map(|(code, listed)| (&**code, listed)).collect();
    list.sort_unstable_by_key(|(_, listed)| listed.place);
    list.into_iter()
}
