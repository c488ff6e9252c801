//! `CodeSystem/$lookup` (FHIR R4): what is known about one concept.

use std::collections::HashSet;

use fhir::{Coding, Parameter, Parameters, Value};

use crate::catalog::Catalog;
use crate::code_system::{AttributeValue, CodeSystem, DEFINITION, Display};
use crate::display::{Languages, TextKind};
use crate::input::malformed;
use crate::texts::{self, additions};
use crate::validate::request;
use crate::wire::Content;
use crate::{Budget, Input, TxError, Unprocessable};

/// Answers `$lookup`.
pub(crate) fn answer(
    catalog: &Catalog,
    input: Input<'_>,
    budget: &Budget<'_>,
) -> Result<Parameters, TxError> {
    budget.during("looking a concept up");
    let asked = asked(input)?;
    let languages = match (input.text("displayLanguage")?, input.header_languages()) {
        (Some(list), _) => Languages::parse(list)?,
        (None, header) => header.and_then(|list| Languages::parse(list).ok()).unwrap_or_default(),
    };
    let wanted = Wanted::read(input)?;

    let (url, code) =
        (asked.system.as_deref().unwrap_or_default(), asked.code.as_deref().unwrap_or_default());
    let unknown = |day: Option<&str>| {
        let (system, known) = (url.to_owned(), catalog.code_system_versions(url));
        match day.filter(|_| !known.is_empty()) {
            Some(day) => TxError::NotOnDay { system, day: day.to_owned(), known },
            None => TxError::UnknownCodeSystem { system, version: asked.version.clone(), known },
        }
    };
    // The version that is named is meant, whatever the day.
    let day = request::day(input)?.filter(|_| asked.version.is_none());
    let found = match &asked.version {
        Some(version) => catalog.code_system_for(url, Some(version), code),
        None => catalog.code_system_of(url, day.as_deref(), code),
    };
    let found = found.or_else(|| catalog.supplement(url));
    let system = found.ok_or_else(|| unknown(day.as_deref()))?.get(budget)?;
    if !matches!(system.content, Content::Complete | Content::Fragment) {
        return Err(Unprocessable::Content { system: url.to_owned(), content: system.content.name() }.into());
    }
    let at = system.find(code).ok_or_else(|| TxError::UnknownConcept {
        code: code.to_owned(),
        system: url.to_owned(),
        version: system.version.clone(),
    })?;
    let supplements = texts::supplements(catalog, input.texts("useSupplement")?, budget)?;

    let mut out = Parameters::new();
    out.push_string("name", system.header.name.as_deref().or(system.header.title.as_deref()).unwrap_or(url));
    if let Some(version) = &system.version {
        out.push_string("version", version);
    }
    out.push_code("code", system.code(at));
    out.push_uri("system", url);
    let texts = texts::texts(Some((system, at)), None, &supplements, budget)?;
    budget.spend(texts.len() * (1 + languages.steps() + wanted.languages.len()))?;
    let shown = texts::shown(&texts, &languages);
    // `display` is demanded by R4; a concept without one is called by its code.
    out.push_string("display", shown.map_or(system.code(at), |n| texts[n].display.text));
    let own = || std::iter::once((system, at)).chain(additions(&supplements, system, at));
    if let Some(text) = wanted.property(DEFINITION).then(|| definition(own(), &languages)).flatten() {
        out.push_string("definition", text);
    }
    out.push_boolean("abstract", system.is_abstract(at));
    for (_, text) in texts.iter().enumerate().filter(|(n, text)| Some(*n) != shown && wanted.language(text)) {
        let mut part = Vec::new();
        if let Some(language) = text.display.language {
            part.push(Parameter::new("language", Value::Text("Code", language.to_owned())));
        }
        if let Some(coding) = text.coding() {
            part.push(Parameter::new("use", Value::Coding(coding)));
        }
        part.push(Parameter::new("value", Value::Text("String", text.display.text.to_owned())));
        out.parameter.push(Parameter { name: "designation".into(), value: None, part });
    }
    let mut push = |code: &str, value: Value, description: Option<&str>| {
        let mut part = vec![
            Parameter::new("code", Value::Text("Code", code.to_owned())),
            Parameter::new("value", value),
        ];
        if let Some(text) = description {
            part.push(Parameter::new("description", Value::Text("String", text.to_owned())));
        }
        out.parameter.push(Parameter { name: "property".into(), value: None, part });
    };
    if wanted.property("inactive") {
        push("inactive", Value::Boolean(system.is_inactive(at)), None);
    }
    for (name, up) in [("parent", true), ("child", false)] {
        for &other in system.hierarchy().next(at, up).iter().filter(|_| wanted.property(name)) {
            push(name, Value::Text("Code", system.code(other).to_owned()), system.display(other));
        }
    }
    for (from, at) in own() {
        for (name, value) in from.properties(at) {
            budget.spend(1 + from.header.property.len() / 8)?;
            if !from.is_structural(name) && wanted.property(name) {
                push(name, typed(from, name, value), None);
            }
        }
    }
    // A defining relationship is a property named by its kind (FHIR R4, Using SNOMED CT).
    for attribute in system.attributes(at).filter(|attribute| wanted.property(system.code(attribute.kind))) {
        let (value, description) = match attribute.value {
            AttributeValue::Concept(other) => {
                (Value::Text("Code", system.code(other).to_owned()), system.display(other))
            }
            AttributeValue::Literal(text) => (literal(text), None),
        };
        push(system.code(attribute.kind), value, description);
    }
    Ok(out)
}

/// What a concept means, in the best language: `CodeSystem.concept.definition`, or a designation for that use.
fn definition<'a>(
    own: impl Iterator<Item = (&'a CodeSystem, u32)>,
    languages: &Languages,
) -> Option<&'a str> {
    let said = own.flat_map(|(from, at)| {
        let plain = from.definition(at);
        let translated =
            from.designations(at).filter(|said| Display::from(*said).kind == TextKind::Definition);
        let language = from.language.as_deref();
        plain
            .into_iter()
            .map(move |text| Display::own(text, language))
            .chain(translated.map(|said| Display::own(said.value, said.language)))
    });
    languages.choose(&said.collect::<Vec<_>>())
}

/// The concept that is asked for, with system and code.
fn asked(input: Input<'_>) -> Result<Coding, TxError> {
    let missing = |what: &str| TxError::Missing { what: what.to_owned() };
    let coding = match (input.text("code")?, input.coding("coding")?) {
        (Some(_), Some(_)) => return Err(malformed("coding", "give either code and system or coding")),
        (Some(code), None) => {
            let system =
                input.text("system")?.ok_or_else(|| missing("parameter 'system' is needed beside 'code'"))?;
            Coding { version: input.text("version")?.map(String::from), ..Coding::new(system, code) }
        }
        (None, Some(coding)) => {
            let version = coding.version.clone().or(input.text("version")?.map(String::from));
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

/// What the caller wants to know (`property`); nothing said is everything.
struct Wanted<'a> {
    names: HashSet<&'a str>,
    /// Those of `lang.X`.
    languages: Vec<Languages>,
}

impl<'a> Wanted<'a> {
    fn read(input: Input<'a>) -> Result<Self, TxError> {
        let names: HashSet<&str> = input.texts("property")?.into_iter().collect();
        let ranges = names.iter().filter_map(|wanted| wanted.strip_prefix("lang."));
        let languages = ranges.filter_map(|range| Languages::parse(range).ok()).collect();
        Ok(Self { names, languages })
    }

    fn property(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.contains(name) || self.names.contains("*")
    }

    /// Designations come with `designation`, or with `lang.X` those of language X.
    fn language(&self, text: &texts::Text<'_>) -> bool {
        let covers = |range: &Languages| range.covers(text.display.language);
        self.property("designation") || self.languages.iter().any(covers)
    }
}

/// A concrete value: a number after `#`, else a text in quotation marks.
fn literal(text: &str) -> Value {
    match text.strip_prefix('#').map(str::parse) {
        Some(Ok(number)) => Value::Number("Decimal", number),
        _ => Value::Text("String", text.trim_start_matches('#').trim_matches('"').to_owned()),
    }
}

/// The value of a property in its declared type.
pub(crate) fn typed(system: &CodeSystem, name: &str, value: &str) -> Value {
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
        // Of a Coding only the code is kept.
        Some("code" | "Coding") => text("Code"),
        // Undeclared, but FHIR's own.
        None if matches!(value, "true" | "false") => Value::Boolean(value == "true"),
        None if name == "status" => text("Code"),
        _ => text("String"),
    }
}
