//! The patients of carers: the RelatedPerson or Person that represents a user, and the patients that it names
//! (FHIR R4; SMART App Launch 2.2, `fhirUser`).

use std::sync::{Arc, OnceLock};

use fhir::{Period, Text, is_id};
use identity::directory::patient_relations::{PatientRelations, PatientsFuture};
use identity::model::user::User;
use jiff::Timestamp;
use resources::{ResourceError, Resources, StoredResource, references};
use serde::Deserialize;
use store::StoreError;

/// Reads the ids of the Patients that are members of these Groups at a time.
pub type GroupMembersReader = dyn for<'a> Fn(&'a [String], Timestamp) -> PatientsFuture<'a> + Send + Sync;

/// Reads the relations from the stored resources.
pub struct StoredRelations {
    /// The resources of this server.
    pub resources: Resources,
    /// Base URL of the FHIR interface, with which references may begin.
    pub fhir_base: String,
    /// Reads the members of Groups, once the server is opened.
    pub members: Arc<OnceLock<Box<GroupMembersReader>>>,
}

#[derive(Deserialize)]
struct Reference<'a> {
    #[serde(borrow)]
    reference: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct RelatedPerson<'a> {
    active: Option<bool>,
    #[serde(borrow)]
    period: Option<Period<'a>>,
    #[serde(borrow)]
    patient: Option<Reference<'a>>,
}

#[derive(Deserialize)]
struct Person<'a> {
    active: Option<bool>,
    #[serde(default, borrow)]
    link: Vec<PersonLink<'a>>,
}

#[derive(Deserialize)]
struct PersonLink<'a> {
    #[serde(borrow)]
    target: Option<Reference<'a>>,
    #[serde(borrow)]
    assurance: Option<Text<'a>>,
}

impl PersonLink<'_> {
    /// Returns whether the link is believed. `level1` means little or no confidence (FHIR R4, value set
    /// identity-assuranceLevel). Without a level, the author of the link answers for it.
    fn is_assured(&self) -> bool {
        matches!(self.assurance.as_deref(), None | Some("level2" | "level3" | "level4"))
    }
}

impl PatientRelations for StoredRelations {
    fn patients_of<'a>(&'a self, user: &'a User, now: Timestamp) -> PatientsFuture<'a> {
        Box::pin(async move {
            let mut patients = match self.local(user.relation()) {
                Some(("RelatedPerson", id)) => self.related_patient(id, now).await?.into_iter().collect(),
                Some(("Person", id)) => self.linked_patients(id, now).await?,
                _ => Vec::new(),
            };
            if let Some(members) = self.members.get().filter(|_| !user.groups.is_empty()) {
                patients.extend(members(&user.groups, now).await?);
            }
            Ok(patients)
        })
    }
}

impl StoredRelations {
    fn local<'a>(&self, reference: Option<&'a str>) -> Option<(&'static str, &'a str)> {
        references::local(reference?, &self.fhir_base).filter(|(_, id)| is_id(id))
    }

    /// The patient of a RelatedPerson that is active, in the period of the relation.
    async fn related_patient(&self, id: &str, now: Timestamp) -> Result<Option<String>, StoreError> {
        let Some(person) = self.read("RelatedPerson", id).await? else { return Ok(None) };
        let Ok(related) = serde_json::from_slice::<RelatedPerson<'_>>(&person.bytes) else { return Ok(None) };
        let is_current = related.active != Some(false)
            && related.period.as_ref().is_none_or(|period| period.contains(now));
        let reference = related.patient.as_ref().and_then(|patient| patient.reference.as_deref());
        Ok(match self.local(reference) {
            Some(("Patient", patient)) if is_current => Some(patient.to_owned()),
            _ => None,
        })
    }

    /// The patients to whom an active Person is linked, directly or as a RelatedPerson.
    async fn linked_patients(&self, id: &str, now: Timestamp) -> Result<Vec<String>, StoreError> {
        let Some(resource) = self.read("Person", id).await? else { return Ok(Vec::new()) };
        let Ok(person) = serde_json::from_slice::<Person<'_>>(&resource.bytes) else { return Ok(Vec::new()) };
        if person.active == Some(false) {
            return Ok(Vec::new());
        }
        let mut patients = Vec::new();
        for link in person.link.iter().filter(|link| link.is_assured()).take(MAX_LINKS) {
            match self.local(link.target.as_ref().and_then(|target| target.reference.as_deref())) {
                Some(("Patient", patient)) => patients.push(patient.to_owned()),
                Some(("RelatedPerson", related)) => {
                    patients.extend(self.related_patient(related, now).await?);
                }
                _ => {}
            }
        }
        Ok(patients)
    }

    async fn read(&self, kind: &'static str, id: &str) -> Result<Option<StoredResource>, StoreError> {
        match self.resources.read(kind, id).await {
            Ok(resource) => Ok(Some(resource)),
            Err(ResourceError::Store(error)) => Err(error),
            Err(_) => Ok(None),
        }
    }
}

/// Maximum number of links of a Person that are followed, so that a request has a bounded cost.
const MAX_LINKS: usize = 50;
