//! The resources that a caller may access: all, those of some Patients, or those with some ids of a type.

use std::sync::Arc;

use fhir::patient_references::{WithoutPatient, without_patient};
use store::Version;

use crate::view::patient_set::PatientSet;
use crate::write::assignment::{UNASSIGNED, patients_of};

/// Restriction of the resources that a caller may access.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Restriction {
    /// All resources.
    #[default]
    None,
    /// Resources that refer to one of these Patients, and resources without a Patient to which such a
    /// resource refers.
    Patients {
        /// The Patients.
        patients: Arc<PatientSet>,
        /// Resources of types that are not about Patients, and definitions that refer to none.
        others: OtherTypes,
    },
    /// Resources with these ids, sorted. The caller may read but not write them.
    ReadOnly(Arc<[String]>),
}

/// Whether a caller who is limited to some Patients may access types that are not about Patients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherTypes {
    /// An application of a Patient: no.
    Hidden,
    /// A client with `groups`: yes.
    Visible,
}

/// Whether a caller may see a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visibility {
    Visible,
    Hidden,
    /// Only if a visible resource refers to it.
    ByReference,
}

impl Restriction {
    /// A restriction to the Patients with these ids.
    pub fn patients<'a>(ids: impl IntoIterator<Item = &'a str>) -> Self {
        Self::Patients { patients: Arc::new(PatientSet::of_ids(ids)), others: OtherTypes::Hidden }
    }

    /// A restriction to reading the resources with these ids.
    pub fn read_only(mut ids: Vec<String>) -> Self {
        ids.sort_unstable();
        ids.dedup();
        Self::ReadOnly(ids.into())
    }

    /// A restriction that contains all of these.
    pub(crate) fn union<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        let (mut names, mut ids, mut any_other) = (Vec::new(), Vec::new(), OtherTypes::Hidden);
        for restriction in all {
            match restriction {
                Self::None => return Self::None,
                Self::Patients { patients, others } => {
                    names.extend(patients.iter().cloned());
                    any_other = if *others == OtherTypes::Visible { *others } else { any_other };
                }
                Self::ReadOnly(own) => ids.extend(own.iter().cloned()),
            }
        }
        if !ids.is_empty() {
            // No restriction has both ids and Patients.
            return if names.is_empty() { Self::read_only(ids) } else { Self::None };
        }
        Self::Patients { patients: Arc::new(PatientSet::new(names)), others: any_other }
    }

    /// Whether the caller may see a version.
    pub(crate) fn visibility(&self, version: &Version) -> Visibility {
        let is_visible = match self {
            Self::None => true,
            Self::ReadOnly(ids) => has(ids, &version.key.id),
            Self::Patients { patients, others } => {
                let mut own = patients_of(&version.compartments).peekable();
                if own.peek().is_none() {
                    return match without_patient(&version.key.kind) {
                        WithoutPatient::Visible => match others {
                            OtherTypes::Visible => Visibility::Visible,
                            OtherTypes::Hidden => Visibility::Hidden,
                        },
                        // A version that is not assigned yet may have a Patient.
                        WithoutPatient::ByReference if has(&version.compartments, UNASSIGNED) => {
                            Visibility::ByReference
                        }
                        _ => Visibility::Hidden,
                    };
                }
                match version.key.kind.as_str() {
                    // It contains the data of all its Patients.
                    "Bundle" => own.all(|patient| patients.has(patient)),
                    _ => own.any(|patient| patients.has(patient)),
                }
            }
        };
        if is_visible { Visibility::Visible } else { Visibility::Hidden }
    }

    /// `true` if the caller may see every version of a resource with this type and id.
    pub(crate) fn contains_key(&self, kind: &str, id: &str) -> bool {
        match self {
            Self::None => true,
            Self::Patients { patients, .. } => kind == "Patient" && patients.has(&format!("Patient/{id}")),
            Self::ReadOnly(ids) => has(ids, id),
        }
    }

    /// `true` if the caller may write a version with these names: it must refer to a Patient of the caller,
    /// and to no other. Otherwise the performer of an observation could write observations of any patient.
    pub(crate) fn permits_write(&self, kind: &str, names: &[String]) -> bool {
        match self {
            Self::None => true,
            Self::Patients { patients, others } => {
                let mut own = patients_of(names).peekable();
                match own.peek() {
                    Some(_) => own.all(|patient| patients.has(patient)),
                    // Others may use a resource without a Patient, too.
                    None => {
                        without_patient(kind) == WithoutPatient::Visible && *others == OtherTypes::Visible
                    }
                }
            }
            Self::ReadOnly(_) => false,
        }
    }
}

/// `true` if a sorted list contains a text.
pub(crate) fn has(sorted: &[String], text: &str) -> bool {
    sorted.binary_search_by(|own| own.as_str().cmp(text)).is_ok()
}
