//! What a page of an expansion shows: the members that the caller wants, with their texts and properties.

use std::collections::HashMap;

use fhir::{Parameter, Value};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::json;

use super::text_filter::TextFilter;
use super::{DesignationToken, Request};
use crate::code_system::CodeSystem;
use crate::display::Languages;
use crate::lookup::typed;
use crate::texts::{self, Supplement, Text};
use crate::value_set::members::{Item, Members, Part};
use crate::{Budget, TxError, version};

/// How deep an expansion may be nested; deeper hierarchies are told flat.
const DEPTH: usize = 64;

/// Steps that writing a property takes.
const PROPERTY_STEPS: usize = 20;

/// Cross-version extension by which R4 tells a property of a code (R5 has an element for it).
const CONTAINS_PROPERTY: &str =
    "http://hl7.org/fhir/5.0/StructureDefinition/extension-ValueSet.expansion.contains.property";

/// How the caller looks at the members of a set.
pub(super) struct View<'a, 'r> {
    pub(super) request: &'r Request<'r>,
    pub(super) languages: Languages,
    pub(super) supplements: Vec<Supplement<'a>>,
    pub(super) budget: &'r Budget<'r>,
}

impl<'a> View<'a, '_> {
    /// Leaves out what the caller does not want to see.
    ///
    /// # Errors
    /// When the budget ends.
    pub(super) fn narrow(&self, members: &mut Members<'a>) -> Result<(), TxError> {
        self.budget.spend(members.parts.len() * self.request.exclude_systems.len())?;
        let unwanted = |part: &Part<'_>| {
            let have = part.system.and_then(|system| system.version.as_deref()).unwrap_or_default();
            self.request.exclude_systems.iter().any(|canonical| {
                let (url, wanted) = version::split(canonical);
                url == part.url && wanted.is_none_or(|wanted| version::matches(wanted, have))
            })
        };
        members.parts.retain(|part| !unwanted(part));
        if self.request.active_only {
            members.parts.iter_mut().try_for_each(|part| part.drop_inactive(self.budget))?;
        }
        if self.request.filter.is_empty() {
            return Ok(());
        }
        let mut filter = TextFilter::new(&self.request.filter, &self.supplements, self.budget);
        members.parts.iter_mut().try_for_each(|part| filter.narrow(part))
    }

    fn texts(&self, part: &Part<'a>, item: &Item<'a>) -> Result<Vec<Text<'a>>, TxError> {
        let listed = item.listed.map(|listed| (listed, part.set.language.as_deref()));
        texts::texts(part.system.zip(item.concept), listed, &self.supplements, self.budget)
    }

    /// The codes to show.
    ///
    /// # Errors
    /// When the budget ends.
    pub(super) fn contains(&self, members: &Members<'a>, shown: usize) -> Result<Vec<Contains<'a>>, TxError> {
        // The version is told where several of one system are in the set.
        let version = |part: &Part<'a>| part.system.map(|system| system.version.as_deref());
        let mut versions = HashMap::new();
        for part in &members.parts {
            let (first, several) = versions.entry(part.url).or_insert((version(part), false));
            *several |= *first != version(part);
        }
        let mut out = Vec::new();
        let (mut skip, mut left) = (self.request.offset, shown);
        for part in &members.parts {
            let with_version = versions.get(part.url).is_some_and(|(_, several)| *several);
            let mut items = Vec::new();
            let rows = part.iter_after(skip).take(left).map(|item| {
                items.push(item);
                self.row(part, &item, with_version)
            });
            let rows = rows.collect::<Result<Vec<_>, _>>()?;
            skip = skip.saturating_sub(part.len());
            left -= rows.len();
            let plain = self.request.filter.is_empty()
                && !self.request.is_paged
                && !self.request.exclude_nested
                && !members.excluded
                && part.listed.is_none();
            match part.system.filter(|system| plain && system.circle().is_none()) {
                Some(system) => out.extend(nest(system, &items, rows)),
                None => out.extend(rows),
            }
        }
        Ok(out)
    }

    fn row(&self, part: &Part<'a>, item: &Item<'a>, with_version: bool) -> Result<Contains<'a>, TxError> {
        let texts = self.texts(part, item)?;
        self.budget.spend(1 + texts.len() * (self.languages.steps() + self.request.designations.len()))?;
        self.budget.spend(self.request.properties.len())?;
        let shown = texts::shown(&texts, &self.languages);
        let concept = part.system.zip(item.concept);
        let mut extension = Vec::new();
        if let Some((system, at)) = concept {
            let added = texts::additions(&self.supplements, system, at);
            for (from, at) in std::iter::once((system, at)).chain(added) {
                let steps = from.properties_of(at) / 4;
                for name in &self.request.properties {
                    self.budget.spend(1 + steps)?;
                    for value in values(from, at, name) {
                        self.budget.spend(PROPERTY_STEPS + from.header.property.len() / 8)?;
                        extension.push(property(name, &value));
                    }
                }
            }
        }
        let designation = texts
            .iter()
            .enumerate()
            .filter(|(n, text)| self.request.with_designations && Some(*n) != shown && self.wants(text));
        Ok(Contains {
            extension,
            system: part.url,
            r#abstract: concept.is_some_and(|(system, at)| system.is_abstract(at)),
            inactive: concept.is_some_and(|(system, at)| system.is_inactive(at)),
            version: part.system.filter(|_| with_version).and_then(|system| system.version.as_deref()),
            code: concept.map_or(item.code, |(system, at)| system.code(at)),
            display: shown.map(|n| texts[n].display.text),
            designation: designation.map(|(_, text)| *text).collect(),
            contains: Vec::new(),
        })
    }

    /// `designation`: by language (`urn:ietf:bcp:47|de`, `de`) or by use (`system|code`).
    fn wants(&self, text: &Text<'_>) -> bool {
        let by = |token: &DesignationToken<'_>| {
            let language =
                || token.language.as_ref().is_some_and(|range| range.covers(text.display.language));
            let purpose = || text.purpose.is_some_and(|[s, c, _]| s == token.system && c == token.code);
            language() || purpose()
        };
        self.request.designations.is_empty() || self.request.designations.iter().any(by)
    }
}

/// The values of a property, those of the standard ones from the index.
fn values<'s>(system: &'s CodeSystem, at: u32, name: &'s str) -> Box<dyn Iterator<Item = Value> + 's> {
    let codes = |up: bool| {
        let list = system.hierarchy().next(at, up).into_owned();
        list.into_iter().map(|at| Value::Text("Code", system.code(at).to_owned()))
    };
    match name {
        "parent" => Box::new(codes(true)),
        "child" => Box::new(codes(false)),
        "inactive" => Box::new(std::iter::once(Value::Boolean(system.is_inactive(at)))),
        _ => Box::new(system.property(at, name).map(move |value| typed(system, name, value))),
    }
}

/// A property of a code as R4 tells it: by the extension for R5's element.
fn property(name: &str, value: &Value) -> serde_json::Value {
    let mut tagged = serde_json::to_value(Parameter::new("value", value.clone())).unwrap_or_default();
    if let Some(members) = tagged.as_object_mut() {
        members.remove("name");
        members.insert("url".to_owned(), "value".into());
    }
    json!({ "url": CONTAINS_PROPERTY, "extension": [{ "url": "code", "valueCode": name }, tagged] })
}

/// Puts the rows of a part below one another as the hierarchy has them: each below its nearest
/// parent that is shown, too.
fn nest<'a>(system: &CodeSystem, items: &[Item<'a>], rows: Vec<Contains<'a>>) -> Vec<Contains<'a>> {
    let ordinals: Vec<u32> = items.iter().filter_map(|item| item.concept).collect();
    // Ordinals are in preorder, so a parent in the tree stands before its children.
    let parent_of = |at: u32| {
        let parents = system.hierarchy().parents(at).iter().rev().filter(|parent| **parent < at);
        parents.filter_map(|parent| ordinals.binary_search(parent).ok()).next()
    };
    let above: Vec<Option<usize>> = ordinals.iter().map(|at| parent_of(*at)).collect();
    let mut depth = vec![0; above.len()];
    for at in 0..above.len() {
        depth[at] = above[at].map_or(0, |parent| depth[parent] + 1);
    }
    if depth.iter().any(|depth| *depth > DEPTH) {
        return rows;
    }
    let mut rows: Vec<_> = rows.into_iter().map(Some).collect();
    for at in (0..rows.len()).rev() {
        let mut row = rows[at].take();
        if let Some(row) = &mut row {
            row.contains.reverse();
        }
        match above[at].and_then(|parent| rows[parent].as_mut()) {
            Some(parent) => parent.contains.extend(row),
            None => rows[at] = row,
        }
    }
    rows.into_iter().flatten().collect()
}

/// `ValueSet.expansion.contains`.
#[derive(serde::Serialize)]
pub(super) struct Contains<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    extension: Vec<serde_json::Value>,
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
    designation: Vec<Text<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    contains: Vec<Contains<'a>>,
}

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
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
