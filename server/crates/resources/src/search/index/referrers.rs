//! Terms that find the resources that refer to a resource without a Patient, such as the monitor of a ward. A
//! client that is limited to some Patients may read it if one of these resources is visible.
//!
//! A term consists of 8 bytes for the target, 8 bytes for a Patient of the referring resource (zero if it
//! has none, or too many), and 4 bytes for its type. A lookup thus costs as much as the smaller of two
//! numbers: the Patients of the client, and the Patients whose resources refer to the target.

use fhir::patient_references::{WithoutPatient, without_patient};
use store::{IndexRange, IndexTerm};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::body::references;

/// Maximum number of terms for pairs of a target and a Patient. With more, the Patients are read from the
/// resource.
const MAX_PAIRS: usize = 1_000;
/// The Patient in the term of a resource whose Patients are not in its terms.
const NO_PATIENT: u64 = 0;

/// An entry of the index, read from its term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReferrerTerm {
    /// The hash of a Patient ([`patient_hash`]), if the term has one.
    pub patient: Option<u64>,
    /// The type of the resource that refers to the target.
    pub kind: &'static str,
}

/// The terms of a resource for the targets to which it refers. `patients` are its Patients, as `Patient/p`.
pub(crate) fn terms<'a>(
    kind: &str,
    body: &[u8],
    patients: impl Iterator<Item = &'a str> + Clone,
) -> Vec<IndexTerm> {
    let targets = targets(body);
    if targets.is_empty() {
        return Vec::new();
    }
    let count = patients.clone().take(MAX_PAIRS + 1).count();
    let has_pairs = count > 0 && count * targets.len() <= MAX_PAIRS;
    let mut terms = Vec::new();
    for (target, id) in &targets {
        let target = target_hash(target, id);
        match has_pairs {
            true => terms.extend(patients.clone().map(|patient| term(target, patient_hash(patient), kind))),
            false => terms.push(term(target, NO_PATIENT, kind)),
        }
    }
    terms
}

/// The resources of any server to which a stored resource refers, of the types that are readable by
/// reference; sorted. The base URL of this server may change, so that the terms do not depend on it.
fn targets(body: &[u8]) -> Vec<(&'static str, String)> {
    targets_by(body, references::target)
}

/// The same, of the server at `fhir_base` only.
pub(crate) fn local_targets(body: &[u8], fhir_base: &str) -> Vec<(&'static str, String)> {
    targets_by(body, |text| references::local(text, fhir_base))
}

/// A Binary is also named by the URL of an attachment.
fn targets_by(
    body: &[u8],
    target: impl Fn(&str) -> Option<(&'static str, &str)>,
) -> Vec<(&'static str, String)> {
    let references = references::texts_of(body, br#""reference":""#);
    let attachments = references::texts_of(body, br#""url":""#);
    let attachments = attachments.filter(|url| url.contains("Binary/"));
    let mut targets: Vec<(&'static str, String)> = references
        .chain(attachments)
        .filter_map(|text| target(&text).map(|(kind, id)| (kind, id.to_owned())))
        .filter(|(kind, _)| without_patient(kind) == WithoutPatient::ByReference)
        .collect();
    targets.sort_unstable();
    targets.dedup();
    targets
}

/// The hash of a Patient, such as `Patient/p`, by which the terms of a target are ordered.
pub(crate) fn patient_hash(patient: &str) -> u64 {
    xxh3_64(patient.as_bytes()).max(NO_PATIENT + 1)
}

/// The terms of the resources that refer to a target, from this Patient on.
pub(crate) fn range(kind: &str, id: &str, patient: Option<u64>) -> IndexRange {
    let target = target_hash(kind, id).to_be_bytes();
    let from = [&target[..], &patient.unwrap_or(NO_PATIENT).to_be_bytes(), &[0; 4]].concat();
    // The last byte follows each term, and no other term has 21 bytes.
    let until = [&target[..], &[u8::MAX; 13]].concat();
    IndexRange::Between(from.into(), until.into())
}

/// The terms of the resources that refer to a target and have no Patient in their terms.
pub(crate) fn range_without_patient(kind: &str, id: &str) -> IndexRange {
    let target = target_hash(kind, id).to_be_bytes();
    let from = [&target[..], &NO_PATIENT.to_be_bytes(), &[0; 4]].concat();
    let until = [&target[..], &(NO_PATIENT + 1).to_be_bytes(), &[0; 4]].concat();
    IndexRange::Between(from.into(), until.into())
}

/// Reads a term. `None` if it is not one of these.
pub(crate) fn read(term: &IndexTerm) -> Option<ReferrerTerm> {
    let (_, rest) = term.split_first_chunk::<8>()?;
    let (patient, kind) = rest.split_first_chunk::<8>()?;
    let patient = Some(u64::from_be_bytes(*patient)).filter(|&patient| patient != NO_PATIENT);
    let kind = fhir::RESOURCE_TYPES.iter().find(|name| kind_hash(name) == *kind)?;
    Some(ReferrerTerm { patient, kind })
}

fn term(target: u64, patient: u64, kind: &str) -> IndexTerm {
    [&target.to_be_bytes()[..], &patient.to_be_bytes(), &kind_hash(kind)].concat().into()
}

fn target_hash(kind: &str, id: &str) -> u64 {
    xxh3_64_with_seed(format!("{kind}/{id}").as_bytes(), xxh3_64(b"referrer"))
}

fn kind_hash(kind: &str) -> [u8; 4] {
    (xxh3_64(kind.as_bytes()) as u32).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = br#"{"resourceType":"Observation","device":{"reference":"Device\/d"},"subject":{"reference":"Patient/p"},
        "focus":[{"reference":"https://h/r4/Task/t/_history/2"}],"extension":[{"url":"http://x/Binary"}],
        "derivedFrom":[{"reference":"Device/d"}],"note":"\"reference\":\"Device/n\"","photo":[{"url":"Binary/b"}]}"#;

    #[test]
    fn targets_are_the_resources_that_are_readable_by_reference() {
        let targets: Vec<_> = targets(BODY).iter().map(|(kind, id)| format!("{kind}/{id}")).collect();
        assert_eq!(targets, ["Binary/b", "Device/d", "Task/t"]);
    }

    #[test]
    fn a_term_is_read_back_and_is_in_the_range_of_its_target() {
        let terms = terms("Observation", BODY, ["Patient/p", "Patient/q"].into_iter());
        assert_eq!(terms.len(), 6);
        let of_device: Vec<_> =
            terms.iter().filter(|term| range("Device", "d", None).contains(term)).collect();
        assert_eq!(of_device.len(), 2);
        for term in of_device {
            let ReferrerTerm { patient, kind } = read(term).unwrap();
            assert_eq!(kind, "Observation");
            assert!(patient.is_some() && !range_without_patient("Device", "d").contains(term));
        }
    }

    #[test]
    fn a_resource_without_patients_or_with_too_many_has_one_term_for_each_target() {
        let many: Vec<String> = (0..500).map(|id| format!("Patient/{id}")).collect();
        for patients in [&[][..], &many[..]] {
            let terms = terms("List", BODY, patients.iter().map(String::as_str));
            assert_eq!(terms.len(), 3);
            assert!(terms.iter().all(|term| read(term).unwrap().patient.is_none()));
            assert!(terms.iter().any(|term| range_without_patient("Binary", "b").contains(term)));
        }
    }

    #[test]
    fn no_two_types_have_the_same_hash() {
        let hashes: std::collections::HashSet<_> =
            fhir::RESOURCE_TYPES.iter().map(|kind| kind_hash(kind)).collect();
        assert_eq!(hashes.len(), fhir::RESOURCE_TYPES.len());
    }
}
