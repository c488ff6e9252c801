//! The modules that an RF2 package contains and those on which it depends, by its module dependency reference
//! set (Release File Specification, 5.2.4.2).
//!
//! A package with the root concept of SNOMED CT is an edition, which contains all modules that it names. Any
//! other package is an extension: it contains the modules that state a dependency, and depends on the modules
//! of other packages.

use std::collections::{BTreeMap, HashMap};

use terminology::indexing::{SNOMED_CT, SNOMED_CT_UNPUBLISHED};

use super::rows::{for_each_row, is_snapshot};
use crate::error::ImportError;
use crate::release_source::{ReleaseSource, base_name};
use crate::stated_release::StatedRelease;
use crate::table_reader::{DelimitedTable, FieldBuffer};

const ROOT_CONCEPT: &str = "138875005";

/// Modules, each with the date of a release as `YYYYMMDD`.
pub(crate) type ModuleDates = BTreeMap<String, String>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rf2Package {
    pub version: String,
    pub holds: ModuleDates,
    /// Modules that other packages must provide.
    pub needs: ModuleDates,
}

impl Rf2Package {
    /// Version of the International Edition that the package contains or on which it depends.
    pub fn international_base(&self) -> Option<String> {
        let date = self.needs.get(CORE_MODULE).or(self.holds.get(CORE_MODULE))?;
        Some(format!("{SNOMED_CT}/{CORE_MODULE}/version/{date}"))
    }
}

impl Rf2Package {
    /// Inspects a package. Its version consists of what the caller states and else of what its files suggest.
    ///
    /// # Errors
    /// Returns [`ImportError`] if a file is not valid.
    pub fn inspect(source: &mut ReleaseSource, stated: &StatedRelease) -> Result<Self, ImportError> {
        let (file, is_edition) = find_concept_file(source)?;
        let (mut sources, mut targets) = (ModuleDates::new(), ModuleDates::new());
        // Number of modules on which each module depends.
        let mut builds_on: HashMap<String, usize> = HashMap::new();
        let dependencies = |name: &str| is_snapshot(name, "der2_ssRefset_ModuleDependency");
        for_each_row(source, dependencies, 8, |_, fields| {
            if fields.get(2) == "1" {
                *builds_on.entry(fields.get(3).to_owned()).or_default() += 1;
                keep_latest(&mut sources, fields.get(3), fields.get(6));
                keep_latest(&mut targets, fields.get(5), fields.get(7));
            }
            Ok(())
        })?;
        let is_of_core = |module: &str| module == CORE_MODULE || module == MODEL_MODULE;
        builds_on.retain(|module, _| !is_of_core(module));
        let (mut holds, mut needs) = (sources, ModuleDates::new());
        if is_edition {
            targets.iter().for_each(|(module, date)| keep_latest(&mut holds, module, date));
        } else {
            holds.retain(|module, _| !is_of_core(module));
            targets.retain(|module, _| !holds.contains_key(module));
            needs = targets;
        }
        let name = FileNameParts::parse(&file);
        // The International Edition also has modules that depend on its core, such as the maps to ICD-10.
        let is_of_international = |module: &str| is_edition && name.owner == "INT" && !has_namespace(module);
        builds_on.retain(|module, _| !is_of_international(module));
        let top = builds_on.into_iter().max_by(|(a, na), (b, nb)| na.cmp(nb).then_with(|| b.cmp(a)));
        let (module, date) = match top {
            Some((top, _)) => (top.clone(), holds[&top].clone()),
            None => (CORE_MODULE.to_owned(), name.date.to_owned()),
        };
        let module = stated.edition.clone().unwrap_or(module);
        let date = stated.version.clone().unwrap_or(date);
        if date.len() != 8 || !date.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(ImportError::in_file(
                &file,
                "the name of the file does not end with the date of the release, as in sct2_Concept_Snapshot_INT_20250101.txt; \
                 state the date with --version",
            ));
        }
        let space = if name.is_trial || stated.is_unpublished { SNOMED_CT_UNPUBLISHED } else { SNOMED_CT };
        Ok(Self { version: format!("{space}/{module}/version/{date}"), holds, needs })
    }
}

/// Returns whether the owner of a namespace, such as a national release centre, issued the id of a concept:
/// the digits before the last one are `10`, and `00` in the ids of SNOMED International.
fn has_namespace(id: &str) -> bool {
    id.len() > 2 && id.as_bytes()[id.len() - 3..].starts_with(b"10")
}

/// Sets the release date of a module if it is the latest so far.
fn keep_latest(modules: &mut ModuleDates, module: &str, date: &str) {
    let latest = modules.entry(module.to_owned()).or_default();
    if date > latest.as_str() {
        *latest = date.to_owned();
    }
}

/// The file of the concepts, and whether it contains the root concept.
fn find_concept_file(source: &mut ReleaseSource) -> Result<(String, bool), ImportError> {
    let files = source.files_named(|name| is_snapshot(name, "sct2_Concept_")).pop();
    let file = files.expect("the source was recognized by its file of concepts");
    let (mut table, mut fields) = (DelimitedTable::open(source, &file, '\t')?, FieldBuffer::default());
    while let Some(row) = table.next_line(&mut fields)? {
        if row.get(0) == ROOT_CONCEPT {
            return Ok((file, true));
        }
    }
    Ok((file, false))
}

/// Components of the name of a file.
struct FileNameParts<'a> {
    owner: &'a str,
    date: &'a str,
    is_trial: bool,
}

impl<'a> FileNameParts<'a> {
    fn parse(file: &'a str) -> Self {
        let name = base_name(file);
        let mut parts = name.trim_end_matches(".txt").rsplit('_');
        let (date, owner) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        Self { owner, date, is_trial: name.starts_with('x') }
    }
}

pub(super) const CORE_MODULE: &str = "900000000000207008";

pub(super) const MODEL_MODULE: &str = "900000000000012004";
