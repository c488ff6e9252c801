//! One value set version, compiled: its includes and excludes, made ready to test one code.

pub(crate) mod bits;
pub(crate) mod filter;
pub(crate) mod held;
pub(crate) mod implicit;
pub(crate) mod imports;
pub(crate) mod members;
mod often;
mod pattern;
pub(crate) mod search;

use std::collections::HashMap;

use serde_json::value::RawValue;
use smallvec::{SmallVec, smallvec};

use self::filter::Filter;
use self::often::Often;

use crate::Unprocessable;
use crate::display::TextKind;
use crate::wire::{self, Header};

/// Filters that one value set may have, those of its contained sets included.
const FILTERS: usize = 10_000;
/// How many of them may be regular expressions.
const PATTERNS: usize = 100;
/// Bytes that a listed code takes beside its texts.
const LISTED_BYTES: usize = 128;
/// A set with more includes and excludes than this finds those of a system by an index.
const FEW_PARTS: usize = 16;

/// A compiled value set.
#[derive(Debug, Default)]
pub(crate) struct ValueSet {
    pub(crate) url: String,
    pub(crate) version: Option<String>,
    pub(crate) status: Option<String>,
    pub(crate) experimental: bool,
    pub(crate) standards_status: Option<String>,
    pub(crate) language: Option<String>,
    /// The members of the resource that say what it is, as they are written: an expansion is a copy
    /// of the value set. Narrative and stored expansion are left out.
    pub(crate) definition: Vec<Member>,
    /// Language list that the set itself fixes, by extension.
    pub(crate) display_language: Option<String>,
    /// Supplements that the set cannot do without.
    pub(crate) supplements: Vec<String>,
    /// Contained value sets by id: what `#id` in an include refers to.
    pub(crate) contained: HashMap<String, ValueSet>,
    pub(crate) compose: Compose,
}

/// `ValueSet.compose`: which codes are in. Every question reads it, and as a rule nothing else of the set, so it is kept
/// small and in one piece.
#[derive(Debug, Default)]
pub(crate) struct Compose {
    pub(crate) include: SmallVec<[Include; 1]>,
    pub(crate) exclude: Vec<Include>,
    /// `inactive` is false: inactive codes are left out.
    pub(crate) active_only: bool,
    /// `versionsMatch` is false, by extension: what is excluded in one version of a system stays in others.
    pub(crate) versions_apart: bool,
    /// The day whose versions are meant where an include names none.
    pub(crate) locked_date: Option<Box<str>>,
    /// What most sets do not have.
    pub(crate) rare: Option<Box<Rare>>,
}

/// What few sets have.
#[derive(Debug, Default)]
pub(crate) struct Rare {
    /// Why the set cannot be used whatever the code; found once, told at each use.
    pub(crate) fault: Option<Unprocessable>,
    /// Does a filter have a regular expression?
    pub(crate) has_patterns: bool,
    /// The includes, and the excludes, of each system, where there are many.
    by_system: Option<[PartsBySystem; 2]>,
}

/// Numbers of the parts of each system, and under the empty name of those without a system.
type PartsBySystem = hashbrown::HashMap<Box<str>, Vec<u32>>;

impl Compose {
    /// All includes and excludes.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &Include> {
        self.include.iter().chain(&self.exclude)
    }

    /// Makes what depends on all parts, once they are there.
    fn finish(&mut self) {
        if self.parts().flat_map(|part| &part.filters).any(Filter::has_pattern) {
            self.rare.get_or_insert_default().has_patterns = true;
        }
        if self.include.len() + self.exclude.len() > FEW_PARTS {
            let index = |parts: &[Include]| {
                let mut index = PartsBySystem::default();
                for (number, part) in (0..).zip(parts) {
                    index.entry(part.system.clone().unwrap_or_default()).or_default().push(number);
                }
                index
            };
            let indexes = [index(&self.include), index(&self.exclude)];
            self.rare.get_or_insert_default().by_system = Some(indexes);
        }
    }

    fn index(&self, which: usize) -> Option<&PartsBySystem> {
        self.rare.as_ref()?.by_system.as_ref().map(|indexes| &indexes[which])
    }

    /// Says why the set cannot be used, unless something was said before.
    pub(crate) fn set_fault(&mut self, fault: Unprocessable) {
        self.rare.get_or_insert_default().fault.get_or_insert(fault);
    }

    /// The includes that may hold a code of a system, in order.
    #[inline]
    pub(crate) fn includes_of(&self, system: &str) -> PartsOf<'_> {
        PartsOf::new(&self.include, self.index(0), system)
    }

    /// The excludes that may hold a code of a system, in order.
    pub(crate) fn excludes_of(&self, system: &str) -> PartsOf<'_> {
        PartsOf::new(&self.exclude, self.index(1), system)
    }
}

/// The parts of a set that may hold a code of a system: all of them where there are few.
pub(crate) enum PartsOf<'a> {
    All(std::slice::Iter<'a, Include>),
    /// Of the system, and without a system.
    Indexed(&'a [Include], [std::iter::Peekable<std::slice::Iter<'a, u32>>; 2]),
}

impl<'a> PartsOf<'a> {
    #[inline]
    fn new(parts: &'a [Include], index: Option<&'a PartsBySystem>, system: &str) -> Self {
        let Some(index) = index else { return Self::All(parts.iter()) };
        let of = |system: &str| index.get(system).map_or([].iter(), |numbers| numbers.iter()).peekable();
        Self::Indexed(parts, [of(system), of("")])
    }
}

impl<'a> Iterator for PartsOf<'a> {
    type Item = &'a Include;

    #[inline]
    fn next(&mut self) -> Option<&'a Include> {
        match self {
            Self::All(parts) => parts.next(),
            Self::Indexed(parts, [own, without]) => {
                let number = match (own.peek(), without.peek()) {
                    (Some(a), Some(b)) if b < a => without.next(),
                    (Some(_), _) => own.next(),
                    (None, _) => without.next(),
                }?;
                Some(&parts[*number as usize])
            }
        }
    }
}

/// One `compose.include` or `exclude`. What it has of `listed`, `filters` and `value_sets` must all
/// hold; with only a system it holds all of its codes.
#[derive(Debug, Default)]
pub(crate) struct Include {
    pub(crate) system: Option<Box<str>>,
    pub(crate) version: Option<Box<str>>,
    pub(crate) listed: Option<Box<List>>,
    pub(crate) filters: SmallVec<[Filter; 1]>,
    /// What the filters let through, once that is asked often.
    often: Often,
    pub(crate) value_sets: Vec<String>,
}

/// A member of the resource: its name and JSON.
type Member = (Box<str>, Box<RawValue>);

/// The codes that an include lists.
type List = hashbrown::HashMap<Box<str>, Listed>;

/// A code that an include lists by itself.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    /// Its place in the list.
    pub(crate) place: usize,
    pub(crate) display: Option<Box<str>>,
    pub(crate) designations: Vec<Designation>,
    /// The set marks this code as deprecated.
    pub(crate) deprecated: bool,
}

/// Another text for a listed code.
#[derive(Debug)]
pub(crate) struct Designation {
    pub(crate) language: Option<Box<str>>,
    pub(crate) text: Box<str>,
    /// What it is for.
    pub(crate) kind: TextKind,
    /// System, code and display of its use.
    pub(crate) purpose: Option<Box<[String; 3]>>,
}

impl ValueSet {
    /// Compiles a ValueSet resource.
    ///
    /// # Errors
    /// Says in one line what was wrong with the resource.
    pub(crate) fn compile(header: &Header, bytes: &[u8]) -> Result<Self, String> {
        let read: wire::ValueSet<'_> = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        let mut out = Self {
            url: header.url.clone().unwrap_or_default(),
            version: header.version.clone(),
            status: header.status.clone(),
            experimental: header.experimental,
            standards_status: wire::standards_status(&read.extension).map(String::from),
            language: read.language,
            supplements: wire::supplements(&read.extension),
            contained: contained(&read.contained)?,
            definition: definition(bytes)?,
            ..Self::default()
        };
        let Some(compose) = read.compose else {
            // Only an expansion is stored: it is the list of its codes.
            out.compose.include = listed_by_system(&read.expansion.unwrap_or_default().contains).into();
            out.compose.finish();
            return Ok(out);
        };
        out.compose.active_only = compose.inactive == Some(false);
        out.compose.locked_date = compose.locked_date.map(Box::from);
        out.display_language =
            wire::expansion_parameter(&compose.extension, "displayLanguage").map(String::from);
        out.compose.versions_apart =
            wire::expansion_parameter(&compose.extension, "versionsMatch") == Some("false");
        out.supplements.extend(wire::supplements(&compose.extension));
        let mut fault: Option<Unprocessable> = None;
        let mut compiled = |which: &str, list: &[wire::Include<'_>]| {
            let mut out = Vec::new();
            for (at, written) in list.iter().enumerate() {
                let at = format!("ValueSet.compose.{which}[{at}]");
                match Include::compile(written, &at)? {
                    Ok(include) => out.push(include),
                    Err(found) => {
                        fault.get_or_insert(found);
                    }
                }
            }
            Ok::<_, String>(out)
        };
        out.compose.include = compiled("include", &compose.include)?.into();
        out.compose.exclude = compiled("exclude", &compose.exclude)?;
        if let Some(fault) = fault {
            out.compose.set_fault(fault);
        }
        out.compose.finish();
        let contained = out.contained.values().map(|set| &set.compose);
        let filters = || {
            contained.clone().chain([&out.compose]).flat_map(Compose::parts).flat_map(|part| &part.filters)
        };
        let patterns = filters().filter(|filter| filter.has_pattern()).count();
        let counts = [(filters().count(), FILTERS), (patterns, PATTERNS)];
        if let Some((count, limit)) = counts.into_iter().find(|(count, limit)| count > limit) {
            out.compose.set_fault(Unprocessable::TooManyFilters { count, limit });
        }
        Ok(out)
    }

    /// Bytes that it takes in memory, about.
    pub(crate) fn weight(&self) -> usize {
        let part = |part: &Include| {
            let listed = part.listed.as_ref().map_or(0, |list| list.len() * LISTED_BYTES);
            size_of::<Include>()
                + listed
                + part.often.weight()
                + part.filters.iter().map(Filter::weight).sum::<usize>()
        };
        // The JSON is kept, and what it is compiled to has its texts again.
        let json = self.definition.iter().map(|(name, json)| 2 * (name.len() + json.get().len()));
        size_of::<Self>()
            + json.sum::<usize>()
            + self.compose.parts().map(part).sum::<usize>()
            + self.contained.values().map(Self::weight).sum::<usize>()
    }

    /// The value set of all codes of a code system (`CodeSystem.valueSet`).
    pub(crate) fn of_all(url: String, version: Option<String>, system: String) -> Self {
        let (system, written) = (Some(system.into()), version.clone().map(Box::from));
        let include = smallvec![Include { system, version: written, ..Include::default() }];
        Self { url, version, compose: Compose { include, ..Compose::default() }, ..Self::default() }
    }
}

/// The members of a ValueSet that an expansion may repeat.
fn definition(bytes: &[u8]) -> Result<Vec<Member>, String> {
    let members: wire::Members<'_> = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    let repeated = |name: &str| !matches!(name, "resourceType" | "text" | "meta" | "contained" | "expansion");
    let kept = members.0.into_iter().filter(|(name, _)| repeated(name));
    Ok(kept.map(|(name, json)| (Box::from(&*name), json.to_owned())).collect())
}

impl Include {
    /// The outer error is for a resource that breaks FHIR's rules, the inner one for a filter that
    /// cannot be used.
    fn compile(written: &wire::Include<'_>, at: &str) -> Result<Result<Self, Unprocessable>, String> {
        let by_code = !written.concept.is_empty();
        let by_filter = !written.filter.is_empty();
        if written.system.is_none() && written.value_set.is_empty() {
            return Err(format!("{at} has neither system nor valueSet (vsd-1)"));
        }
        if written.system.is_none() && (by_code || by_filter) {
            return Err(format!("{at} has codes or filters but no system (vsd-2)"));
        }
        if by_code && by_filter {
            return Err(format!("{at} has both codes and filters (vsd-3)"));
        }
        let system = written.system.as_deref().unwrap_or_default();
        let filters = written
            .filter
            .iter()
            .enumerate()
            .map(|(n, filter)| Filter::compile(filter, system, format!("{at}.filter[{n}]")))
            .collect::<Result<_, _>>();
        Ok(filters.map(|filters| Self {
            system: written.system.as_deref().map(Box::from),
            version: written.version.as_deref().map(Box::from),
            // Of two equal codes the first stays.
            listed: by_code
                .then(|| Box::new(written.concept.iter().enumerate().rev().map(Listed::compile).collect())),
            filters,
            value_sets: written.value_set.clone(),
            often: Often::default(),
        }))
    }
}

impl Listed {
    fn compile((place, written): (usize, &wire::Listed<'_>)) -> (Box<str>, Self) {
        let designation = |d: &wire::Designation<'_>| Designation {
            language: d.language.as_deref().map(Box::from),
            text: Box::from(&*d.value),
            kind: d.kind(),
            purpose: d.usage.as_ref().map(|usage| {
                let parts = [&usage.system, &usage.code, &usage.display];
                Box::new(parts.map(|part| part.as_deref().unwrap_or_default().to_owned()))
            }),
        };
        let listed = Self {
            place,
            display: written.display.as_deref().map(Box::from),
            designations: written.designation.iter().map(designation).collect(),
            deprecated: wire::is_deprecated(&written.extension),
        };
        ((*written.code).into(), listed)
    }
}

/// The value sets among the contained resources. FHIR lets contained resources not nest, so one
/// level is all.
fn contained(resources: &[&RawValue]) -> Result<HashMap<String, ValueSet>, String> {
    let mut out = HashMap::new();
    for json in resources {
        let header: Header = serde_json::from_str(json.get()).map_err(|e| format!("contained: {e}"))?;
        if let (Some(id), "ValueSet") = (&header.id, header.resource_type.as_str()) {
            let set = ValueSet::compile(&header, json.get().as_bytes())
                .map_err(|why| format!("contained #{id}: {why}"))?;
            if !set.contained.is_empty() {
                return Err(format!("contained #{id} has contained resources itself (dom-2)"));
            }
            out.insert(id.trim_start_matches('#').to_owned(), set);
        }
    }
    Ok(out)
}

/// The codes of a stored expansion as includes, one for each system and version.
fn listed_by_system(contains: &[wire::Contains<'_>]) -> Vec<Include> {
    fn walk<'a>(
        contains: &'a [wire::Contains<'_>],
        known: &mut HashMap<(&'a str, Option<&'a str>), usize>,
        out: &mut Vec<Include>,
    ) {
        for item in contains {
            if let (Some(system), Some(code), false) = (&item.system, &item.code, item.r#abstract) {
                let at = *known.entry((&**system, item.version.as_deref())).or_insert_with(|| {
                    let (system, version) =
                        (Some(Box::from(&**system)), item.version.as_deref().map(Box::from));
                    out.push(Include { system, version, ..Include::default() });
                    out.len() - 1
                });
                let list = out[at].listed.get_or_insert_default();
                let display = item.display.as_deref().map(Box::from);
                let listed = Listed { place: list.len(), display, ..Listed::default() };
                list.entry((**code).into()).or_insert(listed);
            }
            walk(&item.contains, known, out);
        }
    }
    let mut out = Vec::new();
    walk(contains, &mut HashMap::new(), &mut out);
    out
}
