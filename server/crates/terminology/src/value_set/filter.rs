//! `compose.include.filter`: one test of one concept, without building the set.

use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use regex::Regex;

use super::bits::Bits;
use super::pattern::Pattern;
use crate::built_in;
use crate::code_system::hierarchy::Hierarchy;
use crate::code_system::{CodeSystem, Concept, Signature};
use crate::ecl::{self, Constraint};
use crate::error::FilterFault;
use crate::load::{LOINC, SNOMED_CT};
use crate::wire::{self, Content, Meaning};
use crate::{Budget, Unprocessable};

/// The operators of R4 and the two that R5 added, with their values made ready.
#[derive(Debug)]
pub(super) enum Op {
    Equal,
    In(Box<[String]>),
    NotIn(Box<[String]>),
    Regex(Box<Pattern>),
    Exists(bool),
    IsA,
    DescendentOf,
    IsNotA,
    Generalizes,
    ChildOf,
    DescendentLeaf,
    /// Of a reference set, an answer list, a group.
    MemberOf,
    /// Is it the name of a reference set itself?
    IsSubset,
    Ecl(Box<Constraint>),
}

/// What of a concept a filter looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subject {
    Code,
    Display,
    Parent,
    Child,
    Property,
}

/// A filter, checked as far as it can be without its code system.
#[derive(Debug)]
pub(crate) struct Filter {
    subject: Subject,
    op: Op,
    named: Named,
    said: Box<Said>,
}

/// What the resource says.
#[derive(Debug)]
struct Said {
    written: wire::Filter,
    /// Canonical URL of the filtered system.
    system: String,
    /// Where it stands in the value set.
    at: String,
}

/// The concept that the value names in the code system that was asked last: its interval and the halves of its
/// signature, each behind the instance of that system, so that none is taken for another system's. Instances begin at 1.
#[derive(Debug, Default)]
struct Named([AtomicU64; 4]);

impl Named {
    /// What is known, where the system was asked before.
    fn get(&self, system: &CodeSystem) -> Option<(Range<u32>, Signature)> {
        let part = |which: usize| {
            let known = self.0[which].load(Ordering::Relaxed);
            (known >> 32 == u64::from(system.instance())).then_some(known as u32)
        };
        Some((part(0)?..part(1)?, Signature::of([part(2)?, part(3)?])))
    }

    fn set(&self, system: &CodeSystem, interval: &Range<u32>, above: Signature) {
        let [high, low] = above.halves();
        for (place, part) in self.0.iter().zip([interval.start, interval.end, high, low]) {
            place.store(u64::from(system.instance()) << 32 | u64::from(part), Ordering::Relaxed);
        }
    }
}

impl Filter {
    /// Checks a filter of a value set.
    ///
    /// # Errors
    /// When it has no value, an operator that FHIR does not know, or a value that does not fit.
    pub(crate) fn compile(written: &wire::Filter, system: &str, at: String) -> Result<Self, Unprocessable> {
        let fault = |why: String| fault(written, system, &at, why);
        if written.value.is_empty() {
            return Err(fault("it has no value".to_owned()));
        }
        let subject = match written.property.as_str() {
            "" => return Err(fault("it names no property".to_owned())),
            "concept" | "code" => Subject::Code,
            "display" => Subject::Display,
            "parent" => Subject::Parent,
            "child" => Subject::Child,
            _ => Subject::Property,
        };
        if let Some(op) = own_filter(system, written) {
            return Self::ready(written.clone(), op, system, &at);
        }
        // A stored system may have values of its own kind, so what is written counts too.
        let compared = |value: &str| -> Result<Vec<String>, Unprocessable> {
            let compared = built_in::compared(system, &written.property, value).map_err(fault)?;
            Ok(std::iter::once(value.to_owned()).chain(compared).collect())
        };
        let list = || {
            let values = written.value.split(',').map(|value| compared(value.trim()));
            values.collect::<Result<Vec<_>, _>>().map(|values| Box::from(values.concat()))
        };
        let op = match written.op.as_str() {
            "=" => match compared(&written.value)? {
                values if values.len() > 1 => Op::In(values.into()),
                _ => Op::Equal,
            },
            "in" => Op::In(list()?),
            "not-in" => Op::NotIn(list()?),
            "regex" => Op::Regex(Box::default()),
            "exists" => Op::Exists(match written.value.as_str() {
                "true" => true,
                "false" => false,
                _ => return Err(fault("exists needs the value true or false".to_owned())),
            }),
            "is-a" => Op::IsA,
            "descendent-of" => Op::DescendentOf,
            "is-not-a" => Op::IsNotA,
            "generalizes" => Op::Generalizes,
            "child-of" => Op::ChildOf,
            "descendent-leaf" => Op::DescendentLeaf,
            _ => return Err(fault(format!("'{}' is no filter operator", written.op))),
        };
        let filter = Self::new(written.clone(), system, subject, op, at);
        if filter.walks() && subject != Subject::Code {
            return Err(filter.fault(system, "this operator works on the property concept".to_owned()));
        }
        Ok(filter)
    }

    /// A filter whose operator is made ready, or what is wrong with it.
    ///
    /// # Errors
    /// What is wrong, as that of this filter.
    pub(super) fn ready(
        written: wire::Filter,
        op: Result<Op, String>,
        system: &str,
        at: &str,
    ) -> Result<Self, Unprocessable> {
        match op {
            Ok(op) => Ok(Self::new(written, system, Subject::Code, op, at.to_owned())),
            Err(why) => Err(fault(&written, system, at, why)),
        }
    }

    fn new(written: wire::Filter, system: &str, subject: Subject, op: Op, at: String) -> Self {
        let said = Box::new(Said { written, system: system.to_owned(), at });
        Self { subject, op, named: Named::default(), said }
    }

    /// Is it certain, by what the table of codes says alone, that the filter does not let this concept through? Never,
    /// before the system was asked for the first time.
    pub(crate) fn is_out_of_question(&self, system: &CodeSystem, concept: Concept) -> bool {
        matches!(self.op, Op::IsA | Op::DescendentOf | Op::DescendentLeaf)
            && self.named.get(system).is_some_and(|(_, above)| !concept.above.may_be_below(above))
    }

    /// Does the filter let this concept through?
    ///
    /// # Errors
    /// When the system lacks the property or the concept that the filter names, or has no
    /// hierarchy to walk.
    pub(crate) fn admits(
        &self,
        system: &CodeSystem,
        concept: Concept,
        budget: &Budget<'_>,
    ) -> Result<bool, Unprocessable> {
        if self.walks() {
            return self.admits_by_place(system, concept, budget);
        }
        let at = concept.at;
        budget.spend(1 + system.properties_of(at) / 8)?;
        if self.subject == Subject::Property && !system.has_property(&self.said.written.property) {
            return Err(
                self.fault(&system.url, format!("there is no property '{}'", self.said.written.property))
            );
        }
        Ok(match &self.op {
            Op::MemberOf => match system.subset(&self.said.written.value) {
                Some(members) => members.binary_search(&at).is_ok(),
                // What is there but has no members is no error; what is not there is.
                None if system.find(&self.said.written.value).is_some() => false,
                None => {
                    return Err(
                        self.fault(&system.url, format!("there is no code '{}'", self.said.written.value))
                    );
                }
            },
            Op::IsSubset => system.subset(system.code(at)).is_some(),
            Op::Ecl(constraint) => {
                constraint.admits(system, at, budget).map_err(|fault| self.ecl_fault(system, fault))?
            }
            Op::Equal => self.any(system, at, |value| self.same(system, value, &self.said.written.value)),
            Op::In(list) => {
                budget.spend(list.len() / 4)?;
                self.any(system, at, |value| list.iter().any(|x| self.same(system, value, x)))
            }
            Op::NotIn(list) => {
                budget.spend(list.len() / 4)?;
                !self.any(system, at, |value| list.iter().any(|x| self.same(system, value, x)))
            }
            Op::Regex(pattern) => {
                let (regex, steps) = self.pattern(pattern, budget)?;
                let bytes = Cell::new(0);
                let is_match = self.any(system, at, |value| {
                    bytes.set(bytes.get() + value.len());
                    regex.is_match(value)
                });
                budget.spend(steps + bytes.get() / 16)?;
                is_match
            }
            Op::Exists(wanted) => self.any(system, at, |_| true) == *wanted,
            _ => unreachable!("operators that walk the hierarchy were answered above"),
        })
    }

    /// Of these concepts, all that the filter lets through.
    ///
    /// # Errors
    /// As for [`admits`](Self::admits).
    pub(crate) fn members(
        &self,
        system: &CodeSystem,
        mut among: Bits,
        budget: &Budget<'_>,
    ) -> Result<Bits, Unprocessable> {
        if let Op::Ecl(constraint) = &self.op {
            let all = constraint.members(system, budget).map_err(|fault| self.ecl_fault(system, fault))?;
            among.intersect(&all);
            return Ok(among);
        }
        if self.walks()
            && let Ok(hierarchy) = is_a_hierarchy(system)
            && let Some(Range { start: named, .. }) = self.named(system, hierarchy)
        {
            self.walk(hierarchy, named, &mut among, budget)?;
            return Ok(among);
        }
        let mut out = Bits::empty(system.len());
        for at in among.iter_after(0) {
            if self.admits(system, system.hierarchy().concept(at), budget)? {
                out.insert(at);
            }
        }
        Ok(out)
    }

    /// Keeps of these concepts those that the walk from the named one leads to, or what the operator makes of it.
    fn walk(
        &self,
        hierarchy: &Hierarchy,
        named: u32,
        among: &mut Bits,
        budget: &Budget<'_>,
    ) -> Result<(), Unprocessable> {
        if matches!(self.op, Op::ChildOf) {
            let children = hierarchy.children(named);
            budget.spend(children.len())?;
            let mut reached = Bits::empty(hierarchy.len());
            children.into_iter().for_each(|at| reached.insert(at));
            among.intersect(&reached);
            return Ok(());
        }
        let reached = Bits::walk(hierarchy, named, matches!(self.op, Op::Generalizes), budget)?;
        match self.op {
            Op::IsNotA => among.subtract(&reached),
            _ => among.intersect(&reached),
        }
        match self.op {
            Op::DescendentOf => among.remove(named),
            Op::DescendentLeaf => {
                budget.spend(reached.count())?;
                among.remove(named);
                among.retain(|at| hierarchy.is_leaf(at));
            }
            _ => {}
        }
        Ok(())
    }

    /// Compiles what is compiled at its first use, so that its fault is told whatever the code. Returns the bytes of the
    /// compiled form.
    ///
    /// # Errors
    /// The fault.
    pub(crate) fn prepare(&self, budget: &Budget<'_>) -> Result<usize, Unprocessable> {
        match &self.op {
            Op::Regex(pattern) => self.pattern(pattern, budget).map(|_| pattern.bytes()),
            _ => Ok(0),
        }
    }

    /// Is it one with a regular expression?
    pub(super) fn has_pattern(&self) -> bool {
        matches!(self.op, Op::Regex(_))
    }

    /// Bytes that it takes in memory beside its texts.
    pub(super) fn weight(&self) -> usize {
        let op = match &self.op {
            Op::Regex(pattern) => pattern.weight(),
            // A part of a constraint takes at least two characters.
            Op::Ecl(_) => self.said.written.value.len() * 64,
            Op::In(list) | Op::NotIn(list) => list.len() * size_of::<String>(),
            _ => 0,
        };
        size_of::<Self>() + size_of::<Said>() + op
    }

    fn pattern<'p>(
        &self,
        pattern: &'p Pattern,
        budget: &Budget<'_>,
    ) -> Result<(&'p Regex, usize), Unprocessable> {
        let compiled = pattern.get(&self.said.written.value, budget)?;
        compiled.map_err(|why| self.fault(&self.said.system, why.to_owned()))
    }

    fn ecl_fault(&self, system: &CodeSystem, fault: ecl::Fault) -> Unprocessable {
        match fault {
            ecl::Fault::Exhausted(exhausted) => exhausted.into(),
            fault => self.fault(&system.url, fault.to_string()),
        }
    }

    /// Is this one of the operators that walk the hierarchy?
    fn walks(&self) -> bool {
        matches!(
            self.op,
            Op::IsA | Op::DescendentOf | Op::IsNotA | Op::Generalizes | Op::ChildOf | Op::DescendentLeaf
        )
    }

    fn admits_by_place(
        &self,
        system: &CodeSystem,
        concept: Concept,
        budget: &Budget<'_>,
    ) -> Result<bool, Unprocessable> {
        let hierarchy = is_a_hierarchy(system)?;
        budget.spend(1 + hierarchy.walk_steps())?;
        let Some(interval) = self.named(system, hierarchy) else {
            // A fragment may lack the concept; a whole system that lacks it makes the filter wrong.
            return match system.content {
                Content::Fragment => Ok(matches!(self.op, Op::IsNotA)),
                _ => Err(self.fault(&system.url, format!("there is no code '{}'", self.said.written.value))),
            };
        };
        let named = interval.start;
        Ok(self.fits(hierarchy, concept.at, named, || match self.op {
            Op::Generalizes => hierarchy.is_a(named, concept.at),
            _ => hierarchy.is_below(concept, interval),
        }))
    }

    /// The test by place. `is_reached`: is the concept where walking down from the named one leads, or up for `generalizes`?
    #[inline]
    fn fits(&self, hierarchy: &Hierarchy, at: u32, named: u32, is_reached: impl FnOnce() -> bool) -> bool {
        match self.op {
            Op::IsA | Op::Generalizes => is_reached(),
            Op::DescendentOf => at != named && is_reached(),
            Op::IsNotA => !is_reached(),
            Op::ChildOf => hierarchy.parents(at).contains(&named),
            _ => at != named && is_reached() && hierarchy.is_leaf(at),
        }
    }

    /// The concept that the value names, and its descendants in the tree. It is looked up once for each code system: that
    /// costs as much as all the rest of a test.
    fn named(&self, system: &CodeSystem, hierarchy: &Hierarchy) -> Option<Range<u32>> {
        self.named.get(system).map(|(interval, _)| interval).or_else(|| {
            let found = system.locate(&self.said.written.value)?;
            let interval = hierarchy.interval(found.at);
            self.named.set(system, &interval, found.above);
            Some(interval)
        })
    }

    /// Does any value that the filter looks at pass the test?
    fn any(&self, system: &CodeSystem, at: u32, test: impl Fn(&str) -> bool) -> bool {
        let codes = |list: &[u32]| list.iter().any(|other| test(system.code(*other)));
        match self.subject {
            Subject::Code => test(system.code(at)),
            Subject::Display => system.display(at).is_some_and(test),
            Subject::Parent => codes(&system.hierarchy().next(at, true)),
            Subject::Child => codes(&system.hierarchy().next(at, false)),
            Subject::Property => system.property(at, &self.said.written.property).any(test),
        }
    }

    fn same(&self, system: &CodeSystem, a: &str, b: &str) -> bool {
        match self.subject {
            Subject::Code | Subject::Parent | Subject::Child => system.same_code(a, b),
            Subject::Display | Subject::Property => a == b,
        }
    }

    fn fault(&self, system: &str, why: String) -> Unprocessable {
        fault(&self.said.written, system, &self.said.at, why)
    }
}

/// The filters that a code system has of its own: SNOMED CT (FHIR R4 4.3.15) and LOINC (4.3.6).
fn own_filter(system: &str, written: &wire::Filter) -> Option<Result<Op, String>> {
    match (system, written.property.as_str(), written.op.as_str()) {
        (SNOMED_CT, "concept", "in") => Some(Ok(Op::MemberOf)),
        (SNOMED_CT, "constraint", "=") => Some(
            Constraint::parse(&written.value)
                .map(|constraint| Op::Ecl(Box::new(constraint)))
                .map_err(|fault| fault.to_string()),
        ),
        (LOINC, "LIST" | "answer-list", "=") => Some(Ok(Op::MemberOf)),
        (LOINC, "ancestor", "=") => Some(Ok(Op::DescendentOf)),
        _ => None,
    }
}

/// The hierarchy of a system, where it says what is a kind of what.
///
/// # Errors
/// When it means something else, or has a circle.
pub(crate) fn is_a_hierarchy(system: &CodeSystem) -> Result<&Hierarchy, Unprocessable> {
    match system.meaning {
        // A hierarchy without a stated meaning counts as is-a, as everywhere in practice.
        None | Some(Meaning::IsA) => {}
        Some(meaning) => {
            return Err(Unprocessable::HierarchyMeaning {
                system: system.url.clone(),
                meaning: meaning.name(),
            });
        }
    }
    match system.circle() {
        Some(codes) => Err(Unprocessable::CyclicHierarchy { system: system.url.clone(), codes }),
        None => Ok(system.hierarchy()),
    }
}

fn fault(written: &wire::Filter, system: &str, at: &str, why: String) -> Unprocessable {
    Unprocessable::from(Box::new(FilterFault {
        system: system.to_owned(),
        property: written.property.clone(),
        op: written.op.clone(),
        value: written.value.clone(),
        at: at.to_owned(),
        why,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Header;

    fn animals() -> CodeSystem {
        let json = r#"{"resourceType":"CodeSystem","content":"complete","url":"animals",
            "property":[{"code":"legs"}],
            "concept":[{"code":"animal","display":"Animal","concept":[
                {"code":"bird","display":"Bird","property":[{"code":"legs","valueInteger":2}],
                 "concept":[{"code":"owl","property":[{"code":"legs","valueInteger":2},{"code":"night","valueBoolean":true}]}]},
                {"code":"fish"}]}]}"#;
        let header: Header = serde_json::from_str(json).unwrap();
        CodeSystem::compile(&header, json.as_bytes()).unwrap()
    }

    fn compile(property: &str, op: &str, value: &str) -> Result<Filter, Unprocessable> {
        let written = wire::Filter { property: property.into(), op: op.into(), value: value.into() };
        Filter::compile(&written, "animals", "here".into())
    }

    /// The codes that a filter lets through, in preorder.
    #[track_caller]
    fn check(property: &str, op: &str, value: &str, expected: &str) {
        let (system, filter) = (animals(), compile(property, op, value).unwrap());
        let through =
            |at: &u32| filter.admits(&system, system.hierarchy().concept(*at), &Budget::default()).unwrap();
        let codes: Vec<_> = (0..system.len() as u32).filter(through).map(|at| system.code(at)).collect();
        assert_eq!(codes.join(" "), expected, "{property} {op} {value}");
    }

    #[test]
    fn every_operator() {
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
    fn one_walk_answers_for_all_where_each_question_would_be_one() {
        // A ladder: both concepts of a rung are below both of the one above.
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
        let header: Header = serde_json::from_str(&json).unwrap();
        let system = CodeSystem::compile(&header, json.as_bytes()).unwrap();
        assert!(system.hierarchy().is_walked());
        for (op, count) in [
            ("is-a", 11_799),
            ("descendent-of", 11_798),
            ("is-not-a", 201),
            ("generalizes", 201),
            ("child-of", 2),
            ("descendent-leaf", 2),
        ] {
            let filter = compile("concept", op, "b100").unwrap();
            let members = filter.members(&system, Bits::full(system.len()), &Budget::default()).unwrap();
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
    fn faults_are_told() {
        for (property, op, value, why) in [
            ("concept", "is-a", "", "has no value"),
            ("", "=", "x", "names no property"),
            ("concept", "similar-to", "x", "is no filter operator"),
            ("legs", "is-a", "bird", "works on the property concept"),
            ("legs", "exists", "yes", "needs the value true or false"),
            ("code", "regex", "(", "regex parse error"),
            ("code", "regex", "(x{1000}){1000}", "exceeds size limit"),
        ] {
            let compiled = compile(property, op, value);
            let error =
                compiled.and_then(|filter| filter.prepare(&Budget::default())).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        let system = animals();
        for (property, op, value, why) in
            [("wings", "=", "2", "no property 'wings'"), ("concept", "is-a", "dog", "no code 'dog'")]
        {
            let error = compile(property, op, value)
                .unwrap()
                .admits(&system, system.hierarchy().concept(0), &Budget::default())
                .unwrap_err()
                .to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
