//! `CodeSystem/$lookup` (FHIR R4): texts and properties of one concept.

use std::collections::HashSet;

use fhir::{Coding, Parameter, Parameters, Value};

use super::OperationInput;
use super::concept_texts::{self, TextWithUse, additions_to_concept};
use super::shared_parameters;
use crate::catalog::Catalog;
use crate::code_system::concept_attribute::AttributeValue;
use crate::code_system::{CodeSystem, CodingProperty, DEFINITION};
use crate::expression::{self, ExpressionFault};
use crate::interface::parameters::{CODE, CODING, LOOKUP_PROPERTY, LOOKUP_SYSTEM, USE_SUPPLEMENT, VERSION};
use crate::model::concept_text::{ConceptText, TextKind};
use crate::model::error::malformed;
use crate::model::known_systems::SNOMED_CT;
use crate::model::language::LanguageRanges;
use crate::model::resource_json::{ContentMode, ResourceHeader};
use crate::model::{Budget, TxError, Unprocessable, canonical};

/// Answers `$lookup`.
pub(crate) fn answer_lookup(
    catalog: &Catalog,
    input: OperationInput<'_>,
    budget: &Budget<'_>,
) -> Result<Parameters, TxError> {
    budget.set_activity("looking up a concept");
    let requested = read_coding(input)?;
    let languages = concept_texts::requested_languages(input)?;
    let wanted_parts = LookupProperties::read(input)?;

    let (url, code) =
        (requested.system.as_deref().unwrap_or_default(), requested.code.as_deref().unwrap_or_default());
    let unknown = |day: Option<&str>| {
        let (system, versions) = (url.to_owned(), catalog.code_system_versions(url));
        match day.filter(|_| !versions.is_empty()) {
            Some(day) => TxError::NotOnDay { system, day: day.to_owned(), known: versions },
            None => {
                TxError::UnknownCodeSystem { system, version: requested.version.clone(), known: versions }
            }
        }
    };
    // A version in the request takes precedence over the day.
    let day = shared_parameters::read_day(input)?.filter(|_| requested.version.is_none());
    let system = match &requested.version {
        Some(version) => catalog.code_system_for(url, Some(version), code, budget)?,
        None => catalog.code_system_of(url, day.as_deref(), code, budget)?,
    };
    let system = system.or_else(|| catalog.supplement(url));
    let system = system.ok_or_else(|| unknown(day.as_deref()))?.get(budget)?;
    if !matches!(system.content, ContentMode::Complete | ContentMode::Fragment) {
        return Err(Unprocessable::Content { system: url.to_owned(), content: system.content.name() }.into());
    }
    let Some(concept) = system.find(code) else {
        let reason = match catalog.expression_fault(system, code, budget)? {
            None => catalog.edition_with(system, code, budget)?,
            fault => fault,
        };
        return Err(TxError::UnknownConcept {
            code: code.to_owned(),
            system: url.to_owned(),
            version: system.version.clone(),
            reason,
        });
    };
    let supplements = concept_texts::find_supplements(catalog, input.texts(USE_SUPPLEMENT)?, budget)?;

    let mut out = Parameters::new();
    out.push_string("name", system.header.name.as_deref().or(system.header.title.as_deref()).unwrap_or(url));
    if let Some(version) = &system.version {
        out.push_string("version", version);
    }
    out.push_code("code", system.code(concept));
    out.push_uri("system", url);
    let texts = concept_texts::collect_texts(Some((system, concept)), None, &supplements, budget)?;
    budget.spend(texts.len() * (1 + languages.steps() + wanted_parts.languages.len()))?;
    let display = concept_texts::choose_display(&texts, &languages);
    // R4 requires `display`. A concept without a display shows its code.
    out.push_string("display", display.map_or(system.code(concept), |n| texts[n].display.text));
    let own =
        || std::iter::once((system, concept)).chain(additions_to_concept(&supplements, system, concept));
    if let Some(text) =
        wanted_parts.wants_property(DEFINITION).then(|| definition(own(), &languages)).flatten()
    {
        out.push_string("definition", text);
    }
    out.push_boolean("abstract", system.is_abstract(concept));
    // The display is a designation too, because `display` has no language.
    let designations = texts.iter().enumerate().filter(|(n, text)| {
        wanted_parts.wants_designation(text)
            && text.display.retired.is_none()
            && (Some(*n) != display || text.display.language.is_some())
    });
    out.parameter.extend(designations.map(|(_, text)| designation_parameter(text)));
    push_hierarchy(&mut out, system, concept, &wanted_parts, budget)?;
    for (from, concept) in own() {
        for (name, value) in from.properties(concept) {
            budget.spend(1 + from.header.property.len() / 8)?;
            if !from.is_structural(name) && wanted_parts.wants_property(name) {
                push_property(&mut out, name, typed_value(from, name, value), None);
            }
        }
    }
    push_attributes(&mut out, system, concept, &wanted_parts);
    push_normal_forms(&mut out, system, concept, &wanted_parts, budget)?;
    for (header, _) in supplements.into_iter().filter(|one| concept_texts::is_used(*one, Some(system))) {
        out.push("used-supplement", Value::Text("Canonical", canonical_url(header)));
    }
    Ok(out)
}

/// A designation as a parameter of the answer.
fn designation_parameter(text: &TextWithUse<'_>) -> Parameter {
    let mut part = Vec::new();
    if let Some(language) = text.display.language {
        part.push(Parameter::new("language", Value::Text("Code", language.to_owned())));
    }
    if let Some(coding) = text.coding() {
        part.push(Parameter::new("use", Value::Coding(coding)));
    }
    if let Some(source) = text.source {
        part.push(Parameter::new("source", Value::Text("Canonical", canonical_url(source))));
    }
    part.push(Parameter::new("value", Value::Text("String", text.display.text.to_owned())));
    let extension = text.dialects().collect();
    Parameter { extension, ..Parameter::of_parts("designation", part) }
}

fn push_property(out: &mut Parameters, code: &str, value: Value, description: Option<&str>) {
    let mut part =
        vec![Parameter::new("code", Value::Text("Code", code.to_owned())), Parameter::new("value", value)];
    if let Some(text) = description {
        part.push(Parameter::new("description", Value::Text("String", text.to_owned())));
    }
    out.parameter.push(Parameter::of_parts("property", part));
}

/// Adds the properties that the index has in columns of their own: the state, the parents and the children.
fn push_hierarchy(
    out: &mut Parameters,
    system: &CodeSystem,
    concept: u32,
    wanted_parts: &LookupProperties<'_>,
    budget: &Budget<'_>,
) -> Result<(), TxError> {
    if wanted_parts.wants_property("inactive") {
        push_property(out, "inactive", Value::Boolean(system.is_inactive(concept)), None);
    }
    for (name, up) in [("parent", true), ("child", false)] {
        if !wanted_parts.wants_property(name) {
            continue;
        }
        budget.set_activity("listing the children of a concept, which the parameter property can leave out,");
        let neighbours = system.hierarchy().neighbours(concept, up);
        budget.spend(NEIGHBOUR_STEPS * neighbours.len())?;
        budget.spend_memory(NEIGHBOUR_BYTES * neighbours.len())?;
        for &other in neighbours.iter() {
            let value = Value::Text("Code", system.code(other).to_owned());
            push_property(out, name, value, system.display(other));
        }
    }
    budget.set_activity("looking up a concept");
    Ok(())
}

/// Adds the defining relationships. The type of one is the name of a property (FHIR R4, Using SNOMED CT).
fn push_attributes(
    out: &mut Parameters,
    system: &CodeSystem,
    concept: u32,
    wanted_parts: &LookupProperties<'_>,
) {
    let attributes = system.attributes(concept);
    for attribute in attributes.filter(|one| wanted_parts.wants_property(system.code(one.kind))) {
        let (value, description) = match attribute.value {
            AttributeValue::Concept(other) => {
                (Value::Text("Code", system.code(other).to_owned()), system.display(other))
            }
            AttributeValue::Literal(text) => (literal_value(text), None),
        };
        push_property(out, system.code(attribute.kind), value, description);
    }
}

/// Adds the normal forms of a concept of SNOMED CT that are asked for by name. Those of an expression are
/// properties of its code system.
fn push_normal_forms(
    out: &mut Parameters,
    system: &CodeSystem,
    concept: u32,
    wanted_parts: &LookupProperties<'_>,
    budget: &Budget<'_>,
) -> Result<(), TxError> {
    if system.url != SNOMED_CT || system.is_excerpt() {
        return Ok(());
    }
    for (name, has_terms) in [("normalForm", true), ("normalFormTerse", false)] {
        if !wanted_parts.names.contains(name) {
            continue;
        }
        match expression::concept_normal_form(system, system.code(concept), has_terms, budget) {
            Ok(text) => push_property(out, name, Value::Text("String", text), None),
            Err(ExpressionFault::Exhausted(exhausted)) => return Err(exhausted.into()),
            // A code that is no identifier of SNOMED CT, in a code system that a client stored.
            Err(_) => {}
        }
    }
    Ok(())
}

/// Steps and memory in bytes of a parent or child in an answer: a parameter of three parts, and its text.
const NEIGHBOUR_STEPS: usize = 8;
const NEIGHBOUR_BYTES: usize = 1_000;

/// The canonical URL of a resource, with its version.
fn canonical_url(header: &ResourceHeader) -> String {
    canonical::join(header.url.as_deref().unwrap_or_default(), header.version.as_deref())
}

/// The definition in the best language: `CodeSystem.concept.definition`, or a designation with that use.
fn definition<'a>(
    own: impl Iterator<Item = (&'a CodeSystem, u32)>,
    languages: &LanguageRanges,
) -> Option<&'a str> {
    let definition = own.flat_map(|(from, index)| {
        let plain = from.definition(index);
        let translated = from
            .designations(index)
            .map(move |designation| from.text_of(&designation))
            .filter(|text| text.kind == TextKind::Definition);
        let language = from.language.as_deref();
        plain
            .into_iter()
            .map(move |text| ConceptText::own(text, language))
            .chain(translated.map(|text| ConceptText::own(text.text, text.language)))
    });
    languages.choose(&definition.collect::<Vec<_>>())
}

/// Reads the requested concept, with system and code.
fn read_coding(input: OperationInput<'_>) -> Result<Coding, TxError> {
    let missing = |what: &str| TxError::Missing { what: what.to_owned() };
    let coding = match (input.text(CODE)?, input.coding(CODING)?) {
        (Some(_), Some(_)) => return Err(malformed("coding", "send either code and system or coding")),
        (Some(code), None) => {
            let system = input
                .text(LOOKUP_SYSTEM)?
                .ok_or_else(|| missing("parameter 'system' is required with 'code'"))?;
            Coding { version: input.text(VERSION)?.map(String::from), ..Coding::new(system, code) }
        }
        (None, Some(coding)) => {
            let version = coding.version.clone().or(input.text(VERSION)?.map(String::from));
            Coding { version, ..coding.clone() }
        }
        (None, None) => return Err(missing("parameter 'code' or 'coding' is missing")),
    };
    let empty = |text: &Option<String>| text.as_deref().is_none_or(str::is_empty);
    if empty(&coding.system) || empty(&coding.code) {
        return Err(malformed("coding", "it needs a system and a code"));
    }
    Ok(coding)
}

/// The requested properties (`property`). No parameter requests all.
struct LookupProperties<'a> {
    names: HashSet<&'a str>,
    /// Languages of `lang.X`.
    languages: Vec<LanguageRanges>,
}

impl<'a> LookupProperties<'a> {
    fn read(input: OperationInput<'a>) -> Result<Self, TxError> {
        let names: HashSet<&str> = input.texts(LOOKUP_PROPERTY)?.into_iter().collect();
        let ranges = names.iter().filter_map(|name| name.strip_prefix("lang."));
        let languages = ranges.filter_map(|range| LanguageRanges::parse(range).ok()).collect();
        Ok(Self { names, languages })
    }

    fn wants_property(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.contains(name) || self.names.contains("*")
    }

    /// Returns whether a designation is requested: `designation` requests all, `lang.X` those of a language.
    fn wants_designation(&self, text: &TextWithUse<'_>) -> bool {
        let covers = |range: &LanguageRanges| range.covers(&text.display);
        self.wants_property("designation") || self.languages.iter().any(covers)
    }
}

/// Parses a literal value: a number after `#`, or else a text in quotation marks.
fn literal_value(text: &str) -> Value {
    match text.strip_prefix('#').map(str::parse) {
        Some(Ok(number)) => Value::Number("Decimal", number),
        _ => Value::Text("String", text.trim_start_matches('#').trim_matches('"').to_owned()),
    }
}

/// The value of a property in its declared type.
pub(crate) fn typed_value(system: &CodeSystem, name: &str, value: &str) -> Value {
    if let Some(CodingProperty { code, system, display }) = CodingProperty::from_stored(value) {
        let present = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let (system, display) = (present(system), present(display));
        return Value::Coding(Coding { system, display, code: present(code), ..Coding::default() });
    }
    let text = |kind| Value::Text(kind, value.to_owned());
    let number = |kind| match value.parse() {
        Ok(number) => Value::Number(kind, number),
        Err(_) => text("String"),
    };
    match system.declaration(name).0 {
        Some("boolean") => value.parse().map_or_else(|_| text("String"), Value::Boolean),
        Some("integer") => number("Integer"),
        Some("decimal") => number("Decimal"),
        Some("dateTime") => text("DateTime"),
        Some("code") => text("Code"),
        Some("Coding") => Value::Coding(Coding { code: Some(value.to_owned()), ..Coding::default() }),
        // Standard properties have a type without a declaration.
        None if matches!(value, "true" | "false") => Value::Boolean(value == "true"),
        None if name == "status" => text("Code"),
        _ => text("String"),
    }
}
