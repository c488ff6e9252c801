//! The types that joined the Patient compartment after stores were written
//! ([`fhir::patient_compartment::JOINED`]).

use jiff::Timestamp;
use resources::assign_stored::read_record;
use store::{Store, StoreError};

/// Time from which resources of these types belong to Patients in this store. A store without a record was
/// written by this version only.
pub(crate) async fn joined_since(store: &Store) -> Result<Option<Timestamp>, StoreError> {
    let record = read_record(store).await?;
    Ok(Some(record.and_then(|record| record.since).unwrap_or(Timestamp::UNIX_EPOCH)))
}
