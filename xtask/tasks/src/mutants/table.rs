//! The faults in `conformance/mutants/*.toml`, and the rules for these tables.

use std::ops::Range;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use xtask::workspace::root;

pub const FOLDER: &str = "conformance/mutants";
const ROWS: &str = "conformance/specs";

/// A fault that can be planted in the server.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutant {
    pub name: String,
    /// Source file, from the root of the workspace.
    pub file: String,
    /// Text in front of the expression, if the expression alone occurs more than once.
    #[serde(default)]
    pub after: String,
    /// Expression that, with the text in front of it, occurs once in the file.
    pub original: String,
    pub faulty: String,
    pub gist: String,
    /// Cases that find the fault, as filters of the suite.
    #[serde(default)]
    pub rows: Vec<String>,
    /// Test that finds the fault, if it needs more than one server or another clock.
    pub test: Option<RustTest>,
    /// Reason why a run against a server that is already running cannot find it.
    pub hidden: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RustTest {
    /// Package, for example `trefoil-server`.
    pub package: String,
    /// Part of the name of the test.
    pub filter: String,
}

/// The test program of a package that contains a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TestTarget {
    /// The integration test `it`.
    Integration,
    /// The unit tests of the library.
    Unit,
}

impl RustTest {
    /// The test program. Unit tests are in modules of the name `tests`.
    pub fn target(&self) -> TestTarget {
        if self.filter.contains("::tests::") { TestTarget::Unit } else { TestTarget::Integration }
    }
}

impl Mutant {
    /// Returns whether this is the case or test that must find the fault.
    pub fn is_found_by(&self, case: &str) -> bool {
        self.rows.iter().any(|row| case.contains(row.as_str()))
            || self.test.as_ref().is_some_and(|test| case.contains(test.filter.as_str()))
    }

    /// The part of the name before the first slash.
    pub fn area(&self) -> &str {
        self.name.split('/').next().unwrap_or_default()
    }

    /// The range of the expression in the text of its file, if it occurs exactly once.
    pub fn find(&self, text: &str) -> Option<Range<usize>> {
        let place = format!("{}{}", self.after, self.original);
        let mut places = text.match_indices(&place);
        let (Some((offset, _)), None) = (places.next(), places.next()) else { return None };
        Some(offset + self.after.len()..offset + place.len())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    mutant: Vec<Mutant>,
}

/// Reads all tables, sorted by file. Returns an error that lists all faults of the tables.
pub fn load() -> Result<Vec<Mutant>> {
    let (mutants, faults) = read()?;
    if faults.is_empty() {
        return Ok(mutants);
    }
    bail!("{}", faults.join("\n"))
}

/// Adds the faults of the tables to `faults`.
pub fn check(faults: &mut Vec<String>) -> Result<()> {
    faults.extend(read()?.1);
    Ok(())
}

/// The ids of all requirements and cases of the suite.
fn row_ids() -> Result<Vec<String>> {
    let mut ids = Vec::new();
    for entry in std::fs::read_dir(root().join(ROWS)).with_context(|| format!("failed to read {ROWS}"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "toml") {
            let text = std::fs::read_to_string(&path)?;
            let lines = text.lines().filter_map(|line| line.strip_prefix("id = \"")?.strip_suffix('"'));
            ids.extend(lines.map(str::to_owned));
        }
    }
    Ok(ids)
}

fn read() -> Result<(Vec<Mutant>, Vec<String>)> {
    let folder = root().join(FOLDER);
    let entries = std::fs::read_dir(&folder).with_context(|| format!("failed to read {FOLDER}"))?;
    let mut files: Vec<_> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|ending| ending == "toml"));
    files.sort();
    let ids = row_ids()?;
    let (mut mutants, mut faults) = (Vec::<Mutant>::new(), Vec::new());
    for file in files {
        let text = std::fs::read_to_string(&file)?;
        let table: Table =
            toml::from_str(&text).with_context(|| format!("{} is not valid", file.display()))?;
        let area = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        for pair in table.mutant.windows(2) {
            if pair[0].name >= pair[1].name {
                faults.push(format!("{FOLDER}/{area}.toml: {} must follow {}", pair[0].name, pair[1].name));
            }
        }
        for mutant in &table.mutant {
            faults.extend(
                fault_of(mutant, area, &ids)
                    .map(|fault| format!("{FOLDER}/{area}.toml: {}: {fault}", mutant.name)),
            );
        }
        mutants.extend(table.mutant);
    }
    Ok((mutants, faults))
}

/// Returns what is wrong with an entry.
fn fault_of(mutant: &Mutant, area: &str, ids: &[String]) -> Option<String> {
    if mutant.area() != area || mutant.name.split('/').count() != 2 {
        return Some(format!("the name must be {area}/SLUG"));
    }
    if mutant.rows.is_empty() != mutant.test.is_some() {
        return Some("'rows' must name the cases that find it, or 'test' a test".to_owned());
    }
    if mutant.test.is_some() && mutant.hidden.is_none() {
        return Some("'hidden' must say why no case finds it".to_owned());
    }
    let is_unknown = |row: &&String| !ids.iter().any(|id| id.contains(row.as_str()));
    if let Some(row) = mutant.rows.iter().find(is_unknown) {
        return Some(format!("no case has an id that contains '{row}'"));
    }
    let Ok(source) = std::fs::read_to_string(root().join(&mutant.file)) else {
        return Some(format!("{} does not exist", mutant.file));
    };
    let is_unique = mutant.find(&source).is_some();
    (!is_unique).then(|| format!("'original' (with 'after') must occur exactly once in {}", mutant.file))
}
