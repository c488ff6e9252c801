//! A question for `$translate`, in the parameters of R4 or of R5.

use fhir::{CodeableConcept, Coding, Value};

use crate::concept_map::{Dependency, MapGroup, MappedSystem};
use crate::interface::parameters::{
    CODE, CODEABLE_CONCEPT, CODING, DEPENDENCY, MAP_SOURCE, MAP_TARGET, REVERSE, SOURCE_CODE,
    SOURCE_CODEABLE_CONCEPT, SOURCE_CODING, SOURCE_SCOPE, SOURCE_SYSTEM, TARGET_CODE,
    TARGET_CODEABLE_CONCEPT, TARGET_CODING, TARGET_SCOPE, TARGET_SYSTEM, TARGET_SYSTEM_R4, TRANSLATE_SYSTEM,
    TRANSLATE_VERSION,
};
use crate::interface::parameters::{OneCoding, OneConcept, Text};
use crate::model::error::malformed;
use crate::model::language::LanguageRanges;
use crate::model::{TxError, canonical};
use crate::ops::{OperationInput, concept_texts};

/// The validated parameters of `$translate`.
pub(super) struct TranslateRequest<'a> {
    /// The codes to translate, each with a system.
    pub(super) codings: Vec<Coding>,
    pub(super) scope: TranslationScope<'a>,
    /// Values of other elements: the URI of the element, and the value.
    pub(super) dependencies: Vec<(&'a str, &'a CodeableConcept)>,
    pub(super) languages: LanguageRanges,
    /// Whether a parameter of R5 is used, so that the answer has the names of R5 too.
    pub(super) of_r5: bool,
}

/// The direction of a translation, and the value sets and code system that restrict it.
pub(super) struct TranslationScope<'a> {
    /// Whether the code is one of the target of the map, and those of the source are searched.
    pub(super) reverse: bool,
    /// Value sets that the map is from and to.
    pub(super) source_scope: Option<&'a str>,
    pub(super) target_scope: Option<&'a str>,
    pub(super) target_system: Option<&'a str>,
    /// Whether `target_system` is that of the given code: with the parameters of R5, it remains the target of
    /// the map in the reverse direction.
    target_is_given: bool,
}

/// The names of one way to send the code.
#[derive(Clone, Copy)]
struct CodeParameters {
    code: Text,
    coding: OneCoding,
    concept: OneConcept,
    reverse: bool,
    of_r5: bool,
}

const WAYS: [CodeParameters; 3] = [
    CodeParameters { code: CODE, coding: CODING, concept: CODEABLE_CONCEPT, reverse: false, of_r5: false },
    CodeParameters {
        code: SOURCE_CODE,
        coding: SOURCE_CODING,
        concept: SOURCE_CODEABLE_CONCEPT,
        reverse: false,
        of_r5: true,
    },
    CodeParameters {
        code: TARGET_CODE,
        coding: TARGET_CODING,
        concept: TARGET_CODEABLE_CONCEPT,
        reverse: true,
        of_r5: true,
    },
];

impl<'a> TranslateRequest<'a> {
    pub(super) fn read(input: OperationInput<'a>) -> Result<Self, TxError> {
        let (codings, way) = read_codes(input)?;
        let reverse = way.reverse || input.flag(REVERSE)?;
        let (source, target) = (input.text(MAP_SOURCE)?, input.text(MAP_TARGET)?);
        // In R4, `reverse` also exchanges the meanings of `source` and `target`.
        let [source, target] = if reverse { [target, source] } else { [source, target] };
        let target_is_given = reverse && way.reverse;
        let scope = TranslationScope {
            reverse,
            source_scope: input.text(SOURCE_SCOPE)?.or(source),
            target_scope: input.text(TARGET_SCOPE)?.or(target),
            target_system: input.text(TARGET_SYSTEM)?.or(input.text(TARGET_SYSTEM_R4)?),
            target_is_given,
        };
        let mut dependencies = Vec::new();
        for dependency in input.parts(DEPENDENCY)? {
            let part = |name: &str| dependency.part.iter().find(|part| part.name == name)?.value.as_ref();
            match (part("element"), part("concept")) {
                (Some(Value::Text(_, element)), Some(Value::CodeableConcept(concept))) => {
                    dependencies.push((element.as_str(), concept));
                }
                _ => {
                    let reason =
                        "it needs the parts 'element' (valueUri) and 'concept' (valueCodeableConcept)";
                    return Err(malformed("dependency", reason));
                }
            }
        }
        let languages = concept_texts::requested_languages(input)?;
        let of_r5 = way.of_r5
            || [SOURCE_SCOPE, TARGET_SCOPE, TARGET_SYSTEM].iter().any(|parameter| input.has(parameter.row()));
        Ok(Self { codings, scope, dependencies, languages, of_r5 })
    }

    /// Returns whether the request states that another element has this value.
    pub(super) fn states(&self, dependency: &Dependency) -> bool {
        let has = |concept: &CodeableConcept| {
            let same = |coding: &Coding| {
                coding.code.as_deref() == Some(&dependency.value)
                    && dependency.system.as_ref().is_none_or(|system| coding.system.as_ref() == Some(system))
            };
            concept.coding.iter().any(same) || concept.text.as_deref() == Some(&dependency.value)
        };
        self.dependencies.iter().any(|(element, concept)| *element == dependency.property && has(concept))
    }
}

/// The codes of the request, and the way in which they are sent.
fn read_codes(input: OperationInput<'_>) -> Result<(Vec<Coding>, CodeParameters), TxError> {
    let system = match (input.text(TRANSLATE_SYSTEM)?, input.text(SOURCE_SYSTEM)?) {
        (Some(system), Some(source)) if system != source => {
            return Err(malformed(
                SOURCE_SYSTEM.row().name,
                format!("'{source}' differs from 'system', '{system}'; send one of them"),
            ));
        }
        (system, source) => system.or(source),
    };
    let version = input.text(TRANSLATE_VERSION)?;
    let mut request_codings = Vec::new();
    for way in WAYS {
        if let Some(code) = input.text(way.code)? {
            // The code of `targetCode` may also have the system of the target.
            let own = if way.reverse { system.or(input.text(TARGET_SYSTEM)?) } else { system };
            let system = own.ok_or_else(|| TxError::Missing {
                what: format!("parameter 'system' is required with '{}'", way.code.row().name),
            })?;
            let coding = Coding { version: version.map(str::to_owned), ..Coding::new(system, code) };
            request_codings.push((way.code.row().name, vec![coding], way));
        }
        if let Some(coding) = input.coding(way.coding)? {
            request_codings.push((way.coding.row().name, vec![coding.clone()], way));
        }
        if let Some(concept) = input.codeable_concept(way.concept)? {
            request_codings.push((way.concept.row().name, concept.coding.clone(), way));
        }
    }
    let Some((name, mut codings, way)) = request_codings.pop() else {
        let what = "one of the parameters 'code' with 'system', 'coding' and 'codeableConcept' is required";
        return Err(TxError::Missing { what: what.to_owned() });
    };
    if !request_codings.is_empty() {
        return Err(malformed(name, "the request has several codes; send one code, coding or concept"));
    }
    let is_empty = |text: &Option<String>| text.as_deref().is_none_or(str::is_empty);
    // A concept may have codings that say less; the others are translated.
    codings.retain(|coding| !is_empty(&coding.system) && !is_empty(&coding.code));
    if codings.is_empty() {
        return Err(malformed(name, "no coding has a system and a code; send at least one that has both"));
    }
    Ok((codings, way))
}

impl TranslationScope<'_> {
    /// Returns whether a group translates codes of the system of a coding, and to the requested one.
    pub(super) fn admits(&self, group: &MapGroup, coding: &Coding) -> bool {
        let [from, to] =
            if self.reverse { [&group.target, &group.source] } else { [&group.source, &group.target] };
        let restricted = if self.target_is_given { from } else { to };
        is_of(from, coding) && self.target_system.is_none_or(|url| is_named(restricted, url))
    }

    /// The code system on the other side of a map of SNOMED CT, if the request states it.
    pub(super) fn mapped_system<'c>(&'c self, coding: &'c Coding) -> Option<&'c str> {
        if self.reverse { coding.system.as_deref() } else { self.target_system }
    }
}

/// Returns whether a coding is of the code system of a group. A version counts only if both state one.
fn is_of(system: &MappedSystem, coding: &Coding) -> bool {
    let same_url = system.url.is_empty() || Some(&system.url) == coding.system.as_ref();
    let versions = system.version.as_deref().zip(coding.version.as_deref());
    same_url && versions.is_none_or(|(have, given)| canonical::matches(have, given))
}

fn is_named(system: &MappedSystem, target: &str) -> bool {
    let (url, version) = canonical::split(target);
    system.url == url
        && version
            .zip(system.version.as_deref())
            .is_none_or(|(target, have)| canonical::matches(target, have))
}
