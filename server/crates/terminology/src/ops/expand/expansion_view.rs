//! The content of a page of an expansion: the selected members, with their texts and properties.

use std::cell::RefCell;
use std::collections::HashMap;

use fhir::Value;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;

use super::expand_request::{DesignationToken, ExpandRequest};
use super::text_filter::TextFilter;
use crate::code_system::CodeSystem;
use crate::membership::member_part::{MemberCode, MemberPart};
use crate::membership::members::ValueSetMembers;
use crate::model::concept_extensions::{REPEATED, RepeatedAs, RepeatedExtension};
use crate::model::language::LanguageRanges;
use crate::model::{Budget, TxError, canonical};
use crate::ops::concept_texts::{self, LoadedSupplement, TextWithUse};
use crate::ops::lookup::typed_value;

/// Maximum depth of an expansion. A deeper hierarchy is written as a flat list.
const DEPTH: usize = 64;

/// Number of steps for writing a property.
const PROPERTY_STEPS: usize = 20;

/// Property that states why a concept is not, or no longer, intended for use.
const STATUS: &str = "status";

/// Cross-version extension for a property of a code, for which R5 has an element.
const CONTAINS_PROPERTY: &str =
    "http://hl7.org/fhir/5.0/StructureDefinition/extension-ValueSet.expansion.contains.property";

/// The selection and presentation of the members.
pub(super) struct ExpansionView<'a, 'r> {
    pub(super) request: &'r ExpandRequest<'r>,
    pub(super) languages: LanguageRanges,
    pub(super) supplements: Vec<LoadedSupplement<'a>>,
    pub(super) budget: &'r Budget<'r>,
    /// Codes of the properties that the page has.
    pub(super) shown_properties: RefCell<Vec<String>>,
}

impl<'a> ExpansionView<'a, '_> {
    /// Removes the members that the caller excludes.
    ///
    /// # Errors
    /// [`TxError`] if the budget is spent.
    pub(super) fn apply_filters(&self, members: &mut ValueSetMembers<'a>) -> Result<(), TxError> {
        self.budget.spend(members.parts.len() * self.request.exclude_systems.len())?;
        let unwanted = |part: &MemberPart<'_>| {
            let have = part.system.and_then(|system| system.version.as_deref()).unwrap_or_default();
            self.request.exclude_systems.iter().any(|canonical| {
                let (url, requested) = canonical::split(canonical);
                url == part.url && requested.is_none_or(|requested| canonical::matches(requested, have))
            })
        };
        members.parts.retain(|part| !unwanted(part));
        if self.request.active_only {
            members.parts.iter_mut().try_for_each(|part| part.drop_inactive(self.budget))?;
        }
        members.parts.iter_mut().try_for_each(|part| part.drop_user_assigned(self.budget))?;
        if self.request.exclude_post_coordinated {
            members.parts.retain(|part| !part.system.is_some_and(CodeSystem::is_excerpt));
        }
        if self.request.exclude_not_for_ui {
            members.parts.iter_mut().try_for_each(|part| part.drop_abstract(self.budget))?;
        }
        if self.request.filter.is_empty() {
            return Ok(());
        }
        let mut filter = TextFilter::new(&self.request.filter, &self.supplements, self.budget);
        members.parts.iter_mut().try_for_each(|part| filter.retain_matches(part))
    }

    /// The display of a member, if the answer has no other text and no language is requested.
    fn default_display(&self, part: &MemberPart<'a>, item: &MemberCode<'a>) -> Option<&'a str> {
        if self.request.with_designations || !self.languages.is_empty() || self.languages.only {
            return None;
        }
        let display = item.listed.and_then(|code| code.display.as_deref());
        display.or_else(|| part.system?.display(item.concept?))
    }

    fn member_texts(
        &self,
        part: &MemberPart<'a>,
        item: &MemberCode<'a>,
    ) -> Result<Vec<TextWithUse<'a>>, TxError> {
        let code_of_list = item.listed.map(|code| (code, part.set.language.as_deref()));
        concept_texts::collect_texts(
            part.system.zip(item.concept),
            code_of_list,
            &self.supplements,
            self.budget,
        )
    }

    /// The codes of the page.
    ///
    /// # Errors
    /// [`TxError`] if the budget is spent.
    pub(super) fn page_rows(
        &self,
        members: &ValueSetMembers<'a>,
        length: usize,
    ) -> Result<Vec<ContainsRow<'a>>, TxError> {
        // Versions are written only if the value set uses several versions of a code system.
        let mut versions = HashMap::new();
        let used = members.parts.iter().map(|part| (part.url, part.system));
        for (url, system) in used.chain(members.excluded_systems.iter().copied()) {
            let version = system.map(|system| system.version.as_deref());
            let (first, several) = versions.entry(url).or_insert((version, false));
            *several |= *first != version;
        }
        let mut out = Vec::new();
        let (mut skip, mut left) = (self.request.offset, length);
        for part in &members.parts {
            let with_version = versions.get(part.url).is_some_and(|(_, several)| *several);
            let repeated = self.repeated_extensions(part);
            let mut items = Vec::new();
            let rows = part.iter_after(skip).take(left).map(|item| {
                items.push(item);
                self.build_row(part, &item, with_version, &repeated)
            });
            let rows = rows.collect::<Result<Vec<_>, _>>()?;
            skip = skip.saturating_sub(part.len());
            left -= rows.len();
            let plain = !self.request.is_paged
                && !part.is_imported
                && self.request.nests(part.url)
                && !members.excluded
                && part.listed.is_none();
            match part.system.filter(|system| plain && system.cycle().is_none()) {
                Some(system) => out.extend(nest_rows(system, &items, rows)),
                None => out.extend(rows),
            }
        }
        Ok(out)
    }

    /// The extensions that a concept of a part may have.
    fn repeated_extensions(&self, part: &MemberPart<'a>) -> Vec<&'static RepeatedExtension> {
        let Some(system) = part.system else { return REPEATED.iter().collect() };
        let added = concept_texts::supplements_of(&self.supplements, system);
        let systems: Vec<&CodeSystem> = std::iter::once(system).chain(added).collect();
        let may_occur = |repeated: &&RepeatedExtension| {
            part.listed.is_some()
                || repeated
                    .in_system
                    .is_some_and(|url| systems.iter().any(|system| system.has_extension(url)))
        };
        REPEATED.iter().filter(may_occur).collect()
    }

    fn build_row(
        &self,
        part: &MemberPart<'a>,
        item: &MemberCode<'a>,
        with_version: bool,
        repeated: &[&'static RepeatedExtension],
    ) -> Result<ContainsRow<'a>, TxError> {
        let default = self.default_display(part, item);
        let texts = match default {
            Some(_) => Vec::new(),
            None => self.member_texts(part, item)?,
        };
        self.budget.spend(1 + texts.len() * (self.languages.steps() + self.request.designations.len()))?;
        self.budget.spend(self.request.properties.len())?;
        let display = concept_texts::choose_display(&texts, &self.languages);
        let concept = part.system.zip(item.concept);
        let mut extension = Vec::new();
        if let Some((system, concept_number)) = concept {
            let added = concept_texts::additions_to_concept(&self.supplements, system, concept_number);
            // Supplements add properties to those of the code system.
            for (from, concept_number) in std::iter::once((system, concept_number)).chain(added) {
                let steps = from.property_count(concept_number) / 4;
                for name in &self.request.properties {
                    self.budget.spend(1 + steps)?;
                    for value in property_values(from, concept_number, name) {
                        self.budget.spend(PROPERTY_STEPS + from.header.property.len() / 8)?;
                        extension.push(property_extension(name, &value));
                    }
                }
            }
            if let Some(status) = system.status_to_report(concept_number)
                && !self.request.properties.contains(&STATUS)
            {
                extension.push(property_extension(STATUS, &Value::Text("Code", status.to_owned())));
                self.mention_property(STATUS);
            }
        }
        self.repeat_extensions(item, concept, repeated, &mut extension)?;
        let designation = texts.iter().enumerate().filter(|(n, text)| {
            self.request.with_designations && Some(*n) != display && self.wants_designation(text)
        });
        Ok(ContainsRow {
            extension,
            system: part.url,
            r#abstract: concept.is_some_and(|(system, concept_number)| system.is_abstract(concept_number)),
            inactive: concept.is_some_and(|(system, concept_number)| system.is_inactive(concept_number)),
            version: part.system.filter(|_| with_version).and_then(|system| system.version.as_deref()),
            code: concept.map_or(item.code, |(system, concept_number)| system.code(concept_number)),
            display: default.or_else(|| display.map(|n| texts[n].display.text)),
            designation: designation.map(|(_, text)| *text).collect(),
            contains: Vec::new(),
        })
    }

    /// Adds the extensions of a concept: of its entry in the value set, or else of its code system or of a
    /// supplement.
    fn repeat_extensions(
        &self,
        item: &MemberCode<'a>,
        concept: Option<(&'a CodeSystem, u32)>,
        repeated: &[&'static RepeatedExtension],
        out: &mut Vec<Box<RawValue>>,
    ) -> Result<(), TxError> {
        self.budget.spend(repeated.len() * (1 + self.supplements.len()))?;
        for one in repeated {
            let of_list = item.listed.and_then(|code| {
                let same = |(index, _): &&(u8, Box<str>)| REPEATED.get(usize::from(*index)) == Some(*one);
                code.extensions.iter().find(same).map(|(_, value)| &**value)
            });
            let of_system = || {
                let (url, (system, index)) = (one.in_system?, concept?);
                let mut added = concept_texts::additions_to_concept(&self.supplements, system, index);
                system
                    .extension(index, url)
                    .or_else(|| added.find_map(|(supplement, index)| supplement.extension(index, url)))
            };
            let Some(text) = of_list.or_else(of_system) else { continue };
            self.budget.spend(PROPERTY_STEPS)?;
            let value = match (one.kind, text.parse()) {
                ("Decimal", Ok(number)) => Value::Number("Decimal", number),
                ("Boolean", _) => Value::Boolean(text == "true"),
                _ => Value::Text("String", text.to_owned()),
            };
            out.push(match one.repeated_as {
                RepeatedAs::Property { code, .. } if self.request.properties.contains(&code) => continue,
                RepeatedAs::Property { code, .. } => {
                    self.mention_property(code);
                    property_extension(code, &value)
                }
                RepeatedAs::Extension => value.to_extension(one.in_value_set),
            });
        }
        Ok(())
    }

    /// Notes that the page has a property.
    fn mention_property(&self, code: &str) {
        let mut properties = self.shown_properties.borrow_mut();
        if !properties.iter().any(|candidate| candidate == code) {
            properties.push(code.to_owned());
        }
    }

    /// Returns whether a designation is requested: by language (`urn:ietf:bcp:47|de`, `de`) or by use
    /// (`system|code`).
    fn wants_designation(&self, text: &TextWithUse<'_>) -> bool {
        let by = |token: &DesignationToken<'_>| {
            let language = || token.has_language(&text.display);
            let purpose = || text.purpose.is_some_and(|[s, c, _]| s == token.system && c == token.code);
            language() || purpose()
        };
        self.request.designations.is_empty() || self.request.designations.iter().any(by)
    }
}

/// The values of a property. The values of standard properties are read from the index.
fn property_values<'s>(
    system: &'s CodeSystem,
    concept: u32,
    name: &'s str,
) -> Box<dyn Iterator<Item = Value> + 's> {
    let codes = |up: bool| {
        let list = system.hierarchy().neighbours(concept, up).into_owned();
        list.into_iter().map(|concept| Value::Text("Code", system.code(concept).to_owned()))
    };
    match name {
        "parent" => Box::new(codes(true)),
        "child" => Box::new(codes(false)),
        "inactive" => Box::new(std::iter::once(Value::Boolean(system.is_inactive(concept)))),
        _ => Box::new(system.property(concept, name).map(move |value| typed_value(system, name, value))),
    }
}

/// A property of a code in R4's form: the extension for the element of R5.
fn property_extension(name: &str, value: &Value) -> Box<RawValue> {
    let code = Value::Text("Code", name.to_owned()).to_extension("code");
    let value = value.to_extension("value");
    let json = format!(r#"{{"url":"{CONTAINS_PROPERTY}","extension":[{code},{value}]}}"#);
    RawValue::from_string(json).expect("the parts are JSON")
}

/// Nests the rows of a part by the hierarchy, each in its nearest parent that is shown.
fn nest_rows<'a>(
    system: &CodeSystem,
    items: &[MemberCode<'a>],
    rows: Vec<ContainsRow<'a>>,
) -> Vec<ContainsRow<'a>> {
    let ordinals: Vec<u32> = items.iter().filter_map(|item| item.concept).collect();
    // Ordinals are in preorder, so a tree parent precedes its children.
    let parent_of = |concept_number: u32| {
        let parents = system
            .hierarchy()
            .parents(concept_number)
            .iter()
            .rev()
            .filter(|parent| **parent < concept_number);
        parents.filter_map(|parent| ordinals.binary_search(parent).ok()).next()
    };
    let above: Vec<Option<usize>> = ordinals.iter().map(|concept| parent_of(*concept)).collect();
    let mut depth = vec![0; above.len()];
    for index in 0..above.len() {
        depth[index] = above[index].map_or(0, |parent| depth[parent] + 1);
    }
    if depth.iter().any(|depth| *depth > DEPTH) {
        return rows;
    }
    let mut rows: Vec<_> = rows.into_iter().map(Some).collect();
    for index in (0..rows.len()).rev() {
        let mut row = rows[index].take();
        if let Some(row) = &mut row {
            row.contains.reverse();
        }
        match above[index].and_then(|parent| rows[parent].as_mut()) {
            Some(parent) => parent.contains.extend(row),
            None => rows[index] = row,
        }
    }
    rows.into_iter().flatten().collect()
}

/// JSON of `ValueSet.expansion.contains`.
#[derive(serde::Serialize)]
pub(super) struct ContainsRow<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    extension: Vec<Box<RawValue>>,
    system: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    r#abstract: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    inactive: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'a str>,
    code: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    display: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    designation: Vec<TextWithUse<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    contains: Vec<ContainsRow<'a>>,
}

impl Serialize for TextWithUse<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let extensions = self.extensions();
        if !extensions.is_empty() {
            map.serialize_entry("extension", &extensions)?;
        }
        if let Some(language) = self.display.language {
            map.serialize_entry("language", language)?;
        }
        if let Some(purpose) = self.coding() {
            map.serialize_entry("use", &purpose)?;
        }
        map.serialize_entry("value", self.display.text)?;
        map.end()
    }
}
