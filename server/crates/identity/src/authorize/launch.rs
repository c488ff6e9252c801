//! Launch contexts (SMART App Launch 2.2, EHR launch): a portal stores the patient and the encounter that its
//! user works with, and opens an application with the id of the stored context. The application returns the
//! id as `launch`.
//!
//! A context grants no access: the user signs in at this server, and must have access to the patient.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::{Expect, StoreError};

use crate::authorize::authorization_service::AuthorizationService;
use crate::encoding;
use crate::ledger_keys;
use crate::lifetimes;
use crate::model::client::Client;
use crate::storage::records;

/// The context in which a portal opens an application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchContext {
    /// Client id of the application, the only one that can use the context.
    pub client_id: String,
    /// Subject of the user, the only one who can sign in. `None` for any user.
    pub sub: Option<String>,
    /// Id of the patient.
    pub patient: Option<String>,
    /// Id of the encounter.
    pub encounter: Option<String>,
    /// Further resources of the context (SMART App Launch 2.2, `fhirContext`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fhir_context: Vec<Value>,
    /// The reason of the launch (SMART App Launch 2.2, `intent`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<String>,
    /// `true` if the application must show who the patient is.
    pub need_patient_banner: bool,
}

impl AuthorizationService {
    /// Stores a launch context. Returns its id, which is valid for [`lifetimes::LAUNCH`].
    ///
    /// # Errors
    /// Returns [`StoreError`] if the write fails.
    pub async fn create_launch(&self, context: &LaunchContext, now: Timestamp) -> Result<String, StoreError> {
        let id = self.random.secret();
        let key = ledger_keys::launch(&encoding::sha256_base64url(&id));
        let write = records::put_record(key, context, Some(now + lifetimes::LAUNCH), Expect::Absent);
        self.ledger.write(vec![write], now).await?;
        Ok(id)
    }

    /// The launch context with this id, if it was created for this client.
    pub(crate) async fn launch_context(
        &self,
        id: &str,
        client: &Client,
        now: Timestamp,
    ) -> Result<Option<LaunchContext>, StoreError> {
        let key = ledger_keys::launch(&encoding::sha256_base64url(id));
        let record = self.ledger.read_record::<LaunchContext>(&key, now).await?;
        Ok(record.map(|record| record.value).filter(|context| context.client_id == client.client_id))
    }
}
