//! All texts of a concept, for `$lookup` and `$expand`: those of the value set, then of its code system, then
//! of supplements.

use fhir::Coding;
use serde_json::json;

use super::OperationInput;
use super::first_positions::FirstPositions;
use crate::catalog::Catalog;
use crate::code_system::CodeSystem;
use crate::interface::parameters::DISPLAY_LANGUAGE;
use crate::model::concept_text::ConceptText;
use crate::model::dialects;
use crate::model::known_systems::SNOMED_CT;
use crate::model::language::LanguageRanges;
use crate::model::resource_json::{ContentMode, DESCRIPTION_ID, ResourceHeader, STANDARDS_STATUS};
use crate::model::{Budget, TxError, Unprocessable, canonical};
use crate::value_set::ListedCode;

/// SNOMED International's extension for the context in which a designation is used, such as a dialect.
const USE_CONTEXT: &str = "http://snomed.info/fhir/StructureDefinition/designation-use-context";

pub(crate) type LoadedSupplement<'a> = (&'a ResourceHeader, &'a CodeSystem);

/// A display or designation, with system, code and display of its `use`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TextWithUse<'a> {
    pub(crate) display: ConceptText<'a>,
    pub(crate) purpose: Option<[&'a str; 3]>,
    /// Id of the description of SNOMED CT.
    pub(crate) description_id: Option<&'a str>,
    /// The supplement that the text is from.
    pub(crate) source: Option<&'a ResourceHeader>,
}

impl<'a> TextWithUse<'a> {
    fn of(display: ConceptText<'a>) -> Self {
        Self { display, purpose: None, description_id: None, source: None }
    }

    /// The extensions of the designation in a ValueSet, as JSON: its standards status, the id of its
    /// description, and its dialects.
    pub(crate) fn extensions(&self) -> Vec<serde_json::Value> {
        let status = self.display.retired.map(|code| json!({ "url": STANDARDS_STATUS, "valueCode": code }));
        let id = self.description_id.map(|id| json!({ "url": DESCRIPTION_ID, "valueId": id }));
        status.into_iter().chain(id).chain(self.dialects()).collect()
    }

    /// The language reference sets of SNOMED CT that contain the designation, each as an extension with its
    /// acceptability.
    pub(crate) fn dialects(&self) -> impl Iterator<Item = serde_json::Value> {
        dialects::members(self.display.dialects).map(|(id, acceptability)| {
            let (role, name) = acceptability.concept();
            json!({ "url": USE_CONTEXT, "extension": [
                { "url": "context", "valueCoding": { "system": SNOMED_CT, "code": id } },
                { "url": "role", "valueCoding": { "system": SNOMED_CT, "code": role, "display": name } },
            ] })
        })
    }

    /// The `use` as a Coding, if there is one.
    pub(crate) fn coding(&self) -> Option<Coding> {
        let [system, code, display] =
            self.purpose?.map(|part| Some(part).filter(|part| !part.is_empty()).map(String::from));
        Some(Coding { system, code, display, ..Coding::default() })
    }
}

/// The languages of a request: those of the parameter, or else of the header. Errors in the header are
/// ignored, because browsers and proxies add their own.
///
/// # Errors
/// [`TxError`] if the parameter is not a list of languages.
pub(crate) fn requested_languages(input: OperationInput<'_>) -> Result<LanguageRanges, TxError> {
    match (input.text(DISPLAY_LANGUAGE)?, input.header_languages()) {
        (Some(list), _) => LanguageRanges::parse(list),
        (None, header) => Ok(header.and_then(|list| LanguageRanges::parse(list).ok()).unwrap_or_default()),
    }
}

/// The supplements with these canonical URLs, and all language packs, which apply without being requested.
///
/// # Errors
/// [`Unprocessable`] if one is missing or invalid.
pub(crate) fn find_supplements<'a, 'c>(
    catalog: &'a Catalog,
    canonicals: impl IntoIterator<Item = &'c str>,
    budget: &Budget<'_>,
) -> Result<Vec<LoadedSupplement<'a>>, Unprocessable> {
    let find = |canonical: &str| {
        budget.spend(1)?;
        let missing = || Unprocessable::MissingSupplement(canonical.to_owned());
        let resource = catalog.supplement(canonical).ok_or_else(missing)?;
        Ok::<_, Unprocessable>((resource.header().ok_or_else(missing)?, resource.get(budget)?))
    };
    let mut supplements = canonicals.into_iter().map(find).collect::<Result<Vec<_>, _>>()?;
    for pack in catalog.language_packs() {
        budget.spend(1)?;
        if let Some(header) = pack.header()
            && supplements.iter().all(|(known, _)| !std::ptr::eq(*known, header))
        {
            supplements.push((header, pack.get(budget)?));
        }
    }
    Ok(supplements)
}

/// Returns whether an answer about a code system names a supplement as used: one that was requested, or a
/// language pack of this code system.
pub(crate) fn is_used(supplement: LoadedSupplement<'_>, system: Option<&CodeSystem>) -> bool {
    let adds = |system| supplements_of(&[supplement], system).next().is_some();
    !supplement.0.extensions.is_language_pack || system.is_some_and(adds)
}

/// The supplements that extend a concept, with its ordinal in each.
pub(crate) fn additions_to_concept<'a, 's>(
    supplements: &'s [LoadedSupplement<'a>],
    system: &'s CodeSystem,
    concept: u32,
) -> impl Iterator<Item = (&'a CodeSystem, u32)> + 's {
    let in_supplement =
        move |supplement: &'a CodeSystem| Some((supplement, supplement.find(system.code(concept))?));
    supplements_of(supplements, system).filter_map(in_supplement)
}

/// The supplements that extend a code system.
pub(crate) fn supplements_of<'a, 's>(
    supplements: &'s [LoadedSupplement<'a>],
    system: &'s CodeSystem,
) -> impl Iterator<Item = &'a CodeSystem> + 's {
    let adds = move |header: &ResourceHeader| {
        header.supplements.as_deref().is_some_and(|canonical| {
            let (url, requested) = canonical::split(canonical);
            let have = system.version.as_deref().unwrap_or_default();
            url == system.url && requested.is_none_or(|requested| canonical::matches(requested, have))
        })
    };
    supplements.iter().filter(move |(header, _)| adds(header)).map(|(_, supplement)| *supplement)
}

/// The display to use if no language is requested: the one of the value set, or else of the code system.
/// Designations of a value set are additional (R4), so they do not replace the display.
pub(crate) fn default_display<'a>(
    concept: Option<(&'a CodeSystem, u32)>,
    list_entry: Option<(&'a ListedCode, Option<&'a str>)>,
) -> Option<ConceptText<'a>> {
    let own =
        list_entry.and_then(|(code, language)| Some(ConceptText::own(code.display.as_deref()?, language)));
    own.or_else(|| concept.and_then(|(system, concept_number)| system.display_text(concept_number)))
}

/// All texts of a concept, the default display first. `list_entry` is the entry in the list of a value set,
/// and the language of the value set.
pub(crate) fn collect_texts<'a>(
    concept: Option<(&'a CodeSystem, u32)>,
    list_entry: Option<(&'a ListedCode, Option<&'a str>)>,
    supplements: &[LoadedSupplement<'a>],
    budget: &Budget<'_>,
) -> Result<Vec<TextWithUse<'a>>, TxError> {
    budget.spend(supplements.len())?;
    let mut out: Vec<TextWithUse<'a>> =
        default_display(concept, list_entry).map(TextWithUse::of).into_iter().collect();
    if let Some((code, _)) = list_entry {
        out.extend(code.designations.iter().map(|designation| TextWithUse {
            display: ConceptText {
                kind: designation.kind,
                ..ConceptText::own(&designation.text, designation.language.as_deref())
            },
            purpose: designation.purpose.as_ref().map(|parts| parts.each_ref().map(String::as_str)),
            description_id: designation.description_id.as_deref(),
            source: None,
        }));
    }
    let of_system = |system: &'a CodeSystem, concept_number| {
        let source = Some(&system.header).filter(|header| header.content == Some(ContentMode::Supplement));
        let first = system
            .display_text(concept_number)
            .map(|display| TextWithUse { source, ..TextWithUse::of(display) });
        let more = system.designations(concept_number).map(move |designation| TextWithUse {
            display: system.text_of(&designation),
            purpose: designation.usage,
            description_id: designation.description_id,
            source,
        });
        first.into_iter().chain(more)
    };
    if let Some((system, concept_number)) = concept {
        out.extend(of_system(system, concept_number));
        for (supplement, concept_number) in additions_to_concept(supplements, system, concept_number) {
            out.extend(of_system(supplement, concept_number));
        }
    }
    // A value set often repeats the display of the code system but omits its language.
    let mut unique: Vec<TextWithUse<'a>> = Vec::with_capacity(out.len());
    let mut places = FirstPositions::default();
    budget.spend(out.len())?;
    for text in out {
        let ConceptText { text: words, language, .. } = text.display;
        let same = [places.find((words, language)), places.find((words, None))];
        match same.into_iter().flatten().min() {
            Some(index) => {
                let other = &mut unique[index];
                if other.display.language.is_none() && language.is_some() {
                    other.display.language = language;
                    places.rename(index, (words, language));
                }
                other.display.kind = other.display.kind.min(text.display.kind);
                if other.display.dialects.is_empty() {
                    other.display.dialects = text.display.dialects;
                    other.display.preference = text.display.preference;
                }
                other.purpose = other.purpose.or(text.purpose);
            }
            None => {
                places.push((words, language));
                unique.push(text);
            }
        }
    }
    Ok(unique)
}

/// The number of the text to show as display; `None` if no text is in a language of the caller.
pub(crate) fn choose_display(texts: &[TextWithUse<'_>], languages: &LanguageRanges) -> Option<usize> {
    let displays: Vec<_> = texts.iter().map(|text| text.display).collect();
    let text = languages.choose(&displays)?;
    let index = displays.iter().position(|display| std::ptr::eq(display.text, text))?;
    (!languages.refuses(&displays[index])).then_some(index)
}
