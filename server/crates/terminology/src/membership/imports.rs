//! The value sets that a value set imports.

use std::collections::HashSet;

use super::version_pins::{VersionPins, pinned};
use crate::catalog::Catalog;
use crate::model::{Budget, TxError, Unprocessable, canonical};
use crate::value_set::{IncludeRule, ValueSet};

/// Maximum depth of imports. Real value sets need three or four levels; without a limit, a long chain would
/// overflow the stack.
const IMPORT_DEPTH: usize = 64;

/// Maximum size of the compiled regular expressions of a value set, in bytes.
const PATTERN_BYTES: usize = 4 << 20;
/// Number of steps for resolving an import.
const IMPORT_STEPS: usize = 2;

/// Checks that a value set can be used: all its imports exist, no value set imports itself, and no filter is
/// faulty. The result does not depend on the code that is tested.
///
/// # Errors
/// [`TxError`] with the first problem.
pub(crate) fn check_value_set(
    catalog: &Catalog,
    scope: ValueSetScope<'_>,
    pins: &VersionPins,
    ecosystem: bool,
    budget: &Budget<'_>,
) -> Result<(), TxError> {
    budget.spend(1 + scope.set.compose.include.len() / 8)?;
    let imports = |include: &IncludeRule| !include.value_sets.is_empty();
    if !scope.set.compose.rules().any(imports) {
        // Most value sets import nothing.
        return Ok(check_own_faults(scope.set, budget)?);
    }
    let unknown = |url: &str| TxError::UnknownValueSet { url: url.to_owned(), ecosystem };
    budget.set_activity("following the imports of a value set");
    walk_imports(catalog, scope, pins, &unknown, &mut Vec::new(), &mut HashSet::new(), budget)
}

/// Checks a value set for errors that do not depend on the code.
#[inline]
fn check_own_faults(set: &ValueSet, budget: &Budget<'_>) -> Result<(), Unprocessable> {
    let Some(rare) = &set.compose.rare else { return Ok(()) };
    if let Some(fault) = &rare.fault {
        return Err(fault.clone());
    }
    if rare.has_patterns {
        let mut bytes = 0;
        for filter in set.compose.rules().flat_map(|part| &part.filters) {
            bytes += filter.prepare(budget)?;
            if bytes > PATTERN_BYTES {
                return Err(Unprocessable::PatternsTooLarge { limit_mib: PATTERN_BYTES >> 20 });
            }
        }
    }
    Ok(())
}

/// A value set, and the resource that contains it. Contained value sets of that resource are what `#id`
/// refers to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ValueSetScope<'a> {
    pub(crate) container: &'a ValueSet,
    pub(crate) set: &'a ValueSet,
}

impl<'a> ValueSetScope<'a> {
    /// A value set that is not contained in another resource.
    pub(crate) fn uncontained(set: &'a ValueSet) -> Self {
        Self { container: set, set }
    }
}

fn walk_imports<'a>(
    catalog: &'a Catalog,
    scope: ValueSetScope<'a>,
    pins: &VersionPins,
    unknown: &impl Fn(&str) -> TxError,
    path: &mut Vec<&'a ValueSet>,
    visited: &mut HashSet<*const ValueSet>,
    budget: &Budget<'_>,
) -> Result<(), TxError> {
    let set = scope.set;
    budget.spend(1 + path.len() / 8)?;
    if let Some(scope) = path.iter().position(|other| std::ptr::eq(*other, set)) {
        let cycle = path[scope..].iter().chain([&set]);
        let urls = cycle.map(|set| set.canonical()).collect();
        return Err(Unprocessable::ImportCycle(urls).into());
    }
    if path.len() > IMPORT_DEPTH {
        return Err(
            Unprocessable::ImportsTooDeep { value_set: path[0].url.clone(), limit: IMPORT_DEPTH }.into()
        );
    }
    if visited.contains(&std::ptr::from_ref(set)) {
        return Ok(());
    }
    budget.spend(set.compose.include.len() / 8)?;
    check_own_faults(set, budget)?;
    path.push(set);
    for canonical in set.compose.rules().flat_map(|include| &include.value_sets) {
        let imported = resolve_import(catalog, scope, canonical, pins, budget)?.ok_or_else(|| {
            let (url, version) = import_target(canonical, pins);
            unknown(&canonical::join(url, version))
        })?;
        walk_imports(catalog, imported, pins, unknown, path, visited, budget)?;
    }
    path.pop();
    visited.insert(std::ptr::from_ref(set));
    Ok(())
}

pub(crate) fn resolve_import<'a>(
    catalog: &'a Catalog,
    scope: ValueSetScope<'a>,
    canonical: &str,
    pins: &VersionPins,
    budget: &Budget<'_>,
) -> Result<Option<ValueSetScope<'a>>, TxError> {
    budget.spend(IMPORT_STEPS + pins.value_sets.len() / 8)?;
    if let Some(id) = canonical.strip_prefix('#') {
        return Ok(scope
            .container
            .contained
            .get(id)
            .map(|set| ValueSetScope { container: scope.container, set }));
    }
    let resolved = match import_target(canonical, pins) {
        (url, None) => catalog.value_set_of(url, version_day(scope.set, pins), budget)?,
        (url, version) => catalog.value_set(url, version, budget)?,
    };
    Ok(resolved.map(ValueSetScope::uncontained))
}

/// Returns URL and version of an import: the version in the import, or else the pinned one.
fn import_target<'v>(canonical: &'v str, pins: &'v VersionPins) -> (&'v str, Option<&'v str>) {
    let (url, version) = canonical::split(canonical);
    (url, version.or_else(|| pinned(&pins.value_sets, url)))
}

/// The day that determines versions that the value set does not state.
pub(crate) fn version_day<'d>(set: &'d ValueSet, pins: &'d VersionPins) -> Option<&'d str> {
    set.compose.locked_date.as_deref().or(pins.date.as_deref())
}

/// The code systems that a value set and its imports use, in order of mention.
pub(crate) fn code_systems_of<'a>(
    catalog: &'a Catalog,
    scope: ValueSetScope<'a>,
    pins: &VersionPins,
    budget: &Budget<'_>,
) -> Result<Vec<&'a str>, TxError> {
    let (mut out, mut urls) = (Vec::new(), HashSet::new());
    let mut waiting = vec![scope];
    let mut visited: HashSet<*const ValueSet> = HashSet::new();
    while let Some(scope) = waiting.pop() {
        let set = scope.set;
        if !visited.insert(std::ptr::from_ref(set)) {
            continue;
        }
        for include in &set.compose.include {
            budget.spend(1)?;
            if let Some(system) = include.system.as_deref().filter(|system| urls.insert(*system)) {
                out.push(system);
            }
            for canonical in &include.value_sets {
                waiting.extend(resolve_import(catalog, scope, canonical, pins, budget)?);
            }
        }
    }
    Ok(out)
}
