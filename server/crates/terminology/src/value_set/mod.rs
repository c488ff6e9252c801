//! One value set version, compiled: its includes and excludes, prepared for testing codes.

mod compose;
pub(crate) mod ecl;
pub(crate) mod filter;
pub(crate) mod implicit;
pub(crate) mod include_cache;
mod named_concept_cache;

use std::collections::HashMap;

use serde_json::value::RawValue;
use smallvec::smallvec;

pub(crate) use self::compose::{CodeList, IncludeRule, ListedCode, ValueSetCompose};
use self::filter::ValueSetFilter;
use crate::model::resource_json::{self, ResourceHeader};
use crate::model::{Unprocessable, canonical};

/// Maximum number of filters of a value set, including those of its contained sets.
pub const MAX_FILTERS: usize = 10_000;
/// Maximum number of filters with a regular expression.
pub const MAX_PATTERNS: usize = 100;
/// Size of a listed code in memory without its texts, in bytes.
const LISTED_BYTES: usize = 128;
#[derive(Debug, Default)]
pub(crate) struct ValueSet {
    pub(crate) url: String,
    pub(crate) version: Option<String>,
    pub(crate) status: Option<String>,
    pub(crate) experimental: bool,
    pub(crate) standards_status: Option<String>,
    pub(crate) language: Option<String>,
    /// The members of the resource that an expansion may repeat, as JSON. The narrative and a stored
    /// expansion are not included.
    pub(crate) definition: Vec<ResourceMember>,
    /// Language list of the value set, from an extension.
    pub(crate) display_language: Option<String>,
    /// Supplements that the value set requires.
    pub(crate) supplements: Vec<String>,
    /// Contained value sets by id, to which `#id` in an include refers.
    pub(crate) contained: HashMap<String, ValueSet>,
    pub(crate) compose: ValueSetCompose,
}

/// A member of the resource: its name and JSON.
type ResourceMember = (Box<str>, Box<RawValue>);

impl ValueSet {
    /// Compiles a ValueSet resource.
    ///
    /// # Errors
    /// A message of one line if the resource is invalid.
    pub(crate) fn compile(header: &ResourceHeader, bytes: &[u8]) -> Result<Self, String> {
        let read: resource_json::ValueSetJson<'_> =
            serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        let mut out = Self {
            url: header.url.clone().unwrap_or_default(),
            version: header.version.clone(),
            status: header.status.clone(),
            experimental: header.experimental,
            standards_status: resource_json::standards_status(&read.extension).map(String::from),
            language: read.language,
            supplements: resource_json::supplements(&read.extension),
            contained: contained(&read.contained)?,
            definition: definition(bytes)?,
            ..Self::default()
        };
        let Some(compose) = read.compose else {
            // The resource has only an expansion, which is the list of its codes.
            out.compose.include = listed_by_system(&read.expansion.unwrap_or_default().contains).into();
            out.compose.build_indexes();
            return Ok(out);
        };
        out.compose.active_only = compose.inactive == Some(false);
        out.compose.locked_date = compose.locked_date.map(Box::from);
        out.display_language =
            resource_json::expansion_parameter(&compose.extension, "displayLanguage").map(String::from);
        let versions_apart =
            resource_json::expansion_parameter(&compose.extension, "versionsMatch") == Some("false");
        let of_includes = compose.include.iter().chain(&compose.exclude).map(|include| &include.extension);
        for extensions in std::iter::once(&compose.extension).chain(of_includes) {
            out.supplements.extend(resource_json::supplements(extensions));
        }
        let mut fault: Option<Unprocessable> = None;
        let mut compiled = |which: &str, list: &[resource_json::IncludeJson<'_>]| {
            let mut out = Vec::new();
            for (index, written) in list.iter().enumerate() {
                let index = format!("ValueSet.compose.{which}[{index}]");
                match IncludeRule::compile(written, &index)? {
                    Ok(include) => out.push(include),
                    Err(error) => {
                        fault.get_or_insert(error);
                    }
                }
            }
            Ok::<_, String>(out)
        };
        out.compose.include = compiled("include", &compose.include)?.into();
        out.compose.exclude = compiled("exclude", &compose.exclude)?;
        out.compose.scope_excludes(versions_apart);
        if let Some(fault) = fault {
            out.compose.set_fault(fault);
        }
        out.compose.build_indexes();
        let contained = out.contained.values().map(|set| &set.compose);
        let filters = || {
            contained
                .clone()
                .chain([&out.compose])
                .flat_map(ValueSetCompose::rules)
                .flat_map(|part| &part.filters)
        };
        let patterns = filters().filter(|filter| filter.has_pattern()).count();
        let counts = [(filters().count(), MAX_FILTERS), (patterns, MAX_PATTERNS)];
        if let Some((count, limit)) = counts.into_iter().find(|(count, limit)| count > limit) {
            out.compose.set_fault(Unprocessable::TooManyFilters { count, limit });
        }
        Ok(out)
    }

    /// The approximate size in memory, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let part = |part: &IncludeRule| {
            let list_bytes = part.listed.as_ref().map_or(0, |list| list.len() * LISTED_BYTES);
            size_of::<IncludeRule>()
                + list_bytes
                + part.cache.memory_bytes()
                + part.filters.iter().map(ValueSetFilter::memory_bytes).sum::<usize>()
        };
        // Each text is stored twice: in the JSON and in the compiled form.
        let json = self.definition.iter().map(|(name, json)| 2 * (name.len() + json.get().len()));
        size_of::<Self>()
            + json.sum::<usize>()
            + self.compose.rules().map(part).sum::<usize>()
            + self.contained.values().map(Self::memory_bytes).sum::<usize>()
    }

    /// The canonical URL with the version, for messages.
    pub(crate) fn canonical(&self) -> String {
        match self.url.as_str() {
            "" => "(unidentified)".to_owned(),
            url => canonical::join(url, self.version.as_deref()),
        }
    }

    /// The value set of all codes of a code system (`CodeSystem.valueSet`).
    pub(crate) fn of_all(url: String, version: Option<String>, system: String) -> Self {
        let (system, written) = (Some(system.into()), version.clone().map(Box::from));
        let include = smallvec![IncludeRule { system, version: written, ..IncludeRule::default() }];
        Self {
            url,
            version,
            compose: ValueSetCompose { include, ..ValueSetCompose::default() },
            ..Self::default()
        }
    }
}

/// The members of a ValueSet that an expansion may repeat.
fn definition(bytes: &[u8]) -> Result<Vec<ResourceMember>, String> {
    let members: resource_json::ResourceMembers<'_> =
        serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    let repeated = |name: &str| !matches!(name, "resourceType" | "text" | "meta" | "contained" | "expansion");
    let retained = members.0.into_iter().filter(|(name, _)| repeated(name));
    Ok(retained.map(|(name, json)| (Box::from(&*name), json.to_owned())).collect())
}

/// Compiles the contained value sets. FHIR does not allow contained resources to be nested, so there is one
/// level.
fn contained(resources: &[&RawValue]) -> Result<HashMap<String, ValueSet>, String> {
    let mut out = HashMap::new();
    for json in resources {
        let header: ResourceHeader =
            serde_json::from_str(json.get()).map_err(|e| format!("contained: {e}"))?;
        if let (Some(id), "ValueSet") = (&header.id, header.resource_type.as_str()) {
            let set = ValueSet::compile(&header, json.get().as_bytes())
                .map_err(|reason| format!("contained #{id}: {reason}"))?;
            if !set.contained.is_empty() {
                return Err(format!("contained #{id} has contained resources itself (dom-2)"));
            }
            out.insert(id.trim_start_matches('#').to_owned(), set);
        }
    }
    Ok(out)
}

/// The codes of a stored expansion as includes, one for each code system and version.
fn listed_by_system(contains: &[resource_json::ContainsJson<'_>]) -> Vec<IncludeRule> {
    fn walk<'a>(
        contains: &'a [resource_json::ContainsJson<'_>],
        numbers: &mut HashMap<(&'a str, Option<&'a str>), usize>,
        out: &mut Vec<IncludeRule>,
    ) {
        for item in contains {
            if let (Some(system), Some(code), false) = (&item.system, &item.code, item.r#abstract) {
                let index = *numbers.entry((&**system, item.version.as_deref())).or_insert_with(|| {
                    let (system, version) =
                        (Some(Box::from(&**system)), item.version.as_deref().map(Box::from));
                    out.push(IncludeRule { system, version, ..IncludeRule::default() });
                    out.len() - 1
                });
                let list = out[index].listed.get_or_insert_default();
                let display = item.display.as_deref().map(Box::from);
                let list_code = ListedCode { place: list.len(), display, ..ListedCode::default() };
                list.entry((**code).into()).or_insert(list_code);
            }
            walk(&item.contains, numbers, out);
        }
    }
    let mut out = Vec::new();
    walk(contains, &mut HashMap::new(), &mut out);
    out
}
