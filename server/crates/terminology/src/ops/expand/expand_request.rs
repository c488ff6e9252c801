//! A question for `$expand`.

use fhir::{Parameter, Value};

use crate::interface::parameters::{
    ACTIVE_ONLY, COUNT, DESIGNATION, EXCLUDE_NESTED, EXCLUDE_NOT_FOR_UI, EXCLUDE_POST_COORDINATED,
    EXCLUDE_SYSTEM, EXPAND_PROPERTY, FILTER, INCLUDE_DEFINITION, INCLUDE_DESIGNATIONS, OFFSET,
    USE_SUPPLEMENT,
};
use crate::membership::version_pins::VersionPins;
use crate::model::concept_text::ConceptText;
use crate::model::known_systems::{BCP_47, SNOMED_CT};
use crate::model::language::LanguageRanges;
use crate::model::text_folding::fold;
use crate::model::{Budget, TxError};
use crate::ops::OperationInput;
use crate::ops::shared_parameters;

/// The validated parameters of `$expand`.
pub(super) struct ExpandRequest<'a> {
    /// Folded words. Each must start a word of the code, display or designations.
    pub(super) filter: Vec<String>,
    pub(super) offset: usize,
    pub(super) count: Option<usize>,
    pub(super) is_paged: bool,
    pub(super) active_only: bool,
    pub(super) exclude_nested: Option<bool>,
    pub(super) exclude_not_for_ui: bool,
    pub(super) exclude_post_coordinated: bool,
    pub(super) with_designations: bool,
    pub(super) with_definition: bool,
    pub(super) designations: Vec<DesignationToken<'a>>,
    pub(super) properties: Vec<&'a str>,
    pub(super) exclude_systems: Vec<&'a str>,
    pub(super) supplements: Vec<&'a str>,
    pub(super) pins: VersionPins,
    pub(super) ecosystem: bool,
}

/// `designation`: a range of languages (`de`), a language (`urn:ietf:bcp:47|de`) or a use (`system|code`).
pub(super) struct DesignationToken<'a> {
    pub(super) system: &'a str,
    pub(super) code: &'a str,
    pub(super) languages: Option<LanguageRanges>,
}

impl<'a> DesignationToken<'a> {
    pub(super) fn new(token: &'a str) -> Self {
        let (system, code) = token.rsplit_once('|').unwrap_or(("", token));
        let languages = system.is_empty().then(|| LanguageRanges::parse(code).ok()).flatten();
        Self { system, code, languages }
    }

    /// Returns whether the token requests a language.
    pub(super) fn has_language(&self, text: &ConceptText<'_>) -> bool {
        match (&self.languages, text.language) {
            (Some(ranges), _) => ranges.covers(text),
            (None, Some(language)) => self.system == BCP_47 && self.code.eq_ignore_ascii_case(language),
            (None, None) => false,
        }
    }
}

impl<'a> ExpandRequest<'a> {
    pub(super) fn read(input: OperationInput<'a>, budget: &Budget<'_>) -> Result<Self, TxError> {
        let words = |text: &str| fold(text).split_whitespace().map(str::to_owned).collect();
        let is_empty = |p: &Parameter| matches!(&p.value, Some(Value::Text(_, text)) if text.is_empty());
        let empty_filter = input.all_parameters().iter().any(|p| p.name == FILTER.row().name && is_empty(p));
        let (offset, count) = (input.number(OFFSET)?, input.number(COUNT)?);
        let designations: Vec<_> = input.texts(DESIGNATION)?.into_iter().map(DesignationToken::new).collect();
        budget.spend(designations.len())?;
        Ok(Self {
            // An empty filter selects all codes.
            filter: if empty_filter {
                Vec::new()
            } else {
                input.text(FILTER)?.map(words).unwrap_or_default()
            },
            offset: offset.unwrap_or(0),
            count,
            is_paged: offset.is_some() || count.is_some(),
            active_only: input.flag(ACTIVE_ONLY)?,
            exclude_nested: input.boolean(EXCLUDE_NESTED)?,
            exclude_post_coordinated: input.flag(EXCLUDE_POST_COORDINATED)?,
            exclude_not_for_ui: input.flag(EXCLUDE_NOT_FOR_UI)?,
            with_designations: input.flag(INCLUDE_DESIGNATIONS)? || !designations.is_empty(),
            with_definition: input.flag(INCLUDE_DEFINITION)?,
            designations,
            properties: input.texts(EXPAND_PROPERTY)?,
            exclude_systems: input.texts(EXCLUDE_SYSTEM)?,
            supplements: input.texts(USE_SUPPLEMENT)?,
            pins: shared_parameters::read_pins(input, budget)?,
            ecosystem: input.is_of_ecosystem(),
        })
    }

    /// Whether codes of a system are nested by their hierarchy, if nothing else prevents it.
    pub(super) fn nests(&self, system: &str) -> bool {
        match self.exclude_nested {
            Some(is_excluded) => !is_excluded,
            // A concept of SNOMED CT has several parents.
            None => system != SNOMED_CT,
        }
    }
}
