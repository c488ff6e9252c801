//! The way into an index: concepts and what is said about them, in any order, from any kind of file.
//!
//! Rows are told as they come and stand in columns of their own, each with the number of its concept; at the end
//! the hierarchy numbers the concepts anew, and one column after the other is put into that order.

use super::codes::Codes;
use super::columns::{Rows, Texts, group};
use super::hierarchy::Hierarchy;
use super::words::Words;
use super::{ABSTRACT, CodeSystem, DEPRECATED, Designations, INACTIVE, LITERAL, NONE, Role};
use crate::wire::Header;

/// So many codes may differ by case alone where case does not matter: all of them are looked at to find one.
const MOST_ALIKE: usize = 64;

/// Number of a concept while the system is built.
pub(crate) type Number = u32;

/// A code system in the making.
pub(crate) struct Builder {
    out: CodeSystem,
    codes: Codes,
    /// Where the display of each concept stands in `texts`.
    displays: Vec<u32>,
    /// Displays and designations.
    texts: Texts,
    flags: Vec<u8>,
    statuses: Vec<(Number, u32)>,
    definitions: Vec<(Number, u32)>,
    links: Vec<(Number, Number)>,
    /// Links whose other end may not have come yet: the concept, is the other one its parent?
    named: Vec<(Number, bool)>,
    others: Texts,
    designation_of: Vec<Number>,
    /// Text, language, use and standards status, each by number.
    designations: Vec<[u32; 4]>,
    property_of: Vec<Number>,
    properties: Vec<[u32; 2]>,
    attribute_of: Vec<Number>,
    /// Group, kind and value by the codes' numbers here.
    attributes: Vec<[u32; 3]>,
    subset_of: Vec<u32>,
    members: Vec<Number>,
    /// What each named property means, by its number among the names.
    roles: Vec<Option<Role>>,
}

/// A designation: what a concept is also called.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Designation<'a> {
    pub(crate) language: Option<&'a str>,
    /// System, code and display of its use.
    pub(crate) usage: Option<[&'a str; 3]>,
    pub(crate) value: &'a str,
    /// `deprecated` or `withdrawn`, by its standards status.
    pub(crate) status: Option<&'a str>,
}

impl Builder {
    /// Nothing yet of a code system.
    ///
    /// # Errors
    /// When there is too much text.
    pub(crate) fn new(header: &Header) -> Result<Self, String> {
        let fold = header.case_sensitive == Some(false);
        let mut builder = Self {
            out: CodeSystem::described(header),
            codes: Codes::new(fold),
            displays: Vec::new(),
            texts: Texts::default(),
            flags: Vec::new(),
            statuses: Vec::new(),
            definitions: Vec::new(),
            links: Vec::new(),
            named: Vec::new(),
            others: Texts::default(),
            designation_of: Vec::new(),
            designations: Vec::new(),
            property_of: Vec::new(),
            properties: Vec::new(),
            attribute_of: Vec::new(),
            attributes: Vec::new(),
            subset_of: Vec::new(),
            members: Vec::new(),
            roles: Vec::new(),
        };
        for property in &header.property {
            let number = builder.out.names.number(&property.code)? as usize;
            if number == builder.roles.len() {
                builder.roles.push(Role::of(&property.code, property.uri.as_deref()));
            }
        }
        Ok(builder)
    }

    /// Adds a concept, or finds it: a code that comes twice is one concept. Says whether it is new.
    ///
    /// # Errors
    /// An empty code; too many codes that differ by case alone in a system where case does not matter; too much text.
    pub(crate) fn concept(&mut self, code: &str) -> Result<(Number, bool), String> {
        if code.is_empty() {
            return Err("a concept has an empty code".to_owned());
        }
        if let Some(number) = self.find(code) {
            return Ok((number, false));
        }
        if self.codes.alike(code) == MOST_ALIKE {
            return Err(format!(
                "'{code}' and {MOST_ALIKE} other codes differ by case alone, which does not matter here; set caseSensitive to \
                 true or give each concept once"
            ));
        }
        self.codes.push(code)?;
        self.displays.push(NONE);
        self.flags.push(0);
        Ok((self.codes.len() as u32 - 1, true))
    }

    /// The concept with exactly this code.
    pub(crate) fn find(&self, code: &str) -> Option<Number> {
        self.codes.find(code).filter(|number| self.codes.get(*number) == code)
    }

    /// How many concepts there are so far.
    pub(crate) fn len(&self) -> usize {
        self.codes.len()
    }

    /// Says what a concept is called; the last word counts.
    ///
    /// # Errors
    /// When there is too much text.
    pub(crate) fn display(&mut self, of: Number, text: &str) -> Result<(), String> {
        self.displays[of as usize] = self.texts.len() as u32;
        self.texts.push(text)
    }

    /// Has the concept got a display yet?
    pub(crate) fn has_display(&self, of: Number) -> bool {
        self.displays[of as usize] != NONE
    }

    /// Says what a concept is also called.
    ///
    /// # Errors
    /// When there is too much text.
    pub(crate) fn designation(&mut self, of: Number, said: Designation<'_>) -> Result<(), String> {
        let mut number = |text: Option<&str>| text.map_or(Ok(NONE), |text| self.out.values.number(text));
        let usage = said.usage.map(|usage| usage.join("\u{1f}"));
        let row = [
            self.texts.len() as u32,
            number(said.language)?,
            number(usage.as_deref())?,
            number(said.status)?,
        ];
        self.texts.push(said.value)?;
        self.designation_of.push(of);
        self.designations.push(row);
        Ok(())
    }

    /// Says what a concept means; the first word counts.
    ///
    /// # Errors
    /// When there is too much text.
    pub(crate) fn definition(&mut self, of: Number, text: &str) -> Result<(), String> {
        let text = self.out.values.number(text)?;
        self.definitions.push((of, text));
        Ok(())
    }

    /// Says a property of a concept. Those that FHIR gives a meaning take effect by it: parents and children
    /// become links and are not kept as texts.
    ///
    /// # Errors
    /// When there is too much text.
    pub(crate) fn property(&mut self, of: Number, name: &str, value: &str) -> Result<(), String> {
        let name_number = self.out.names.number(name)?;
        if name_number as usize == self.roles.len() {
            self.roles.push(Role::of(name, None));
        }
        let role = self.roles[name_number as usize];
        if let Some(Role::Parent | Role::Child) = role {
            self.named.push((of, role == Some(Role::Parent)));
            return self.others.push(value);
        }
        let yes = value.eq_ignore_ascii_case("true");
        match role {
            Some(Role::Inactive) if yes => self.mark(of, INACTIVE),
            Some(Role::NotSelectable) if yes => self.mark(of, ABSTRACT),
            Some(Role::Deprecated) if yes => self.mark(of, DEPRECATED),
            Some(Role::Status) => {
                let status = self.out.values.number(value)?;
                self.statuses.push((of, status));
                if matches!(value, "retired" | "deprecated" | "withdrawn" | "inactive") {
                    self.mark(of, INACTIVE);
                }
            }
            _ => {}
        }
        self.property_of.push(of);
        let value = self.out.values.number(value)?;
        self.properties.push([name_number, value]);
        Ok(())
    }

    /// Does a property of this name link concepts?
    pub(crate) fn is_link(&self, name: &str) -> bool {
        let declared = self.out.names.find(name).map(|number| self.roles[number as usize]);
        matches!(declared.unwrap_or_else(|| Role::of(name, None)), Some(Role::Parent | Role::Child))
    }

    /// Sets flags of a concept.
    pub(crate) fn mark(&mut self, of: Number, flags: u8) {
        self.flags[of as usize] |= flags;
    }

    /// One concept is a direct parent of another.
    pub(crate) fn link(&mut self, child: Number, parent: Number) {
        self.links.push((child, parent));
    }

    /// A defining relationship: within a group of the concept's, a kind of attribute and its value.
    pub(crate) fn attribute(&mut self, of: Number, group: u32, kind: Number, value: Number) {
        self.attribute_of.push(of);
        self.attributes.push([group, kind, value]);
    }

    /// A defining relationship whose value is no concept but a number or a text.
    ///
    /// # Errors
    /// When there is too much text.
    pub(crate) fn literal(
        &mut self,
        of: Number,
        group: u32,
        kind: Number,
        value: &str,
    ) -> Result<(), String> {
        let value = LITERAL | self.out.values.number(value)?;
        self.attribute(of, group, kind, value);
        Ok(())
    }

    /// Puts a concept into a named subset.
    ///
    /// # Errors
    /// When there is too much text.
    pub(crate) fn member(&mut self, subset: &str, concept: Number) -> Result<(), String> {
        let subset = self.out.subset_names.number(subset)?;
        self.subset_of.push(subset);
        self.members.push(concept);
        Ok(())
    }

    /// The finished index.
    ///
    /// # Errors
    /// When there is too much text.
    pub(crate) fn finish(mut self) -> Result<CodeSystem, String> {
        let len = self.codes.len();
        for (at, (concept, is_parent)) in self.named.iter().enumerate() {
            // A link to a code that is not there says nothing; fragments have many.
            let Some(other) = self.find(self.others.get(at as u32)) else { continue };
            self.links.push(if *is_parent { (*concept, other) } else { (other, *concept) });
        }
        drop((std::mem::take(&mut self.named), std::mem::take(&mut self.others)));
        let (order, hierarchy, above) = Hierarchy::build(len, std::mem::take(&mut self.links));
        let mut ordinal = vec![0_u32; len];
        for (at, old) in order.iter().enumerate() {
            ordinal[*old as usize] = at as u32;
        }
        let mut out = self.out;
        out.hierarchy = hierarchy;

        let fold = out.case_sensitive == Some(false);
        let mut codes = Texts::with_capacity(self.codes.texts().bytes(), len);
        for old in &order {
            codes.push(self.codes.get(*old))?;
        }
        drop(self.codes);
        out.codes = Codes::of(codes, fold, above);

        let mut displays = Texts::with_capacity(self.texts.bytes(), len);
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
        let column = |said: Vec<(Number, u32)>| {
            let mut out = vec![NONE; if said.is_empty() { 0 } else { len }];
            said.into_iter().for_each(|(old, number)| out[ordinal[old as usize] as usize] = number);
            out
        };
        out.statuses = column(self.statuses);
        // Told the other way round, so that the first one stays.
        self.definitions.reverse();
        out.definitions = column(self.definitions);
        if !self.designations.is_empty() {
            renumbered(&mut self.designation_of);
            let (ends, places) = group(len, &self.designation_of);
            let mut texts = Texts::default();
            let mut facts = Vec::with_capacity(places.len());
            for at in places {
                let [text, language, usage, status] = self.designations[at as usize];
                texts.push(self.texts.get(text))?;
                facts.push([language, usage, status]);
            }
            texts.shrink();
            out.designations = Designations { ends, texts, facts };
        }
        drop(self.texts);
        if !self.properties.is_empty() {
            renumbered(&mut self.property_of);
            out.properties = Rows::grouped(len, &self.property_of, &self.properties);
        }
        if !self.attributes.is_empty() {
            renumbered(&mut self.attribute_of);
            for [_, kind, value] in &mut self.attributes {
                *kind = ordinal[*kind as usize];
                if *value & LITERAL == 0 {
                    *value = ordinal[*value as usize];
                }
            }
            out.attributes = Rows::grouped(len, &self.attribute_of, &self.attributes);
        }
        if !self.members.is_empty() {
            renumbered(&mut self.members);
            let subsets = Rows::grouped(out.subset_names.len(), &self.subset_of, &self.members);
            for subset in 0..subsets.len() as u32 {
                let mut members = subsets.row(subset).to_vec();
                members.sort_unstable();
                members.dedup();
                out.subsets.push(members);
            }
            out.subsets.shrink();
        }
        out.words = Words::build(&out)?;
        Ok(out)
    }
}
