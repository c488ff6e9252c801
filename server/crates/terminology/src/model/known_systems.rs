//! Canonical URLs and codes of the code systems that have their own rules.

/// Canonical URL of SNOMED CT.
pub const SNOMED_CT: &str = "http://snomed.info/sct";
/// The beginning of the versions of SNOMED CT releases that are not published.
pub const SNOMED_CT_UNPUBLISHED: &str = "http://snomed.info/xsct";
/// SNOMED CT's type of fully specified names.
pub const SNOMED_CT_NAME: &str = "900000000000003001";
/// SNOMED CT's type of synonyms.
pub const SNOMED_CT_SYNONYM: &str = "900000000000013009";
/// SNOMED CT's type of the descriptions that define a concept.
pub const SNOMED_CT_DEFINITION: &str = "900000000000550004";
/// Canonical URL of LOINC.
pub const LOINC: &str = "http://loinc.org";
/// Version of FHIR that this server implements.
pub(crate) const FHIR_VERSION: &str = "4.0.1";
/// Canonical URL of FHIR's administrative genders.
pub(crate) const ADMINISTRATIVE_GENDER: &str = "http://hl7.org/fhir/administrative-gender";
/// Canonical URL of FHIR's publication statuses.
pub(crate) const PUBLICATION_STATUS: &str = "http://hl7.org/fhir/publication-status";
/// Canonical URL of UCUM, the units of measure.
pub(crate) const UCUM: &str = "http://unitsofmeasure.org";
/// Canonical URL of the media types (BCP 13).
pub(crate) const BCP_13: &str = "urn:ietf:bcp:13";
/// Canonical URL of the language tags (BCP 47).
pub(crate) const BCP_47: &str = "urn:ietf:bcp:47";
/// Canonical URL of the countries (ISO 3166-1).
pub(crate) const ISO_3166: &str = "urn:iso:std:iso:3166";
/// Canonical URL of the subdivisions of countries (ISO 3166-2).
pub(crate) const ISO_3166_2: &str = "urn:iso:std:iso:3166:-2";
/// Canonical URL of the currencies (ISO 4217).
pub(crate) const ISO_4217: &str = "urn:iso:std:iso:4217";
