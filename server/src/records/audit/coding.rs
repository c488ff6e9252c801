//! The code systems of AuditEvent.

use serde_json::{Value, json};

pub(super) const DCM: &str = "http://dicom.nema.org/resources/ontology/DCM";

pub(super) const TYPES: &str = "http://terminology.hl7.org/CodeSystem/audit-event-type";

pub(super) fn coding([system, code, display]: [&str; 3]) -> Value {
    json!({ "system": system, "code": code, "display": display })
}
