//! The Patient compartment of FHIR R4 (CompartmentDefinition/patient 4.0.1): elements that put a resource into the
//! compartment of a Patient.
//!
//! A Patient belongs to its own compartment. `Patient.link` and `Group.member`, which the definition lists too, are
//! left out: an export of one patient must not contain patients who are linked to it or are in the same Group.

/// Elements of each type as paths from the resource, through arrays and backbone elements to a Reference.
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

/// Paths, below a resource of this type, to the References that decide its compartments.
pub fn paths(kind: &str) -> &'static [&'static str] {
    PATIENT.binary_search_by_key(&kind, |row| row.0).map_or(&[], |at| PATIENT[at].1)
}

/// Returns the type and id named by a literal reference: `Patient/p`, the same after any base address, or with a
/// version (`/_history/2`), which is removed. Returns `None` for other references: `#p`, `urn:…`, a search.
///
/// ```
/// use trefoil_resources::compartment::target;
/// assert_eq!(target("https://example.org/fhir/Patient/p/_history/2"), Some(("Patient", "p")));
/// assert_eq!(target("#p"), None);
/// ```
pub fn target(reference: &str) -> Option<(&'static str, &str)> {
    let unversioned = match reference.rsplit_once("/_history/") {
        Some((before, version)) if fhir::is_id(version) => before,
        _ => reference,
    };
    let (before, id) = unversioned.rsplit_once('/')?;
    let kind = match before.rsplit_once('/') {
        Some((base, kind)) if base.contains("://") => kind,
        Some(_) => return None,
        None => before,
    };
    Some((fhir::resource_type(kind)?, id)).filter(|_| fhir::is_id(id))
}

/// Returns the type and id that a reference names on the server at `fhir_base`.
pub fn local<'a>(reference: &'a str, fhir_base: &str) -> Option<(&'static str, &'a str)> {
    match reference.strip_prefix(fhir_base).and_then(|rest| rest.strip_prefix('/')) {
        Some(local) => target(local),
        None if reference.contains("://") => None,
        None => target(reference),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_names_types_that_exist() {
        assert!(PATIENT.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(PATIENT.len(), 64, "66 types of the definition without Patient and Group");
        for (kind, paths) in PATIENT {
            assert!(fhir::resource_type(kind).is_some(), "{kind}");
            assert!((1..=16).contains(&paths.len()), "{kind}");
        }
    }

    #[test]
    fn references() {
        #[track_caller]
        fn check(reference: &str, expected: Option<&str>) {
            let found = target(reference).map(|(kind, id)| format!("{kind}/{id}"));
            assert_eq!(found.as_deref(), expected, "{reference}");
        }
        check("Patient/p", Some("Patient/p"));
        check("Patient/p/_history/1", Some("Patient/p"));
        check("https://example.org/fhir/Patient/p", Some("Patient/p"));
        check("http://localhost:8080/Patient/p/_history/12", Some("Patient/p"));
        check("Observation/o.1-a", Some("Observation/o.1-a"));
        check("Patient", None);
        check("Patient/", None);
        check("/Patient/p", None);
        check("x/Patient/p", None);
        check("patient/p", None);
        check("Patient/p/_history/", None);
        check("Patient/p q", None);
        check("Patient?identifier=1", None);
        check("#p", None);
        check("urn:uuid:5b6a2a52-6b05-4a1c-9c0e-0a6d3cf8d7f4", None);
        check("", None);
    }
}
