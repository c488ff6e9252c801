//! The specifications that the rows cover, and a table of their coverage.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::Deserialize;

use super::Specification;
use super::requirement::{Level, Requirement};

const TABLE: &str = include_str!("../../specs/catalogue.toml");

/// A specification of others.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoveredStandard {
    /// Name, as in the table.
    pub name: String,
    /// Beginning of the URLs of its clauses.
    pub standard: String,
    /// Clauses for servers that no row tests.
    #[serde(default)]
    pub untested: Vec<UntestedClause>,
}

/// Clauses that no row tests.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UntestedClause {
    /// Sections.
    pub clause: String,
    /// Reason why there is no row.
    pub reason: String,
}

/// Reads the table.
///
/// # Errors
/// An error with the line if the table has another form.
pub fn load() -> Result<Vec<CoveredStandard>, toml::de::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Table {
        specification: Vec<CoveredStandard>,
    }
    toml::from_str::<Table>(TABLE).map(|table| table.specification)
}

/// The coverage as Markdown: a table of numbers, and the clauses without rows.
///
/// # Errors
/// An error if the table of specifications has another form.
pub fn coverage(spec: &Specification) -> Result<String, toml::de::Error> {
    let standards = load()?;
    let mut text =
        "| specification | MUST | SHOULD | MAY | clauses | cases |\n|---|---|---|---|---|---|\n".to_owned();
    let is_of = |requirement: &Requirement, standard: &CoveredStandard| {
        requirement.standard.as_deref().is_some_and(|url| url.starts_with(&standard.standard))
    };
    let mut line = |name: &str, fits: &dyn Fn(&Requirement) -> bool| {
        let fitting: Vec<_> = spec.requirements.iter().filter(|requirement| fits(requirement)).collect();
        let ids: BTreeSet<_> = fitting.iter().map(|requirement| &requirement.id).collect();
        let clauses: BTreeSet<_> = fitting.iter().map(|requirement| requirement.source()).collect();
        let cases = spec.cases.iter().filter(|case| case.covers.iter().any(|id| ids.contains(id))).count();
        let of = |level| fitting.iter().filter(|requirement| requirement.level == level).count();
        let (must, should, may) = (of(Level::Must), of(Level::Should), of(Level::May));
        let _ = writeln!(text, "| {name} | {must} | {should} | {may} | {} | {cases} |", clauses.len());
    };
    for standard in &standards {
        line(&standard.name, &|requirement| is_of(requirement, standard));
    }
    line("other standards", &|requirement| {
        requirement.standard.is_some() && !standards.iter().any(|standard| is_of(requirement, standard))
    });
    line("rules of Trefoil", &|requirement| requirement.house.is_some());
    line("**all**", &|_| true);
    text.push_str("\n## Clauses without rows\n\n| specification | clause | reason |\n|---|---|---|\n");
    for standard in &standards {
        for UntestedClause { clause, reason } in &standard.untested {
            let _ = writeln!(text, "| {} | {clause} | {reason} |", standard.name);
        }
    }
    Ok(text)
}
