//! What a value set builds on: the sets that it imports, and the versions that the caller fixes for them and for code
//! systems.

use std::collections::HashSet;

use super::{Include, ValueSet};
use crate::catalog::Catalog;
use crate::{Budget, TxError, Unprocessable, version};

/// How deep imports may be nested. Real sets need three or four levels; without a bound, a long
/// chain would exhaust the stack.
const IMPORT_DEPTH: usize = 64;

/// Bytes that the regular expressions of one value set may take, compiled.
const PATTERN_BYTES: usize = 4 << 20;
/// Steps that finding an import takes.
const IMPORT_STEPS: usize = 2;

/// Versions that the caller fixes for systems and value sets, as `(url, version)`.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    /// `system-version`: where the value set gives none.
    pub(crate) default: Vec<(String, String)>,
    /// `check-system-version`: anything else is an error.
    pub(crate) check: Vec<(String, String)>,
    /// `force-system-version`: whatever the value set gives.
    pub(crate) force: Vec<(String, String)>,
    /// `default-valueset-version`: for value sets that are imported without a version.
    pub(crate) value_sets: Vec<(String, String)>,
    /// `date`: the day whose versions are meant where nothing else names one.
    pub(crate) date: Option<String>,
}

impl Pins {
    /// No versions.
    pub(crate) const NONE: &Self = &Self {
        default: Vec::new(),
        check: Vec::new(),
        force: Vec::new(),
        value_sets: Vec::new(),
        date: None,
    };

    /// Is nothing fixed?
    pub(crate) fn is_empty(&self) -> bool {
        let Self { default, check, force, value_sets, date } = self;
        [default, check, force, value_sets].iter().all(|pins| pins.is_empty()) && date.is_none()
    }

    /// The version that a pin puts in the place of the one that an include of this system gives.
    pub(crate) fn replacing(&self, system: &str, written: Option<&str>) -> Option<&str> {
        let where_none = || pinned(&self.check, system).or_else(|| pinned(&self.default, system));
        let pin = pinned(&self.force, system).or_else(|| written.is_none().then(where_none).flatten());
        pin.filter(|pin| Some(*pin) != written)
    }
}

/// The version pinned for a URL.
pub(crate) fn pinned<'p>(pins: &'p [(String, String)], url: &str) -> Option<&'p str> {
    pins.iter().find(|(pinned, _)| pinned == url).map(|(_, version)| version.as_str())
}

/// Checks that a value set can be used: that all it imports is there, nothing imports itself, and
/// no filter is faulty. The answer does not depend on the code that is then looked for.
///
/// # Errors
/// Says what stands in the way.
pub(crate) fn check(
    catalog: &Catalog,
    at: Home<'_>,
    pins: &Pins,
    ecosystem: bool,
    budget: &Budget<'_>,
) -> Result<(), TxError> {
    budget.spend(1 + at.set.compose.include.len() / 8)?;
    let imports = |include: &Include| !include.value_sets.is_empty();
    if !at.set.compose.parts().any(imports) {
        // Most sets import nothing.
        return Ok(is_usable(at.set, budget)?);
    }
    let unknown = |url: &str| TxError::UnknownValueSet { url: url.to_owned(), ecosystem };
    budget.during("following the imports of a value set");
    walk(catalog, at, pins, &unknown, &mut Vec::new(), &mut HashSet::new(), budget)
}

/// Checks what can be wrong with a set whatever the code.
#[inline]
fn is_usable(set: &ValueSet, budget: &Budget<'_>) -> Result<(), Unprocessable> {
    let Some(rare) = &set.compose.rare else { return Ok(()) };
    if let Some(fault) = &rare.fault {
        return Err(fault.clone());
    }
    if rare.has_patterns {
        let mut bytes = 0;
        for filter in set.compose.parts().flat_map(|part| &part.filters) {
            bytes += filter.prepare(budget)?;
            if bytes > PATTERN_BYTES {
                return Err(Unprocessable::PatternsTooLarge { limit_mib: PATTERN_BYTES >> 20 });
            }
        }
    }
    Ok(())
}

/// A value set and the resource it stands in: itself, or the one that contains it and whose
/// contained sets `#id` refers to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Home<'a> {
    pub(crate) home: &'a ValueSet,
    pub(crate) set: &'a ValueSet,
}

impl<'a> Home<'a> {
    /// A value set that stands by itself.
    pub(crate) fn own(set: &'a ValueSet) -> Self {
        Self { home: set, set }
    }
}

fn walk<'a>(
    catalog: &'a Catalog,
    at: Home<'a>,
    pins: &Pins,
    unknown: &impl Fn(&str) -> TxError,
    path: &mut Vec<&'a ValueSet>,
    done: &mut HashSet<*const ValueSet>,
    budget: &Budget<'_>,
) -> Result<(), TxError> {
    let set = at.set;
    budget.spend(1 + path.len() / 8)?;
    if let Some(at) = path.iter().position(|other| std::ptr::eq(*other, set)) {
        let circle = path[at..].iter().chain([&set]);
        let urls = circle.map(|set| version::join(&set.url, set.version.as_deref())).collect();
        return Err(Unprocessable::ImportCycle(urls).into());
    }
    if path.len() > IMPORT_DEPTH {
        return Err(
            Unprocessable::ImportsTooDeep { value_set: path[0].url.clone(), limit: IMPORT_DEPTH }.into()
        );
    }
    if done.contains(&std::ptr::from_ref(set)) {
        return Ok(());
    }
    budget.spend(set.compose.include.len() / 8)?;
    is_usable(set, budget)?;
    path.push(set);
    for canonical in set.compose.parts().flat_map(|include| &include.value_sets) {
        let imported = import(catalog, at, canonical, pins, budget)?.ok_or_else(|| {
            let (url, version) = meant(canonical, pins);
            unknown(&version::join(url, version))
        })?;
        walk(catalog, imported, pins, unknown, path, done, budget)?;
    }
    path.pop();
    done.insert(std::ptr::from_ref(set));
    Ok(())
}

pub(crate) fn import<'a>(
    catalog: &'a Catalog,
    at: Home<'a>,
    canonical: &str,
    pins: &Pins,
    budget: &Budget<'_>,
) -> Result<Option<Home<'a>>, TxError> {
    budget.spend(IMPORT_STEPS + pins.value_sets.len() / 8)?;
    if let Some(id) = canonical.strip_prefix('#') {
        return Ok(at.home.contained.get(id).map(|set| Home { home: at.home, set }));
    }
    let found = match meant(canonical, pins) {
        (url, None) => catalog.value_set_of(url, day(at.set, pins), budget)?,
        (url, version) => catalog.value_set(url, version, budget)?,
    };
    Ok(found.map(Home::own))
}

/// The value set that an import means: of the version that it names, else of the pinned one.
fn meant<'v>(canonical: &'v str, pins: &'v Pins) -> (&'v str, Option<&'v str>) {
    let (url, version) = version::split(canonical);
    (url, version.or_else(|| pinned(&pins.value_sets, url)))
}

/// The day whose versions a set means where it names none.
pub(crate) fn day<'d>(set: &'d ValueSet, pins: &'d Pins) -> Option<&'d str> {
    set.compose.locked_date.as_deref().or(pins.date.as_deref())
}

/// The systems that a set draws codes from, its imports included, in order of mention.
pub(crate) fn systems<'a>(
    catalog: &'a Catalog,
    at: Home<'a>,
    pins: &Pins,
    budget: &Budget<'_>,
) -> Result<Vec<&'a str>, TxError> {
    let (mut out, mut known) = (Vec::new(), HashSet::new());
    let mut waiting = vec![at];
    let mut seen: HashSet<*const ValueSet> = HashSet::new();
    while let Some(at) = waiting.pop() {
        let set = at.set;
        if !seen.insert(std::ptr::from_ref(set)) {
            continue;
        }
        for include in &set.compose.include {
            budget.spend(1)?;
            if let Some(system) = include.system.as_deref().filter(|system| known.insert(*system)) {
                out.push(system);
            }
            for canonical in &include.value_sets {
                waiting.extend(import(catalog, at, canonical, pins, budget)?);
            }
        }
    }
    Ok(out)
}
