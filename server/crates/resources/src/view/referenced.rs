//! Resources outside of all compartments that the resources of some Patients refer to, such as the
//! Practitioner who recorded an Observation. An application of a patient may read these, but not the others
//! of their type.

use store::{PageLimit, ScanOptions, Seq, Versions as _, cpu_budget};

use crate::body::references::local_targets;
use crate::{PatientSet, ResourceError, Resources};

/// The types that are read through references.
const KINDS: [&str; 5] = ["Location", "Medication", "Organization", "Practitioner", "PractitionerRole"];
/// Maximum number of resources of the Patients that are searched for references.
const MAX_SEARCHED: usize = 50_000;
/// Maximum number of references that are collected.
const MAX_REFERENCES: usize = 100_000;
const PAGE: PageLimit = PageLimit { count: 500, bytes: 512 * 1024 };

/// `true` for the types that are read through references.
pub fn is_read_by_reference(kind: &str) -> bool {
    KINDS.contains(&kind)
}

impl Resources {
    /// The ids of a type that the resources of some Patients refer to, sorted. A reference from one of
    /// these types to another, as from a PractitionerRole to its Organization, does not count.
    ///
    /// # Errors
    /// Returns [`ResourceError::Store`] if the read fails.
    pub async fn referenced_ids(
        &self,
        patients: &PatientSet,
        kind: &str,
    ) -> Result<Vec<String>, ResourceError> {
        let seq = self.store().last_seq().await?;
        let mut ids = Vec::new();
        let mut budget = MAX_SEARCHED;
        let kinds: Vec<String> = self
            .store()
            .kinds(seq)
            .await?
            .into_iter()
            .filter(|own| fhir::patient_compartment::contains_type(own))
            .collect();
        for compartment in patients.iter() {
            for own in &kinds {
                budget = self.collect(compartment, own, kind, seq, budget, &mut ids).await?;
            }
        }
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    /// Adds the ids of `kind` that the resources of one type in a compartment refer to. Returns how many
    /// resources may still be searched.
    async fn collect(
        &self,
        compartment: &str,
        own: &str,
        kind: &str,
        seq: Seq,
        mut budget: usize,
        ids: &mut Vec<String>,
    ) -> Result<usize, ResourceError> {
        let mut after = None;
        while budget > 0 && ids.len() < MAX_REFERENCES {
            cpu_budget::check()?;
            let scan = ScanOptions::at(seq).limit(PAGE).after(after.as_deref());
            let page = self.store().scan_compartment(compartment, own, scan).await?;
            budget = budget.saturating_sub(page.versions.len());
            for body in page.versions.iter().filter_map(|version| version.body.as_deref()) {
                let targets = local_targets(body, self.fhir_base()).filter(|(ids, _)| *ids == kind);
                ids.extend(targets.map(|(_, id)| id.to_owned()));
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        Ok(budget)
    }
}
