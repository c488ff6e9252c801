//! Authorization requests that are too large for an address. Proxies limit the size of a response head
//! (nginx: 4 KiB by default), so that the continuation of a large request refers to a record.
//!
//! Anyone can send large requests. The memory of the store is limited by the bytes of one network and of
//! all; a browser keeps its newest. A request beyond the limits stays in the address. Small requests need
//! no record and are not affected.

use jiff::Timestamp;
use store::{Expect, LedgerWrite, StoreError};

use crate::authorize::authorization_service::AuthorizationService;
use crate::authorize::interaction::InteractionState;
use crate::authorize::request::RequestText;
use crate::ledger_keys;
use crate::sign_in::large_request_quota::{CountedRequest, LargeRequestLimit};
use crate::storage::records;

impl AuthorizationService {
    /// Stores the request of an interaction if it is too large for an address. The record ends with the
    /// interaction. A pushed request keeps its id. If too many bytes are pending, the request stays in the
    /// interaction, and the limit is returned with it: the user can sign in unless a proxy refuses the
    /// address.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the write fails.
    pub async fn store_large_request(
        &self,
        interaction: InteractionState,
        browser: &str,
        address: &str,
        now: Timestamp,
    ) -> Result<(InteractionState, Option<LargeRequestLimit>), StoreError> {
        let Some(text) = interaction.large_request() else { return Ok((interaction, None)) };
        let id = interaction.pushed_id().map_or_else(|| self.random.id(), str::to_owned);
        let bytes = serde_json::to_vec(text).map_or(0, |json| json.len());
        let is_pushed = interaction.pushed_id().is_some();
        let request = CountedRequest { id: &id, browser, address, bytes, is_pushed };
        let replaced = match self.large_requests.add(request, now) {
            Ok(replaced) => replaced,
            Err(limit) => return Ok((interaction, Some(limit))),
        };
        let ends = interaction.ends();
        let mut writes =
            vec![records::put_record(ledger_keys::large_request(&id), text, Some(ends), Expect::Any)];
        writes.extend(
            replaced
                .into_iter()
                .map(|id| LedgerWrite::Delete { key: ledger_keys::large_request(&id), expect: Expect::Any }),
        );
        if let Err(error) = self.ledger.write(writes, now).await {
            self.large_requests.remove(&id);
            return Err(error);
        }
        Ok((interaction.with_record(id), None))
    }

    /// Reads a large request, or `None` if it has ended.
    pub(crate) async fn load_large_request(
        &self,
        id: &str,
        now: Timestamp,
    ) -> Result<Option<RequestText>, StoreError> {
        let record = self.ledger.read_record::<RequestText>(&ledger_keys::large_request(id), now).await?;
        Ok(record.map(|record| record.value))
    }

    /// Removes the record of an interaction that has ended, if it has one.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the write fails.
    pub async fn remove_large_request(
        &self,
        interaction: &InteractionState,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let Some(id) = interaction.record_id() else { return Ok(()) };
        self.large_requests.remove(id);
        let delete = LedgerWrite::Delete { key: ledger_keys::large_request(id), expect: Expect::Any };
        self.ledger.write(vec![delete], now).await.map(drop)
    }
}
