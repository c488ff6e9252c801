//! The builder of an index. It takes concepts and their texts, properties and links in any order.
//!
//! Each kind of data is collected in its own columns, with the number of the concept. At the end, the
//! hierarchy assigns the ordinals, and each column is sorted by them.

use super::code_table::CodeTable;
use super::coding_property::CodingProperty;
use super::concept_attribute::{ABSTRACT, DEPRECATED, INACTIVE, LITERAL, NONE};
use super::concept_designation::ConceptDesignation;
use super::description_facts::SEPARATOR;
use super::designation_columns::DesignationColumns;
use super::hierarchy::ConceptHierarchy;
use super::member_columns::{MemberBuilder, MemberFacts};
use super::row_column::{RowColumn, TextColumn, group};
use super::word_index::WordIndex;
use super::{CodeSystem, CodeSystemIndex, PropertyRole};
use crate::model::resource_json::{ContentMode, ResourceHeader};

/// Maximum number of codes that differ by case only, if case is ignored. A lookup compares all of them.
const MAX_CASE_VARIANTS: usize = 64;

/// Maximum number of faults of a source that are described.
const MAX_FAULTS: usize = 20;

/// Number of a concept while the index is built.
pub type ConceptNumber = u32;

/// Builder of the index of one code system.
pub struct IndexBuilder {
    out: CodeSystem,
    codes: CodeTable,
    /// Number of the display of each concept in `texts`.
    displays: Vec<u32>,
    texts: TextColumn,
    flags: Vec<u8>,
    statuses: Vec<(ConceptNumber, u32)>,
    definitions: Vec<(ConceptNumber, u32)>,
    links: Vec<(ConceptNumber, ConceptNumber)>,
    /// Links to a code that may be added later: the concept, and whether the other one is its parent.
    code_links: Vec<(ConceptNumber, bool)>,
    link_codes: TextColumn,
    designation_of: Vec<ConceptNumber>,
    /// Text, language, use, and standards status with the id of the description, each by number.
    designations: Vec<[u32; 4]>,
    /// Ids of the descriptions of SNOMED CT; empty if none has one.
    description_ids: Vec<u64>,
    property_of: Vec<ConceptNumber>,
    properties: Vec<[u32; 2]>,
    attribute_of: Vec<ConceptNumber>,
    /// Group, type and value, by the numbers of the concepts in this builder.
    attributes: Vec<[u32; 3]>,
    subset_of: Vec<u32>,
    members: Vec<ConceptNumber>,
    member_rows: MemberBuilder,
    /// Buffer for the texts of several parts.
    joined: String,
    /// Role of each property, by its number among the names.
    roles: Vec<Option<PropertyRole>>,
    faults: Vec<String>,
    fault_count: usize,
}

/// Joins the parts of an interned text in a buffer.
fn join<'b>(buffer: &'b mut String, parts: &[&str]) -> &'b str {
    buffer.clear();
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            buffer.push(SEPARATOR);
        }
        buffer.push_str(part);
    }
    buffer
}

impl IndexBuilder {
    /// Returns a builder without concepts.
    ///
    /// # Errors
    /// Returns a message if there is more text than an index can hold.
    pub fn new(header: &ResourceHeader) -> Result<Self, String> {
        let fold = header.case_sensitive == Some(false);
        let mut builder = Self {
            out: CodeSystem::from_header(header),
            codes: CodeTable::new(fold),
            displays: Vec::new(),
            texts: TextColumn::default(),
            flags: Vec::new(),
            statuses: Vec::new(),
            definitions: Vec::new(),
            links: Vec::new(),
            code_links: Vec::new(),
            link_codes: TextColumn::default(),
            designation_of: Vec::new(),
            designations: Vec::new(),
            description_ids: Vec::new(),
            property_of: Vec::new(),
            properties: Vec::new(),
            attribute_of: Vec::new(),
            attributes: Vec::new(),
            subset_of: Vec::new(),
            members: Vec::new(),
            member_rows: MemberBuilder::default(),
            joined: String::new(),
            roles: Vec::new(),
            faults: Vec::new(),
            fault_count: 0,
        };
        for property in &header.property {
            let number = builder.out.names.intern(&property.code)? as usize;
            if number == builder.roles.len() {
                builder.roles.push(PropertyRole::of_property(&property.code, property.uri.as_deref()));
            }
        }
        Ok(builder)
    }

    /// Adds a concept, and returns its number and whether it is new. A code that is added twice is one
    /// concept.
    ///
    /// # Errors
    /// Returns a message if the code is empty, if too many codes differ from it by case only and case is
    /// ignored, or if there is more text than an index can hold.
    pub fn add_concept(&mut self, code: &str) -> Result<(ConceptNumber, bool), String> {
        if code.is_empty() {
            return Err("a concept has an empty code".to_owned());
        }
        if let Some(number) = self.find_concept(code) {
            return Ok((number, false));
        }
        let variants = self.codes.count_case_variants(code);
        if variants == MAX_CASE_VARIANTS {
            return Err(format!(
                "'{code}' and {MAX_CASE_VARIANTS} other codes differ by case only, but the code system ignores case; set caseSensitive to \
                 true or list each concept once"
            ));
        }
        if variants > 0 {
            self.report(|| {
                format!("'{code}' differs from another code by case only, which the code system ignores; set caseSensitive to true, or list each concept once")
            });
        }
        self.codes.push(code)?;
        self.displays.push(NONE);
        self.flags.push(0);
        Ok((self.codes.len() as u32 - 1, true))
    }

    /// Reports a fault of the source that does not prevent its use.
    pub(crate) fn report(&mut self, fault: impl FnOnce() -> String) {
        self.fault_count += 1;
        if self.faults.len() < MAX_FAULTS {
            self.faults.push(fault());
        }
    }

    /// Returns whether another code differs from this one by case only, and the code system ignores case.
    pub fn has_case_variant(&self, code: &str) -> bool {
        self.codes.count_case_variants(code) > 0 && self.find_concept(code).is_none()
    }

    /// Returns the concept with exactly this code.
    pub fn find_concept(&self, code: &str) -> Option<ConceptNumber> {
        self.codes.find(code).filter(|number| self.codes.get(*number) == code)
    }

    /// Returns the number of concepts so far.
    pub fn concept_count(&self) -> usize {
        self.codes.len()
    }

    /// Sets the display of a concept, replacing an earlier one.
    ///
    /// # Errors
    /// Returns a message if there is more text than an index can hold.
    pub fn set_display(&mut self, of: ConceptNumber, text: &str) -> Result<(), String> {
        self.displays[of as usize] = self.texts.len() as u32;
        self.texts.push(text)
    }

    /// Returns whether the concept has a display.
    pub fn has_display(&self, of: ConceptNumber) -> bool {
        self.displays[of as usize] != NONE
    }

    /// Adds a designation of a concept.
    ///
    /// # Errors
    /// Returns a message if there is more text than an index can hold.
    pub fn add_designation(
        &mut self,
        of: ConceptNumber,
        designation: ConceptDesignation<'_>,
    ) -> Result<(), String> {
        let values = &mut self.out.values;
        let language = designation.language.map_or(Ok(NONE), |language| values.intern(language))?;
        let usage = match designation.usage {
            Some(usage) => values.intern(join(&mut self.joined, &usage))?,
            None => NONE,
        };
        // Many designations share these facts, or have none of them, so they share a column.
        let stated =
            designation.description.map(|facts| [facts.module, facts.effective_time, facts.dialects]);
        let facts = match (designation.status, designation.description_id, stated) {
            (None, None, None) => NONE,
            (status, id, stated) => {
                let [module, time, dialects] = stated.unwrap_or_default();
                let parts = [status.unwrap_or_default(), id.unwrap_or_default(), module, time, dialects];
                values.intern(join(&mut self.joined, &parts))?
            }
        };
        let row = [self.texts.len() as u32, language, usage, facts];
        self.texts.push(designation.value)?;
        if let Some(facts) = designation.description {
            self.description_ids.resize(self.designations.len(), 0);
            self.description_ids.push(facts.id);
        }
        self.designation_of.push(of);
        self.designations.push(row);
        Ok(())
    }

    /// Sets the definition of a concept. Only the first call for a concept has an effect.
    ///
    /// # Errors
    /// Returns a message if there is more text than an index can hold.
    pub fn set_definition(&mut self, of: ConceptNumber, text: &str) -> Result<(), String> {
        let text = self.out.values.intern(text)?;
        self.definitions.push((of, text));
        Ok(())
    }

    /// Adds a property of a concept. FHIR's standard properties take effect: parents and children become
    /// links, and are not stored as texts.
    ///
    /// # Errors
    /// Returns a message if there is more text than an index can hold.
    pub fn add_property(&mut self, of: ConceptNumber, name: &str, value: &str) -> Result<(), String> {
        let name_number = self.out.names.intern(name)?;
        if name_number as usize == self.roles.len() {
            self.roles.push(PropertyRole::of_property(name, None));
        }
        let role = self.roles[name_number as usize];
        if let Some(PropertyRole::Parent | PropertyRole::Child) = role {
            self.code_links.push((of, role == Some(PropertyRole::Parent)));
            return self.link_codes.push(value);
        }
        let yes = value.eq_ignore_ascii_case("true");
        match role {
            Some(PropertyRole::Inactive) if yes => self.set_flags(of, INACTIVE),
            Some(PropertyRole::NotSelectable) if yes => self.set_flags(of, ABSTRACT),
            Some(PropertyRole::Deprecated) if yes => self.set_flags(of, DEPRECATED),
            Some(PropertyRole::Status) => {
                let status = self.out.values.intern(value)?;
                self.statuses.push((of, status));
                match value {
                    "retired" | "withdrawn" | "inactive" => self.set_flags(of, INACTIVE),
                    // A deprecated concept is still active: it may be used, but another one is preferred.
                    "deprecated" => self.set_flags(of, DEPRECATED),
                    _ => {}
                }
            }
            _ => {}
        }
        self.property_of.push(of);
        let value = self.out.values.intern(value)?;
        self.properties.push([name_number, value]);
        Ok(())
    }

    /// Adds a property whose value is a Coding. An empty text is an absent member.
    ///
    /// # Errors
    /// Returns a message if there is more text than an index can hold.
    pub fn add_coding_property(
        &mut self,
        of: ConceptNumber,
        name: &str,
        [system, code, display]: [&str; 3],
    ) -> Result<(), String> {
        self.add_property(of, name, &CodingProperty { code, system, display }.to_stored())
    }

    /// Returns whether a property of this name links concepts.
    pub(crate) fn is_link_property(&self, name: &str) -> bool {
        matches!(self.role_of(name), Some(PropertyRole::Parent | PropertyRole::Child))
    }

    /// The standard role of a property of this name.
    pub(super) fn role_of(&self, name: &str) -> Option<PropertyRole> {
        let declared = self.out.names.find(name).map(|number| self.roles[number as usize]);
        declared.unwrap_or_else(|| PropertyRole::of_property(name, None))
    }

    pub(crate) fn set_flags(&mut self, of: ConceptNumber, flags: u8) {
        self.flags[of as usize] |= flags;
    }

    /// Makes one concept a direct parent of another.
    pub fn add_parent(&mut self, child: ConceptNumber, parent: ConceptNumber) {
        self.links.push((child, parent));
    }

    /// Adds a defining relationship: a group within the concept, the type of the attribute, and its value.
    pub fn add_attribute(
        &mut self,
        of: ConceptNumber,
        group: u32,
        kind: ConceptNumber,
        value: ConceptNumber,
    ) {
        self.attribute_of.push(of);
        self.attributes.push([group, kind, value]);
    }

    /// Adds a defining relationship whose value is a number or a text.
    ///
    /// # Errors
    /// Returns a message if there is more text than an index can hold.
    pub fn add_literal_attribute(
        &mut self,
        of: ConceptNumber,
        group: u32,
        kind: ConceptNumber,
        value: &str,
    ) -> Result<(), String> {
        let value = LITERAL | self.out.values.intern(value)?;
        self.add_attribute(of, group, kind, value);
        Ok(())
    }

    /// Adds a concept to a named subset.
    ///
    /// # Errors
    /// Returns a message if there is more text than an index can hold.
    pub fn add_subset_member(&mut self, subset: &str, concept: ConceptNumber) -> Result<(), String> {
        let subset = self.out.subset_names.intern(subset)?;
        self.subset_of.push(subset);
        self.members.push(concept);
        Ok(())
    }

    /// Adds a row of a reference set, with names and values of its fields. Every row of a reference set has
    /// the same fields. Rows do not make the concept a member: see
    /// [`add_subset_member`](Self::add_subset_member).
    ///
    /// # Errors
    /// Returns a message if there is more text than an index can hold.
    pub fn add_member_row<'f>(
        &mut self,
        reference_set: &str,
        member: ConceptNumber,
        facts: MemberFacts<'_>,
        fields: impl Iterator<Item = (&'f str, &'f str)> + Clone,
    ) -> Result<(), String> {
        let codes = &self.codes;
        self.member_rows.add(reference_set, member, facts, fields, |code| codes.find(code))
    }

    /// Adds an alternate identifier of a concept. The scheme is the code of a concept, which need not exist.
    ///
    /// # Errors
    /// Returns a message if there is more text than an index can hold.
    pub fn add_identifier(
        &mut self,
        scheme: &str,
        identifier: &str,
        of: ConceptNumber,
    ) -> Result<(), String> {
        self.out.identifiers.add(scheme, identifier, of)
    }

    /// Returns the finished index.
    ///
    /// # Errors
    /// Returns a message if there is more text than an index can hold.
    pub fn finish(self) -> Result<CodeSystemIndex, String> {
        self.build().map(CodeSystemIndex::from)
    }

    /// Marks a concept as inactive.
    pub fn mark_inactive(&mut self, of: ConceptNumber) {
        self.set_flags(of, INACTIVE);
    }

    /// Converts links to codes into links to concepts. Links to unknown codes are ignored; fragments have
    /// many of them.
    fn resolve_links(&mut self) {
        let mut dangling = Vec::new();
        for (index, (concept, is_parent)) in self.code_links.iter().enumerate() {
            let linked = self.link_codes.get(index as u32);
            let Some(other) = self.find_concept(linked) else {
                dangling.push((*concept, *is_parent, index as u32));
                continue;
            };
            self.links.push(if *is_parent { (*concept, other) } else { (other, *concept) });
        }
        if self.out.content == ContentMode::Complete {
            for (concept, is_parent, index) in dangling {
                let what = if is_parent { "parent" } else { "child" };
                let (code, linked) = (self.codes.get(concept), self.link_codes.get(index));
                let fault = format!(
                    "'{code}' names the {what} '{linked}', which does not exist; add it, or remove the link"
                );
                self.report(|| fault);
            }
        }
        drop((std::mem::take(&mut self.code_links), std::mem::take(&mut self.link_codes)));
    }

    /// The compiled code system.
    ///
    /// # Errors
    /// A message if there is more text than an index can hold.
    pub(crate) fn build(mut self) -> Result<CodeSystem, String> {
        let len = self.codes.len();
        self.resolve_links();
        let (order, hierarchy, above) = ConceptHierarchy::build(len, std::mem::take(&mut self.links));
        let mut ordinal = vec![0_u32; len];
        for (index, old) in order.iter().enumerate() {
            ordinal[*old as usize] = index as u32;
        }
        let mut out = self.out;
        out.faults = self.faults;
        if self.fault_count > MAX_FAULTS {
            out.faults.push(format!("and {} more", self.fault_count - MAX_FAULTS));
        }
        out.hierarchy = hierarchy;
        // Before the texts are copied, because this frees memory.
        out.members = std::mem::take(&mut self.member_rows).build(&ordinal)?;

        let fold = out.case_sensitive == Some(false);
        let mut codes = TextColumn::with_capacity(self.codes.texts().bytes(), len);
        for old in &order {
            codes.push(self.codes.get(*old))?;
        }
        drop(self.codes);
        out.codes = CodeTable::from_texts(codes, fold, above);

        let mut displays = TextColumn::with_capacity(self.texts.bytes(), len);
        for old in &order {
            let text = self.displays[*old as usize];
            displays.push(if text == NONE { "" } else { self.texts.get(text) })?;
        }
        displays.shrink();
        out.displays = displays;
        drop(self.displays);

        let renumbered = |of: &mut Vec<u32>| of.iter_mut().for_each(|old| *old = ordinal[*old as usize]);
        if self.flags.iter().any(|flags| *flags != 0) {
            out.flags = order.iter().map(|old| self.flags[*old as usize]).collect();
        }
        let column = |numbers: Vec<(ConceptNumber, u32)>| {
            let mut out = vec![NONE; if numbers.is_empty() { 0 } else { len }];
            numbers.into_iter().for_each(|(old, number)| out[ordinal[old as usize] as usize] = number);
            out
        };
        out.statuses = column(self.statuses);
        // In reverse order, so that the first definition of a concept is kept.
        self.definitions.reverse();
        out.definitions = column(self.definitions);
        if !self.designations.is_empty() {
            renumbered(&mut self.designation_of);
            let (ends, places) = group(len, &self.designation_of);
            let mut texts = TextColumn::default();
            let mut facts = Vec::with_capacity(places.len());
            let mut description_ids = Vec::new();
            if !self.description_ids.is_empty() {
                self.description_ids.resize(places.len(), 0);
                description_ids.extend(places.iter().map(|index| self.description_ids[*index as usize]));
            }
            drop(std::mem::take(&mut self.description_ids));
            for index in places {
                let [text, language, usage, status] = self.designations[index as usize];
                texts.push(self.texts.get(text))?;
                facts.push([language, usage, status]);
            }
            texts.shrink();
            out.designations = DesignationColumns { ends, texts, facts, description_ids };
        }
        drop(self.texts);
        if !self.properties.is_empty() {
            renumbered(&mut self.property_of);
            out.properties = RowColumn::grouped(len, &self.property_of, &self.properties);
        }
        if !self.attributes.is_empty() {
            renumbered(&mut self.attribute_of);
            for [_, kind, value] in &mut self.attributes {
                *kind = ordinal[*kind as usize];
                if *value & LITERAL == 0 {
                    *value = ordinal[*value as usize];
                }
            }
            out.attributes = RowColumn::grouped(len, &self.attribute_of, &self.attributes);
        }
        if !self.members.is_empty() {
            renumbered(&mut self.members);
            let subsets = RowColumn::grouped(out.subset_names.len(), &self.subset_of, &self.members);
            for subset in 0..subsets.len() as u32 {
                let mut members = subsets.row(subset).to_vec();
                members.sort_unstable();
                members.dedup();
                out.subsets.push(members);
            }
            out.subsets.shrink();
        }
        out.identifiers.renumber(&ordinal);
        out.words = WordIndex::build(&out)?;
        Ok(out)
    }
}
