//! The assignment of a version to Patients: the names under which the compartment index of the store finds
//! it.
//!
//! | name | the version |
//! |---|---|
//! | `Patient/p` | is in the compartment of the Patient |
//! | `Observation/o` | is a Provenance of this resource |
//! | `@Patient/p` | mentions the Patient in another element ([`fhir::patient_references`]), or is a Bundle with data of the Patient |
//! | `@` | refers to no Patient. A client that is limited to some Patients may read it if a visible resource refers to it |

use fhir::patient_references::{WithoutPatient, without_patient};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::references;
use crate::search::index::elements::ReferenceRole;
use crate::write::scan::{self, ResourceScan};

/// The name of versions that refer to no Patient, and are readable by reference.
pub const UNASSIGNED: &str = "@";
/// Precedes the name of a Patient who is only mentioned.
const MENTION: char = '@';
/// Nesting depth that a Bundle within a Bundle may have in addition.
const DEPTH: usize = 200;

/// The Patient whose compartment this is, or whom a version with this name mentions: `Patient/p`.
pub fn patient_of(name: &str) -> Option<&str> {
    let patient = name.strip_prefix(MENTION).unwrap_or(name);
    patient.starts_with("Patient/").then_some(patient)
}

/// The Patients of a version, as `Patient/p`: those to whose compartments it belongs, and those it mentions.
pub fn patients_of(compartments: &[String]) -> impl Iterator<Item = &str> + Clone {
    compartments.iter().filter_map(|name| patient_of(name))
}

/// The name of a version that mentions a Patient, such as `Patient/p`.
pub fn mention_of(patient: &str) -> String {
    format!("{MENTION}{patient}")
}

/// The names of a version, compartments of Patients first.
pub(crate) fn names(kind: &str, id: &str, scan: &ResourceScan, fhir_base: &str) -> Vec<String> {
    let mut names: Vec<String> = (kind == "Patient").then(|| format!("Patient/{id}")).into_iter().collect();
    for (role, reference) in &scan.references {
        match (references::local(reference, fhir_base), role) {
            (Some(("Patient", id)), ReferenceRole::Compartment) => names.push(format!("Patient/{id}")),
            (Some(("Patient", id)), ReferenceRole::Mention) => {
                names.push(mention_of(&format!("Patient/{id}")));
            }
            (Some((target, id)), ReferenceRole::Compartment) if kind == "Provenance" => {
                names.push(format!("{target}/{id}"));
            }
            _ => {}
        }
    }
    if kind == "Bundle" {
        names.extend(patients_in_bundle(&scan.out, fhir_base, 0).iter().map(|patient| mention_of(patient)));
    }
    let is_unassigned = without_patient(kind) == WithoutPatient::ByReference
        && !names.iter().any(|name| patient_of(name).is_some());
    if is_unassigned {
        names.push(UNASSIGNED.to_owned());
    }
    patients_first(&mut names);
    names.dedup();
    // A Patient in whose compartment the version is need not be mentioned, too.
    let of_compartments: Vec<String> =
        names.iter().filter(|name| name.starts_with("Patient/")).cloned().collect();
    names.retain(|name| {
        let mention = name.strip_prefix(MENTION);
        mention.is_none_or(|patient| !of_compartments.iter().any(|own| own == patient))
    });
    names
}

/// Sorts names. Compartments of Patients come first, because the store may place a resource next to others of
/// its first compartment.
pub(crate) fn patients_first<C: AsRef<str>>(names: &mut [C]) {
    fn place(name: &str) -> (bool, &str) {
        (!name.starts_with("Patient/"), name)
    }
    names.sort_unstable_by(|a, b| place(a.as_ref()).cmp(&place(b.as_ref())));
}

/// The members of a Bundle that contain resources.
#[derive(Deserialize)]
struct BundleEntries<'a> {
    #[serde(borrow, default)]
    entry: Vec<BundleEntry<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BundleEntry<'a> {
    full_url: Option<String>,
    #[serde(borrow)]
    resource: Option<&'a RawValue>,
}

/// The Patients whose data a Bundle contains: those who are entries, and those to whose compartments entries
/// belong. References of an entry of another server lead to that server (FHIR R4, Bundle, resolving
/// references).
fn patients_in_bundle(bundle: &[u8], fhir_base: &str, depth: usize) -> Vec<String> {
    let Ok(BundleEntries { entry }) = serde_json::from_slice::<BundleEntries<'_>>(bundle) else {
        return Vec::new();
    };
    let mut patients = Vec::new();
    for BundleEntry { full_url, resource } in entry {
        let Some(resource) = resource else { continue };
        let resource = resource.get().as_bytes();
        let is_elsewhere = full_url.is_some_and(|url| {
            url.contains("://") && !url.strip_prefix(fhir_base).is_some_and(|rest| rest.starts_with('/'))
        });
        let Ok(mut scan) = scan::scan(resource, None, DEPTH, None) else { continue };
        let Some(kind) = scan.kind.as_deref().and_then(fhir::resource_type) else { continue };
        if scan.late_type {
            let Ok(again) = scan::scan(resource, Some(kind), DEPTH, None) else { continue };
            scan = again;
        }
        if kind == "Bundle" && depth < DEPTH {
            patients.extend(patients_in_bundle(resource, fhir_base, depth + 1));
        }
        if kind == "Patient" && !is_elsewhere {
            patients.extend(scan.id.iter().map(|id| format!("Patient/{id}")));
        }
        for (role, reference) in &scan.references {
            if *role == ReferenceRole::Compartment
                && (!is_elsewhere || reference.contains("://"))
                && let Some(("Patient", id)) = references::local(reference, fhir_base)
            {
                patients.push(format!("Patient/{id}"));
            }
        }
    }
    patients
}
