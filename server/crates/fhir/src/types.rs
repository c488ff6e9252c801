//! The resource types of FHIR R4 and the rules for ids (FHIR R4, datatypes `id` and resource list).

/// Every resource type that can be stored in FHIR R4, in alphabetical order.
pub const RESOURCE_TYPES: &[&str] = &[
    "Account",
    "ActivityDefinition",
    "AdverseEvent",
    "AllergyIntolerance",
    "Appointment",
    "AppointmentResponse",
    "AuditEvent",
    "Basic",
    "Binary",
    "BiologicallyDerivedProduct",
    "BodyStructure",
    "Bundle",
    "CapabilityStatement",
    "CarePlan",
    "CareTeam",
    "CatalogEntry",
    "ChargeItem",
    "ChargeItemDefinition",
    "Claim",
    "ClaimResponse",
    "ClinicalImpression",
    "CodeSystem",
    "Communication",
    "CommunicationRequest",
    "CompartmentDefinition",
    "Composition",
    "ConceptMap",
    "Condition",
    "Consent",
    "Contract",
    "Coverage",
    "CoverageEligibilityRequest",
    "CoverageEligibilityResponse",
    "DetectedIssue",
    "Device",
    "DeviceDefinition",
    "DeviceMetric",
    "DeviceRequest",
    "DeviceUseStatement",
    "DiagnosticReport",
    "DocumentManifest",
    "DocumentReference",
    "EffectEvidenceSynthesis",
    "Encounter",
    "Endpoint",
    "EnrollmentRequest",
    "EnrollmentResponse",
    "EpisodeOfCare",
    "EventDefinition",
    "Evidence",
    "EvidenceVariable",
    "ExampleScenario",
    "ExplanationOfBenefit",
    "FamilyMemberHistory",
    "Flag",
    "Goal",
    "GraphDefinition",
    "Group",
    "GuidanceResponse",
    "HealthcareService",
    "ImagingStudy",
    "Immunization",
    "ImmunizationEvaluation",
    "ImmunizationRecommendation",
    "ImplementationGuide",
    "InsurancePlan",
    "Invoice",
    "Library",
    "Linkage",
    "List",
    "Location",
    "Measure",
    "MeasureReport",
    "Media",
    "Medication",
    "MedicationAdministration",
    "MedicationDispense",
    "MedicationKnowledge",
    "MedicationRequest",
    "MedicationStatement",
    "MedicinalProduct",
    "MedicinalProductAuthorization",
    "MedicinalProductContraindication",
    "MedicinalProductIndication",
    "MedicinalProductIngredient",
    "MedicinalProductInteraction",
    "MedicinalProductManufactured",
    "MedicinalProductPackaged",
    "MedicinalProductPharmaceutical",
    "MedicinalProductUndesirableEffect",
    "MessageDefinition",
    "MessageHeader",
    "MolecularSequence",
    "NamingSystem",
    "NutritionOrder",
    "Observation",
    "ObservationDefinition",
    "OperationDefinition",
    "OperationOutcome",
    "Organization",
    "OrganizationAffiliation",
    "Patient",
    "PaymentNotice",
    "PaymentReconciliation",
    "Person",
    "PlanDefinition",
    "Practitioner",
    "PractitionerRole",
    "Procedure",
    "Provenance",
    "Questionnaire",
    "QuestionnaireResponse",
    "RelatedPerson",
    "RequestGroup",
    "ResearchDefinition",
    "ResearchElementDefinition",
    "ResearchStudy",
    "ResearchSubject",
    "RiskAssessment",
    "RiskEvidenceSynthesis",
    "Schedule",
    "SearchParameter",
    "ServiceRequest",
    "Slot",
    "Specimen",
    "SpecimenDefinition",
    "StructureDefinition",
    "StructureMap",
    "Subscription",
    "Substance",
    "SubstanceNucleicAcid",
    "SubstancePolymer",
    "SubstanceProtein",
    "SubstanceReferenceInformation",
    "SubstanceSourceMaterial",
    "SubstanceSpecification",
    "SupplyDelivery",
    "SupplyRequest",
    "Task",
    "TerminologyCapabilities",
    "TestReport",
    "TestScript",
    "ValueSet",
    "VerificationResult",
    "VisionPrescription",
];

/// The `'static` name of a resource type, or `None` if R4 has no such type.
///
/// ```
/// assert_eq!(trefoil_fhir::resource_type("Patient"), Some("Patient"));
/// assert_eq!(trefoil_fhir::resource_type("patient"), None);
/// ```
pub fn resource_type(name: &str) -> Option<&'static str> {
    RESOURCE_TYPES.binary_search(&name).ok().map(|index| RESOURCE_TYPES[index])
}

/// The reason why a name is not accepted as the type of stored resources.
///
/// ```
/// assert_eq!(trefoil_fhir::not_a_type("Pony"), "'Pony' is not a resource type of FHIR R4");
/// assert_eq!(trefoil_fhir::not_a_type("_history"), "'_history' stands where a resource type belongs");
/// ```
pub fn not_a_type(name: &str) -> String {
    match name {
        "Parameters" => {
            "'Parameters' is a resource type of operations only; such resources are not stored".to_owned()
        }
        _ if name.starts_with(['_', '$']) => format!("'{name}' stands where a resource type belongs"),
        _ => format!("'{name}' is not a resource type of FHIR R4"),
    }
}

/// `true` if the text can be the id of a stored resource: 1 to 128 letters, digits, `-` and `.`. FHIR R4
/// permits 64, and [`IdLength`] decides how many a new resource may have. The ids `.` and `..` are excluded,
/// because clients remove such segments of a URL (RFC 3986, section 5.2.4) and would reach another resource.
///
/// ```
/// assert!(trefoil_fhir::is_id("pat-1.a"));
/// assert!(!trefoil_fhir::is_id("no spaces"));
/// ```
pub fn is_id(id: &str) -> bool {
    !matches!(id, "." | "..") && IdLength::Long.permits(id)
}

/// The lengths of ids that are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IdLength {
    /// Up to 64 characters, as FHIR R4 says.
    #[default]
    R4,
    /// Up to 128 characters, as some record systems have.
    Long,
}

impl IdLength {
    /// Maximum number of characters.
    pub const fn most(self) -> usize {
        match self {
            Self::R4 => 64,
            Self::Long => 128,
        }
    }

    /// `true` if the text is a value of the data type `id` with a length that is accepted.
    pub fn permits(self, id: &str) -> bool {
        (1..=self.most()).contains(&id.len())
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted_so_that_it_can_be_searched() {
        assert!(RESOURCE_TYPES.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(RESOURCE_TYPES.len(), 145);
    }

    #[test]
    fn ids_have_at_most_64_characters() {
        assert!(IdLength::R4.permits(&"a".repeat(64)) && !IdLength::R4.permits(&"a".repeat(65)));
        assert!(is_id(&"a".repeat(128)) && !is_id(&"a".repeat(129)));
        assert!(!is_id(""));
        assert!(!is_id("a_b"));
        assert!(!is_id(".") && !is_id(".."));
        assert!(is_id("...") && is_id(".a"));
    }
}
