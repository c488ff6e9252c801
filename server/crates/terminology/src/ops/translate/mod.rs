//! `ConceptMap/$translate` (FHIR R4): the counterparts of a code by concept maps and by the maps of SNOMED
//! CT.
//!
//! | module | contents |
//! |---|---|
//! | `translate_request` | the code, the direction and what restricts the answer, in the parameters of R4 or R5 |
//! | `reference_set_map` | maps and associations of SNOMED CT, which are reference sets |
//! | `translation_match` | one counterpart |
//! | here | the choice of maps, and the answer |

mod reference_set_map;
mod translate_request;
mod translation_match;

use std::collections::HashSet;

use fhir::{Coding, Parameter, Parameters, Value};

use self::reference_set_map::ReferenceSetMap;
use self::translate_request::{TranslateRequest, TranslationScope};
use self::translation_match::TranslationMatch;
use super::{OperationInput, OperationLevel};
use crate::catalog::Catalog;
use crate::concept_map::{
    ConceptMap, Dependency, Equivalence, MapGroup, MapTarget, MappedCode, MappedSystem, Unmapped,
};
use crate::interface::parameters::{CONCEPT_MAP, CONCEPT_MAP_URL, CONCEPT_MAP_VERSION};
use crate::model::known_systems::SNOMED_CT;
use crate::model::{Budget, TxError, canonical};

/// Maximum number of maps that refer from one to the next (`unmapped.mode = other-map`).
const MAX_MAP_CHAIN: usize = 8;

/// Answers `$translate`.
pub(crate) fn answer_translate(
    catalog: &Catalog,
    level: OperationLevel<'_>,
    input: OperationInput<'_>,
    budget: &Budget<'_>,
) -> Result<Parameters, TxError> {
    budget.set_activity("translating a code");
    let request = TranslateRequest::read(input)?;
    let request_map = match input.resource(CONCEPT_MAP)? {
        Some(json) => Some(sent_map(json.get())?),
        None => None,
    };
    let maps = match (&request_map, level) {
        (Some(map), _) => vec![ApplicableMap::Resource(map)],
        (None, OperationLevel::Instance(id)) => {
            vec![ApplicableMap::Resource(catalog.concept_map_by_id(id, budget)?)]
        }
        (None, OperationLevel::Type) => match input.text(CONCEPT_MAP_URL)? {
            Some(url) => vec![named_map(catalog, url, input.text(CONCEPT_MAP_VERSION)?, budget)?],
            None => all_maps(catalog, &request, budget)?,
        },
    };
    let mut translation =
        Translation { catalog, request: &request, budget, matches: Vec::new(), unmet: Vec::new() };
    for coding in &request.codings {
        for map in &maps {
            match map {
                ApplicableMap::Resource(map) => translation.add_by_map(map, coding, 0)?,
                ApplicableMap::ReferenceSet(map) => {
                    translation.matches.extend(map.matches(coding, &request.scope, budget)?);
                }
            }
        }
    }
    translation.into_parameters(maps.len())
}

/// A concept map in the request.
fn sent_map(json: &str) -> Result<ConceptMap, TxError> {
    let wrong = |reason: String| TxError::Malformed { parameter: "conceptMap".to_owned(), reason };
    let kind = serde_json::from_str::<crate::model::resource_json::ResourceHeader>(json);
    let kind = kind.map_err(|error| wrong(error.to_string()))?.resource_type;
    match kind.as_str() {
        "ConceptMap" => ConceptMap::compile(json.as_bytes()).map_err(wrong),
        other => Err(wrong(format!("it is a {other}, not a ConceptMap"))),
    }
}

/// A map that may translate the code.
enum ApplicableMap<'a> {
    Resource(&'a ConceptMap),
    ReferenceSet(ReferenceSetMap<'a>),
}

/// The map with a canonical URL.
fn named_map<'a>(
    catalog: &'a Catalog,
    canonical_url: &str,
    version: Option<&str>,
    budget: &Budget<'_>,
) -> Result<ApplicableMap<'a>, TxError> {
    let (url, in_url) = canonical::split(canonical_url);
    let version = version.or(in_url);
    if let Some(map) = catalog.concept_map(url, version, budget)? {
        return Ok(ApplicableMap::Resource(map));
    }
    let map = ReferenceSetMap::of_url(catalog, url, budget)?.map(ApplicableMap::ReferenceSet);
    map.ok_or_else(|| TxError::UnknownConceptMap(canonical::join(url, version)))
}

/// All stored maps between the requested value sets, and the maps of SNOMED CT to the requested code system.
fn all_maps<'a>(
    catalog: &'a Catalog,
    request: &TranslateRequest<'_>,
    budget: &Budget<'_>,
) -> Result<Vec<ApplicableMap<'a>>, TxError> {
    let scope = &request.scope;
    let mut maps = Vec::new();
    for map in catalog.concept_maps(budget)? {
        budget.spend(1)?;
        let fits = |url: Option<&str>, have: &Option<String>| {
            url.is_none_or(|canonical| have.as_deref().is_some_and(|have| same_canonical(canonical, have)))
        };
        if fits(scope.source_scope, &map.source_scope) && fits(scope.target_scope, &map.target_scope) {
            maps.push(ApplicableMap::Resource(map));
        }
    }
    // The maps of SNOMED CT are from all its codes to all codes of a system.
    let (source, target) = (scope.source_scope.map(all_codes_of), scope.target_scope.map(all_codes_of));
    let edition = match source {
        None => None,
        Some(Some((SNOMED_CT, edition))) => edition,
        Some(_) => return Ok(maps),
    };
    let target_code = match target {
        None => None,
        Some(Some((system, _))) => Some(system),
        Some(None) => return Ok(maps),
    };
    for coding in &request.codings {
        let is_snomed = coding.system.as_deref() == Some(SNOMED_CT);
        let mapped = scope.mapped_system(coding).or(target_code);
        if is_snomed != scope.reverse && target_code.is_none_or(|code| mapped == Some(code)) {
            let version = coding.version.as_deref().filter(|_| is_snomed).or(edition);
            let matches = ReferenceSetMap::to_system(catalog, version, mapped, budget)?;
            maps.extend(matches.into_iter().map(ApplicableMap::ReferenceSet));
        }
    }
    Ok(maps)
}

/// The code system, and the edition of SNOMED CT, of which a value set `…?fhir_vs` contains all codes.
fn all_codes_of(value_set: &str) -> Option<(&str, Option<&str>)> {
    let system = value_set.strip_suffix("?fhir_vs")?;
    match system.strip_prefix(SNOMED_CT) {
        Some(rest) if rest.starts_with('/') => Some((SNOMED_CT, Some(system))),
        _ => Some((system, None)),
    }
}

/// Returns whether two canonical URLs name the same resource. A version counts only if both have one.
fn same_canonical(a: &str, b: &str) -> bool {
    let ((a, a_version), (b, b_version)) = (canonical::split(a), canonical::split(b));
    a == b && a_version.zip(b_version).is_none_or(|(a, b)| canonical::matches(a, b))
}

/// The translation of the codes of a request.
struct Translation<'a, 'r> {
    catalog: &'a Catalog,
    request: &'r TranslateRequest<'r>,
    budget: &'r Budget<'r>,
    matches: Vec<TranslationMatch>,
    /// Elements whose values a map needs and the request does not state, with these values.
    unmet: Vec<String>,
}

impl Translation<'_, '_> {
    /// Adds the counterparts of a code in a concept map. `depth` is the number of maps that referred to it.
    fn add_by_map(&mut self, map: &ConceptMap, coding: &Coding, depth: usize) -> Result<(), TxError> {
        let origin = canonical::join(&map.url, map.version.as_deref());
        for group in map.groups.iter().filter(|group| self.request.scope.admits(group, coding)) {
            self.budget.spend(1)?;
            let reverse = self.request.scope.reverse;
            let is_listed = match self.spelling_in(group, coding) {
                Some(code) if reverse => {
                    let targets: Vec<_> = group.relations_to(&code).into_iter().flatten().collect();
                    self.add_targets(group, &targets, &origin)?;
                    !targets.is_empty()
                }
                Some(code) => {
                    let targets: Vec<_> = group.relations_from(&code).into_iter().flatten().collect();
                    self.add_targets(group, &targets, &origin)?;
                    !targets.is_empty()
                }
                None => false,
            };
            if !is_listed
                && !reverse
                && let Some(unmapped) = &group.unmapped
            {
                self.add_unmapped(group, unmapped, coding, &origin, depth)?;
            }
        }
        Ok(())
    }

    /// The code of the request as the group spells it. A code system that ignores case may spell it
    /// otherwise.
    fn spelling_in(&self, group: &MapGroup, coding: &Coding) -> Option<String> {
        let code = coding.code.as_deref()?;
        let lists = |code: &str| match self.request.scope.reverse {
            true => group.relations_to(code).is_some(),
            false => group.relations_from(code).is_some(),
        };
        if lists(code) {
            return Some(code.to_owned());
        }
        let system = self.catalog.code_system(coding.system.as_deref()?, None)?.get(self.budget).ok()?;
        let own = system.code(system.find(code)?);
        lists(own).then(|| own.to_owned())
    }

    fn add_targets(&mut self, group: &MapGroup, targets: &[&MapTarget], origin: &str) -> Result<(), TxError> {
        for target in targets {
            self.budget.spend(1 + target.depends_on.len() * (1 + self.request.dependencies.len()))?;
            let missing = target.depends_on.iter().filter(|dependency| !self.request.states(dependency));
            let missing: Vec<String> =
                missing.map(|dependency| format!("{} = {}", dependency.property, dependency.value)).collect();
            if !missing.is_empty() {
                self.unmet.extend(missing);
                continue;
            }
            let reverse = self.request.scope.reverse;
            let (system, code, equivalence) = match reverse {
                true => (&group.source, Some(&target.source), target.equivalence.reversed()),
                false => (&group.target, target.target.as_ref(), target.equivalence),
            };
            let concept = code.map(|code| mapped_coding(system, code));
            let products = target.products.iter().map(product).collect();
            let (properties, map) = (Vec::new(), origin.to_owned());
            self.matches.push(TranslationMatch { equivalence, concept, products, properties, map });
        }
        Ok(())
    }

    fn add_unmapped(
        &mut self,
        group: &MapGroup,
        unmapped: &Unmapped,
        coding: &Coding,
        origin: &str,
        depth: usize,
    ) -> Result<(), TxError> {
        let (equivalence, code) = match unmapped {
            Unmapped::Provided => {
                let code = coding.code.clone().unwrap_or_default();
                (Equivalence::Equal, MappedCode { code, display: coding.display.clone() })
            }
            // A code for whatever is not mapped says no more than that the two are related.
            Unmapped::Fixed(code) => (Equivalence::RelatedTo, code.clone()),
            Unmapped::OtherMap(_) if depth == MAX_MAP_CHAIN => return Ok(()),
            Unmapped::OtherMap(canonical_url) => {
                return match named_map(self.catalog, canonical_url, None, self.budget)? {
                    ApplicableMap::Resource(map) => self.add_by_map(map, coding, depth + 1),
                    ApplicableMap::ReferenceSet(map) => {
                        let matches = map.matches(coding, &self.request.scope, self.budget)?;
                        self.matches.extend(matches);
                        Ok(())
                    }
                };
            }
        };
        let concept = mapped_coding(&group.target, &code);
        self.matches.push(TranslationMatch {
            equivalence,
            concept: Some(concept),
            products: Vec::new(),
            properties: Vec::new(),
            map: origin.to_owned(),
        });
        Ok(())
    }

    /// The display of a code in its code system, for a map that states none.
    fn display_of(&self, url: &str, version: Option<&str>, code: &str) -> Option<String> {
        let system =
            self.catalog.code_system_for(url, version, code, self.budget).ok()??.get(self.budget).ok()?;
        let displays: Vec<_> = system.displays(system.find(code)?).collect();
        self.request.languages.choose(&displays).map(str::to_owned)
    }

    fn into_parameters(mut self, map_count: usize) -> Result<Parameters, TxError> {
        self.budget.spend(self.matches.len())?;
        let mut pairs = HashSet::new();
        // Several maps, or groups of one map, can contain the same match.
        self.matches.retain(|one| {
            let concept = one.concept.as_ref().map(|concept| (concept.system.clone(), concept.code.clone()));
            pairs.insert((one.equivalence.code(), concept, one.map.clone(), one.properties.clone()))
        });
        let mut out = Parameters::new();
        let is_translated =
            self.matches.iter().any(|one| one.concept.is_some() && one.equivalence.is_translation());
        out.push_boolean("result", is_translated);
        if !is_translated {
            out.push_string("message", self.failure(map_count));
        }
        for mut one in std::mem::take(&mut self.matches) {
            let display =
                one.concept.as_ref().filter(|concept| concept.display.is_none()).and_then(|concept| {
                    let (system, code) = (concept.system.as_deref()?, concept.code.as_deref()?);
                    self.display_of(system, concept.version.as_deref(), code)
                });
            if let Some(concept) = &mut one.concept {
                concept.display = concept.display.take().or(display);
            }
            let of_r5 = self.request.of_r5;
            let relation = match of_r5 {
                true => ("relationship", one.equivalence.relationship()),
                false => ("equivalence", one.equivalence.code()),
            };
            let mut part = vec![Parameter::new(relation.0, Value::Text("Code", relation.1.to_owned()))];
            part.extend(one.concept.map(|concept| Parameter::new("concept", Value::Coding(concept))));
            part.extend(one.products);
            part.extend(one.properties.into_iter().map(|(uri, value)| {
                let uri = Parameter::new("uri", Value::Text("Uri", uri));
                Parameter::of_parts(
                    "property",
                    vec![uri, Parameter::new("value", Value::Text("String", value))],
                )
            }));
            let origin = if of_r5 { "originMap" } else { "source" };
            part.push(Parameter::new(origin, Value::Text("Uri", one.map)));
            out.parameter.push(Parameter::of_parts("match", part));
        }
        Ok(out)
    }

    /// The reason why no code is translated.
    fn failure(&self, map_count: usize) -> String {
        let TranslationScope { reverse, target_system, .. } = &self.request.scope;
        let codes = self.request.codings.iter().map(|coding| {
            let system = coding.system.as_deref().unwrap_or_default();
            format!("'{}#{}'", system, coding.code.as_deref().unwrap_or_default())
        });
        let codes = codes.collect::<Vec<_>>().join(", ");
        let of_system =
            |word: &str| target_system.map(|system| format!(" {word} '{system}'")).unwrap_or_default();
        let what = match reverse {
            true => format!("no code{} is translated to {codes}", of_system("of")),
            false => format!("{codes} has no translation{}", of_system("to")),
        };
        match (map_count, self.unmet.as_slice()) {
            (0, _) => format!("{what}: no concept map fits; store one, or name it with 'url'"),
            (_, []) => format!("{what} in the concept map"),
            (_, unmet) => {
                format!("{what} unless a parameter 'dependency' states one of: {}", unmet.join(", "))
            }
        }
    }
}

/// A code of a map as a Coding.
fn mapped_coding(system: &MappedSystem, code: &MappedCode) -> Coding {
    Coding {
        system: Some(system.url.clone()).filter(|url| !url.is_empty()),
        version: system.version.clone(),
        code: Some(code.code.clone()),
        display: code.display.clone(),
        ..Coding::default()
    }
}

/// A further result of a translation.
fn product(dependency: &Dependency) -> Parameter {
    let element = Parameter::new("element", Value::Text("Uri", dependency.property.clone()));
    let coding = Coding {
        system: dependency.system.clone(),
        code: Some(dependency.value.clone()),
        display: dependency.display.clone(),
        ..Coding::default()
    };
    Parameter::of_parts("product", vec![element, Parameter::new("concept", Value::Coding(coding))])
}
