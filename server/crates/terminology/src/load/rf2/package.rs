//! What one RF2 package holds and what it builds on, by its module dependency reference set (Release File
//! Specification, 5.2.4.2).
//!
//! A package with SNOMED CT's root concept is an edition: it holds every module that it names. Any other one is an
//! extension: it holds the modules that state a dependency in it, and what they depend on comes from other packages.

use std::collections::{BTreeMap, HashMap};

use super::{CORE_MODULE, MODEL_MODULE, URL, is_snapshot, rows};
use crate::load::source::base;
use crate::load::table::{Fields, Table};
use crate::load::{LoadError, Source};

const ROOT_CONCEPT: &str = "138875005";

/// Modules, each with the date of a release as `YYYYMMDD`.
pub(in crate::load) type Modules = BTreeMap<String, String>;

/// A package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::load) struct Package {
    /// The version URI of its edition, by the module that the others of the package are there for.
    pub version: String,
    /// What it holds.
    pub holds: Modules,
    /// What has to come from other packages.
    pub needs: Modules,
}

impl Package {
    /// Looks at a package.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn read(source: &mut Source) -> Result<Self, LoadError> {
        let (file, is_edition) = concepts(source)?;
        let (mut sources, mut targets) = (Modules::new(), Modules::new());
        // How many modules each one builds on.
        let mut builds_on: HashMap<String, usize> = HashMap::new();
        let dependencies = |name: &str| is_snapshot(name, "der2_ssRefset_ModuleDependency");
        rows(source, dependencies, 8, |_, fields| {
            if fields.get(2) == "1" {
                *builds_on.entry(fields.get(3).to_owned()).or_default() += 1;
                latest(&mut sources, fields.get(3), fields.get(6));
                latest(&mut targets, fields.get(5), fields.get(7));
            }
            Ok(())
        })?;
        let is_of_core = |module: &str| module == CORE_MODULE || module == MODEL_MODULE;
        builds_on.retain(|module, _| !is_of_core(module));
        let (mut holds, mut needs) = (sources, Modules::new());
        if is_edition {
            targets.iter().for_each(|(module, date)| latest(&mut holds, module, date));
        } else {
            holds.retain(|module, _| !is_of_core(module));
            targets.retain(|module, _| !holds.contains_key(module));
            needs = targets;
        }
        let top = builds_on.into_iter().max_by(|(a, na), (b, nb)| na.cmp(nb).then_with(|| b.cmp(a)));
        let name = Name::of(&file);
        let is_international = is_edition && name.owner == "INT";
        let (module, date) = match top.filter(|_| !is_international) {
            Some((top, _)) => (top.clone(), holds[&top].clone()),
            None => (CORE_MODULE.to_owned(), name.date.to_owned()),
        };
        if date.len() != 8 || !date.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(LoadError::in_file(
                &file,
                "the name of the file does not end with the date of the release, as in sct2_Concept_Snapshot_INT_20250101.txt",
            ));
        }
        let space = if name.is_trial { "http://snomed.info/xsct" } else { URL };
        Ok(Self { version: format!("{space}/{module}/version/{date}"), holds, needs })
    }
}

/// Notes the release of a module, if it is the latest so far.
fn latest(modules: &mut Modules, module: &str, date: &str) {
    let known = modules.entry(module.to_owned()).or_default();
    if date > known.as_str() {
        *known = date.to_owned();
    }
}

/// The file of the concepts, and whether the root is one of them.
fn concepts(source: &mut Source) -> Result<(String, bool), LoadError> {
    let found = source.named(|name| is_snapshot(name, "sct2_Concept_")).pop();
    let file = found.expect("what fits has a file of concepts");
    let (mut table, mut fields) = (Table::open(source, &file, '\t')?, Fields::default());
    while let Some(row) = table.next(&mut fields)? {
        if row.get(0) == ROOT_CONCEPT {
            return Ok((file, true));
        }
    }
    Ok((file, false))
}

/// What the name of a file of the package says.
struct Name<'a> {
    owner: &'a str,
    date: &'a str,
    is_trial: bool,
}

impl<'a> Name<'a> {
    fn of(file: &'a str) -> Self {
        let name = base(file);
        let mut parts = name.trim_end_matches(".txt").rsplit('_');
        let (date, owner) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        Self { owner, date, is_trial: name.starts_with('x') }
    }
}
