//! `ValueSet/$expand` (FHIR R4): the codes of a value set, whole or by pages.
//!
//! The set is never written out to be paged: its members are bits by ordinal, and only what a page
//! shows is looked up.

use std::borrow::Cow;
use std::collections::HashSet;

use fhir::{Parameter, Value};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;
use serde_json::{json, value::to_raw_value};

use crate::catalog::Catalog;
use crate::code_system::CodeSystem;
use crate::display::Languages;
use crate::lookup::typed;
use crate::texts::{self, Supplement, Text};
use crate::validate::{self, State, request};
use crate::value_set::ValueSet;
use crate::value_set::imports::{self, Pins, pinned};
use crate::value_set::members::{Gather, Item, Members, Part};
use crate::{Input, Level, TxError, Unprocessable, version};

/// How many codes one answer may hold.
pub const LIMIT: usize = 10_000;

/// How deep an expansion may be nested; deeper hierarchies are told flat.
const DEPTH: usize = 64;

/// Cross-version extensions by which R4 tells properties (R5 has elements for them).
const PROPERTY: &str = "http://hl7.org/fhir/5.0/StructureDefinition/extension-ValueSet.expansion.property";
const CONTAINS_PROPERTY: &str =
    "http://hl7.org/fhir/5.0/StructureDefinition/extension-ValueSet.expansion.contains.property";
/// Says that there may be more codes than the expansion shows.
const UNCLOSED: &str = "http://hl7.org/fhir/StructureDefinition/valueset-unclosed";

/// Parameters that are repeated in the expansion, with the type that R4 gives them there.
const REPEATED: &[(&str, &str)] = &[
    ("activeOnly", "Boolean"),
    ("check-system-version", "Uri"),
    ("count", "Integer"),
    ("date", "DateTime"),
    ("default-valueset-version", "Uri"),
    ("designation", "String"),
    ("displayLanguage", "Code"),
    ("exclude-system", "Uri"),
    ("excludeNested", "Boolean"),
    ("excludeNotForUI", "Boolean"),
    ("excludePostCoordinated", "Boolean"),
    ("filter", "String"),
    ("force-system-version", "Uri"),
    ("includeDefinition", "Boolean"),
    ("includeDesignations", "Boolean"),
    ("offset", "Integer"),
    ("property", "String"),
    ("system-version", "Uri"),
    ("useSupplement", "Uri"),
];

/// The parameters of `$expand` that have an effect here, sorted.
pub fn parameter_names() -> Vec<&'static str> {
    let chosen = ["default-valueset-version", "tx-resource", "url", "valueSet", "valueSetVersion"];
    // There are no codes that are not for the user's eyes, and none that is composed.
    let idle = ["date", "excludeNotForUI", "excludePostCoordinated"];
    let names = REPEATED.iter().map(|(name, _)| *name).filter(|name| !idle.contains(name));
    let mut all: Vec<_> = names.chain(chosen).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// A `$expand` request, checked.
struct Request<'a> {
    /// Words that all must begin a word of the code, display or designations; lower case.
    filter: Vec<String>,
    offset: usize,
    count: Option<usize>,
    is_paged: bool,
    active_only: bool,
    exclude_nested: bool,
    with_designations: bool,
    with_definition: bool,
    designations: Vec<&'a str>,
    properties: Vec<&'a str>,
    exclude_systems: Vec<&'a str>,
    supplements: Vec<&'a str>,
    pins: Pins,
    ecosystem: bool,
}

impl<'a> Request<'a> {
    fn read(input: Input<'a>) -> Result<Self, TxError> {
        let flag = |name| Ok::<_, TxError>(input.boolean(name)?.unwrap_or(false));
        let words = |text: &str| text.split_whitespace().map(str::to_lowercase).collect();
        let is_empty = |p: &Parameter| matches!(&p.value, Some(Value::Text(_, text)) if text.is_empty());
        let empty_filter = input.every().iter().any(|p| p.name == "filter" && is_empty(p));
        let (offset, count) = (input.number("offset")?, input.number("count")?);
        let designations = input.texts("designation")?;
        // Read so that a wrong type is refused; all codes are for the user's eyes and none is composed.
        for name in ["excludeNotForUI", "excludePostCoordinated"] {
            flag(name)?;
        }
        Ok(Self {
            // An empty filter filters nothing.
            filter: if empty_filter {
                Vec::new()
            } else {
                input.text("filter")?.map(words).unwrap_or_default()
            },
            offset: offset.unwrap_or(0),
            count,
            is_paged: offset.is_some() || count.is_some(),
            active_only: flag("activeOnly")?,
            exclude_nested: flag("excludeNested")?,
            with_designations: flag("includeDesignations")? || !designations.is_empty(),
            with_definition: flag("includeDefinition")?,
            designations,
            properties: input.texts("property")?,
            exclude_systems: input.texts("exclude-system")?,
            supplements: input.texts("useSupplement")?,
            pins: Pins {
                default: request::pins(input, "system-version")?,
                check: request::pins(input, "check-system-version")?,
                force: request::pins(input, "force-system-version")?,
                value_sets: request::pins(input, "default-valueset-version")?,
                date: request::day(input)?,
            },
            ecosystem: request::ecosystem(input),
        })
    }
}

/// Answers `$expand` with a ValueSet; `now` is the time of the expansion.
pub(crate) fn answer(
    catalog: &Catalog,
    level: Level<'_>,
    input: Input<'_>,
    now: &str,
) -> Result<Box<RawValue>, TxError> {
    let request = Request::read(input)?;
    let inline;
    let set = match level {
        Level::Instance(id) => catalog.value_set_by_id(id)?,
        Level::Type => match validate::inline_value_set(input)? {
            Some(given) => {
                inline = given;
                &inline
            }
            None => by_url(catalog, &request, input)?,
        },
    };
    let home = validate::within(set, input, request.ecosystem)?;
    let set = home.set;
    imports::check(catalog, home, &request.pins, request.ecosystem)?;
    let (languages, named) = languages(input, set)?;
    let asked = request.supplements.iter().copied().chain(set.supplements.iter().map(String::as_str));
    let supplements = texts::supplements(catalog, asked)?;

    let mut members = Gather::new(catalog, &request.pins, !request.ecosystem).run(home)?;
    if let Some(missing) = members.missing.take() {
        return Err(missing.into());
    }
    let view = View { request: &request, languages, supplements };
    view.narrow(&mut members);
    let total = members.len();
    let shown = total.saturating_sub(request.offset).min(request.count.unwrap_or(usize::MAX));
    if shown > LIMIT {
        return Err(Unprocessable::TooCostly { value_set: set.url.clone(), limit: LIMIT }.into());
    }

    let parameters = parameters(input, set, &members, &view, named.as_deref());
    let contains = view.contains(&members, shown);
    let mut extension = Vec::new();
    if members.unclosed {
        extension.push(json!({ "url": UNCLOSED, "valueBoolean": true }));
    }
    for name in &request.properties {
        let declared = members.parts.iter().filter_map(|part| part.system?.declaration(name).1).next();
        let code = json!({ "url": "code", "valueCode": name });
        let uri = declared.map(|uri| json!({ "url": "uri", "valueUri": uri }));
        let parts: Vec<_> = std::iter::once(code).chain(uri).collect();
        extension.push(json!({ "url": PROPERTY, "extension": parts }));
    }
    let expansion = Expansion {
        extension,
        identifier: identifier(set, input, &parameters),
        timestamp: now,
        total,
        offset: request.is_paged.then_some(request.offset),
        parameter: parameters,
        contains,
    };
    Ok(to_raw_value(&Expanded { set, whole: request.with_definition, expansion })
        .expect("our own types serialise"))
}

fn by_url<'a>(
    catalog: &'a Catalog,
    request: &Request<'_>,
    input: Input<'_>,
) -> Result<&'a ValueSet, TxError> {
    let canonical = input.text("url")?.ok_or_else(|| TxError::Missing {
        what: "parameter 'url' or 'valueSet' is needed unless the operation is called on a ValueSet"
            .to_owned(),
    })?;
    let (url, in_url) = version::split(canonical);
    let pin = pinned(&request.pins.value_sets, url);
    let wanted = input.text("valueSetVersion")?.or(in_url).or(pin);
    catalog.value_set(url, wanted)?.ok_or_else(|| TxError::UnknownValueSet {
        url: version::join(url, wanted),
        ecosystem: request.ecosystem,
    })
}

/// The languages to go by, best source first, and how they were named.
fn languages(input: Input<'_>, set: &ValueSet) -> Result<(Languages, Option<String>), TxError> {
    let parse = |list: &str| Ok::<_, TxError>((Languages::parse(list)?, Some(list.to_owned())));
    if let Some(list) = input.text("displayLanguage")? {
        return parse(list);
    }
    if let Some(list) = &set.display_language {
        return parse(list);
    }
    // A header that cannot be read is passed over: browsers and proxies send their own.
    if let Some(Ok(header)) = input.header_languages().map(parse) {
        return Ok(header);
    }
    match set.language.as_deref().map(parse) {
        Some(Ok(own)) => Ok(own),
        _ => Ok(Default::default()),
    }
}

/// `expansion.parameter`: what was asked for, and what was drawn upon.
fn parameters(
    input: Input<'_>,
    set: &ValueSet,
    members: &Members<'_>,
    view: &View<'_, '_>,
    languages: Option<&str>,
) -> Vec<Parameter> {
    let mut out: Vec<Parameter> = Vec::new();
    for given in input.every() {
        let Some((name, kind)) = REPEATED.iter().find(|(name, _)| *name == given.name) else { continue };
        let value = match (&given.value, *kind) {
            (Some(Value::Text(_, text)), "Boolean") => Value::Boolean(text == "true"),
            (Some(Value::Text(_, text)), "Integer") => match text.parse() {
                Ok(number) => Value::Number("Integer", number),
                Err(_) => continue,
            },
            (Some(Value::Text(_, text)), kind) => Value::Text(kind, text.clone()),
            (Some(other), _) => other.clone(),
            (None, _) => continue,
        };
        out.push(Parameter::new(*name, value));
    }
    if let Some(list) = languages.filter(|_| !input.has("displayLanguage")) {
        out.push(Parameter::new("displayLanguage", Value::Text("Code", list.to_owned())));
    }
    let mut used = |name: Cow<'static, str>, canonical: String| {
        let parameter = Parameter::new(name, Value::Text("Uri", canonical));
        if !out.contains(&parameter) {
            out.push(parameter);
        }
    };
    let own = State::of_set(set);
    for set in &members.imported {
        let canonical = version::join(&set.url, set.version.as_deref());
        used("used-valueset".into(), canonical.clone());
        if let Some(state) = State::of_set(set).remark(&own) {
            used(format!("warning-{state}").into(), canonical);
        }
    }
    for part in &members.parts {
        let version = part.system.and_then(|system| system.version.as_deref());
        let canonical = version::join(part.url, version);
        used("used-codesystem".into(), canonical.clone());
        let state = part.system.map(State::of_system);
        if let Some(state) = state.as_ref().and_then(|state| state.remark(&own)) {
            used(format!("warning-{state}").into(), canonical);
        }
    }
    for (header, _) in &view.supplements {
        let url = header.url.as_deref().unwrap_or_default();
        used("used-supplement".into(), version::join(url, header.version.as_deref()));
    }
    out
}

/// The same for the same question to the same content: a name-based UUID (RFC 9562, version 8) over
/// the set and the parameters.
fn identifier(set: &ValueSet, input: Input<'_>, parameters: &[Parameter]) -> String {
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    let mut add = |bytes: &[u8]| {
        // FNV-1a, with an end mark that no text holds.
        for byte in bytes.iter().chain(&[0xFF]) {
            hash = (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013B);
        }
    };
    add(set.url.as_bytes());
    add(set.version.as_deref().unwrap_or_default().as_bytes());
    for resource in ["valueSet", "tx-resource"].iter().filter_map(|name| input.resources(name).ok()).flatten()
    {
        add(resource.get().as_bytes());
    }
    for parameter in parameters {
        add(serde_json::to_string(parameter).unwrap_or_default().as_bytes());
    }
    let hash = hash & !(0xF000 << 64) & !(0xC000 << 48) | (0x8000 << 64) | (0x8000 << 48);
    let hex = format!("{hash:032x}");
    format!("urn:uuid:{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// How the caller looks at the members of a set.
struct View<'a, 'r> {
    request: &'r Request<'r>,
    languages: Languages,
    supplements: Vec<Supplement<'a>>,
}

impl<'a> View<'a, '_> {
    /// Leaves out what the caller does not want to see.
    fn narrow(&self, members: &mut Members<'a>) {
        let unwanted = |part: &Part<'_>| {
            let have = part.system.and_then(|system| system.version.as_deref()).unwrap_or_default();
            self.request.exclude_systems.iter().any(|canonical| {
                let (url, wanted) = version::split(canonical);
                url == part.url && wanted.is_none_or(|wanted| version::matches(wanted, have))
            })
        };
        members.parts.retain(|part| !unwanted(part));
        if self.request.active_only {
            members.parts.iter_mut().for_each(Part::drop_inactive);
        }
        if self.request.filter.is_empty() {
            return;
        }
        for part in &mut members.parts {
            let kept: HashSet<(Option<u32>, &str)> = part
                .iter_after(0)
                .filter(|item| self.passes(part, item))
                .map(|item| (item.concept, if item.concept.is_some() { "" } else { item.code }))
                .collect();
            part.retain(|concept, code| kept.contains(&(concept, if concept.is_some() { "" } else { code })));
        }
    }

    /// Do all words of the filter begin some word of the code, the display or a designation?
    fn passes(&self, part: &Part<'a>, item: &Item<'a>) -> bool {
        let texts = self.texts(part, item);
        let all = || std::iter::once(item.code).chain(texts.iter().map(|text| text.display.text));
        self.request.filter.iter().all(|word| all().any(|text| begins_word(text, word)))
    }

    fn texts(&self, part: &Part<'a>, item: &Item<'a>) -> Vec<Text<'a>> {
        let listed = item.listed.map(|listed| (listed, part.set.language.as_deref()));
        texts::texts(part.system.zip(item.concept), listed, &self.supplements)
    }

    /// The codes to show.
    fn contains(&self, members: &Members<'a>, shown: usize) -> Vec<Contains<'a>> {
        // The version is told where several of one system are in the set.
        let several = |part: &Part<'_>| {
            let other = |other: &&Part<'_>| {
                let version = |part: &Part<'_>| part.system.map(|system| system.version.clone());
                other.url == part.url && version(other) != version(part)
            };
            members.parts.iter().any(|x| other(&x))
        };
        let mut out = Vec::new();
        let (mut skip, mut left) = (self.request.offset, shown);
        for part in &members.parts {
            let with_version = several(part);
            let mut items = Vec::new();
            let rows = part.iter_after(skip).take(left).map(|item| {
                items.push(item);
                self.row(part, &item, with_version)
            });
            let rows: Vec<_> = rows.collect();
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
        out
    }

    fn row(&self, part: &Part<'a>, item: &Item<'a>, with_version: bool) -> Contains<'a> {
        let texts = self.texts(part, item);
        let shown = texts::shown(&texts, &self.languages);
        let concept = part.system.zip(item.concept);
        let mut extension = Vec::new();
        if let Some((system, at)) = concept {
            let added = texts::additions(&self.supplements, system, at);
            for (from, at) in std::iter::once((system, at)).chain(added) {
                for name in &self.request.properties {
                    extension.extend(values(from, at, name).map(|value| property(name, &value)));
                }
            }
        }
        let designation = texts
            .iter()
            .enumerate()
            .filter(|(n, text)| self.request.with_designations && Some(*n) != shown && self.wants(text));
        Contains {
            extension,
            system: part.url,
            r#abstract: concept.is_some_and(|(system, at)| system.is_abstract(at)),
            inactive: concept.is_some_and(|(system, at)| system.is_inactive(at)),
            version: part.system.filter(|_| with_version).and_then(|system| system.version.as_deref()),
            code: concept.map_or(item.code, |(system, at)| system.code(at)),
            display: shown.map(|n| texts[n].display.text),
            designation: designation.map(|(_, text)| *text).collect(),
            contains: Vec::new(),
        }
    }

    /// `designation`: by language (`urn:ietf:bcp:47|de`, `de`) or by use (`system|code`).
    fn wants(&self, text: &Text<'_>) -> bool {
        let by = |token: &&str| {
            let (system, code) = token.rsplit_once('|').unwrap_or(("", token));
            let language = matches!(system, "" | "urn:ietf:bcp:47")
                && Languages::parse(code).is_ok_and(|range| range.covers(text.display.language));
            let purpose = || text.purpose.is_some_and(|[s, c, _]| s == system && c == code);
            language || purpose()
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

/// Does some word of the text begin with this one, which is in lower case?
fn begins_word(text: &str, word: &str) -> bool {
    let mut before: Option<char> = None;
    text.char_indices().any(|(at, c)| {
        let starts = c.is_alphanumeric() && before.is_none_or(|b| !b.is_alphanumeric()) || before.is_none();
        before = Some(c);
        let mut letters = text[at..].chars().flat_map(char::to_lowercase);
        starts && word.chars().all(|wanted| letters.next() == Some(wanted))
    })
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

/// A ValueSet with its expansion.
struct Expanded<'a> {
    set: &'a ValueSet,
    /// With `compose` and everything else that defines it.
    whole: bool,
    expansion: Expansion<'a>,
}

impl Serialize for Expanded<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const ALWAYS: &[&str] =
            &["language", "url", "identifier", "version", "name", "title", "status", "experimental", "date"];
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("resourceType", "ValueSet")?;
        if self.set.definition.is_empty() {
            map.serialize_entry("url", &self.set.url)?;
            if let Some(version) = &self.set.version {
                map.serialize_entry("version", version)?;
            }
            map.serialize_entry("status", self.set.status.as_deref().unwrap_or("active"))?;
        }
        for (name, json) in &self.set.definition {
            if self.whole || ALWAYS.contains(&&**name) {
                map.serialize_entry(name, json)?;
            }
        }
        map.serialize_entry("expansion", &self.expansion)?;
        map.end()
    }
}

/// `ValueSet.expansion`.
#[derive(serde::Serialize)]
struct Expansion<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    extension: Vec<serde_json::Value>,
    identifier: String,
    timestamp: &'a str,
    total: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parameter: Vec<Parameter>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    contains: Vec<Contains<'a>>,
}

/// `ValueSet.expansion.contains`.
#[derive(serde::Serialize)]
struct Contains<'a> {
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
