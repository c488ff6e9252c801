//! The patients to whom a user is related: those of a RelatedPerson, or those to whom a Person is linked
//! (FHIR R4). The rules read them at each use, because they follow from resources.

use std::pin::Pin;

use jiff::Timestamp;
use store::StoreError;

use crate::model::user::User;

/// A future of the ids of patients.
pub type PatientsFuture<'a> = Pin<Box<dyn Future<Output = Result<Vec<String>, StoreError>> + Send + 'a>>;

/// Finds the patients to whom a user is related.
pub trait PatientRelations: Send + Sync {
    /// Returns the ids of the patients to whom the RelatedPerson or Person of the user gives access now, and
    /// of the members of the user's Groups. A resource that is missing or inactive gives access to none.
    fn patients_of<'a>(&'a self, user: &'a User, now: Timestamp) -> PatientsFuture<'a>;
}

/// Finds no patients, for servers without resources.
pub struct NoPatientRelations;

impl PatientRelations for NoPatientRelations {
    fn patients_of<'a>(&'a self, _: &'a User, _: Timestamp) -> PatientsFuture<'a> {
        Box::pin(async { Ok(Vec::new()) })
    }
}
