//! Elements of FHIR R4 with a required binding, of the resources that exports usually contain (HL7 FHIR
//! 4.0.1, the page of each resource).

/// An element whose code must be in a value set.
#[derive(Debug)]
pub struct Binding {
    /// Name of the element at the top level of the resource.
    pub element: &'static str,
    /// Code system of an element of the type `code`; empty for a CodeableConcept, which names its code
    /// system.
    pub system: &'static str,
    /// Canonical URL of the value set.
    pub value_set: &'static str,
}

/// The bindings of a resource type.
pub fn bindings(kind: &str) -> impl Iterator<Item = &'static Binding> {
    TABLE.iter().filter(move |(of, _)| *of == kind).map(|(_, binding)| binding)
}

/// A binding of an element of the type `code`, whose code system and value set have the same name.
const fn code(element: &'static str, system: &'static str, value_set: &'static str) -> Binding {
    Binding { element, system, value_set }
}

const fn concept(element: &'static str, value_set: &'static str) -> Binding {
    Binding { element, system: "", value_set }
}

macro_rules! hl7 {
    ($name:literal) => {
        code(
            "status",
            concat!("http://hl7.org/fhir/", $name),
            concat!("http://hl7.org/fhir/ValueSet/", $name),
        )
    };
    ($element:literal, $name:literal) => {
        code(
            $element,
            concat!("http://hl7.org/fhir/", $name),
            concat!("http://hl7.org/fhir/ValueSet/", $name),
        )
    };
}

const TABLE: &[(&str, Binding)] = &[
    (
        "AllergyIntolerance",
        concept("clinicalStatus", "http://hl7.org/fhir/ValueSet/allergyintolerance-clinical"),
    ),
    (
        "AllergyIntolerance",
        concept("verificationStatus", "http://hl7.org/fhir/ValueSet/allergyintolerance-verification"),
    ),
    ("AllergyIntolerance", hl7!("type", "allergy-intolerance-type")),
    ("AllergyIntolerance", hl7!("criticality", "allergy-intolerance-criticality")),
    ("Appointment", hl7!("appointmentstatus")),
    ("CarePlan", hl7!("request-status")),
    ("CarePlan", hl7!("intent", "care-plan-intent")),
    ("CareTeam", hl7!("care-team-status")),
    ("Claim", hl7!("fm-status")),
    ("Claim", hl7!("use", "claim-use")),
    ("Condition", concept("clinicalStatus", "http://hl7.org/fhir/ValueSet/condition-clinical")),
    ("Condition", concept("verificationStatus", "http://hl7.org/fhir/ValueSet/condition-ver-status")),
    ("Coverage", hl7!("fm-status")),
    ("DiagnosticReport", hl7!("diagnostic-report-status")),
    ("DocumentReference", hl7!("document-reference-status")),
    ("Encounter", hl7!("encounter-status")),
    ("ExplanationOfBenefit", hl7!("explanationofbenefit-status")),
    ("Goal", hl7!("lifecycleStatus", "goal-status")),
    ("Immunization", hl7!("event-status")),
    ("Medication", hl7!("medication-status")),
    ("MedicationAdministration", hl7!("medication-admin-status")),
    (
        "MedicationRequest",
        code(
            "status",
            "http://hl7.org/fhir/CodeSystem/medicationrequest-status",
            "http://hl7.org/fhir/ValueSet/medicationrequest-status",
        ),
    ),
    (
        "MedicationRequest",
        code(
            "intent",
            "http://hl7.org/fhir/CodeSystem/medicationrequest-intent",
            "http://hl7.org/fhir/ValueSet/medicationrequest-intent",
        ),
    ),
    ("Observation", hl7!("observation-status")),
    ("Patient", hl7!("gender", "administrative-gender")),
    ("Person", hl7!("gender", "administrative-gender")),
    ("Practitioner", hl7!("gender", "administrative-gender")),
    ("Procedure", hl7!("event-status")),
    ("RelatedPerson", hl7!("gender", "administrative-gender")),
    ("ServiceRequest", hl7!("request-status")),
    ("ServiceRequest", hl7!("intent", "request-intent")),
    ("Task", hl7!("task-status")),
];
