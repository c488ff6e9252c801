//! The index of one code system version, which is immutable.
//!
//! Concepts are numbered in preorder of the [`hierarchy`]. All other data is in columns by this ordinal.

mod ancestor_filter;
pub(crate) mod code_table;
mod coding_property;
mod columns;
pub(crate) mod concept_attribute;
pub(crate) mod concept_designation;
pub(crate) mod concept_set;
mod descendant_cache;
pub(crate) mod description_facts;
pub(crate) mod descriptions;
mod designation_columns;
mod elias_fano;
pub(crate) mod hierarchy;
mod identifier_columns;
pub(crate) mod index;
pub(crate) mod index_builder;
mod link_graph;
pub(crate) mod member_columns;
pub(crate) mod member_table;
mod preferred_terms;
mod property_role;
mod property_values;
mod resource_reader;
mod row_column;
mod row_offsets;
mod subsumption;
mod texts;
mod value_sources;
pub(crate) mod word_index;

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

pub(crate) use self::ancestor_filter::AncestorFilter;
use self::code_table::CodeTable;
pub(crate) use self::code_table::LocatedConcept;
pub(crate) use self::coding_property::CodingProperty;
use self::columns::{FORMAT, IndexColumn, IndexReader, IndexWriter, columns};
use self::concept_attribute::{ABSTRACT, DEPRECATED, INACTIVE, NONE};
pub(crate) use self::concept_designation::ConceptDesignation;
use self::concept_set::ConceptSet;
use self::descendant_cache::DescendantCache;
use self::designation_columns::DesignationColumns;
use self::hierarchy::ConceptHierarchy;
pub(crate) use self::identifier_columns::IdentifierColumns;
pub use self::index::{CodeSystemIndex, IndexDescription};
use self::member_columns::MemberColumns;
use self::preferred_terms::PreferredTerms;
use self::property_role::PropertyRole;
use self::row_column::{RowColumn, TextColumn};
pub use self::subsumption::Subsumption;
use self::value_sources::SourceColumns;
use self::word_index::WordIndex;
use crate::model::budget::BudgetExhausted;
use crate::model::known_systems::ISO_3166;
use crate::model::resource_json::{ContentMode, HierarchyMeaning, ResourceHeader, STANDARDS_STATUS};
use crate::model::text_folding::same_folded;
use crate::model::{Budget, Unprocessable};

/// Property by which `$lookup` and `$expand` request the definition of a concept.
pub(crate) const DEFINITION: &str = "definition";

/// Property of the built-in countries: the meaning of the code is that of a user, so that the code is valid
/// but not listed, and has no display of its own.
pub(crate) const USER_ASSIGNED: &str = "user-assigned";

/// The index of one code system.
#[derive(Debug, Default)]
pub(crate) struct CodeSystem {
    instance: InstanceNumber,
    pub(crate) header: ResourceHeader,
    pub(crate) url: String,
    pub(crate) version: Option<String>,
    pub(crate) content: ContentMode,
    pub(crate) meaning: Option<HierarchyMeaning>,
    pub(crate) case_sensitive: Option<bool>,
    pub(crate) language: Option<String>,
    pub(crate) status: Option<String>,
    pub(crate) experimental: bool,
    /// Standards status of the resource, from its extension.
    pub(crate) standards_status: Option<String>,
    codes: CodeTable,
    displays: TextColumn,
    designations: DesignationColumns,
    /// Properties of each concept: the numbers of name and value.
    properties: RowColumn<[u32; 2]>,
    /// Flags of each concept; empty if no concept has a flag.
    flags: Vec<u8>,
    /// Number of the value of the `status` property of each concept; empty if no concept has one.
    statuses: Vec<u32>,
    /// Number of the definition of each concept; empty if no concept has one.
    definitions: Vec<u32>,
    names: CodeTable,
    values: CodeTable,
    hierarchy: ConceptHierarchy,
    /// Defining relationships of each concept: group, type and value.
    attributes: RowColumn<[u32; 3]>,
    subset_names: CodeTable,
    subsets: RowColumn<u32>,
    members: MemberColumns,
    identifiers: IdentifierColumns,
    words: WordIndex,
    /// Faults of the source, found while the index was built; not part of the saved index.
    faults: Vec<String>,
    /// Whether the index was read from a file of an older format.
    is_updated: bool,
    /// Whether this holds only what concerns one expression, so that it lacks codes of the code system.
    is_excerpt: bool,
    /// Displays by the dialects that the operator prefers; not part of the saved index.
    preferred_terms: OnceLock<PreferredTerms>,
    /// The way back from values to concepts; not part of the saved index.
    sources: SourceColumns,
    /// Descendants that were asked for; not part of the saved index.
    descendants: DescendantCache,
}

/// Number of a code system in this process, starting at 1. Cached results carry it, so that they are not used
/// for another code system.
#[derive(Debug)]
struct InstanceNumber(u32);

impl Default for InstanceNumber {
    fn default() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

columns!(CodeSystem: codes, displays, designations, properties, flags, statuses, definitions, names, values, hierarchy, attributes,
    subset_names, subsets, members, identifiers, words);

impl CodeSystem {
    fn from_header(header: &ResourceHeader) -> Self {
        let url = header.url.clone().unwrap_or_default();
        let version = header.version.clone();
        Self {
            url,
            version,
            content: header.content.unwrap_or_default(),
            meaning: header.hierarchy_meaning,
            case_sensitive: header.case_sensitive,
            language: header.language.clone(),
            status: header.status.clone(),
            experimental: header.experimental,
            standards_status: header.extensions.standards_status.clone(),
            codes: CodeTable::new(header.case_sensitive == Some(false)),
            header: header.clone(),
            ..Self::default()
        }
    }

    /// Saves the index.
    ///
    /// # Errors
    /// [`io::Error`] if the file cannot be written.
    pub(crate) fn save(&self, out: impl io::Write) -> io::Result<()> {
        let mut recorder = IndexWriter::begin(out)?;
        serde_json::to_string(&self.header)?.save(&mut recorder)?;
        IndexColumn::save(self, &mut recorder)?;
        recorder.end()
    }

    /// Loads a saved index.
    ///
    /// # Errors
    /// [`io::Error`] if the file cannot be read, of the kind `InvalidData` if it is not an index, is corrupt,
    /// or has another format or byte order.
    pub(crate) fn read(input: impl io::Read) -> io::Result<Self> {
        let mut player = IndexReader::begin(input)?;
        let mut system = Self::from_header(&Self::read_header(&mut player)?);
        system.load(&mut player)?;
        system.is_updated = player.format != FORMAT;
        player.end()?;
        // Builds the tables after the checksum is verified, because a corrupt file could contain any offset.
        for codes in [&mut system.codes, &mut system.names, &mut system.values, &mut system.subset_names] {
            codes.build_table();
        }
        system.members.build_table();
        system.identifiers.build_tables();
        if system.is_updated {
            system.words = WordIndex::build(&system).map_err(io::Error::other)?;
        }
        Ok(system)
    }

    /// Loads the first column, the description of the code system.
    fn read_header(player: &mut IndexReader<impl io::Read>) -> io::Result<ResourceHeader> {
        let mut header = String::new();
        header.load(player)?;
        Ok(serde_json::from_str(&header)?)
    }

    /// The number of this code system among all in this process.
    pub(crate) fn instance(&self) -> u32 {
        self.instance.0
    }

    pub(crate) fn len(&self) -> usize {
        self.codes.len()
    }

    pub(crate) fn find(&self, code: &str) -> Option<u32> {
        self.codes.find(code)
    }

    /// The concept of a code, with its ancestor data.
    pub(crate) fn locate(&self, code: &str) -> Option<LocatedConcept> {
        self.codes.locate(code)
    }

    pub(crate) fn locate_all<const N: usize>(&self, codes: [&str; N]) -> [Option<LocatedConcept>; N] {
        self.codes.locate_all(codes)
    }

    /// The code of an ordinal, in the spelling of the system.
    pub(crate) fn code(&self, concept: u32) -> &str {
        self.codes.get(concept)
    }

    /// Returns whether two codes are equal, ignoring case if the system does.
    pub(crate) fn same_code(&self, a: &str, b: &str) -> bool {
        a == b || (self.case_sensitive == Some(false) && same_folded(a, b))
    }

    /// An interned text, if there is one with this number.
    fn interned(&self, number: u32) -> Option<&str> {
        (number != NONE).then(|| self.values.get(number))
    }

    fn has_flag(&self, concept: u32, flag: u8) -> bool {
        self.flags.get(concept as usize).is_some_and(|flags| flags & flag != 0)
    }

    /// Returns whether any concept may be inactive.
    pub(crate) fn has_inactive(&self) -> bool {
        !self.flags.is_empty()
    }

    /// The approximate size of the index in memory, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let texts = [&self.displays, &self.designations.texts].map(|texts| texts.bytes() + 3 * texts.len());
        let tables = [&self.codes, &self.names, &self.values, &self.subset_names];
        let tables = tables.map(|codes| codes.texts().bytes() + 40 * codes.len());
        size_of::<Self>()
            + texts.iter().chain(&tables).sum::<usize>()
            + 12 * self.designations.facts.len()
            + 8 * self.designations.description_ids.len()
            + 8 * self.properties.items()
            + 12 * self.attributes.items()
            + 4 * self.subsets.items()
            + self.members.memory_bytes()
            + self.identifiers.memory_bytes()
            + self.words.memory_bytes()
            + self.sources.memory_bytes()
            + self.descendants.memory_bytes()
            + 48 * self.len()
    }

    pub(crate) fn is_inactive(&self, concept: u32) -> bool {
        self.has_flag(concept, INACTIVE)
    }

    /// Returns whether the concept groups other concepts and must not be used itself.
    pub(crate) fn is_abstract(&self, concept: u32) -> bool {
        self.has_flag(concept, ABSTRACT)
    }

    /// Returns whether the meaning of a code is that of a user ([`USER_ASSIGNED`]).
    pub(crate) fn is_user_assigned(&self, concept: u32) -> bool {
        self.url == ISO_3166 && self.property(concept, USER_ASSIGNED).next() == Some("true")
    }

    /// Returns whether the concept is deprecated but still active.
    pub(crate) fn is_deprecated(&self, concept: u32) -> bool {
        self.has_flag(concept, DEPRECATED)
    }

    /// The value of the `status` property of a concept.
    pub(crate) fn concept_status(&self, concept: u32) -> Option<&str> {
        self.interned(*self.statuses.get(concept as usize)?)
    }

    /// The status of a concept that is not, or no longer, intended for use, from its `status` property or its
    /// standards status.
    pub(crate) fn status_to_report(&self, concept: u32) -> Option<&str> {
        if !self.has_flag(concept, INACTIVE | DEPRECATED) {
            return None;
        }
        self.concept_status(concept).or_else(|| self.extension(concept, STANDARDS_STATUS))
    }

    pub(crate) fn definition(&self, concept: u32) -> Option<&str> {
        self.interned(*self.definitions.get(concept as usize)?)
    }

    /// The index of the words in all texts.
    pub(crate) fn word_index(&self) -> &WordIndex {
        &self.words
    }

    pub(crate) fn hierarchy(&self) -> &ConceptHierarchy {
        &self.hierarchy
    }

    /// The descendants of a concept, without itself. The hierarchy must not have a cycle.
    ///
    /// # Errors
    /// [`BudgetExhausted`] if they are not known and the budget is spent.
    pub(crate) fn descendants(
        &self,
        of: u32,
        budget: &Budget<'_>,
    ) -> Result<Arc<ConceptSet>, BudgetExhausted> {
        self.descendants.descendants(&self.hierarchy, of, budget)
    }

    /// The hierarchy of a code system, if it means is-a.
    ///
    /// # Errors
    /// [`Unprocessable`] if the hierarchy has another meaning or a cycle.
    pub(crate) fn require_is_a_hierarchy(&self) -> Result<&ConceptHierarchy, Unprocessable> {
        match self.meaning {
            // A hierarchy without a stated meaning counts as is-a, as is common in practice.
            None | Some(HierarchyMeaning::IsA) => {}
            Some(meaning) => {
                return Err(Unprocessable::HierarchyMeaning {
                    system: self.url.clone(),
                    meaning: meaning.name(),
                });
            }
        }
        match self.cycle() {
            Some(codes) => Err(Unprocessable::CyclicHierarchy { system: self.url.clone(), codes }),
            None => Ok(self.hierarchy()),
        }
    }

    /// The codes of one cycle of the hierarchy, if there is any.
    pub(crate) fn cycle(&self) -> Option<Vec<String>> {
        let cycle = self.hierarchy.cycle();
        (!cycle.is_empty()).then(|| cycle.iter().map(|concept| self.code(*concept).to_owned()).collect())
    }

    /// Marks this as an excerpt that holds what concerns one expression.
    pub(crate) fn into_excerpt(self) -> Self {
        Self { is_excerpt: true, ..self }
    }

    /// Returns whether this holds what concerns one expression.
    pub(crate) fn is_excerpt(&self) -> bool {
        self.is_excerpt
    }

    /// Returns whether codes can exist that this index lacks, so that a filter may name an unknown code.
    pub(crate) fn is_partial(&self) -> bool {
        self.is_excerpt || self.content == ContentMode::Fragment
    }

    /// The members of a subset, sorted; `None` if there is no such subset.
    pub(crate) fn subset(&self, name: &str) -> Option<&[u32]> {
        self.subset_names.find(name).map(|number| self.subsets.row(number))
    }

    pub(crate) fn identifiers(&self) -> &IdentifierColumns {
        &self.identifiers
    }

    pub(crate) fn subset_names(&self) -> impl Iterator<Item = &str> {
        (0..self.subset_names.len() as u32).map(|number| self.subset_names.get(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(json: &str) -> CodeSystem {
        let header: ResourceHeader = serde_json::from_str(json).unwrap();
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
        let concept = |code| system.find(code).unwrap();
        // Another URI does not change the meaning of a standard code.
        assert!(system.is_abstract(concept("a")) && system.is_abstract(concept("b")));
        assert!(
            system.is_inactive(concept("c"))
                && system.is_inactive(concept("d"))
                && !system.is_inactive(concept("a"))
        );
        assert_eq!(system.concept_status(concept("c")), Some("retired"));
        assert_eq!(system.property(concept("d"), "n").collect::<Vec<_>>(), ["7"]);
        assert_eq!(system.property_texts(concept("d"), "k").collect::<Vec<_>>(), ["x", "s|x"]);
        assert!(system.has_property("inactive") && !system.has_property("colour"));
    }

    #[test]
    fn too_many_codes_that_differ_by_case_are_rejected() {
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
        let reason = compile(65, false).unwrap_err();
        assert!(reason.contains("'aaaaaaA' and 64 other codes differ by case only"), "{reason}");
    }

    #[test]
    fn long_rows_several_parents_and_cycles_are_loaded_unchanged() {
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
            assert_eq!(back.cycle(), system.cycle());
            assert_eq!(back.cycle().is_some(), above != "a");
            for concept in 0..system.len() as u32 {
                let code = system.code(concept);
                assert_eq!(back.locate(code), system.locate(code), "{code}");
                assert_eq!(back.display(concept), system.display(concept), "{code}");
                assert_eq!(back.definition(concept), system.definition(concept), "{code}");
                for other in (0..system.len() as u32).filter(|_| system.cycle().is_none()) {
                    let is_a = |system: &CodeSystem| system.hierarchy().is_a(concept, other);
                    assert_eq!(is_a(&back), is_a(&system), "{code} below {}", system.code(other));
                }
            }
        }
    }

    #[test]
    fn a_cycle_is_stored_and_named() {
        let system = system(
            r#"{"resourceType":"CodeSystem","content":"complete","concept":[
                {"code":"a","property":[{"code":"parent","valueCode":"b"}]},
                {"code":"b","property":[{"code":"parent","valueCode":"a"}]}]}"#,
        );
        assert_eq!(system.cycle().unwrap(), ["a", "b", "a"]);
        assert!(system.find("b").is_some());
    }
}
