//! Filters of `compose.include`. A filter tests one concept without building a set, or returns all concepts
//! that pass.

mod members;
pub(super) mod pattern;

use std::cell::Cell;
use std::ops::Range;

use regex::Regex;

use self::pattern::FilterPattern;
use super::ecl::{self, EclConstraint};
use super::named_concept_cache::NamedConceptCache;
use crate::code_system::hierarchy::ConceptHierarchy;
use crate::code_system::{CodeSystem, LocatedConcept};
use crate::grammar;
use crate::model::filter_fault::FilterFault;
use crate::model::known_systems::{LOINC, SNOMED_CT};
use crate::model::resource_json;
use crate::model::{Budget, Unprocessable};

/// The operators of R4 and the two that R5 added, with prepared values.
#[derive(Debug)]
pub(super) enum FilterOperator {
    Equal,
    In(Box<[String]>),
    NotIn(Box<[String]>),
    Regex(Box<FilterPattern>),
    Exists(bool),
    IsA,
    DescendentOf,
    IsNotA,
    Generalizes,
    ChildOf,
    DescendentLeaf,
    /// Below one of these concepts.
    BelowAny(Box<[String]>),
    /// Above one of these concepts.
    AboveAny(Box<[String]>),
    /// Member of a reference set, an answer list or a group.
    MemberOf,
    /// An answer to a question of LOINC.
    AnswersFor,
    /// The concept itself is a reference set.
    IsSubset,
    Ecl(Box<EclConstraint>),
    All,
    /// Passes the codes that are not post-coordinated expressions.
    NoExpression,
}

/// The part of a concept that a filter tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FilterSubject {
    Code,
    Display,
    Parent,
    Child,
    Property,
}

/// A filter, validated as far as possible without its code system.
#[derive(Debug)]
pub(crate) struct ValueSetFilter {
    subject: FilterSubject,
    op: FilterOperator,
    named: NamedConceptCache,
    source: Box<WrittenFilter>,
}

/// The filter as the resource contains it.
#[derive(Debug)]
struct WrittenFilter {
    written: resource_json::FilterJson,
    /// Canonical URL of the filtered system.
    system: String,
    /// Path of the filter in the value set.
    at: String,
}

impl ValueSetFilter {
    /// Compiles a filter of a value set.
    ///
    /// # Errors
    /// [`Unprocessable`] if the filter has no value, an unknown operator, or an invalid value.
    pub(crate) fn compile(
        json: &resource_json::FilterJson,
        system: &str,
        index: String,
    ) -> Result<Self, Unprocessable> {
        let fault = |reason: String| fault(json, system, &index, reason);
        if json.value.is_empty() {
            return Err(fault("it has no value".to_owned()));
        }
        let subject = match json.property.as_str() {
            "" => return Err(fault("it names no property".to_owned())),
            "concept" | "code" => FilterSubject::Code,
            "display" => FilterSubject::Display,
            "parent" => FilterSubject::Parent,
            "child" => FilterSubject::Child,
            _ => FilterSubject::Property,
        };
        if system == SNOMED_CT && subject == FilterSubject::Code && json.value.starts_with('^') {
            return Err(fault(
                "'^' is an operator of constraints; write the property constraint, or the operator in"
                    .to_owned(),
            ));
        }
        if let Some(op) = system_specific_operator(system, json) {
            return Self::with_operator(json.clone(), op, system, &index);
        }
        // A stored system may have other values than the built-in one, so the literal value is compared too.
        let compared = |value: &str| -> Result<Vec<String>, Unprocessable> {
            let compared = grammar::comparison_value(system, &json.property, value).map_err(fault)?;
            Ok(std::iter::once(value.to_owned()).chain(compared).collect())
        };
        let list = || {
            let values = json.value.split(',').map(|value| compared(value.trim()));
            values.collect::<Result<Vec<_>, _>>().map(|values| Box::from(values.concat()))
        };
        let op = match json.op.as_str() {
            "=" => match compared(&json.value)? {
                values if values.len() > 1 => FilterOperator::In(values.into()),
                _ => FilterOperator::Equal,
            },
            "in" => FilterOperator::In(list()?),
            "not-in" => FilterOperator::NotIn(list()?),
            "regex" => FilterOperator::Regex(Box::default()),
            "exists" => FilterOperator::Exists(match json.value.as_str() {
                "true" => true,
                "false" => false,
                _ => return Err(fault("exists needs the value true or false".to_owned())),
            }),
            "is-a" => FilterOperator::IsA,
            "descendent-of" => FilterOperator::DescendentOf,
            "is-not-a" => FilterOperator::IsNotA,
            "generalizes" => FilterOperator::Generalizes,
            "child-of" => FilterOperator::ChildOf,
            "descendent-leaf" => FilterOperator::DescendentLeaf,
            _ => return Err(fault(format!("'{}' is not a filter operator", json.op))),
        };
        let filter = Self::new(json.clone(), system, subject, op, index);
        if filter.walks_hierarchy() && subject != FilterSubject::Code {
            return Err(filter.fault(system, "this operator works on the property concept".to_owned()));
        }
        Ok(filter)
    }

    /// A filter with this operator, or the error of the operator.
    ///
    /// # Errors
    /// [`Unprocessable`] with the error of the operator.
    pub(super) fn with_operator(
        json: resource_json::FilterJson,
        op: Result<FilterOperator, String>,
        system: &str,
        index: &str,
    ) -> Result<Self, Unprocessable> {
        match op {
            Ok(op) => Ok(Self::new(json, system, FilterSubject::Code, op, index.to_owned())),
            Err(reason) => Err(fault(&json, system, index, reason)),
        }
    }

    fn new(
        json: resource_json::FilterJson,
        system: &str,
        subject: FilterSubject,
        op: FilterOperator,
        index: String,
    ) -> Self {
        let source = Box::new(WrittenFilter { written: json, system: system.to_owned(), at: index });
        Self { subject, op, named: NamedConceptCache::default(), source }
    }

    /// Returns whether the filter rejects this concept according to the code table alone. The result is false
    /// until the code system is tested for the first time.
    pub(crate) fn is_certainly_rejected(&self, system: &CodeSystem, concept: LocatedConcept) -> bool {
        matches!(self.op, FilterOperator::IsA | FilterOperator::DescendentOf | FilterOperator::DescendentLeaf)
            && self.named.get(system).is_some_and(|(_, above)| !concept.above.may_be_below(above))
    }

    /// Returns whether a concept passes the filter.
    ///
    /// # Errors
    /// [`Unprocessable`] if the code system lacks the property or the concept that the filter names, or has
    /// no is-a hierarchy.
    pub(crate) fn admits(
        &self,
        system: &CodeSystem,
        concept: LocatedConcept,
        budget: &Budget<'_>,
    ) -> Result<bool, Unprocessable> {
        if self.walks_hierarchy() {
            return self.admits_by_position(system, concept, budget);
        }
        let concept_number = concept.at;
        budget.spend(1 + system.property_count(concept_number) / 8)?;
        if self.subject == FilterSubject::Property && !system.has_property(&self.source.written.property) {
            return Err(self.fault(
                &system.url,
                format!("the code system has no property '{}'", self.source.written.property),
            ));
        }
        Ok(match &self.op {
            FilterOperator::MemberOf => match system.subset(&self.source.written.value) {
                Some(members) => members.binary_search(&concept_number).is_ok(),
                // If the concept exists, it has no members. An unknown concept is an error.
                None if system.is_excerpt() || system.find(&self.source.written.value).is_some() => false,
                None => {
                    return Err(self.unknown_code(&system.url, &self.source.written.value));
                }
            },
            FilterOperator::BelowAny(list) | FilterOperator::AboveAny(list) => {
                let hierarchy = system.require_is_a_hierarchy()?;
                let is_above = matches!(self.op, FilterOperator::AboveAny(_));
                budget.spend(list.len() * (1 + hierarchy.walk_steps()))?;
                let concepts = self.named_concepts(system, list)?;
                concepts.into_iter().any(|concept| {
                    concept != concept_number
                        && match is_above {
                            true => hierarchy.is_a(concept, concept_number),
                            false => hierarchy.is_a(concept_number, concept),
                        }
                })
            }
            FilterOperator::AnswersFor => {
                self.answer_lists(system)?.iter().any(|list| list.binary_search(&concept_number).is_ok())
            }
            FilterOperator::IsSubset => system.subset(system.code(concept_number)).is_some(),
            FilterOperator::Ecl(constraint) => constraint
                .admits(system, concept_number, budget)
                .map_err(|fault| self.ecl_fault(system, fault))?,
            FilterOperator::Equal => self.any_value(system, concept_number, |value| {
                self.equals(system, value, &self.source.written.value)
            }),
            FilterOperator::In(list) => {
                budget.spend(list.len() / 4)?;
                self.any_value(system, concept_number, |value| {
                    list.iter().any(|x| self.equals(system, value, x))
                })
            }
            FilterOperator::NotIn(list) => {
                budget.spend(list.len() / 4)?;
                !self.any_value(system, concept_number, |value| {
                    list.iter().any(|x| self.equals(system, value, x))
                })
            }
            FilterOperator::Regex(pattern) => {
                let (regex, steps) = self.pattern(pattern, budget)?;
                let bytes = Cell::new(0);
                let is_match = self.any_value(system, concept_number, |value| {
                    bytes.set(bytes.get() + value.len());
                    regex.is_match(value)
                });
                budget.spend(steps + bytes.get() / 16)?;
                is_match
            }
            FilterOperator::All => true,
            FilterOperator::NoExpression => !system.is_excerpt(),
            FilterOperator::Exists(wanted) => self.any_value(system, concept_number, |_| true) == *wanted,
            _ => unreachable!("operators that walk the hierarchy are handled above"),
        })
    }

    /// The concepts of a list of codes. A part of a code system may lack some.
    ///
    /// # Errors
    /// [`Unprocessable`] if the code system is complete and lacks one.
    fn named_concepts(&self, system: &CodeSystem, list: &[String]) -> Result<Vec<u32>, Unprocessable> {
        let mut concepts = Vec::with_capacity(list.len());
        for code in list {
            match system.find(code) {
                Some(concept) => concepts.push(concept),
                None if system.is_partial() => {}
                None => {
                    return Err(self.unknown_code(&system.url, code));
                }
            }
        }
        Ok(concepts)
    }

    /// The answer lists of the question that the value names, or the list that it names.
    ///
    /// # Errors
    /// [`Unprocessable`] if the code system lacks the question.
    fn answer_lists<'s>(&self, system: &'s CodeSystem) -> Result<Vec<&'s [u32]>, Unprocessable> {
        let value = &self.source.written.value;
        if let Some(list) = system.subset(value) {
            return Ok(vec![list]);
        }
        let concepts = self.named_concepts(system, std::slice::from_ref(value))?;
        let lists = concepts.into_iter().flat_map(|question| system.property(question, "answer-list"));
        Ok(lists.filter_map(|list| system.subset(list)).collect())
    }

    /// Compiles a regular expression, so that its errors are reported for every code. Returns the size of the
    /// compiled form in bytes.
    ///
    /// # Errors
    /// [`Unprocessable`] if the regular expression is invalid.
    pub(crate) fn prepare(&self, budget: &Budget<'_>) -> Result<usize, Unprocessable> {
        match &self.op {
            FilterOperator::Regex(pattern) => self.pattern(pattern, budget).map(|_| pattern.bytes()),
            _ => Ok(0),
        }
    }

    /// Returns whether expressions of SNOMED CT can pass the filter, which no expansion lists.
    pub(crate) fn admits_expressions(&self) -> bool {
        match &self.op {
            FilterOperator::MemberOf
            | FilterOperator::AnswersFor
            | FilterOperator::IsSubset
            | FilterOperator::Generalizes => false,
            FilterOperator::Ecl(constraint) => constraint.admits_expressions(),
            FilterOperator::NoExpression => false,
            FilterOperator::Equal | FilterOperator::In(_) => self.subject == FilterSubject::Property,
            _ => true,
        }
    }

    /// Returns whether the filter has a regular expression.
    pub(super) fn has_pattern(&self) -> bool {
        matches!(self.op, FilterOperator::Regex(_))
    }

    /// The size in memory without the texts, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let op = match &self.op {
            FilterOperator::Regex(pattern) => pattern.memory_bytes(),
            // Estimate for a constraint, each part of which has at least two characters.
            FilterOperator::Ecl(_) => self.source.written.value.len() * 64,
            FilterOperator::In(list)
            | FilterOperator::NotIn(list)
            | FilterOperator::BelowAny(list)
            | FilterOperator::AboveAny(list) => list.len() * size_of::<String>(),
            _ => 0,
        };
        size_of::<Self>() + size_of::<WrittenFilter>() + op
    }

    fn pattern<'p>(
        &self,
        pattern: &'p FilterPattern,
        budget: &Budget<'_>,
    ) -> Result<(&'p Regex, usize), Unprocessable> {
        let compiled = pattern.get(&self.source.written.value, budget)?;
        compiled.map_err(|reason| self.fault(&self.source.system, reason.to_owned()))
    }

    fn ecl_fault(&self, system: &CodeSystem, fault: ecl::EclError) -> Unprocessable {
        match fault {
            ecl::EclError::Exhausted(exhausted) => exhausted.into(),
            ecl::EclError::UnknownConcept(code) => self.unknown_code(&system.url, &code),
            fault => self.fault(&system.url, fault.to_string()),
        }
    }

    /// Returns whether the operator walks the hierarchy.
    fn walks_hierarchy(&self) -> bool {
        matches!(
            self.op,
            FilterOperator::IsA
                | FilterOperator::DescendentOf
                | FilterOperator::IsNotA
                | FilterOperator::Generalizes
                | FilterOperator::ChildOf
                | FilterOperator::DescendentLeaf
        )
    }

    fn admits_by_position(
        &self,
        system: &CodeSystem,
        concept: LocatedConcept,
        budget: &Budget<'_>,
    ) -> Result<bool, Unprocessable> {
        let hierarchy = system.require_is_a_hierarchy()?;
        budget.spend(1 + hierarchy.walk_steps())?;
        let Some(interval) = self.named_interval(system, hierarchy) else {
            // A part of a code system may lack the concept. If a complete one lacks it, the filter is wrong.
            return match system.is_partial() {
                true => Ok(matches!(self.op, FilterOperator::IsNotA)),
                false => Err(self.unknown_code(&system.url, &self.source.written.value)),
            };
        };
        let first = interval.start;
        Ok(self.passes_by_position(hierarchy, concept.at, first, || match self.op {
            FilterOperator::Generalizes => hierarchy.is_a(first, concept.at),
            _ => hierarchy.is_below(concept, interval),
        }))
    }

    /// Tests a concept by its position. `is_reached` returns whether the concept is the named one or its
    /// descendant, or an ancestor for `generalizes`.
    #[inline]
    fn passes_by_position(
        &self,
        hierarchy: &ConceptHierarchy,
        concept: u32,
        root: u32,
        is_reached: impl FnOnce() -> bool,
    ) -> bool {
        match self.op {
            FilterOperator::IsA | FilterOperator::Generalizes => is_reached(),
            FilterOperator::DescendentOf => concept != root && is_reached(),
            FilterOperator::IsNotA => !is_reached(),
            FilterOperator::ChildOf => hierarchy.parents(concept).contains(&root),
            _ => concept != root && is_reached() && hierarchy.is_leaf(concept),
        }
    }

    /// The interval of the concept that the value names. It is looked up once per code system, because a
    /// lookup costs as much as the rest of a test.
    fn named_interval(&self, system: &CodeSystem, hierarchy: &ConceptHierarchy) -> Option<Range<u32>> {
        self.named.get(system).map(|(interval, _)| interval).or_else(|| {
            let concept = system.locate(&self.source.written.value)?;
            let interval = hierarchy.interval(concept.at);
            self.named.set(system, &interval, concept.above);
            Some(interval)
        })
    }

    /// Returns whether any value that the filter tests satisfies `test`.
    fn any_value(&self, system: &CodeSystem, concept: u32, test: impl Fn(&str) -> bool) -> bool {
        let codes = |list: &[u32]| list.iter().any(|other| test(system.code(*other)));
        match self.subject {
            FilterSubject::Code => test(system.code(concept)),
            FilterSubject::Display => system.display(concept).is_some_and(test),
            FilterSubject::Parent => codes(&system.hierarchy().neighbours(concept, true)),
            FilterSubject::Child => codes(&system.hierarchy().neighbours(concept, false)),
            FilterSubject::Property => {
                system.property_texts(concept, &self.source.written.property).any(|value| test(&value))
            }
        }
    }

    fn equals(&self, system: &CodeSystem, a: &str, b: &str) -> bool {
        match self.subject {
            FilterSubject::Code | FilterSubject::Parent | FilterSubject::Child => system.same_code(a, b),
            FilterSubject::Display | FilterSubject::Property => a == b,
        }
    }

    fn fault(&self, system: &str, reason: String) -> Unprocessable {
        fault(&self.source.written, system, &self.source.at, reason)
    }

    /// The fault that the code system lacks a code, which another version may have.
    fn unknown_code(&self, system: &str, code: &str) -> Unprocessable {
        let mut fault = self.fault(system, format!("the code system has no code '{code}'"));
        if let Unprocessable::Filter(fault) = &mut fault {
            fault.is_of_other_version = true;
        }
        fault
    }
}

/// The operator of a filter that is specific to a code system: SNOMED CT (FHIR R4 4.3.15) and LOINC (4.3.6).
fn system_specific_operator(
    system: &str,
    json: &resource_json::FilterJson,
) -> Option<Result<FilterOperator, String>> {
    match (system, json.property.as_str(), json.op.as_str()) {
        (SNOMED_CT, "concept", "in") => Some(Ok(FilterOperator::MemberOf)),
        (SNOMED_CT, "constraint" | "expression", "=") => Some(
            EclConstraint::parse(&json.value)
                .map(|constraint| FilterOperator::Ecl(Box::new(constraint)))
                .map_err(|fault| fault.to_string()),
        ),
        (SNOMED_CT, "expressions", "=") => Some(match json.value.as_str() {
            "true" => Ok(FilterOperator::All),
            "false" => Ok(FilterOperator::NoExpression),
            other => Err(format!("the value of expressions is true or false, not '{other}'")),
        }),
        (LOINC, "LIST" | "answer-list", "=") => Some(Ok(FilterOperator::MemberOf)),
        (LOINC, "ancestor", "=") => Some(Ok(FilterOperator::DescendentOf)),
        (LOINC, "ancestor", "in") => Some(Ok(FilterOperator::BelowAny(codes(&json.value)))),
        (LOINC, "descendant", "=" | "in") => Some(Ok(FilterOperator::AboveAny(codes(&json.value)))),
        (LOINC, "answers-for", "=") => Some(Ok(FilterOperator::AnswersFor)),
        _ => None,
    }
}

/// The codes of a list with commas.
fn codes(value: &str) -> Box<[String]> {
    value.split(',').map(|code| code.trim().to_owned()).collect()
}

fn fault(json: &resource_json::FilterJson, system: &str, concept: &str, reason: String) -> Unprocessable {
    Unprocessable::from(Box::new(FilterFault {
        system: system.to_owned(),
        property: json.property.clone(),
        op: json.op.clone(),
        value: json.value.clone(),
        at: concept.to_owned(),
        reason,
        is_of_other_version: false,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code_system::concept_set::ConceptSet;
    use crate::model::resource_json::ResourceHeader;

    fn animals() -> CodeSystem {
        let json = r#"{"resourceType":"CodeSystem","content":"complete","url":"animals",
            "property":[{"code":"legs"}],
            "concept":[{"code":"animal","display":"Animal","concept":[
                {"code":"bird","display":"Bird","property":[{"code":"legs","valueInteger":2}],
                 "concept":[{"code":"owl","property":[{"code":"legs","valueInteger":2},{"code":"night","valueBoolean":true}]}]},
                {"code":"fish"}]}]}"#;
        let header: ResourceHeader = serde_json::from_str(json).unwrap();
        CodeSystem::compile(&header, json.as_bytes()).unwrap()
    }

    fn compile(property: &str, op: &str, value: &str) -> Result<ValueSetFilter, Unprocessable> {
        let json =
            resource_json::FilterJson { property: property.into(), op: op.into(), value: value.into() };
        ValueSetFilter::compile(&json, "animals", "here".into())
    }

    /// Checks which codes pass a filter, in preorder.
    #[track_caller]
    fn check(property: &str, op: &str, value: &str, expected: &str) {
        let (system, filter) = (animals(), compile(property, op, value).unwrap());
        let through = |concept: &u32| {
            filter.admits(&system, system.hierarchy().concept_at(*concept), &Budget::default()).unwrap()
        };
        let codes: Vec<_> =
            (0..system.len() as u32).filter(through).map(|concept| system.code(concept)).collect();
        assert_eq!(codes.join(" "), expected, "{property} {op} {value}");
    }

    #[test]
    fn each_operator_selects_its_concepts() {
        check("concept", "is-a", "bird", "bird owl");
        check("concept", "descendent-of", "animal", "bird owl fish");
        check("concept", "is-not-a", "bird", "animal fish");
        check("concept", "generalizes", "owl", "animal bird owl");
        check("concept", "child-of", "animal", "bird fish");
        check("concept", "descendent-leaf", "animal", "owl fish");
        check("code", "=", "owl", "owl");
        check("display", "=", "Bird", "bird");
        check("concept", "in", "owl, fish,dog", "owl fish");
        check("concept", "not-in", "owl,fish", "animal bird");
        check("code", "regex", "o.*|f", "owl");
        check("legs", "=", "2", "bird owl");
        check("legs", "exists", "false", "animal fish");
        check("night", "exists", "true", "owl");
        check("parent", "=", "animal", "bird fish");
        check("child", "exists", "true", "animal bird");
        check("inactive", "=", "true", "");
    }

    #[test]
    fn all_members_need_one_walk_in_a_hierarchy_without_rows() {
        // A ladder: both concepts of a rung are below both of the rung above.
        let rungs = 6_000;
        let concept = |rung: u32, side: char| {
            let parent = |side: char| serde_json::json!({ "code": "parent", "valueCode": format!("{side}{}", rung - 1) });
            let property = if rung == 0 { Vec::new() } else { vec![parent('a'), parent('b')] };
            serde_json::json!({ "code": format!("{side}{rung}"), "property": property })
        };
        let concepts: Vec<_> = (0..rungs).flat_map(|rung| [concept(rung, 'a'), concept(rung, 'b')]).collect();
        let json =
            serde_json::json!({ "resourceType": "CodeSystem", "content": "complete", "concept": concepts })
                .to_string();
        let header: ResourceHeader = serde_json::from_str(&json).unwrap();
        let system = CodeSystem::compile(&header, json.as_bytes()).unwrap();
        assert!(system.hierarchy().needs_walk());
        for (op, count) in [
            ("is-a", 11_799),
            ("descendent-of", 11_798),
            ("is-not-a", 201),
            ("generalizes", 201),
            ("child-of", 2),
            ("descendent-leaf", 2),
        ] {
            let filter = compile("concept", op, "b100").unwrap();
            let members =
                filter.members(&system, ConceptSet::full(system.len()), &Budget::default()).unwrap();
            assert_eq!(members.iter_after(0).count(), count, "{op}");
            for code in ["a0", "b99", "a100", "b100", "a101", "b5999"] {
                let concept = system.locate(code).unwrap();
                assert_eq!(
                    members.has(concept.at),
                    filter.admits(&system, concept, &Budget::default()).unwrap(),
                    "{op} {code}"
                );
            }
        }
    }

    #[test]
    fn faults_are_reported() {
        for (property, op, value, reason) in [
            ("concept", "is-a", "", "has no value"),
            ("", "=", "x", "names no property"),
            ("concept", "similar-to", "x", "is not a filter operator"),
            ("legs", "is-a", "bird", "works on the property concept"),
            ("legs", "exists", "yes", "needs the value true or false"),
            ("code", "regex", "(", "regex parse error"),
            ("code", "regex", "(x{1000}){1000}", "exceeds size limit"),
        ] {
            let compiled = compile(property, op, value);
            let error =
                compiled.and_then(|filter| filter.prepare(&Budget::default())).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        let system = animals();
        for (property, op, value, reason) in
            [("wings", "=", "2", "no property 'wings'"), ("concept", "is-a", "dog", "no code 'dog'")]
        {
            let error = compile(property, op, value)
                .unwrap()
                .admits(&system, system.hierarchy().concept_at(0), &Budget::default())
                .unwrap_err()
                .to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
