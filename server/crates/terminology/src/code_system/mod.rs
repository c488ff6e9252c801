//! One code system version, compiled to an immutable index.
//!
//! Concepts are numbered in preorder of the hierarchy ([`hierarchy`]); everything else stands in
//! columns by that ordinal.

pub(crate) mod builder;
pub(crate) mod codes;
mod columns;
mod ends;
pub(crate) mod hierarchy;
mod json;
mod others;
mod signature;
pub(crate) mod words;

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) use self::builder::Designation;
pub(crate) use self::codes::Concept;
use self::codes::{Codes, same_folded};
use self::columns::{Column, Player, Recorder, Rows, Texts, columns};
use self::ends::Ends;
use self::hierarchy::Hierarchy;
pub(crate) use self::signature::Signature;
use self::words::Words;
use crate::display::TextKind;
use crate::value_set::ValueSet;
use crate::wire::{Content, Header, Meaning};

/// Prefix of the URIs of FHIR's standard concept properties.
const STANDARD: &str = "http://hl7.org/fhir/concept-properties#";

/// The property by which FHIR asks for the definition of a concept.
pub(crate) const DEFINITION: &str = "definition";

impl<'a> Display<'a> {
    /// What is right and means nothing else.
    pub(crate) fn own(text: &'a str, language: Option<&'a str>) -> Self {
        Self { text, language, retired: None, kind: TextKind::Display }
    }
}

impl<'a> From<Designation<'a>> for Display<'a> {
    fn from(said: Designation<'a>) -> Self {
        let kind =
            said.usage.map_or(TextKind::Display, |[system, code, _]| TextKind::of(Some(system), Some(code)));
        Self { text: said.value, language: said.language, retired: said.status, kind }
    }
}

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

/// A text for a concept and its language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Display<'a> {
    pub(crate) text: &'a str,
    pub(crate) language: Option<&'a str>,
    /// Why it is no longer correct, if so.
    pub(crate) retired: Option<&'a str>,
    /// What it is for.
    pub(crate) kind: TextKind,
}

/// No number.
const NONE: u32 = u32::MAX;

/// Marks the number of a text where else that of a concept stands.
const LITERAL: u32 = 1 << 31;

// What a concept's flags say.
/// Out of use.
pub(crate) const INACTIVE: u8 = 1;
/// Only a grouping, not to be chosen itself.
pub(crate) const ABSTRACT: u8 = 2;
/// Deprecated, without being out of use.
pub(crate) const DEPRECATED: u8 = 4;

/// A defining relationship of a concept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attribute<'a> {
    /// Those of one group belong together; those of group 0 stand alone.
    pub(crate) group: u32,
    pub(crate) kind: u32,
    pub(crate) value: AttributeValue<'a>,
}

/// Value of a defining relationship.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttributeValue<'a> {
    Concept(u32),
    /// As it was published: `#5`, `"text"`.
    Literal(&'a str),
}

/// A compiled code system.
#[derive(Debug, Default)]
pub(crate) struct CodeSystem {
    instance: Instance,
    pub(crate) header: Header,
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
    designations: Designations,
    /// Names and values by number.
    properties: Rows<[u32; 2]>,
    /// Empty where no concept has any.
    flags: Vec<u8>,
    /// Values of the `status` property by number; empty where no concept has one.
    statuses: Vec<u32>,
    /// Definitions by number; empty where no concept has one.
    definitions: Vec<u32>,
    names: Codes,
    values: Codes,
    hierarchy: Hierarchy,
    /// Defining relationships: group, kind and value.
    attributes: Rows<[u32; 3]>,
    subset_names: Codes,
    /// Members of each subset, sorted.
    subsets: Rows<u32>,
    words: Words,
}

/// Numbers the code systems of this process from 1, so that what was found in one is not taken for another's.
#[derive(Debug)]
struct Instance(u32);

impl Default for Instance {
    fn default() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Designations by concept.
#[derive(Debug, Default)]
struct Designations {
    ends: Ends,
    texts: Texts,
    /// Language, use and standards status, by number among the values.
    facts: Vec<[u32; 3]>,
}

impl Designations {
    fn range(&self, at: u32) -> std::ops::Range<u32> {
        let range = self.ends.range(at);
        range.start as u32..range.end as u32
    }
}

columns!(Designations: ends, texts, facts);
columns!(CodeSystem: codes, displays, designations, properties, flags, statuses, definitions, names, values, hierarchy, attributes,
    subset_names, subsets, words);

impl CodeSystem {
    /// Compiles a CodeSystem resource.
    ///
    /// # Errors
    /// Says in one line what was wrong with the resource.
    pub(crate) fn compile(header: &Header, bytes: &[u8]) -> Result<Self, String> {
        json::compile(header, bytes)
    }

    /// A code system without concepts.
    fn described(header: &Header) -> Self {
        let url = header.url.clone().unwrap_or_default();
        let version = header.version.clone();
        Self {
            of_all: header.value_set.clone().map(|all| ValueSet::of_all(all, version.clone(), url.clone())),
            url,
            version,
            content: header.content.unwrap_or_default(),
            meaning: header.hierarchy_meaning,
            case_sensitive: header.case_sensitive,
            language: header.language.clone(),
            status: header.status.clone(),
            experimental: header.experimental,
            standards_status: header.standards_status.clone(),
            codes: Codes::new(header.case_sensitive == Some(false)),
            header: header.clone(),
            ..Self::default()
        }
    }

    /// Saves the index, so that it need not be built again.
    ///
    /// # Errors
    /// The file's.
    pub(crate) fn save(&self, out: impl io::Write) -> io::Result<()> {
        let mut recorder = Recorder::begin(out)?;
        serde_json::to_string(&self.header)?.save(&mut recorder)?;
        Column::save(self, &mut recorder)?;
        recorder.end()
    }

    /// Reads a saved index.
    ///
    /// # Errors
    /// The file's; one that is no index, of another format, or damaged.
    pub(crate) fn read(input: impl io::Read) -> io::Result<Self> {
        let mut player = Player::begin(input)?;
        let mut header = String::new();
        header.load(&mut player)?;
        let mut system = Self::described(&serde_json::from_str(&header)?);
        system.load(&mut player)?;
        player.end()?;
        // Before the checksum was judged, a damaged file would lead anywhere.
        for codes in [&mut system.codes, &mut system.names, &mut system.values, &mut system.subset_names] {
            codes.fill();
        }
        Ok(system)
    }

    /// The number of this code system among all that this process has made.
    pub(crate) fn instance(&self) -> u32 {
        self.instance.0
    }

    /// How many concepts there are.
    pub(crate) fn len(&self) -> usize {
        self.codes.len()
    }

    /// The ordinal of a code.
    pub(crate) fn find(&self, code: &str) -> Option<u32> {
        self.codes.find(code)
    }

    /// The concept of a code, with what is above it.
    pub(crate) fn locate(&self, code: &str) -> Option<Concept> {
        self.codes.locate(code)
    }

    /// The concepts of several codes.
    pub(crate) fn locate_all<const N: usize>(&self, codes: [&str; N]) -> [Option<Concept>; N] {
        self.codes.locate_all(codes)
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
        let first = self.display(at).map(|text| Display::own(text, self.language.as_deref()));
        first.into_iter().chain(self.designations(at).map(Display::from))
    }

    /// An interned text, where there is one.
    fn value(&self, number: u32) -> Option<&str> {
        (number != NONE).then(|| self.values.get(number))
    }

    /// The designations of a concept.
    pub(crate) fn designations(&self, at: u32) -> impl Iterator<Item = Designation<'_>> {
        self.designations.range(at).map(|n| {
            let [language, usage, status] = self.designations.facts[n as usize];
            let usage = self.value(usage).map(|usage| {
                let mut parts = usage.split('\u{1f}');
                [(); 3].map(|()| parts.next().unwrap_or_default())
            });
            Designation {
                language: self.value(language),
                usage,
                value: self.designations.texts.get(n),
                status: self.value(status),
            }
        })
    }

    fn has_flag(&self, at: u32, flag: u8) -> bool {
        self.flags.get(at as usize).is_some_and(|flags| flags & flag != 0)
    }

    /// May any concept be out of use?
    pub(crate) fn has_inactive(&self) -> bool {
        !self.flags.is_empty()
    }

    /// Bytes that the index takes in memory, about.
    pub(crate) fn weight(&self) -> usize {
        let texts = [&self.displays, &self.designations.texts].map(|texts| texts.bytes() + 3 * texts.len());
        let tables = [&self.codes, &self.names, &self.values, &self.subset_names];
        let tables = tables.map(|codes| codes.texts().bytes() + 40 * codes.len());
        size_of::<Self>()
            + texts.iter().chain(&tables).sum::<usize>()
            + 12 * self.designations.facts.len()
            + 8 * self.properties.items()
            + 12 * self.attributes.items()
            + 4 * self.subsets.items()
            + self.words.weight()
            + 48 * self.len()
    }

    /// Is the concept out of use?
    pub(crate) fn is_inactive(&self, at: u32) -> bool {
        self.has_flag(at, INACTIVE)
    }

    /// Is the concept only a grouping, not to be chosen itself?
    pub(crate) fn is_abstract(&self, at: u32) -> bool {
        self.has_flag(at, ABSTRACT)
    }

    /// Is the concept deprecated, without being out of use?
    pub(crate) fn is_deprecated(&self, at: u32) -> bool {
        self.has_flag(at, DEPRECATED)
    }

    /// The value of the concept's `status` property.
    pub(crate) fn concept_status(&self, at: u32) -> Option<&str> {
        self.value(*self.statuses.get(at as usize)?)
    }

    /// What the concept means, in words.
    pub(crate) fn definition(&self, at: u32) -> Option<&str> {
        self.value(*self.definitions.get(at as usize)?)
    }

    /// The words of all texts.
    pub(crate) fn words(&self) -> &Words {
        &self.words
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
        self.names.find(name).is_some()
            || Role::named(name).is_some()
            || (name == DEFINITION && !self.definitions.is_empty())
            || (!self.attributes.is_empty() && self.find(name).is_some())
    }

    /// The values of a property of a concept, as text; a kind of defining relationship is a property too.
    pub(crate) fn property<'a>(&'a self, at: u32, name: &str) -> impl Iterator<Item = &'a str> {
        let kind = if self.attributes.is_empty() { None } else { self.find(name) };
        let definition = self.definition(at).filter(|_| name == DEFINITION);
        let name = self.names.find(name);
        let mine = move |property: &&[u32; 2]| Some(property[0]) == name;
        let said = self.properties.row(at).iter().filter(mine).map(|property| self.values.get(property[1]));
        let defined = self.attributes(at).filter(move |attribute| Some(attribute.kind) == kind);
        definition.into_iter().chain(said).chain(defined.map(|attribute| match attribute.value {
            AttributeValue::Concept(at) => self.code(at),
            AttributeValue::Literal(text) => text.trim_start_matches('#').trim_matches('"'),
        }))
    }

    /// How many properties and defining relationships a concept has.
    pub(crate) fn properties_of(&self, at: u32) -> usize {
        self.properties.range(at).len() + self.attributes.range(at).len()
    }

    /// All properties of a concept but its parents and children, by name and value.
    pub(crate) fn properties(&self, at: u32) -> impl Iterator<Item = (&str, &str)> {
        self.properties.row(at).iter().map(|[name, value]| (self.names.get(*name), self.values.get(*value)))
    }

    /// Declared type and URI of a property.
    pub(crate) fn declaration(&self, name: &str) -> (Option<&str>, Option<&str>) {
        let found = self.header.property.iter().find(|property| property.code == name);
        found.map_or((None, None), |property| (property.r#type.as_deref(), property.uri.as_deref()))
    }

    /// Does this property say who the parents or children are, or whether the concept is in use? The
    /// index answers these better than the property does.
    pub(crate) fn is_structural(&self, name: &str) -> bool {
        let role = Role::of(name, self.declaration(name).1);
        matches!(role, Some(Role::Parent | Role::Child | Role::Inactive))
    }

    /// The defining relationships of a concept.
    pub(crate) fn attributes(&self, at: u32) -> impl Iterator<Item = Attribute<'_>> {
        self.attributes.row(at).iter().map(|[group, kind, value]| Attribute {
            group: *group,
            kind: *kind,
            value: match value & LITERAL {
                0 => AttributeValue::Concept(*value),
                _ => AttributeValue::Literal(self.values.get(value ^ LITERAL)),
            },
        })
    }

    /// The members of a subset, sorted; `None` where there is no such subset.
    pub(crate) fn subset(&self, name: &str) -> Option<&[u32]> {
        self.subset_names.find(name).map(|number| self.subsets.row(number))
    }

    /// The names of all subsets.
    pub(crate) fn subset_names(&self) -> impl Iterator<Item = &str> {
        (0..self.subset_names.len() as u32).map(|number| self.subset_names.get(number))
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
    fn many_codes_that_differ_by_case_alone_are_refused_where_case_does_not_matter() {
        let compile = |count: u32, is_exact: bool| {
            let spelled =
                |n: u32| (0..7).map(|bit| if n >> bit & 1 == 1 { 'A' } else { 'a' }).collect::<String>();
            let concepts: Vec<_> = (0..count).map(|n| serde_json::json!({ "code": spelled(n) })).collect();
            let json = serde_json::json!({ "resourceType": "CodeSystem", "content": "complete", "caseSensitive": is_exact,
                "concept": concepts })
            .to_string();
            CodeSystem::compile(&serde_json::from_str(&json).unwrap(), json.as_bytes())
        };
        assert_eq!(compile(64, false).unwrap().len(), 64);
        assert_eq!(compile(65, true).unwrap().len(), 65);
        let why = compile(65, false).unwrap_err();
        assert!(why.contains("'aaaaaaA' and 64 other codes differ by case alone"), "{why}");
    }

    #[test]
    fn a_saved_index_reads_back_the_same_with_long_rows_several_parents_and_circles() {
        let long = "x".repeat(70_000);
        for above in ["a", "12345678"] {
            let json = format!(
                r#"{{"resourceType":"CodeSystem","url":"urn:s","content":"complete","concept":[
                    {{"code":"a","display":"A","concept":[{{"code":"b"}}]}},
                    {{"code":"c","display":"{long}","property":[{{"code":"parent","valueCode":"b"}}]}},
                    {{"code":"12345678","display":"D","property":[
                        {{"code":"parent","valueCode":"c"}},{{"code":"parent","valueCode":"e"}}]}},
                    {{"code":"e","property":[{{"code":"parent","valueCode":"{above}"}}]}},
                    {{"code":"a code that is no key itself","definition":"it has one"}}]}}"#
            );
            let system = system(&json);
            let mut file = Vec::new();
            system.save(&mut file).unwrap();
            let back = CodeSystem::read(&*file).unwrap();
            assert_eq!(back.circle(), system.circle());
            assert_eq!(back.circle().is_some(), above != "a");
            for at in 0..system.len() as u32 {
                let code = system.code(at);
                assert_eq!(back.locate(code), system.locate(code), "{code}");
                assert_eq!(back.display(at), system.display(at), "{code}");
                assert_eq!(back.definition(at), system.definition(at), "{code}");
                for other in (0..system.len() as u32).filter(|_| system.circle().is_none()) {
                    let is_a = |system: &CodeSystem| system.hierarchy().is_a(at, other);
                    assert_eq!(is_a(&back), is_a(&system), "{code} below {}", system.code(other));
                }
            }
        }
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
