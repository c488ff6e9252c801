//! The Patient compartment of FHIR R4 (CompartmentDefinition/patient 4.0.1): the elements whose references
//! determine the compartments that a resource belongs to.
//!
//! Four types that R4 left out are added ([`JOINED`]): nearly all of their resources are about one Patient,
//! and servers, guides and R5 treat them so. A Patient belongs to its own compartment. `Patient.link` and
//! `Group.member` are in the definition but not in this table: an export of one patient must not contain
//! patients who are linked to the patient or are in the same Group.

/// For each type, the paths from the resource to References, through arrays and backbone elements.
/// `cargo xtask gen-fhir-tables` generates the rows from HL7's definitions.
const PATIENT: &[(&str, &[&str])] = &[
    ("Account", &["subject"]),
    ("AdverseEvent", &["subject"]),
    ("AllergyIntolerance", &["patient", "recorder", "asserter"]),
    ("Appointment", &["participant.actor"]),
    ("AppointmentResponse", &["actor"]),
    ("AuditEvent", &["agent.who", "entity.what"]),
    ("Basic", &["subject", "author"]),
    ("BodyStructure", &["patient"]),
    ("CarePlan", &["subject", "activity.detail.performer"]),
    ("CareTeam", &["subject", "participant.member"]),
    ("ChargeItem", &["subject"]),
    ("Claim", &["patient", "payee.party"]),
    ("ClaimResponse", &["patient"]),
    ("ClinicalImpression", &["subject"]),
    ("Communication", &["subject", "sender", "recipient"]),
    ("CommunicationRequest", &["subject", "sender", "recipient", "requester"]),
    ("Composition", &["subject", "author", "attester.party"]),
    ("Condition", &["subject", "asserter"]),
    ("Consent", &["patient"]),
    ("Coverage", &["policyHolder", "subscriber", "beneficiary", "payor"]),
    ("CoverageEligibilityRequest", &["patient"]),
    ("CoverageEligibilityResponse", &["patient"]),
    ("DetectedIssue", &["patient"]),
    ("DeviceRequest", &["subject", "performer"]),
    ("DeviceUseStatement", &["subject"]),
    ("DiagnosticReport", &["subject"]),
    ("DocumentManifest", &["subject", "author", "recipient"]),
    ("DocumentReference", &["subject", "author"]),
    ("Encounter", &["subject"]),
    ("EnrollmentRequest", &["candidate"]),
    ("EpisodeOfCare", &["patient"]),
    ("ExplanationOfBenefit", &["patient", "payee.party"]),
    ("FamilyMemberHistory", &["patient"]),
    ("Flag", &["subject"]),
    ("Goal", &["subject"]),
    ("ImagingStudy", &["subject"]),
    ("Immunization", &["patient"]),
    ("ImmunizationEvaluation", &["patient"]),
    ("ImmunizationRecommendation", &["patient"]),
    ("Invoice", &["subject", "recipient"]),
    ("List", &["subject", "source"]),
    ("MeasureReport", &["subject"]),
    ("Media", &["subject"]),
    ("MedicationAdministration", &["subject", "performer.actor"]),
    ("MedicationDispense", &["subject", "receiver"]),
    ("MedicationRequest", &["subject"]),
    ("MedicationStatement", &["subject"]),
    ("MolecularSequence", &["patient"]),
    ("NutritionOrder", &["patient"]),
    ("Observation", &["subject", "performer"]),
    ("Person", &["link.target"]),
    ("Procedure", &["subject", "performer.actor"]),
    ("Provenance", &["target"]),
    ("QuestionnaireResponse", &["subject", "author"]),
    ("RelatedPerson", &["patient"]),
    ("RequestGroup", &["subject", "action.participant"]),
    ("ResearchSubject", &["individual"]),
    ("RiskAssessment", &["subject"]),
    ("Schedule", &["actor"]),
    ("ServiceRequest", &["subject", "performer"]),
    ("Specimen", &["subject"]),
    ("SupplyDelivery", &["patient"]),
    ("SupplyRequest", &["deliverTo"]),
    ("VisionPrescription", &["patient"]),
];

/// Types that are in the compartment although CompartmentDefinition/patient of R4 does not contain them, with
/// the paths of the References.
pub const JOINED: [(&str, &[&str]); 4] = [
    ("Contract", &["subject"]),
    ("Device", &["patient"]),
    ("GuidanceResponse", &["subject"]),
    ("Task", &["for"]),
];

/// `true` if resources of the type are in the compartments of Patients, by their references or as a Patient.
pub fn contains_type(kind: &str) -> bool {
    kind == "Patient" || !paths(kind).is_empty()
}

/// `true` for the types in the compartment definition of R4.
pub fn is_of_r4(kind: &str) -> bool {
    matches!(kind, "Patient" | "Group") || !r4_paths(kind).is_empty()
}

/// `true` for the types that R4 left out ([`JOINED`]).
pub fn is_joined(kind: &str) -> bool {
    JOINED.iter().any(|row| row.0 == kind)
}

/// The paths of the References that determine the compartments of a resource of this type.
pub fn paths(kind: &str) -> &'static [&'static str] {
    JOINED.iter().find(|row| row.0 == kind).map_or_else(|| r4_paths(kind), |row| row.1)
}

/// The same, without the types that R4 left out.
pub fn r4_paths(kind: &str) -> &'static [&'static str] {
    PATIENT.binary_search_by_key(&kind, |row| row.0).map_or(&[], |index| PATIENT[index].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_contains_only_existing_types() {
        assert!(PATIENT.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(PATIENT.len(), 64, "66 types of the definition without Patient and Group");
        for (kind, paths) in PATIENT {
            assert!(crate::resource_type(kind).is_some(), "{kind}");
            assert!((1..=16).contains(&paths.len()), "{kind}");
        }
    }
}
