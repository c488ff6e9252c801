//! Code systems of FHIR R4 itself that HL7's terminology tests expect of every server: the genders of Patient
//! and others, and the publication statuses of canonical resources. The texts are those of FHIR R4 (CC0).

use serde_json::{Value, json};

use crate::catalog::StoredResource;
use crate::code_system::CodeSystem;
use crate::model::known_systems::{ADMINISTRATIVE_GENDER, FHIR_VERSION, PUBLICATION_STATUS};

/// Code, display and definition of each gender.
const GENDERS: &[[&str; 3]] = &[
    ["male", "Male", "Male."],
    ["female", "Female", "Female."],
    ["other", "Other", "Other."],
    ["unknown", "Unknown", "Unknown."],
];

/// Code, display and definition of each publication status.
const STATUSES: &[[&str; 3]] = &[
    [
        "draft",
        "Draft",
        "This resource is still under development and is not yet considered to be ready for normal use.",
    ],
    ["active", "Active", "This resource is ready for normal use."],
    ["retired", "Retired", "This resource has been withdrawn or superseded and should no longer be used."],
    [
        "unknown",
        "Unknown",
        "The authoring system does not know which of the status values currently applies for this resource.",
    ],
];

pub(super) fn administrative_gender() -> StoredResource<CodeSystem> {
    code_system(ADMINISTRATIVE_GENDER, "AdministrativeGender", GENDERS)
}

pub(super) fn publication_status() -> StoredResource<CodeSystem> {
    code_system(PUBLICATION_STATUS, "PublicationStatus", STATUSES)
}

fn code_system(url: &str, name: &str, concepts: &[[&str; 3]]) -> StoredResource<CodeSystem> {
    let concept = |[code, display, definition]: &[&str; 3]| json!({ "code": code, "display": display, "definition": definition });
    let json = json!({
        "resourceType": "CodeSystem",
        "url": url,
        "version": FHIR_VERSION,
        "name": name,
        "status": "active",
        "content": "complete",
        "caseSensitive": true,
        "language": "en",
        "concept": concepts.iter().map(concept).collect::<Vec<Value>>(),
    });
    StoredResource::new(format!("built-in {url}"), json.to_string().into_bytes().into())
}
