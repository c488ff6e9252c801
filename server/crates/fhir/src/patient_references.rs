//! The elements of FHIR R4 that may refer to a Patient: every Reference of a resource or of its backbone
//! elements whose targets include Patient or all types. Extensions, `Annotation.author` and `Signature.who`
//! are not included: they tell who wrote something, and not whom it is about.
//!
//! The Patient compartment contains fewer elements ([`patient_compartment`]).
//! This table decides which resources a client may access that is limited to some Patients.
//!
//! `cargo xtask gen-fhir-tables` generates the table from HL7's structure definitions 4.0.1. Each line
//! contains a type and the paths of its elements. `section.section=section` says that the element
//! `section.section` has the elements of `section`.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::patient_compartment;

const TABLE: &str = include_str!("../data/patient-references.txt");

/// Types in the table that are definitions and not about people.
const DEFINITIONS: [&str; 4] = ["ImplementationGuide", "Questionnaire", "StructureMap", "TestScript"];

static ROWS: LazyLock<HashMap<&'static str, Vec<ReferencePath>>> = LazyLock::new(|| {
    let row = |line: &'static str| {
        let mut words = line.split(' ');
        (words.next().unwrap_or_default(), words.map(ReferencePath::parse).collect())
    };
    TABLE.lines().map(row).collect()
});

/// An element of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReferencePath {
    /// Path from the resource to a Reference, through arrays and backbone elements.
    Reference(&'static str),
    /// An element that has the elements of another one.
    Repeated {
        /// Path of the element.
        path: &'static str,
        /// Path of the element that defines its content.
        of: &'static str,
    },
}

impl ReferencePath {
    fn parse(word: &'static str) -> Self {
        word.split_once('=').map_or(Self::Reference(word), |(path, of)| Self::Repeated { path, of })
    }
}

/// The rule for a resource that refers to no Patient, for a client that is limited to some Patients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithoutPatient {
    /// The type belongs to the Patient compartment of R4. The resource is absent.
    Absent,
    /// The resource is readable if a visible resource refers to it, such as the monitor of a ward.
    ByReference,
    /// The type does not refer to Patients, or is a definition. The resource is not limited.
    Visible,
}

/// The elements of a resource type that may refer to a Patient.
pub fn paths(kind: &str) -> &'static [ReferencePath] {
    ROWS.get(kind).map_or(&[], Vec::as_slice)
}

/// The rule for resources of this type that refer to no Patient.
pub fn without_patient(kind: &str) -> WithoutPatient {
    match kind {
        // A Bundle contains the resources that refer to Patients.
        "Bundle" => WithoutPatient::ByReference,
        _ if patient_compartment::is_of_r4(kind) => WithoutPatient::Absent,
        _ if paths(kind).is_empty() || DEFINITIONS.contains(&kind) => WithoutPatient::Visible,
        _ => WithoutPatient::ByReference,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::structures::elements;

    /// The data types of the element at a path.
    fn types_at(kind: &str, path: &str) -> Vec<&'static str> {
        let mut types = vec![crate::resource_type(kind).unwrap_or_else(|| panic!("{kind}"))];
        for name in path.split('.') {
            let element = elements(types[0]).iter().find(|element| {
                element.name == name
                    || element.is_choice && name.strip_suffix("Reference") == Some(element.name)
            });
            types = element.unwrap_or_else(|| panic!("{kind}.{path} is not an element")).types.clone();
        }
        types
    }

    #[test]
    fn each_path_leads_to_an_element_in_the_table_of_structures() {
        let mut references = 0;
        for (kind, paths) in &*ROWS {
            for path in paths {
                match path {
                    ReferencePath::Reference(path) => {
                        assert!(types_at(kind, path).contains(&"Reference"), "{kind}.{path}");
                        references += 1;
                    }
                    ReferencePath::Repeated { path, of } => {
                        assert_eq!(types_at(kind, path), [format!("{kind}.{of}")]);
                    }
                }
            }
        }
        assert_eq!((ROWS.len(), references), (79, 219));
    }

    #[test]
    fn the_compartment_is_a_part_of_the_table() {
        for kind in crate::RESOURCE_TYPES {
            for path in patient_compartment::paths(kind) {
                assert!(paths(kind).contains(&ReferencePath::Reference(path)), "{kind}.{path}");
            }
        }
    }

    #[test]
    fn types_without_a_patient_are_absent_readable_by_reference_or_visible() {
        let of = |rule| -> Vec<&str> {
            crate::RESOURCE_TYPES.iter().copied().filter(|kind| without_patient(kind) == rule).collect()
        };
        assert_eq!(
            of(WithoutPatient::ByReference),
            [
                "Binary",
                "BiologicallyDerivedProduct",
                "Bundle",
                "Contract",
                "Device",
                "GuidanceResponse",
                "Linkage",
                "MessageHeader",
                "PaymentNotice",
                "PaymentReconciliation",
                "Task",
                "VerificationResult",
            ]
        );
        assert_eq!(of(WithoutPatient::Absent).len(), 66);
        for kind in ["Questionnaire", "Practitioner", "Medication", "ValueSet"] {
            assert_eq!(without_patient(kind), WithoutPatient::Visible, "{kind}");
        }
    }
}
