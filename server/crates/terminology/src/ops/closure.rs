//! `$closure` (FHIR R4): which of a client's own codes subsume which others. A client that stores this table
//! can search its records by a code and everything below it, without an expansion.
//!
//! A table has a version that grows with each addition. Its relations are not stored: they follow from the
//! codes and from the hierarchy of the version of the code system with which the table began.

use std::collections::{BTreeMap, HashMap, HashSet};

use fhir::Coding;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::catalog::Catalog;
use crate::code_system::{CodeSystem, Subsumption};
use crate::concept_map::Equivalence;
use crate::expression;
use crate::model::resource_json::ContentMode;
use crate::model::{Budget, TxError, Unprocessable, canonical, error};

/// Maximum number of codes in a closure table.
pub const MAX_CLOSURE_CODES: usize = 10_000;

/// The codes of a closure table, without their relations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosureTable {
    /// Number of additions so far. 0 for a new table.
    pub version: u64,
    systems: Vec<ClosureSystem>,
}

/// A request to a closure table.
#[derive(Debug, Clone, Copy)]
pub enum ClosureRequest<'a> {
    /// Adds codes, and returns the new relations.
    Add(&'a [Coding]),
    /// Returns the relations that are newer than a version of the table.
    Since(u64),
}

/// The codes of one code system in a closure table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ClosureSystem {
    url: String,
    /// The version that was the default when the first code was added.
    version: Option<String>,
    codes: Vec<AddedCode>,
}

/// A code, and the version of the table that contained it first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct AddedCode(String, u64);

impl ClosureTable {
    fn len(&self) -> usize {
        self.systems.iter().map(|system| system.codes.len()).sum()
    }

    /// Adds codes. The version grows by one, unless the table has all of them.
    ///
    /// # Errors
    /// [`TxError`] if a code is unknown or names another version, if its code system is not stored or has no
    /// codes, or if the table would have too many codes. The table is then unchanged.
    pub(super) fn with_codes(
        &self,
        catalog: &Catalog,
        codings: &[Coding],
        budget: &Budget<'_>,
    ) -> Result<Self, TxError> {
        let mut table = self.clone();
        let version = self.version + 1;
        budget.spend(self.len())?;
        let mut codes: HashSet<(String, String)> = HashSet::new();
        for system in &self.systems {
            codes.extend(system.codes.iter().map(|AddedCode(code, _)| (system.url.clone(), code.clone())));
        }
        for coding in codings {
            budget.spend(1)?;
            let url = coding.system.as_deref().ok_or_else(|| no_member("system"))?;
            let code = coding.code.as_deref().filter(|code| !code.is_empty());
            let code = code.ok_or_else(|| no_member("code"))?;
            let at = table.system_at(catalog, url, coding.version.as_deref(), budget)?;
            let code = table.systems[at].canonical_code(catalog, code, budget)?;
            if codes.insert((url.to_owned(), code.clone())) {
                table.systems[at].codes.push(AddedCode(code, version));
                table.version = version;
            }
        }
        match table.len() {
            len if len > MAX_CLOSURE_CODES => Err(error::malformed(
                "concept",
                format!(
                    "the table would have {len} codes, more than {MAX_CLOSURE_CODES}; divide it into several tables"
                ),
            )),
            _ => Ok(table),
        }
    }

    /// The position of a code system, which is added with its default version if it is new.
    fn system_at(
        &mut self,
        catalog: &Catalog,
        url: &str,
        version: Option<&str>,
        budget: &Budget<'_>,
    ) -> Result<usize, TxError> {
        let at = match self.systems.iter().position(|system| system.url == url) {
            Some(at) => at,
            None => {
                let system = stored_system(catalog, url, version, budget)?;
                let (url, version) = (url.to_owned(), system.version.clone());
                self.systems.push(ClosureSystem { url, version, codes: Vec::new() });
                self.systems.len() - 1
            }
        };
        match (version, self.systems[at].version.as_deref()) {
            (Some(version), own) if own != Some(version) => Err(error::malformed(
                "concept",
                format!(
                    "its version {version} is not the version {} of the table; begin another table",
                    own.unwrap_or("without a name")
                ),
            )),
            _ => Ok(at),
        }
    }

    /// The relations that the table has since a version, as a ConceptMap. `0` is for all of them.
    ///
    /// # Errors
    /// [`TxError`] if a code system of the table is no longer stored, or the budget is spent.
    pub(super) fn concept_map(
        &self,
        catalog: &Catalog,
        name: &str,
        since: u64,
        now: &str,
        budget: &Budget<'_>,
    ) -> Result<Box<RawValue>, TxError> {
        budget.set_activity("relating the codes of a closure table");
        let mut groups: Vec<Value> = Vec::new();
        for system in &self.systems {
            let code_system = system.version_of_table(catalog, budget)?;
            let relations = system.relations(code_system, since, budget)?;
            if relations.is_empty() {
                continue;
            }
            let elements: Vec<Value> = relations
                .iter()
                .map(|(code, targets)| {
                    let target = |(code, equivalence): &(&str, Equivalence)| json!({ "code": code, "equivalence": equivalence.code() });
                    json!({ "code": code, "target": targets.iter().map(target).collect::<Vec<_>>() })
                })
                .collect();
            let mut group = json!({ "source": system.url, "target": system.url, "element": elements });
            if let Some(version) = &system.version {
                group["sourceVersion"] = version.as_str().into();
                group["targetVersion"] = version.as_str().into();
            }
            groups.push(group);
        }
        let mut map = json!({
            "resourceType": "ConceptMap", "version": self.version.to_string(), "name": name,
            "status": "active", "experimental": true, "date": now,
        });
        if !groups.is_empty() {
            map["group"] = groups.into();
        }
        Ok(to_raw_value(&map).expect("the answer is valid JSON"))
    }
}

/// The error of a Coding without a member that a table needs.
fn no_member(member: &str) -> TxError {
    error::malformed("concept", format!("its {member} is missing; send a Coding with system and code"))
}

/// Targets of each code that has any, in the order in which the codes were added.
type Relations<'a> = Vec<(&'a str, Vec<(&'a str, Equivalence)>)>;

impl ClosureSystem {
    /// The version of the code system with which the table began.
    fn version_of_table<'a>(
        &self,
        catalog: &'a Catalog,
        budget: &Budget<'_>,
    ) -> Result<&'a CodeSystem, TxError> {
        stored_system(catalog, &self.url, self.version.as_deref(), budget).map_err(|error| match error {
            TxError::UnknownCodeSystem { system, version, .. } => Unprocessable::Broken {
                resource: "closure table".to_owned(),
                reason: format!(
                    "it refers to {}, which is no longer stored; begin the table again, by its name alone",
                    canonical::join(&system, version.as_deref())
                ),
            }
            .into(),
            error => error,
        })
    }

    /// The code as the code system writes it.
    fn canonical_code(&self, catalog: &Catalog, code: &str, budget: &Budget<'_>) -> Result<String, TxError> {
        self.version_of_table(catalog, budget)?;
        let system = catalog.code_system_for(&self.url, self.version.as_deref(), code, budget)?;
        let system = system.map(|system| system.get(budget)).transpose()?;
        if expression::is_expression(&self.url, code)
            && let Some(text) = expression::stated_form(code)
            && system.is_some_and(|system| system.find(code).is_some())
        {
            return Ok(text);
        }
        let code_in_system = system.and_then(|system| Some(system.code(system.find(code)?).to_owned()));
        code_in_system.ok_or_else(|| TxError::UnknownCode {
            parameter: "concept",
            code: code.to_owned(),
            system: self.url.clone(),
            version: self.version.clone(),
            reason: None,
        })
    }

    /// The relations of which at least one code was added after a version.
    fn relations<'a>(
        &'a self,
        system: &'a CodeSystem,
        since: u64,
        budget: &Budget<'_>,
    ) -> Result<Relations<'a>, TxError> {
        let hierarchy = system.require_is_a_hierarchy()?;
        let mut positions: HashMap<u32, &AddedCode> = HashMap::new();
        let mut expressions: Vec<&AddedCode> = Vec::new();
        for entry in &self.codes {
            match system.locate(&entry.0) {
                Some(concept) => drop(positions.insert(concept.at, entry)),
                None => expressions.push(entry),
            }
        }
        let is_new = |a: &AddedCode, b: &AddedCode| a.1.max(b.1) > since;
        let mut targets: BTreeMap<usize, Vec<(&str, Equivalence)>> = BTreeMap::new();
        for (at, entry) in self.codes.iter().enumerate() {
            let Some(concept) = system.locate(&entry.0) else { continue };
            // Walking up meets the few ancestors of a code, and not each of the other codes.
            let (mut ancestors, mut above) = (HashSet::new(), hierarchy.parents(concept.at).to_vec());
            while let Some(ancestor) = above.pop() {
                budget.spend(1)?;
                if !ancestors.insert(ancestor) {
                    continue;
                }
                above.extend_from_slice(hierarchy.parents(ancestor));
                if let Some(other) = positions.get(&ancestor).filter(|other| is_new(entry, other)) {
                    targets.entry(at).or_default().push((&other.0, Equivalence::Subsumes));
                }
            }
        }
        // An expression is compared with each other code of the table. Between two of them, once.
        for (turn, &expression) in expressions.iter().enumerate() {
            let others = self.codes.iter().filter(|other| {
                let before = expressions[..=turn].iter().any(|one| std::ptr::eq(*one, *other));
                !before && is_new(expression, other)
            });
            for other in others {
                let relation = expression::compare(system, [&expression.0, &other.0], budget);
                let relation =
                    relation.map_err(|(_, fault)| error::malformed("concept", fault.to_string()))?;
                let (from, to, equivalence) = match relation {
                    Subsumption::NotSubsumed => continue,
                    Subsumption::Equivalent => (expression, other, Equivalence::Equivalent),
                    Subsumption::Subsumes => (other, expression, Equivalence::Subsumes),
                    Subsumption::SubsumedBy => (expression, other, Equivalence::Subsumes),
                };
                let at = self.codes.iter().position(|one| std::ptr::eq(one, from)).unwrap_or_default();
                targets.entry(at).or_default().push((&to.0, equivalence));
            }
        }
        let relations = targets.into_iter().map(|(at, mut targets)| {
            targets.sort_unstable_by_key(|(code, _)| *code);
            (&*self.codes[at].0, targets)
        });
        Ok(relations.collect())
    }
}

/// A stored code system that has its codes.
fn stored_system<'a>(
    catalog: &'a Catalog,
    url: &str,
    version: Option<&str>,
    budget: &Budget<'_>,
) -> Result<&'a CodeSystem, TxError> {
    let resource = catalog.code_system(url, version).ok_or_else(|| TxError::UnknownCodeSystem {
        system: url.to_owned(),
        version: version.map(String::from),
        known: catalog.code_system_versions(url),
    })?;
    let system = resource.get(budget)?;
    match system.content {
        ContentMode::Complete | ContentMode::Fragment => Ok(system),
        content => Err(Unprocessable::Content { system: url.to_owned(), content: content.name() }.into()),
    }
}
