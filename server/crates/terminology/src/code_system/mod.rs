//! One code system version, compiled to an immutable index.
//!
//! Concepts are numbered in preorder of the hierarchy ([`hierarchy`]); everything else stands in
//! columns by that ordinal.

pub(crate) mod codes;
pub(crate) mod hierarchy;

use std::collections::HashMap;

use self::codes::{Codes, Texts, same_folded};
use self::hierarchy::{Hierarchy, Rows};
use crate::value_set::ValueSet;
use crate::wire::{self, Content, Header, Meaning};

/// Prefix of the URIs of FHIR's standard concept properties.
const STANDARD: &str = "http://hl7.org/fhir/concept-properties#";

/// What a standard property says about a concept, whatever its code in this system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Inactive,
    Status,
    Deprecated,
    NotSelectable,
    Parent,
    Child,
}

impl Role {
    /// The role that a property has by FHIR's name for it.
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "inactive" => Self::Inactive,
            "status" => Self::Status,
            "deprecated" => Self::Deprecated,
            "notSelectable" => Self::NotSelectable,
            // Files made before R4 name the parent `subsumedBy`.
            "parent" | "subsumedBy" => Self::Parent,
            "child" => Self::Child,
            _ => return None,
        })
    }

    /// The role of a property with this code and declared URI. A standard URI decides; a foreign
    /// one takes `notSelectable` its meaning, but not the hierarchy (LOINC has URIs of its own).
    fn of(code: &str, uri: Option<&str>) -> Option<Self> {
        if let Some(name) = uri.and_then(|uri| uri.strip_prefix(STANDARD)) {
            return Self::named(name);
        }
        Self::named(code).filter(|role| uri.is_none() || *role != Self::NotSelectable)
    }
}

/// A property of a concept: both numbers point into the system's interned names and values.
#[derive(Debug, Clone, Copy)]
struct Property {
    name: u32,
    value: u32,
}

/// A designation of a concept.
#[derive(Debug)]
struct Designation {
    language: Option<u32>,
    value: Box<str>,
    /// Withdrawn or deprecated by its standards status: known, but no longer correct.
    status: Option<u32>,
}

/// A text for a concept and its language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Display<'a> {
    pub(crate) text: &'a str,
    pub(crate) language: Option<&'a str>,
    /// Why it is no longer correct, if so.
    pub(crate) retired: Option<&'a str>,
}

/// What one concept's properties and extensions say about its state.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    inactive: bool,
    not_selectable: bool,
    deprecated: bool,
    /// Interned value of the `status` property.
    status: Option<u32>,
}

/// A compiled code system.
#[derive(Debug, Default)]
pub(crate) struct CodeSystem {
    pub(crate) url: String,
    pub(crate) version: Option<String>,
    pub(crate) content: Content,
    pub(crate) meaning: Option<Meaning>,
    pub(crate) case_sensitive: Option<bool>,
    pub(crate) language: Option<String>,
    pub(crate) status: Option<String>,
    pub(crate) experimental: bool,
    /// Standards status of the resource, from its extension.
    pub(crate) standards_status: Option<String>,
    /// The value set of all codes, where `CodeSystem.valueSet` names one.
    pub(crate) of_all: Option<ValueSet>,
    codes: Codes,
    displays: Texts,
    designations: Rows<Designation>,
    properties: Rows<Property>,
    states: Vec<State>,
    names: Interner,
    values: Interner,
    hierarchy: Hierarchy,
}

/// Equal texts under one number.
#[derive(Debug, Default)]
struct Interner {
    list: Vec<Box<str>>,
    numbers: HashMap<Box<str>, u32>,
}

impl Interner {
    fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.list.len() as u32;
        self.list.push(text.into());
        self.numbers.insert(text.into(), number);
        number
    }

    fn find(&self, text: &str) -> Option<u32> {
        self.numbers.get(text).copied()
    }

    fn get(&self, number: u32) -> &str {
        &self.list[number as usize]
    }
}

/// The concepts of a file in document order, with the links of their nesting. A code that stands
/// twice is one concept with the links of both places.
struct Flat<'c, 'a> {
    concepts: Vec<&'c wire::Concept<'a>>,
    codes: Codes,
    links: Vec<(u32, u32)>,
}

impl<'c, 'a> Flat<'c, 'a> {
    fn walk(&mut self, list: &'c [wire::Concept<'a>], parent: Option<u32>) -> Result<(), String> {
        for concept in list {
            if concept.code.is_empty() {
                return Err("a concept has an empty code".to_owned());
            }
            let seen = self.codes.find(&concept.code).filter(|n| self.codes.get(*n) == &*concept.code);
            let number = match seen {
                Some(number) => number,
                None => {
                    self.codes.push(&concept.code)?;
                    self.concepts.push(concept);
                    self.concepts.len() as u32 - 1
                }
            };
            self.links.extend(parent.map(|parent| (number, parent)));
            self.walk(&concept.concept, Some(number))?;
        }
        Ok(())
    }
}

impl CodeSystem {
    /// Compiles a CodeSystem resource.
    ///
    /// # Errors
    /// Says in one line what was wrong with the resource.
    pub(crate) fn compile(header: &Header, bytes: &[u8]) -> Result<Self, String> {
        let read: wire::CodeSystem<'_> = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        let fold = read.case_sensitive == Some(false);
        let mut flat = Flat { concepts: Vec::new(), codes: Codes::new(fold), links: Vec::new() };
        flat.walk(&read.concept, None)?;

        let uris: HashMap<&str, Option<&str>> =
            read.property.iter().map(|p| (&*p.code, p.uri.as_deref())).collect();
        let role = |code: &str| Role::of(code, uris.get(code).copied().flatten());
        let Flat { concepts, codes, mut links } = flat;
        for (number, concept) in concepts.iter().enumerate() {
            let number = number as u32;
            for property in &concept.property {
                // A link to a code that is not there says nothing; fragments have many.
                let other = || property.value.as_deref().and_then(|code| codes.find(code));
                match role(&property.name) {
                    Some(Role::Parent) => links.extend(other().map(|parent| (number, parent))),
                    Some(Role::Child) => links.extend(other().map(|child| (child, number))),
                    _ => {}
                }
            }
        }
        let (order, hierarchy) = Hierarchy::build(concepts.len(), links);

        let mut out = Self {
            url: header.url.clone().unwrap_or_default(),
            version: header.version.clone(),
            content: header.content.unwrap_or_default(),
            meaning: read.hierarchy_meaning,
            case_sensitive: read.case_sensitive,
            language: read.language,
            status: header.status.clone(),
            experimental: header.experimental,
            standards_status: wire::standards_status(&read.extension).map(String::from),
            codes: Codes::new(fold),
            hierarchy,
            ..Self::default()
        };
        out.of_all =
            header.value_set.clone().map(|url| ValueSet::of_all(url, out.version.clone(), out.url.clone()));
        for property in &read.property {
            out.names.number(&property.code);
        }
        for old in order {
            out.push(concepts[old as usize], role)?;
        }
        Ok(out)
    }

    /// Appends the next concept to every column.
    fn push(
        &mut self,
        concept: &wire::Concept<'_>,
        role: impl Fn(&str) -> Option<Role>,
    ) -> Result<(), String> {
        self.codes.push(&concept.code)?;
        self.displays.push(concept.display.as_deref().unwrap_or_default())?;

        let mut state = State {
            deprecated: wire::standards_status(&concept.extension) == Some("deprecated"),
            inactive: wire::standards_status(&concept.extension) == Some("withdrawn"),
            ..State::default()
        };
        let mut row = Vec::with_capacity(concept.property.len());
        for property in &concept.property {
            let Some(value) = property.value.as_deref() else { continue };
            let yes = value.eq_ignore_ascii_case("true");
            let number = self.values.number(value);
            row.push(Property { name: self.names.number(&property.name), value: number });
            match role(&property.name) {
                Some(Role::Inactive) => state.inactive |= yes,
                Some(Role::NotSelectable) => state.not_selectable |= yes,
                Some(Role::Deprecated) => state.deprecated |= yes,
                Some(Role::Status) => {
                    state.status = Some(number);
                    state.inactive |= matches!(value, "retired" | "deprecated" | "withdrawn" | "inactive");
                }
                Some(Role::Parent | Role::Child) | None => {}
            }
        }
        self.properties.push(row);
        self.states.push(state);
        let mut designations = Vec::with_capacity(concept.designation.len());
        for designation in &concept.designation {
            let status = wire::standards_status(&designation.extension)
                .filter(|status| matches!(*status, "deprecated" | "withdrawn"));
            designations.push(Designation {
                language: designation.language.as_deref().map(|language| self.values.number(language)),
                value: (*designation.value).into(),
                status: status.map(|status| self.values.number(status)),
            });
        }
        self.designations.push(designations);
        Ok(())
    }

    /// How many concepts there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.codes.len()
    }

    /// The ordinal of a code.
    pub(crate) fn find(&self, code: &str) -> Option<u32> {
        self.codes.find(code)
    }

    /// The code of an ordinal, as the system writes it.
    pub(crate) fn code(&self, at: u32) -> &str {
        self.codes.get(at)
    }

    /// Do two codes name the same concept as far as case goes?
    pub(crate) fn same_code(&self, a: &str, b: &str) -> bool {
        a == b || (self.case_sensitive == Some(false) && same_folded(a, b))
    }

    /// The display of a concept.
    pub(crate) fn display(&self, at: u32) -> Option<&str> {
        Some(self.displays.get(at)).filter(|display| !display.is_empty())
    }

    /// The display and all designations of a concept, the display first.
    pub(crate) fn displays(&self, at: u32) -> impl Iterator<Item = Display<'_>> {
        let first =
            self.display(at).map(|text| Display { text, language: self.language.as_deref(), retired: None });
        let more = self.designations.row(at).iter().map(|d| Display {
            text: &d.value,
            language: d.language.map(|n| self.values.get(n)),
            retired: d.status.map(|n| self.values.get(n)),
        });
        first.into_iter().chain(more)
    }

    /// Is the concept out of use?
    pub(crate) fn is_inactive(&self, at: u32) -> bool {
        self.states[at as usize].inactive
    }

    /// Is the concept only a grouping, not to be chosen itself?
    pub(crate) fn is_abstract(&self, at: u32) -> bool {
        self.states[at as usize].not_selectable
    }

    /// Is the concept deprecated, without being out of use?
    pub(crate) fn is_deprecated(&self, at: u32) -> bool {
        self.states[at as usize].deprecated
    }

    /// The value of the concept's `status` property.
    pub(crate) fn concept_status(&self, at: u32) -> Option<&str> {
        self.states[at as usize].status.map(|n| self.values.get(n))
    }

    /// The hierarchy.
    pub(crate) fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    /// The codes of one circle of the hierarchy, if there is any.
    pub(crate) fn circle(&self) -> Option<Vec<String>> {
        let circle = self.hierarchy.circle();
        (!circle.is_empty()).then(|| circle.iter().map(|at| self.code(*at).to_owned()).collect())
    }

    /// Is this property declared, used by a concept, or one of FHIR's own?
    pub(crate) fn has_property(&self, name: &str) -> bool {
        self.names.find(name).is_some() || Role::named(name).is_some()
    }

    /// The values of a property of a concept, as text.
    pub(crate) fn property<'a>(&'a self, at: u32, name: &str) -> impl Iterator<Item = &'a str> {
        let name = self.names.find(name);
        let mine = move |property: &&Property| Some(property.name) == name;
        self.properties.row(at).iter().filter(mine).map(|property| self.values.get(property.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(json: &str) -> CodeSystem {
        let header: Header = serde_json::from_str(json).unwrap();
        CodeSystem::compile(&header, json.as_bytes()).unwrap()
    }

    fn is_a(system: &CodeSystem, below: &str, above: &str) -> bool {
        system.hierarchy().is_a(system.find(below).unwrap(), system.find(above).unwrap())
    }

    #[test]
    fn nesting_and_the_three_properties_make_one_hierarchy() {
        let system = system(
            r#"{"resourceType":"CodeSystem","content":"complete","concept":[
                {"code":"a","concept":[{"code":"b"}],"property":[{"code":"child","valueCode":"e"}]},
                {"code":"c","property":[{"code":"parent","valueCode":"b"}]},
                {"code":"d","property":[{"code":"subsumedBy","valueCode":"c"},{"code":"parent","valueCode":"e"}]},
                {"code":"e"},
                {"code":"b","property":[{"code":"parent","valueCode":"nowhere"}]}]}"#,
        );
        assert_eq!(system.len(), 5);
        for (below, above, expected) in [
            ("b", "a", true),
            ("d", "a", true),
            ("d", "e", true),
            ("d", "c", true),
            ("c", "e", false),
            ("a", "b", false),
        ] {
            assert_eq!(is_a(&system, below, above), expected, "{below} below {above}");
        }
    }

    #[test]
    fn standard_properties_are_known_by_uri() {
        let system = system(
            r#"{"resourceType":"CodeSystem","content":"complete",
                "property":[{"code":"abstrakt","uri":"http://hl7.org/fhir/concept-properties#notSelectable"},
                            {"code":"notSelectable","uri":"http://example.org/other"}],
                "concept":[
                {"code":"a","property":[{"code":"abstrakt","valueBoolean":true}]},
                {"code":"b","property":[{"code":"notSelectable","valueBoolean":true}]},
                {"code":"c","property":[{"code":"status","valueCode":"retired"}]},
                {"code":"d","property":[{"code":"inactive","valueBoolean":true},{"code":"n","valueInteger":7},
                                        {"code":"k","valueCoding":{"system":"s","code":"x"}}]}]}"#,
        );
        let at = |code| system.find(code).unwrap();
        assert!(system.is_abstract(at("a")) && !system.is_abstract(at("b")));
        assert!(system.is_inactive(at("c")) && system.is_inactive(at("d")) && !system.is_inactive(at("a")));
        assert_eq!(system.concept_status(at("c")), Some("retired"));
        assert_eq!(system.property(at("d"), "n").collect::<Vec<_>>(), ["7"]);
        assert_eq!(system.property(at("d"), "k").collect::<Vec<_>>(), ["x"]);
        assert!(system.has_property("inactive") && !system.has_property("colour"));
    }

    #[test]
    fn a_circle_is_kept_and_named() {
        let system = system(
            r#"{"resourceType":"CodeSystem","content":"complete","concept":[
                {"code":"a","property":[{"code":"parent","valueCode":"b"}]},
                {"code":"b","property":[{"code":"parent","valueCode":"a"}]}]}"#,
        );
        assert_eq!(system.circle().unwrap(), ["a", "b", "a"]);
        assert!(system.find("b").is_some());
    }
}
