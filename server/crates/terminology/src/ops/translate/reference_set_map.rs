//! The maps of SNOMED CT: reference sets that map concepts to another code system, and associations of
//! inactive concepts with those that replace them (FHIR R4, Using SNOMED CT, implicit concept maps).

use fhir::Coding;

use super::translate_request::TranslationScope;
use super::translation_match::TranslationMatch;
use crate::catalog::Catalog;
use crate::code_system::CodeSystem;
use crate::code_system::concept_attribute::AttributeValue;
use crate::code_system::member_table::{MemberRow, MemberTable};
use crate::concept_map::Equivalence;
use crate::model::known_systems::SNOMED_CT;
use crate::model::{Budget, TxError};

/// Reference sets whose maps lead to a code system that FHIR names.
const TARGET_SYSTEMS: [(&str, &str); 4] = [
    ("447562003", "http://hl7.org/fhir/sid/icd-10"),
    ("6011000124106", "http://hl7.org/fhir/sid/icd-10-cm"),
    ("450993002", "http://hl7.org/fhir/sid/icpc-2"),
    ("705112009", "http://loinc.org"),
];

/// Equivalences of the associations (FHIR R4, Using SNOMED CT).
const ASSOCIATIONS: [(&str, Equivalence); 4] = [
    ("900000000000523009", Equivalence::Inexact),
    ("900000000000526001", Equivalence::Equivalent),
    ("900000000000527005", Equivalence::Equal),
    ("900000000000530003", Equivalence::Inexact),
];

/// Equivalences of the correlations of maps (Release File Specification, 5.2.3.3).
const CORRELATIONS: [(&str, Equivalence); 5] = [
    ("447557004", Equivalence::Equal),
    ("447558009", Equivalence::Wider),
    ("447559001", Equivalence::Narrower),
    ("447560006", Equivalence::Inexact),
    ("447556008", Equivalence::Unmatched),
];

/// A field with the code of another system, and one with another concept.
const MAP_TARGET: &str = "mapTarget";
const ASSOCIATED: &str = "targetComponentId";

pub(super) struct ReferenceSetMap<'a> {
    system: &'a CodeSystem,
    table: MemberTable<'a>,
}

impl<'a> ReferenceSetMap<'a> {
    /// The map of `http://snomed.info/sct[/MODULE[/version/DATE]]?fhir_cm=ID`; `None` if the URL has another
    /// form or the reference set has no rows.
    ///
    /// # Errors
    /// [`TxError`] if the edition is not stored.
    pub(super) fn of_url(
        catalog: &'a Catalog,
        url: &str,
        budget: &Budget<'_>,
    ) -> Result<Option<Self>, TxError> {
        let Some((edition, id)) = url.split_once("?fhir_cm=") else { return Ok(None) };
        let Some(rest) = edition.strip_prefix(SNOMED_CT) else { return Ok(None) };
        let version = (!rest.is_empty()).then_some(edition);
        let system = snomed_ct(catalog, version, budget)?.ok_or_else(|| TxError::UnknownCodeSystem {
            system: SNOMED_CT.to_owned(),
            version: version.map(str::to_owned),
            known: catalog.code_system_versions(SNOMED_CT),
        })?;
        Ok(Self::of_reference_set(system, id))
    }

    /// The maps of SNOMED CT to a code system; to any, if none is named.
    ///
    /// # Errors
    /// [`TxError`] if the edition is invalid.
    pub(super) fn to_system(
        catalog: &'a Catalog,
        version: Option<&str>,
        target: Option<&str>,
        budget: &Budget<'_>,
    ) -> Result<Vec<Self>, TxError> {
        let Some(system) = snomed_ct(catalog, version, budget)? else { return Ok(Vec::new()) };
        let associated = ASSOCIATIONS.iter().map(|(id, _)| (*id, SNOMED_CT));
        let fitting =
            associated.chain(TARGET_SYSTEMS).filter(|(_, url)| target.is_none_or(|target| target == *url));
        Ok(fitting.filter_map(|(id, _)| Self::of_reference_set(system, id)).collect())
    }

    fn of_reference_set(system: &'a CodeSystem, id: &str) -> Option<Self> {
        let table = system.member_table(id)?;
        let is_map = table.field(MAP_TARGET).is_some() || table.field(ASSOCIATED).is_some();
        is_map.then_some(Self { system, table })
    }

    /// The counterparts of a code.
    ///
    /// # Errors
    /// [`TxError`] if the budget is spent.
    pub(super) fn matches(
        &self,
        coding: &Coding,
        scope: &TranslationScope<'_>,
        budget: &Budget<'_>,
    ) -> Result<Vec<TranslationMatch>, TxError> {
        let (code, system) = (coding.code.as_deref().unwrap_or_default(), coding.system.as_deref());
        let (field, target_system) = match self.table.field(MAP_TARGET) {
            Some(field) => (field, self.target_system(scope.mapped_system(coding))),
            None => (self.table.field(ASSOCIATED).unwrap_or_default(), Some(SNOMED_CT)),
        };
        let given_system = if scope.reverse { target_system } else { Some(SNOMED_CT) };
        let is_requested =
            scope.reverse || scope.target_system.is_none_or(|system| Some(system) == target_system);
        if given_system != system || !is_requested {
            return Ok(Vec::new());
        }
        let mut rows: Vec<MemberRow<'a>> = if scope.reverse {
            budget.spend(self.table.rows().count() / 4)?;
            self.table.rows().filter(|row| self.text(*row, field) == Some(code)).collect()
        } else {
            self.system.find(code).map_or_else(Vec::new, |concept| self.table.rows_of(concept).collect())
        };
        budget.spend(rows.len())?;
        rows.retain(|row| self.table.facts(*row).is_active);
        let number = |row: &MemberRow<'a>, name: &str| {
            let field = self.table.field(name)?;
            self.text(*row, field).and_then(|text| text.trim_start_matches('#').parse::<u32>().ok())
        };
        rows.sort_by_key(|row| (number(row, "mapGroup"), number(row, "mapPriority")));
        Ok(rows.into_iter().map(|row| self.translation(row, field, target_system, scope.reverse)).collect())
    }

    fn translation(
        &self,
        row: MemberRow<'a>,
        field: usize,
        target_system: Option<&str>,
        reverse: bool,
    ) -> TranslationMatch {
        let target = self.text(row, field).filter(|target| !target.is_empty());
        let concept = match (reverse, target) {
            (true, _) => Some(Coding::new(SNOMED_CT, self.system.code(row.member()))),
            (false, Some(target)) => Some(Coding {
                system: target_system.map(str::to_owned),
                code: Some(target.to_owned()),
                ..Coding::default()
            }),
            (false, None) => None,
        };
        let equivalence = self.equivalence(row, target.is_some());
        // The rule and the advice of an extended map state when the target applies.
        let properties = ["mapGroup", "mapPriority", "mapRule", "mapAdvice"].into_iter().filter_map(|name| {
            let value = self.text(row, self.table.field(name)?).filter(|value| !value.is_empty())?;
            let uri = format!("http://snomed.info/field/{}.{name}", self.table.reference_set);
            Some((uri, value.to_owned()))
        });
        TranslationMatch {
            equivalence: if reverse { equivalence.reversed() } else { equivalence },
            concept,
            products: Vec::new(),
            properties: properties.collect(),
            map: format!("{SNOMED_CT}?fhir_cm={}", self.table.reference_set),
        }
    }

    fn equivalence(&self, row: MemberRow<'a>, has_target: bool) -> Equivalence {
        if !has_target {
            return Equivalence::Unmatched;
        }
        let equivalence_of = |list: &[(&str, Equivalence)], id: &str| {
            list.iter().find(|(known, _)| *known == id).map(|(_, equivalence)| *equivalence)
        };
        if let Some(equivalence) = equivalence_of(&ASSOCIATIONS, self.table.reference_set) {
            return equivalence;
        }
        let correlation = self.table.field("correlationId").and_then(|field| self.text(row, field));
        correlation.and_then(|id| equivalence_of(&CORRELATIONS, id)).unwrap_or(Equivalence::RelatedTo)
    }

    /// The code system of the targets: the one that FHIR names, or else the one of the request.
    fn target_system<'s>(&self, requested: Option<&'s str>) -> Option<&'s str>
    where
        'a: 's,
    {
        let system = TARGET_SYSTEMS.iter().find(|(id, _)| *id == self.table.reference_set);
        system.map(|(_, url)| *url).or(requested)
    }

    fn text(&self, row: MemberRow<'a>, field: usize) -> Option<&'a str> {
        self.table.value(row, field).map(|value| match value {
            AttributeValue::Concept(concept) => self.system.code(concept),
            AttributeValue::Literal(text) => text,
        })
    }
}

/// The edition of SNOMED CT with a version, or the preferred one.
fn snomed_ct<'a>(
    catalog: &'a Catalog,
    version: Option<&str>,
    budget: &Budget<'_>,
) -> Result<Option<&'a CodeSystem>, TxError> {
    match catalog.code_system(SNOMED_CT, version) {
        Some(map) => Ok(Some(map.get(budget)?)),
        None => Ok(None),
    }
}
