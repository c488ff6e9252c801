//! The displays and designations of concepts.

use std::collections::{BTreeSet, HashMap};

use super::CodeSystem;
use super::concept_attribute::NONE;
use super::concept_designation::ConceptDesignation;
use super::description_facts::{DescriptionFacts, SEPARATOR};
use super::preferred_terms::PreferredTerms;
use crate::model::concept_text::{ConceptText, TextKind};
use crate::model::dialects::{self, ELSEWHERE, SnomedDialects};

impl CodeSystem {
    pub(crate) fn display(&self, concept: u32) -> Option<&str> {
        let preferred = self.preferred_terms.get().and_then(|terms| terms.designations.get(concept as usize));
        let by_dialect =
            preferred.filter(|number| **number != NONE).map(|number| self.designations.texts.get(*number));
        Some(by_dialect.unwrap_or_else(|| self.displays.get(concept))).filter(|display| !display.is_empty())
    }

    /// The display of a concept with its language. In a release of SNOMED CT, it is one of the descriptions
    /// and has the language and dialects of that one; a concept that is not translated has one in another
    /// language than the edition.
    pub(crate) fn display_text(&self, concept: u32) -> Option<ConceptText<'_>> {
        let text = self.display(concept)?;
        let plain = ConceptText::own(text, self.language.as_deref());
        if self.designations.description_ids.is_empty() {
            return Some(plain);
        }
        let described = self.designations(concept).find(|one| one.value == text && one.status.is_none());
        Some(described.map_or(plain, |one| ConceptText { kind: TextKind::Display, ..self.text_of(&one) }))
    }

    /// The display and all designations of a concept, the display first.
    pub(crate) fn displays(&self, concept: u32) -> impl Iterator<Item = ConceptText<'_>> {
        let designations = self.designations(concept).map(|designation| self.text_of(&designation));
        self.display_text(concept).into_iter().chain(designations)
    }

    /// A designation as a text of its concept.
    pub(crate) fn text_of<'a>(&self, designation: &ConceptDesignation<'a>) -> ConceptText<'a> {
        let kind = designation
            .usage
            .map_or(TextKind::Display, |[system, code, _]| TextKind::from_use(Some(system), Some(code)));
        let text = ConceptText {
            retired: designation.status,
            kind,
            ..ConceptText::own(designation.value, designation.language)
        };
        let Some(DescriptionFacts { dialects, .. }) = designation.description else { return text };
        let preference = match self.preferred_terms.get() {
            Some(terms) => terms.dialects.preference(dialects),
            None => SnomedDialects::default().preference(dialects),
        };
        ConceptText { dialects, preference, ..text }
    }

    /// The languages of the designations, sorted.
    pub(super) fn designation_languages(&self) -> Vec<&str> {
        let numbers: BTreeSet<u32> = self.designations.facts.iter().map(|[language, ..]| *language).collect();
        let languages: BTreeSet<&str> =
            numbers.into_iter().filter_map(|number| self.interned(number)).collect();
        languages.into_iter().collect()
    }

    /// The language reference sets that have a term, sorted.
    pub(super) fn language_reference_sets(&self) -> Vec<&str> {
        if self.designations.description_ids.is_empty() {
            return Vec::new();
        }
        let numbers: BTreeSet<u32> = self.designations.facts.iter().map(|[_, _, facts]| *facts).collect();
        let facts = numbers.into_iter().filter_map(|number| self.interned(number));
        let dialects = facts.filter_map(|facts| facts.rsplit(SEPARATOR).next());
        let sets: BTreeSet<&str> = dialects.flat_map(dialects::members).map(|(id, _)| id).collect();
        sets.into_iter().collect()
    }

    /// Prefers terms of these dialects as displays. Only the first call has an effect.
    pub(crate) fn prefer_dialects(&self, dialects: &SnomedDialects) {
        if !dialects.is_empty() && !self.designations.description_ids.is_empty() {
            let select = || {
                let designations = self.terms_preferred_in(dialects);
                PreferredTerms { dialects: dialects.clone(), designations }
            };
            self.preferred_terms.get_or_init(select);
        }
    }

    /// The number of the designation of each concept that a dialect of the list prefers, or `NONE`.
    fn terms_preferred_in(&self, dialects: &SnomedDialects) -> Vec<u32> {
        // Many descriptions share their facts, so each text of these is read once.
        let mut preferences: HashMap<u32, u8> = HashMap::new();
        let mut preference = |facts: u32| {
            *preferences.entry(facts).or_insert_with(|| {
                let parts = self.interned(facts).unwrap_or_default();
                dialects.preference(parts.rsplit(SEPARATOR).next().unwrap_or_default())
            })
        };
        let preferred_of = |concept: u32| {
            let numbers = self.designations.range(concept).zip(self.designations(concept));
            let terms = numbers.filter_map(|(number, designation)| {
                let is_term =
                    designation.status.is_none() && self.text_of(&designation).kind == TextKind::Other;
                let rank = preference(self.designations.facts[number as usize][2]);
                (is_term && rank < ELSEWHERE).then_some((rank, number))
            });
            terms.min().map_or(NONE, |(_, number)| number)
        };
        (0..self.len() as u32).map(preferred_of).collect()
    }

    pub(crate) fn designations(&self, concept: u32) -> impl Iterator<Item = ConceptDesignation<'_>> {
        self.designations.range(concept).map(|n| {
            let [language, usage, facts] = self.designations.facts[n as usize];
            let usage = self.interned(usage).map(|usage| {
                let mut parts = usage.split(SEPARATOR);
                [(); 3].map(|()| parts.next().unwrap_or_default())
            });
            let mut parts = self.interned(facts).unwrap_or_default().split(SEPARATOR);
            let mut part = || parts.next().filter(|part| !part.is_empty());
            let (status, description_id, module) = (part(), part(), part());
            let description = self.designations.description_ids.get(n as usize).map(|id| DescriptionFacts {
                id: *id,
                module: module.unwrap_or_default(),
                effective_time: part().unwrap_or_default(),
                dialects: part().unwrap_or_default(),
            });
            ConceptDesignation {
                language: self.interned(language),
                usage,
                value: self.designations.texts.get(n),
                status,
                description_id,
                description,
            }
        })
    }
}
