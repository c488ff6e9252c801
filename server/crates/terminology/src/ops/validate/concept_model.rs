//! SNOMED CT's concept model (MRCM): which attributes an expression may have, and which values. Its rules are
//! rows of the reference sets of attribute domains, attribute ranges and domains.
//!
//! A rule is a constraint (ECL) on the concepts that an attribute refines, or on its values. Only mandatory
//! rules for post-coordinated content count. Cardinalities and ranges of numbers are not checked.

use crate::code_system::CodeSystem;
use crate::code_system::concept_attribute::AttributeValue;
use crate::code_system::member_table::{MemberRow, MemberTable};
use crate::expression::{self, StatedAttribute};
use crate::model::{Budget, Unprocessable};
use crate::value_set::ecl::{EclConstraint, EclError};

/// Content to which a rule applies: all, or post-coordinated content (Machine Readable Concept Model, content
/// types).
const CONTENT_TYPES: [&str; 2] = ["723596005", "723595009"];
/// Strength of a rule that must be observed.
const MANDATORY: &str = "723597001";

/// The rules of an edition.
pub(super) struct ConceptModel<'a> {
    system: &'a CodeSystem,
    budget: &'a Budget<'a>,
    attribute_domains: Vec<MemberTable<'a>>,
    attribute_ranges: Vec<MemberTable<'a>>,
    domains: Vec<MemberTable<'a>>,
}

/// The verdict of the rules about a concept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RuleVerdict {
    Permitted,
    Forbidden,
    /// There is no rule, or the edition lacks a concept that a rule names.
    Undecided,
}

impl<'a> ConceptModel<'a> {
    /// `None` if the edition has no rules. National editions have reference sets of their own, which are
    /// recognized by their fields.
    pub(super) fn of(system: &'a CodeSystem, budget: &'a Budget<'a>) -> Option<Self> {
        let tables = |field: &str| -> Vec<MemberTable<'a>> {
            let tables = system.member_tables().filter_map(|name| system.member_table(name));
            tables.filter(|table| table.field(field).is_some()).collect()
        };
        let model = Self {
            system,
            budget,
            attribute_domains: tables("domainId"),
            attribute_ranges: tables("rangeConstraint"),
            domains: tables("domainConstraint"),
        };
        let has_rules = !model.attribute_domains.is_empty() || !model.attribute_ranges.is_empty();
        has_rules.then_some(model)
    }

    /// The parts of an expression that the model forbids, each as a sentence.
    ///
    /// # Errors
    /// [`Unprocessable`] if the budget is spent.
    pub(super) fn faults(&self, code: &str) -> Result<Vec<String>, Unprocessable> {
        let mut faults = Vec::new();
        for StatedAttribute { focus, name, values } in expression::stated_attributes(code) {
            let Some(attribute) = self.system.find(&name) else { continue };
            if self.attribute_verdict(attribute, &focus)? == RuleVerdict::Forbidden {
                faults.push(format!(
                    "the concept model does not permit the attribute {} for {}",
                    self.named(&name),
                    self.all_named(&focus),
                ));
            } else if !values.is_empty() && self.value_verdict(attribute, &values)? == RuleVerdict::Forbidden
            {
                faults.push(format!(
                    "the concept model does not permit the value {} for the attribute {}",
                    self.all_named(&values),
                    self.named(&name),
                ));
            }
        }
        Ok(faults)
    }

    /// Whether an attribute may refine these concepts: one of them is in a domain of the attribute.
    fn attribute_verdict(&self, attribute: u32, focus: &[String]) -> Result<RuleVerdict, Unprocessable> {
        if self.attribute_domains.is_empty() {
            return Ok(RuleVerdict::Undecided);
        }
        let mut verdict = RuleVerdict::Forbidden;
        for (table, row) in self.rules(&self.attribute_domains, attribute)? {
            let domain = table.field("domainId").and_then(|field| table.value(row, field));
            let Some(AttributeValue::Concept(domain)) = domain else {
                verdict = RuleVerdict::Undecided;
                continue;
            };
            let mut constraints = Vec::new();
            for domains in &self.domains {
                let rows = domains.rows_of(domain).filter(|row| domains.facts(*row).is_active);
                constraints.extend(rows.filter_map(|row| text(domains, row, "domainConstraint")));
            }
            if constraints.is_empty() {
                verdict = RuleVerdict::Undecided;
            }
            for constraint in constraints {
                match self.any_satisfies(focus, constraint)? {
                    RuleVerdict::Permitted => return Ok(RuleVerdict::Permitted),
                    RuleVerdict::Undecided => verdict = RuleVerdict::Undecided,
                    RuleVerdict::Forbidden => {}
                }
            }
        }
        Ok(verdict)
    }

    /// Whether an attribute may have a value: one of its concepts is in a range of the attribute.
    fn value_verdict(&self, attribute: u32, value: &[String]) -> Result<RuleVerdict, Unprocessable> {
        let rules = self.rules(&self.attribute_ranges, attribute)?;
        let mut verdict = if rules.is_empty() { RuleVerdict::Undecided } else { RuleVerdict::Forbidden };
        for (table, row) in rules {
            match text(table, row, "rangeConstraint") {
                Some(constraint) => match self.any_satisfies(value, constraint)? {
                    RuleVerdict::Permitted => return Ok(RuleVerdict::Permitted),
                    RuleVerdict::Undecided => verdict = RuleVerdict::Undecided,
                    RuleVerdict::Forbidden => {}
                },
                None => verdict = RuleVerdict::Undecided,
            }
        }
        Ok(verdict)
    }

    /// The mandatory rules of an attribute for post-coordinated content.
    fn rules<'s>(
        &'s self,
        tables: &'s [MemberTable<'a>],
        attribute: u32,
    ) -> Result<Vec<(&'s MemberTable<'a>, MemberRow<'a>)>, Unprocessable> {
        let mut rules = Vec::new();
        for table in tables {
            for row in table.rows_of(attribute) {
                self.budget.spend(1)?;
                let is = |field: &str, expected: &[&str]| {
                    table.field(field).and_then(|field| table.value(row, field)).is_some_and(|value| {
                        match value {
                            AttributeValue::Concept(concept) => expected.contains(&self.system.code(concept)),
                            AttributeValue::Literal(text) => expected.contains(&text),
                        }
                    })
                };
                let applies = is("contentTypeId", &CONTENT_TYPES) && is("ruleStrengthId", &[MANDATORY]);
                if applies && table.facts(row).is_active {
                    rules.push((table, row));
                }
            }
        }
        Ok(rules)
    }

    /// Whether one of these concepts satisfies a constraint.
    fn any_satisfies(&self, codes: &[String], constraint: &str) -> Result<RuleVerdict, Unprocessable> {
        self.budget.spend(1 + constraint.len() / 16)?;
        let Ok(parsed) = EclConstraint::parse(constraint) else { return Ok(RuleVerdict::Undecided) };
        for concept in codes.iter().filter_map(|code| self.system.find(code)) {
            match parsed.admits(self.system, concept, self.budget) {
                Ok(true) => return Ok(RuleVerdict::Permitted),
                Ok(false) => {}
                Err(EclError::Exhausted(exhausted)) => return Err(exhausted.into()),
                Err(_) => return Ok(RuleVerdict::Undecided),
            }
        }
        Ok(RuleVerdict::Forbidden)
    }

    fn named(&self, code: &str) -> String {
        match self.system.find(code).and_then(|concept| self.system.display(concept)) {
            Some(display) => format!("{code} |{display}|"),
            None => code.to_owned(),
        }
    }

    fn all_named(&self, codes: &[String]) -> String {
        codes.iter().map(|code| self.named(code)).collect::<Vec<_>>().join(" + ")
    }
}

/// The text in a field of a row.
fn text<'a>(table: &MemberTable<'a>, row: MemberRow<'a>, field: &str) -> Option<&'a str> {
    match table.value(row, table.field(field)?)? {
        AttributeValue::Literal(text) => Some(text),
        AttributeValue::Concept(_) => None,
    }
}
