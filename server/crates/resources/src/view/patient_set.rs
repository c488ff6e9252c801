//! The Patients to whose resources a caller is limited.

use std::ops::Deref;
use std::sync::OnceLock;

use crate::search::index::referrers::patient_hash;

/// Names of Patients, such as `Patient/p1`; sorted, each once.
#[derive(Debug, Default)]
pub struct PatientSet {
    names: Box<[String]>,
    /// The hashes of the names in the search index, sorted. They are computed at the first lookup, and
    /// shared by all requests of clients with the same Groups.
    hashes: OnceLock<Box<[u64]>>,
}

impl PatientSet {
    /// The set of these names.
    pub fn new(mut names: Vec<String>) -> Self {
        names.sort_unstable();
        names.dedup();
        Self { names: names.into(), hashes: OnceLock::new() }
    }

    /// The set of the Patients with these ids.
    pub fn of_ids<'a>(ids: impl IntoIterator<Item = &'a str>) -> Self {
        Self::new(ids.into_iter().map(|id| format!("Patient/{id}")).collect())
    }

    /// `true` if the set contains a Patient, such as `Patient/p1`.
    pub fn has(&self, patient: &str) -> bool {
        self.names.binary_search_by(|own| own.as_str().cmp(patient)).is_ok()
    }

    /// The hashes of the Patients, sorted.
    pub(crate) fn hashes(&self) -> &[u64] {
        self.hashes.get_or_init(|| {
            let mut hashes: Vec<u64> = self.names.iter().map(|name| patient_hash(name)).collect();
            hashes.sort_unstable();
            hashes.into()
        })
    }
}

impl Deref for PatientSet {
    type Target = [String];

    fn deref(&self) -> &[String] {
        &self.names
    }
}

impl PartialEq for PatientSet {
    fn eq(&self, other: &Self) -> bool {
        self.names == other.names
    }
}

impl Eq for PatientSet {}
