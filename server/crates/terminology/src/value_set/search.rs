//! Is a code in a value set? Resolved include by include; no set is ever built to test one code.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;

use hashbrown::DefaultHashBuilder;
use smallvec::{SmallVec, smallvec};

use super::imports::{Home, Pins, day, import};
use super::{Compose, Include, List, Listed, ValueSet};
use crate::catalog::{Catalog, Resource};
use crate::code_system::{CodeSystem, Concept};
use crate::version;
use crate::wire::Content;
use crate::{Budget, TxError};

/// Members that are compared in one step.
const COMPARED_PER_STEP: usize = 16;

/// The code that is looked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'q> {
    pub(crate) system: &'q str,
    pub(crate) version: Option<&'q str>,
    pub(crate) code: &'q str,
}

/// One way in which the code is in the set.
#[derive(Debug, Clone)]
pub(crate) struct Member<'a> {
    /// The code system; `None` where it is not on this server and the set lists the code itself.
    pub(crate) system: Option<&'a CodeSystem>,
    /// The concept; `None` where the system is absent or a fragment without the code.
    pub(crate) concept: Option<u32>,
    /// How the set lists the code, where it does.
    pub(crate) listed: Option<&'a Listed>,
    /// The set whose include holds the code: the one asked for or one that it imports.
    pub(crate) set: &'a ValueSet,
    /// Version of the system as that include writes it.
    pub(crate) written_version: Option<&'a str>,
    /// Sets that the code came through, the one asked for left out.
    pub(crate) via: Vec<&'a ValueSet>,
}

impl Member<'_> {
    /// Version of the code system that decided.
    pub(crate) fn version(&self) -> Option<&str> {
        self.system.and_then(|system| system.version.as_deref())
    }

    /// Does the same set hold the same version of the same system here?
    fn is_same(&self, other: &Self) -> bool {
        let system = |member: &Self| member.system.map(std::ptr::from_ref);
        std::ptr::eq(self.set, other.set) && system(self) == system(other)
    }

    fn is_inactive(&self) -> bool {
        matches!((self.system, self.concept), (Some(system), Some(at)) if system.is_inactive(at))
    }
}

/// What a search found.
#[derive(Debug, Clone, Default)]
pub(crate) struct Found<'a> {
    /// The ways in which the code is in the set; none means that it is not.
    pub(crate) members: Vec<Member<'a>>,
    /// The code would be in, were it not inactive.
    pub(crate) inactive: Vec<Member<'a>>,
    /// Systems and versions without which the question cannot be answered.
    pub(crate) unknown: Vec<(String, Option<String>)>,
    /// An include stands for exactly the version that was asked for, so no other version counts.
    exact: bool,
}

impl<'a> Found<'a> {
    /// What was found without a search.
    pub(crate) fn of(member: Option<Member<'a>>) -> Self {
        Self { members: member.into_iter().collect(), ..Self::default() }
    }

    fn is_empty(&self) -> bool {
        self.members.is_empty() && self.inactive.is_empty() && self.unknown.is_empty()
    }

    /// Steps to take over, or to copy, what is here.
    fn len(&self) -> usize {
        let ways = |members: &[Member<'_>]| members.iter().map(|member| 1 + member.via.len()).sum::<usize>();
        ways(&self.members) + ways(&self.inactive) + self.unknown.len()
    }

    /// Takes over what another part found. Several paths to one include are one way in.
    fn append(&mut self, other: Self, budget: &Budget<'_>) -> Result<(), TxError> {
        let here = self.members.len() + self.inactive.len() + self.unknown.len();
        budget.spend(1 + other.len() + other.len() * here / COMPARED_PER_STEP)?;
        for (mine, theirs) in [(&mut self.members, other.members), (&mut self.inactive, other.inactive)] {
            for member in theirs {
                if !mine.iter().any(|known| known.is_same(&member)) {
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
        Ok(())
    }
}

/// A search for one code.
#[derive(Debug)]
pub(crate) struct Search<'a, 'q> {
    catalog: &'a Catalog,
    asked: Asked<'q>,
    pins: &'q Pins,
    trust_lists: bool,
    budget: &'q Budget<'q>,
    /// What was found in imported sets: many paths may lead to the same one.
    imported: RefCell<HashMap<*const ValueSet, Found<'a>, DefaultHashBuilder>>,
    /// The search for the code in any version, which excludes ask: one for all sets that the search comes to.
    anywhere: OnceCell<Box<Search<'a, 'q>>>,
    usual: OnceCell<Option<&'a Resource<CodeSystem>>>,
    /// The code system that was asked last, and the code in it.
    located: Cell<Option<(&'a CodeSystem, Option<Concept>)>>,
}

impl<'a, 'q> Search<'a, 'q> {
    /// A search for a code. With `trust_lists`, a listed code of a system that is not on this
    /// server counts as a member.
    pub(crate) fn new(
        catalog: &'a Catalog,
        asked: Asked<'q>,
        pins: &'q Pins,
        trust_lists: bool,
        budget: &'q Budget<'q>,
    ) -> Self {
        let (imported, usual, located) = (RefCell::default(), OnceCell::new(), Cell::new(None));
        let anywhere = OnceCell::new();
        Self { catalog, asked, pins, trust_lists, budget, imported, anywhere, usual, located }
    }

    /// The search for the code in any version of its system.
    fn anywhere(&self) -> &Self {
        if self.asked.version.is_none() {
            return self;
        }
        self.anywhere.get_or_init(|| {
            let asked = Asked { version: None, ..self.asked };
            Box::new(Search::new(self.catalog, asked, self.pins, self.trust_lists, self.budget))
        })
    }

    /// Looks for the code in the code system that is meant as a rule, while nobody knows the value set yet: what is
    /// read for both is waited for at the same time then.
    pub(crate) fn look_ahead(&self) {
        if let Some(Ok(system)) = self.usual().map(|usual| usual.get(self.budget)) {
            self.locate(system);
        }
    }

    /// The code system that is meant where nothing is said of its version.
    fn usual(&self) -> Option<&'a Resource<CodeSystem>> {
        *self.usual.get_or_init(|| self.catalog.code_system_for(self.asked.system, None, self.asked.code))
    }

    /// The code in a code system.
    fn locate(&self, system: &'a CodeSystem) -> Option<Concept> {
        match self.located.get() {
            Some((known, concept)) if std::ptr::eq(known, system) => concept,
            _ => {
                let concept = system.locate(self.asked.code);
                self.located.set(Some((system, concept)));
                concept
            }
        }
    }

    /// Looks for the code in a set that passed [`check`](super::imports::check).
    ///
    /// # Errors
    /// When a code system that matters is broken, or a filter does not fit it.
    pub(crate) fn run(&self, at: Home<'a>) -> Result<Found<'a>, TxError> {
        let set = at.set;
        if self.at_first_sight(&set.compose)? == Some(false) {
            return Ok(Found::default());
        }
        self.budget.during("searching the includes of a value set");
        let mut found = Found::default();
        for include in set.compose.includes_of(self.asked.system) {
            self.include(at, include, &mut found)?;
        }
        let is_held = !(found.members.is_empty() && found.inactive.is_empty());
        if is_held && !set.compose.exclude.is_empty() {
            // A code is excluded in every version, since versions of a system share their codes, unless
            // the set keeps them apart.
            for exclude in set.compose.excludes_of(self.asked.system) {
                let mut out = Found::default();
                self.anywhere().include(at, exclude, &mut out)?;
                self.budget.spend(found.members.len() * out.members.len())?;
                let same = |a: &Member<'_>, b: &Member<'_>| {
                    !set.compose.versions_apart || a.version() == b.version()
                };
                let stays = |member: &Member<'_>| !out.members.iter().any(|other| same(other, member));
                found.members.retain(stays);
                found.inactive.retain(stays);
            }
        }
        if found.exact {
            found.members.retain(|member| member.version() == self.asked.version);
        }
        if set.compose.active_only {
            let (inactive, active) = found.members.into_iter().partition(Member::is_inactive);
            found.members = active;
            found.inactive.extend::<Vec<_>>(inactive);
        }
        Ok(found)
    }

    /// Is the code in a set that passed [`check`](super::imports::check)?
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    pub(crate) fn is_member(&self, at: Home<'a>) -> Result<bool, TxError> {
        match self.at_first_sight(&at.set.compose)? {
            Some(is_in) => Ok(is_in),
            None => Ok(!self.run(at)?.members.is_empty()),
        }
    }

    /// Is the code in a set whose includes say nothing but the usual version of a system, and filters? `None` where more
    /// has to be looked at.
    fn at_first_sight(&self, compose: &'a Compose) -> Result<Option<bool>, TxError> {
        let mut is_in = false;
        for include in compose.includes_of(self.asked.system) {
            self.budget.spend(1)?;
            if !include.value_sets.is_empty() {
                return Ok(None);
            }
            if include.system.as_deref() != Some(self.asked.system) {
                continue;
            }
            if include.listed.is_some() || compose.locked_date.is_some() || !self.pins.is_empty() {
                return Ok(None);
            }
            let Some(system) = self.usual() else { return Ok(None) };
            let system = system.get(self.budget)?;
            if include.version.as_deref().is_some_and(|wanted| system.version.as_deref() != Some(wanted)) {
                return Ok(None);
            }
            // Not left at the first include that holds the code: what is wrong with a later one is told too.
            is_in |= match (system.content, self.locate(system)) {
                (Content::Complete | Content::Fragment, Some(concept)) => {
                    include.often.admits(&include.filters, system, concept, self.budget)?
                }
                (Content::Complete, None) => false,
                _ => return Ok(None),
            };
        }
        let says_less = compose.active_only || !compose.exclude.is_empty() || self.asked.version.is_some();
        Ok(Some(is_in).filter(|is_in| !(*is_in && says_less)))
    }

    fn include(&self, at: Home<'a>, include: &'a Include, found: &mut Found<'a>) -> Result<(), TxError> {
        self.budget.spend(1)?;
        if include.system.as_deref().is_some_and(|system| system != self.asked.system) {
            return Ok(());
        }
        if include.value_sets.is_empty() && found.is_empty() {
            return self.by_system(at.set, include, found);
        }
        let mut here = Found::default();
        if include.system.is_some() {
            self.by_system(at.set, include, &mut here)?;
        }
        // Everything that an include names must hold the code: R4's comment and R5 say so.
        for canonical in &include.value_sets {
            let imported = import(self.catalog, at, canonical, self.pins, self.budget)?
                .expect("imports were resolved before the search");
            let mut inner = self.imported(imported)?;
            if inner.members.is_empty() {
                return found.append(inner, self.budget);
            }
            for member in &mut inner.members {
                member.via.push(imported.set);
            }
            if include.system.is_none() && here.members.is_empty() {
                here = inner;
            }
        }
        found.append(here, self.budget)
    }

    fn imported(&self, at: Home<'a>) -> Result<Found<'a>, TxError> {
        let key = std::ptr::from_ref(at.set);
        if let Some(found) = self.imported.borrow().get(&key) {
            self.budget.spend(1 + found.len())?;
            return Ok(found.clone());
        }
        let found = self.run(at)?;
        self.imported.borrow_mut().insert(key, found.clone());
        Ok(found)
    }

    /// The part of an include that its system, codes and filters say.
    fn by_system(
        &self,
        set: &'a ValueSet,
        include: &'a Include,
        found: &mut Found<'a>,
    ) -> Result<(), TxError> {
        let system = self.asked.system;
        let wanted = self.wanted_version(include);
        let lists = |code: &str| include.listed.as_ref().and_then(|listed| listed.get(code));
        let member = |system, concept, listed| Member {
            system,
            concept,
            listed,
            set,
            written_version: include.version.as_deref(),
            via: Vec::new(),
        };
        self.budget.spend(1 + self.pins.force.len() / 8)?;
        let systems = self.code_systems(system, wanted, day(set, self.pins))?;
        if systems.is_empty() {
            // Nobody here can say what the codes of this system are, except the list itself.
            match lists(self.asked.code) {
                Some(listed) if self.trust_lists => found.members.push(member(None, None, Some(listed))),
                None if include.listed.is_some() => {}
                _ => found.unknown.push((system.to_owned(), wanted.map(String::from))),
            }
        }
        for system in systems {
            found.exact |= self.asked.version.is_some() && self.asked.version == system.version.as_deref();
            let found_there = self.locate(system);
            let concept = found_there.map(|concept| concept.at);
            let listed = include.listed.as_ref().and_then(|listed| {
                let same = |code: &str| listed.get(code);
                same(self.asked.code).or_else(|| same(system.code(concept?)))
            });
            let listed = match &include.listed {
                Some(list) if listed.is_none() && system.case_sensitive == Some(false) => {
                    self.budget.spend(list.len())?;
                    folded(list, system, self.asked.code)
                }
                _ => listed,
            };
            if include.listed.is_some() && listed.is_none() {
                continue;
            }
            let is_in = match found_there {
                Some(concept) => include.often.admits(&include.filters, system, concept, self.budget)?,
                // A fragment does not know all codes; what is not known passes no filter.
                None => system.content == Content::Fragment && include.filters.is_empty(),
            };
            if is_in {
                found.members.push(member(Some(system), concept, listed));
            }
        }
        Ok(())
    }

    /// The version or pattern of the system that an include means.
    fn wanted_version<'v>(&'v self, include: &'v Include) -> Option<&'v str> {
        self.pins.replacing(self.asked.system, include.version.as_deref()).or(include.version.as_deref())
    }

    /// The versions of the system that are to be searched: for `*` all, for another pattern the one
    /// asked for where it fits, else the newest, else exactly one; with none, that of the day.
    fn code_systems(
        &self,
        url: &str,
        wanted: Option<&str>,
        day: Option<&str>,
    ) -> Result<Systems<'a>, TxError> {
        let find = |version: Option<&str>| -> Result<Option<&'a CodeSystem>, TxError> {
            let found = match version {
                None if day.is_none() => self.usual(),
                None => self.catalog.code_system_of(url, day, self.asked.code),
                version => self.catalog.code_system_for(url, version, self.asked.code),
            };
            let Some(resource) = found else { return Ok(None) };
            let system = resource.get(self.budget)?;
            let speaks = matches!(system.content, Content::Complete | Content::Fragment);
            Ok(speaks.then_some(system))
        };
        if wanted == Some("*") {
            let versions = self.catalog.code_system_versions(url);
            self.budget.spend(versions.len() * (1 + versions.len() / 8))?;
            let found = versions.iter().rev().filter_map(|version| find(Some(version)).transpose());
            let mut found: Systems<'a> = found.collect::<Result<_, _>>()?;
            if found.is_empty() {
                found.extend(find(None)?);
            }
            return Ok(found);
        }
        if let Some(pattern) = wanted.filter(|wanted| version::is_pattern(wanted)) {
            let asked = self.asked.version.filter(|asked| version::matches(pattern, asked));
            if let Some(system) = asked.map(|asked| find(Some(asked))).transpose()?.flatten() {
                return Ok(smallvec![system]);
            }
        }
        Ok(find(wanted)?.into_iter().collect())
    }
}

/// Versions of a code system: one, as a rule, which then takes no memory of its own.
type Systems<'a> = SmallVec<[&'a CodeSystem; 1]>;

/// A listed code that differs by case only, where the system does not care.
fn folded<'a>(listed: &'a List, system: &CodeSystem, code: &str) -> Option<&'a Listed> {
    listed.iter().find(|(listed, _)| system.same_code(listed, code)).map(|(_, listed)| listed)
}
