//! `ValueSet/$expand` (FHIR R4): all codes of a value set, or a page of them.
//!
//! The members are sets of ordinals. Only the codes on the page are looked up.

mod expand_request;
mod expansion_view;
mod text_filter;

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashSet;

use fhir::{Parameter, Value};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use self::expand_request::ExpandRequest;
use self::expansion_view::{ContainsRow, ExpansionView};
use super::resource_state::ResourceState;
use super::shared_parameters::{resolve_contained, sent_value_set};
use super::{OperationInput, OperationLevel, concept_texts};
use crate::catalog::Catalog;
use crate::interface::TerminologyOperation;
use crate::interface::parameters::{
    self, CONTEXT, DISPLAY_LANGUAGE, InExpansion, TX_RESOURCE, VALUE_SET, VALUE_SET_URL, VALUE_SET_VERSION,
};
use crate::membership::imports;
use crate::membership::members::{MemberCollector, ValueSetMembers};
use crate::membership::version_pins::pinned;
use crate::model::concept_extensions::standard_property_uri;
use crate::model::language::LanguageRanges;
use crate::model::resource_json::ContentMode;
use crate::model::{Budget, TxError, Unprocessable, canonical};
use crate::value_set::ValueSet;

/// Maximum number of codes in an answer.
pub const MAX_EXPANSION_CODES: usize = 10_000;

/// Cross-version extension for properties of an expansion, for which R5 has an element.
const PROPERTY: &str = "http://hl7.org/fhir/5.0/StructureDefinition/extension-ValueSet.expansion.property";
/// Extension for an expansion that may lack codes.
const UNCLOSED: &str = "http://hl7.org/fhir/StructureDefinition/valueset-unclosed";
/// Extension for the reason why an expansion may lack codes.
const UNCLOSED_REASON: &str = "http://hl7.org/fhir/StructureDefinition/valueset-unclosed-reason";

/// Answers `$expand` with a ValueSet. `now` is the time of the expansion.
pub(crate) fn answer_expand(
    catalog: &Catalog,
    level: OperationLevel<'_>,
    input: OperationInput<'_>,
    now: &str,
    budget: &Budget<'_>,
) -> Result<Box<RawValue>, TxError> {
    let request = ExpandRequest::read(input, budget)?;
    let inline;
    let set = match level {
        OperationLevel::Instance(id) => catalog.value_set_by_id(id, budget)?,
        OperationLevel::Type => match sent_value_set(input, budget)? {
            Some(set) => {
                inline = set;
                &inline
            }
            None => find_value_set(catalog, &request, input, budget)?,
        },
    };
    let scope = resolve_contained(set, input, request.ecosystem)?;
    let set = scope.set;
    imports::check_value_set(catalog, scope, &request.pins, request.ecosystem, budget)?;
    let (languages, named) = requested_languages(input, set)?;
    let requested = request.supplements.iter().copied().chain(set.supplements.iter().map(String::as_str));
    let supplements = concept_texts::find_supplements(catalog, requested, budget)?;

    let mut members =
        MemberCollector::new(catalog, &request.pins, !request.ecosystem, budget).collect(scope)?;
    if let (OperationLevel::Type, Some(url), false) =
        (level, input.text(VALUE_SET_URL)?, input.has(VALUE_SET.row()) || input.has(VALUE_SET_VERSION.row()))
    {
        members.used_pins.extend(request.pins.used_by_import(url));
    }
    if let Some(missing) = members.missing.take() {
        return Err(missing.into());
    }
    let shown_properties = RefCell::default();
    let view = ExpansionView { request: &request, languages, supplements, budget, shown_properties };
    view.apply_filters(&mut members)?;
    budget.set_activity("writing an expansion");
    budget.spend((1 + request.properties.len()) * members.parts.len())?;
    let total = members.len();
    let page_length = total.saturating_sub(request.offset).min(request.count.unwrap_or(usize::MAX));
    let limit = input.own_expansion_limit().map_or(MAX_EXPANSION_CODES, |own| own.min(MAX_EXPANSION_CODES));
    // The limit is on the codes of the page, so that a large value set can be read in pages.
    if page_length > limit {
        let value_set = set.canonical();
        return Err(Unprocessable::TooCostly { value_set, limit }.into());
    }

    let parameters = expansion_parameters(input, set, &members, &view, named.as_deref());
    let contains = view.page_rows(&members, page_length)?;
    let extension = expansion_extensions(&members, &view);
    let expansion = ExpansionBody {
        extension,
        identifier: expansion_identifier(set, input, &parameters),
        timestamp: now,
        total,
        offset: request.is_paged.then_some(request.offset),
        parameter: parameters,
        contains,
    };
    Ok(to_raw_value(&ExpandedValueSet { set, with_definition: request.with_definition, expansion })
        .expect("the answer is valid JSON"))
}

/// The extensions of the expansion: whether it may lack codes, and the properties of its codes.
fn expansion_extensions(
    members: &ValueSetMembers<'_>,
    view: &ExpansionView<'_, '_>,
) -> Vec<serde_json::Value> {
    let mut out = Vec::new();
    let lacks_expressions = members.has_expressions && !view.request.exclude_post_coordinated;
    if members.unclosed || lacks_expressions {
        out.push(json!({ "url": UNCLOSED, "valueBoolean": true }));
        let mut codes = HashSet::new();
        for part in members.parts.iter().filter(|part| part.is_of_fragment() && codes.insert(part.url)) {
            let reason = format!("This extension is based on a fragment of the code system {}", part.url);
            out.push(json!({ "url": UNCLOSED_REASON, "valueString": reason }));
        }
    }
    let properties = view.shown_properties.borrow();
    let requested = view.request.properties.iter().copied();
    let more = properties.iter().map(String::as_str).filter(|name| !view.request.properties.contains(name));
    for name in requested.chain(more) {
        let systems = members.parts.iter().filter_map(|part| part.system);
        let added = view.supplements.iter().map(|(_, supplement)| *supplement);
        let declared = systems.chain(added).find_map(|system| system.declaration(name).1);
        let uri = declared.map(String::from).or_else(|| standard_property_uri(name));
        let code = json!({ "url": "code", "valueCode": name });
        let uri = uri.map(|uri| json!({ "url": "uri", "valueUri": uri }));
        let parts: Vec<_> = std::iter::once(code).chain(uri).collect();
        out.push(json!({ "url": PROPERTY, "extension": parts }));
    }
    out
}

fn find_value_set<'a>(
    catalog: &'a Catalog,
    request: &ExpandRequest<'_>,
    input: OperationInput<'_>,
    budget: &Budget<'_>,
) -> Result<&'a ValueSet, TxError> {
    let canonical = match (input.text(VALUE_SET_URL)?, input.text(CONTEXT)?) {
        (Some(url), _) => url,
        (None, Some(context)) => catalog.bound_value_set(context, budget)?,
        (None, None) => {
            let what =
                "parameter 'url' or 'valueSet' is required unless the operation is called on a ValueSet";
            return Err(TxError::Missing { what: what.to_owned() });
        }
    };
    let (url, in_url) = canonical::split(canonical);
    let pin = pinned(&request.pins.value_sets, url);
    let version = input.text(VALUE_SET_VERSION)?.or(in_url).or(pin);
    let set = match version {
        None => catalog.value_set_of(url, request.pins.date.as_deref(), budget)?,
        version => catalog.value_set(url, version, budget)?,
    };
    set.ok_or_else(|| TxError::UnknownValueSet {
        url: canonical::join(url, version),
        ecosystem: request.ecosystem,
    })
}

/// The languages from the source with the highest precedence, and the list that states them. A list with
/// weights is written in order of weight.
fn requested_languages(
    input: OperationInput<'_>,
    set: &ValueSet,
) -> Result<(LanguageRanges, Option<String>), TxError> {
    let parse = |list: &str| {
        let ranges = LanguageRanges::parse(list)?;
        let list_text = if list.contains(';') { ranges.named.clone() } else { list.to_owned() };
        Ok::<_, TxError>((ranges, Some(list_text)))
    };
    if let Some(list) = input.text(DISPLAY_LANGUAGE)? {
        return parse(list);
    }
    if let Some(list) = &set.display_language {
        return parse(list);
    }
    // An invalid header is ignored, because browsers and proxies add their own.
    if let Some(Ok(header)) = input.header_languages().map(parse) {
        return Ok(header);
    }
    match set.language.as_deref().map(parse) {
        Some(Ok(own)) => Ok(own),
        _ => Ok(Default::default()),
    }
}

/// `expansion.parameter`: the parameters of the request and the resources that were used.
fn expansion_parameters(
    input: OperationInput<'_>,
    set: &ValueSet,
    members: &ValueSetMembers<'_>,
    view: &ExpansionView<'_, '_>,
    languages: Option<&str>,
) -> Vec<Parameter> {
    let is_used = |name: &'static str, parameter: &Parameter| match &parameter.value {
        Some(Value::Text(_, canonical)) => members.used_pins.contains(&(name, canonical.clone())),
        _ => false,
    };
    let mut out: Vec<Parameter> = Vec::new();
    for parameter in input.all_parameters() {
        let mut rows = parameters::of_operation(TerminologyOperation::Expand);
        let Some(row) = rows.find(|row| row.name == parameter.name) else { continue };
        let fhir_type = match row.in_expansion {
            // The languages may also be those of the header or of the value set.
            _ if row.name == DISPLAY_LANGUAGE.row().name => continue,
            InExpansion::Repeated(fhir_type) => fhir_type,
            InExpansion::RepeatedIfUsed if is_used(row.name, parameter) => "Uri",
            InExpansion::RepeatedIfUsed | InExpansion::Omitted => continue,
        };
        let value = match (&parameter.value, fhir_type) {
            (Some(Value::Text(_, text)), "Boolean") => Value::Boolean(text == "true"),
            (Some(Value::Text(_, text)), "Integer") => match text.parse() {
                Ok(number) => Value::Number("Integer", number),
                Err(_) => continue,
            },
            (Some(Value::Text(_, text)), _) => Value::Text(fhir_type, text.clone()),
            (Some(other), _) => other.clone(),
            (None, _) => continue,
        };
        out.push(Parameter::new(row.name, value));
    }
    if let Some(list) = languages {
        out.push(Parameter::new(DISPLAY_LANGUAGE.row().name, Value::Text("Code", list.to_owned())));
    }
    let mut names = HashSet::new();
    let mut used = |name: Cow<'static, str>, canonical: String| {
        if names.insert((name.clone(), canonical.clone())) {
            out.push(Parameter::new(name, Value::Text("Uri", canonical)));
        }
    };
    let own = ResourceState::of_value_set(set);
    for set in &members.imported {
        let canonical = set.canonical();
        used("used-valueset".into(), canonical.clone());
        if let Some(state) = ResourceState::of_value_set(set).state_to_report(&own) {
            used(format!("warning-{state}").into(), canonical);
        }
    }
    let systems = members.parts.iter().map(|part| (part.url, part.system));
    for (url, system) in systems.chain(members.excluded_systems.iter().copied()) {
        let version = system.and_then(|system| system.version.as_deref());
        let canonical = canonical::join(url, version);
        used("used-codesystem".into(), canonical.clone());
        if system.is_some_and(|system| system.content == ContentMode::Fragment) {
            used("used-fragment".into(), canonical.clone());
        }
        let state = system.map(ResourceState::of_system);
        if let Some(state) = state.as_ref().and_then(|state| state.state_to_report(&own)) {
            used(format!("warning-{state}").into(), canonical);
        }
    }
    let is_used = |supplement: &&concept_texts::LoadedSupplement<'_>| {
        let mut systems = members.parts.iter().map(|part| part.system);
        concept_texts::is_used(**supplement, None)
            || systems.any(|system| concept_texts::is_used(**supplement, system))
    };
    for (header, _) in view.supplements.iter().filter(is_used) {
        let url = header.url.as_deref().unwrap_or_default();
        used("used-supplement".into(), canonical::join(url, header.version.as_deref()));
    }
    if set.compose.merges_versions() {
        out.push(Parameter::new("versionsMatch", Value::Boolean(true)));
    }
    out
}

/// An identifier that is equal for equal requests to equal content: a name-based UUID (RFC 9562, version 8)
/// of the value set and the parameters.
fn expansion_identifier(set: &ValueSet, input: OperationInput<'_>, parameters: &[Parameter]) -> String {
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    let mut add = |bytes: &[u8]| {
        // FNV-1a, with a separator that cannot occur in a text.
        for byte in bytes.iter().chain(&[0xFF]) {
            hash = (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013B);
        }
    };
    add(set.url.as_bytes());
    add(set.version.as_deref().unwrap_or_default().as_bytes());
    let given_set = input.resource(VALUE_SET).ok().flatten();
    for resource in given_set.into_iter().chain(input.resources(TX_RESOURCE).unwrap_or_default()) {
        add(resource.get().as_bytes());
    }
    for parameter in parameters {
        add(serde_json::to_string(parameter).unwrap_or_default().as_bytes());
    }
    let hash = hash & !(0xF000 << 64) & !(0xC000 << 48) | (0x8000 << 64) | (0x8000 << 48);
    let hex = format!("{hash:032x}");
    format!("urn:uuid:{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

struct ExpandedValueSet<'a> {
    set: &'a ValueSet,
    /// Whether `compose` and the other members of the definition are included.
    with_definition: bool,
    expansion: ExpansionBody<'a>,
}

impl Serialize for ExpandedValueSet<'_> {
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
            if self.with_definition || ALWAYS.contains(&&**name) {
                map.serialize_entry(name, json)?;
            }
        }
        map.serialize_entry("expansion", &self.expansion)?;
        map.end()
    }
}

/// JSON of `ValueSet.expansion`.
#[derive(serde::Serialize)]
struct ExpansionBody<'a> {
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
    contains: Vec<ContainsRow<'a>>,
}
