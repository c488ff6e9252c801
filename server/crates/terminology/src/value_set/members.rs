//! Which codes are in a value set? All of them, as bits by ordinal: the question of `$expand`.
//!
//! [`search`](super::search) answers for one code without building the set; a law holds the two
//! against one another. Parts keep the order in which the set mentions them, so pages are stable.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::imports::{Home, Pins, day, import, pinned};
use super::{Include, List, Listed, ValueSet, often};
use crate::catalog::Catalog;
use crate::code_system::CodeSystem;
use crate::code_system::hierarchy::Hierarchy;
use crate::wire::Content;
use crate::{TxError, Unprocessable, built_in, version};

/// A set of ordinals.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bits(Vec<u64>);

impl Bits {
    /// Every ordinal below `len`.
    pub(crate) fn full(len: usize) -> Self {
        let mut words = vec![u64::MAX; len / 64];
        words.extend((!len.is_multiple_of(64)).then(|| (1 << (len % 64)) - 1));
        Self(words)
    }

    pub(crate) fn empty(len: usize) -> Self {
        Self(vec![0; len.div_ceil(64)])
    }

    pub(crate) fn has(&self, at: u32) -> bool {
        self.0.get(at as usize / 64).is_some_and(|word| word & (1 << (at % 64)) != 0)
    }

    pub(crate) fn insert(&mut self, at: u32) {
        self.0[at as usize / 64] |= 1 << (at % 64);
    }

    /// Adds these concepts and all that walking on from them leads to, up or down. What is in already has been walked
    /// from.
    pub(crate) fn reach(&mut self, hierarchy: &Hierarchy, mut waiting: Vec<u32>, up: bool) {
        while let Some(here) = waiting.pop() {
            if !self.has(here) {
                self.insert(here);
                waiting.extend(&*hierarchy.next(here, up));
            }
        }
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(u32) -> bool) {
        for (number, word) in self.0.iter_mut().enumerate() {
            let mut rest = *word;
            while rest != 0 {
                let bit = rest.trailing_zeros();
                if !keep(number as u32 * 64 + bit) {
                    *word &= !(1 << bit);
                }
                rest &= rest - 1;
            }
        }
    }

    fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The ordinals, smallest first, without the first `skip`.
    pub(crate) fn iter_after(&self, mut skip: usize) -> impl Iterator<Item = u32> {
        // Whole words are passed over by their count.
        let passed = self.0.iter().take_while(|word| {
            let ones = word.count_ones() as usize;
            let pass = ones <= skip;
            skip -= if pass { ones } else { 0 };
            pass
        });
        let start = passed.count();
        self.0[start..]
            .iter()
            .enumerate()
            .flat_map(move |(number, word)| {
                let mut rest = *word;
                std::iter::from_fn(move || {
                    let bit = (rest != 0).then(|| rest.trailing_zeros())?;
                    rest &= rest - 1;
                    Some((start + number) as u32 * 64 + bit)
                })
            })
            .skip(skip)
    }
}

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
    beside: HashSet<&'a str>,
    /// Does it hold every code that nobody here knows: all of a fragment?
    open: bool,
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

    /// Keeps the codes that pass a test, which sees the concept where there is one, and the code.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(Option<u32>, &str) -> bool) {
        if let Some(system) = self.system {
            self.bits.retain(|at| keep(Some(at), system.code(at)));
        }
        self.beside.retain(|code| keep(None, code));
    }

    /// Does it hold this concept or code of its code system URL?
    fn holds(&self, system: Option<&CodeSystem>, concept: Option<u32>, code: &str) -> bool {
        let same = |a: Option<&CodeSystem>, b: Option<&CodeSystem>| {
            a.map(std::ptr::from_ref) == b.map(std::ptr::from_ref)
        };
        // In another version of the system, the same code counts.
        let here = match concept.filter(|_| same(self.system, system)) {
            Some(at) => Some(at),
            None => self.system.and_then(|system| system.find(code)),
        };
        match here {
            Some(at) => self.bits.has(at),
            None => self.open || self.beside.contains(code) || self.holds_folded(code),
        }
    }

    fn holds_folded(&self, code: &str) -> bool {
        let same = |system: &CodeSystem| self.beside.iter().any(|other| system.same_code(other, code));
        self.system.filter(|system| system.case_sensitive == Some(false)).is_some_and(same)
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

    /// Is it of the same version of the same code system?
    fn is_of_version(&self, other: &Part<'_>) -> bool {
        let system = |part: &Part<'_>| part.system.map(std::ptr::from_ref);
        self.url == other.url && system(self) == system(other)
    }

    /// The part without its codes: what a test of one code needs.
    fn head(&self) -> Self {
        let (url, system, set) = (self.url, self.system, self.set);
        Self { url, system, set, listed: None, bits: Bits::default(), beside: HashSet::new(), open: false }
    }

    /// Leaves out what others hold, in any version of its code system or in its own one only.
    fn exclude(&mut self, others: &[Part<'_>], versions_apart: bool) {
        let own = self.head();
        let counts =
            |other: &&Part<'_>| other.url == own.url && (!versions_apart || other.is_of_version(&own));
        let others: Vec<_> = others.iter().filter(counts).collect();
        self.retain(|concept, code| !others.iter().any(|other| other.holds(own.system, concept, code)));
        self.open &= !others.iter().any(|other| other.open);
    }

    /// Leaves out the concepts that are out of use.
    pub(crate) fn drop_inactive(&mut self) {
        let system = self.system;
        self.retain(|concept, _| !system.zip(concept).is_some_and(|(system, at)| system.is_inactive(at)));
    }
}

/// The codes of a value set.
#[derive(Debug, Clone, Default)]
pub(crate) struct Members<'a> {
    pub(crate) parts: Vec<Part<'a>>,
    /// Is a part of the set a fragment of a code system, so that there may be more codes?
    pub(crate) unclosed: bool,
    /// Sets that were imported, in order of mention.
    pub(crate) imported: Vec<&'a ValueSet>,
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

    fn hold(&self, part: &Part<'_>, concept: Option<u32>, code: &str) -> bool {
        self.parts.iter().any(|other| other.url == part.url && other.holds(part.system, concept, code))
    }

    fn is_open(&self, url: &str) -> bool {
        self.parts.iter().any(|part| part.open && part.url == url)
    }

    /// Appends a part without the codes that are there already in the same version of the system.
    fn push(&mut self, mut part: Part<'a>) {
        for other in &self.parts {
            if other.is_of_version(&part) {
                let system = part.system;
                part.retain(|concept, code| !other.holds(system, concept, code));
            }
        }
        self.parts.push(part);
    }

    fn append(&mut self, other: Self) {
        other.parts.into_iter().for_each(|part| self.push(part));
        self.unclosed |= other.unclosed;
        self.excluded |= other.excluded;
        self.missing = self.missing.take().or(other.missing);
        self.mention(other.imported);
    }

    fn mention(&mut self, sets: impl IntoIterator<Item = &'a ValueSet>) {
        for set in sets {
            if !self.imported.iter().any(|known| std::ptr::eq(*known, set)) {
                self.imported.push(set);
            }
        }
    }
}

/// Gathers the codes of value sets that passed [`check`](super::imports::check).
#[derive(Debug)]
pub(crate) struct Gather<'a, 'q> {
    catalog: &'a Catalog,
    pins: &'q Pins,
    trust_lists: bool,
    /// What was gathered of imported sets: many paths may lead to the same one.
    known: HashMap<*const ValueSet, Rc<Members<'a>>>,
}

impl<'a, 'q> Gather<'a, 'q> {
    /// With `trust_lists`, listed codes of a system that is not on this server count as members.
    pub(crate) fn new(catalog: &'a Catalog, pins: &'q Pins, trust_lists: bool) -> Self {
        Self { catalog, pins, trust_lists, known: HashMap::new() }
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
            out.append(found);
        }
        for exclude in &set.compose.exclude {
            out.excluded = true;
            // What nobody knows here cannot be in the set either, so `missing` is passed over.
            let found = self.include(home, exclude)?;
            out.parts.iter_mut().for_each(|part| part.exclude(&found.parts, set.compose.versions_apart));
        }
        if set.compose.active_only {
            out.parts.iter_mut().for_each(Part::drop_inactive);
        }
        Ok(out)
    }

    fn include(&mut self, home: Home<'a>, include: &'a Include) -> Result<Members<'a>, TxError> {
        let set = home.set;
        let mut here = Members::default();
        if let Some(system) = &include.system {
            self.by_system(set, include, system, &mut here)?;
        }
        for (number, canonical) in include.value_sets.iter().enumerate() {
            let imported = import(self.catalog, home, canonical, self.pins)?
                .expect("imports were resolved before the search");
            let inner = self.imported(imported)?;
            here.mention([imported.set]);
            here.mention(inner.imported.iter().copied());
            here.excluded |= inner.excluded;
            here.missing = here.missing.take().or_else(|| inner.missing.clone());
            if include.system.is_none() && number == 0 {
                here.parts.clone_from(&inner.parts);
                here.unclosed = inner.unclosed;
                continue;
            }
            // Everything that an include names must hold the code: R4's comment and R5 say so.
            for part in &mut here.parts {
                let probe = part.head();
                part.retain(|concept, code| inner.hold(&probe, concept, code));
                part.open &= inner.is_open(part.url);
            }
        }
        Ok(here)
    }

    fn imported(&mut self, home: Home<'a>) -> Result<Rc<Members<'a>>, TxError> {
        let key = std::ptr::from_ref(home.set);
        if let Some(known) = self.known.get(&key) {
            return Ok(known.clone());
        }
        let members = Rc::new(self.run(home)?);
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
                    out.push(part);
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
                let mut part = part(Some(system), Bits::empty(system.len()), false);
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
                out.push(part);
                continue;
            }
            out.unclosed |= is_fragment;
            let bits = often::members(&include.filters, system)?;
            let open = is_fragment && include.filters.is_empty();
            out.push(part(Some(system), bits, open));
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
            let Some(resource) = self.catalog.code_system_for(url, None, code) else { continue };
            let system = resource.get()?;
            let Some(at) = system.find(code) else { continue };
            let mut bits = Bits::empty(system.len());
            bits.insert(at);
            let items = vec![Item { code, concept: Some(at), listed: Some(listed) }];
            let beside = HashSet::new();
            out.push(Part { url, system: Some(system), set, listed: Some(items), bits, beside, open: false });
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
            let system = resource.get()?;
            let speaks = matches!(system.content, Content::Complete | Content::Fragment);
            Ok(speaks.then_some(system))
        };
        let mut found = Vec::new();
        if wanted == Some("*") {
            for version in self.catalog.code_system_versions(url).iter().rev() {
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
