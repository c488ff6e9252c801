//! The properties of all clients together: the origins of their redirect URIs, for cross-origin requests, and
//! their response types, for discovery. It is cached, so that such a request reads no client from the store.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use identity::Identity;
use identity::model::client::ResponseType;
use jiff::Timestamp;
use store::StoreError;
use tokio::sync::Mutex;

/// The origins and response types of all clients, read on first use and again after a change of a client.
#[derive(Default)]
pub struct ClientOverview {
    built: ArcSwapOption<ReadClients>,
    building: Mutex<()>,
}

struct ReadClients {
    /// The epoch of the clients before the clients were read.
    epoch: u64,
    origins: HashSet<String>,
    response_types: BTreeSet<ResponseType>,
}

impl ClientOverview {
    /// Returns whether an origin is that of a redirect URI of a client.
    ///
    /// # Errors
    /// [`StoreError`] if the clients cannot be read.
    pub async fn has_origin(
        &self,
        origin: &str,
        identity: &Identity,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        Ok(self.read(identity, now).await?.origins.contains(origin))
    }

    /// Returns whether a client is registered for a response type.
    ///
    /// # Errors
    /// [`StoreError`] if the clients cannot be read.
    pub async fn has_response_type(
        &self,
        response_type: ResponseType,
        identity: &Identity,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        Ok(self.read(identity, now).await?.response_types.contains(&response_type))
    }

    async fn read(&self, identity: &Identity, now: Timestamp) -> Result<Arc<ReadClients>, StoreError> {
        match self.current(identity) {
            Some(current) => Ok(current),
            // Boxed, because few requests need the memory of this future.
            None => Box::pin(self.build(identity, now)).await,
        }
    }

    async fn build(&self, identity: &Identity, now: Timestamp) -> Result<Arc<ReadClients>, StoreError> {
        let _turn = self.building.lock().await;
        if let Some(current) = self.current(identity) {
            return Ok(current);
        }
        let epoch = identity.clients.client_epoch();
        let clients = identity.clients.all_clients(now).await?;
        let usable = || clients.iter().filter(|client| identity.demo || !client.demo);
        let uris = usable().flat_map(|client| &client.redirect_uris);
        let urls = uris.filter_map(|uri| url::Url::parse(uri.as_str()).ok());
        let read = Arc::new(ReadClients {
            epoch,
            origins: urls.map(|url| url.origin().ascii_serialization()).collect(),
            response_types: usable().flat_map(|client| client.response_types.iter().copied()).collect(),
        });
        self.built.store(Some(read.clone()));
        Ok(read)
    }

    /// `None` if nothing was read since the last change of a client.
    fn current(&self, identity: &Identity) -> Option<Arc<ReadClients>> {
        let overview = self.built.load_full();
        overview.filter(|candidate| candidate.epoch == identity.clients.client_epoch())
    }
}

#[cfg(test)]
mod tests {
    use identity::model::client::{AuthMethod, Client};
    use identity::model::redirect_uri::RegisteredRedirectUri;

    use super::*;

    #[tokio::test]
    async fn clients_are_read_again_only_after_a_change_of_a_client() {
        let now = Timestamp::UNIX_EPOCH;
        let random = std::sync::Arc::new(identity::SystemRandom);
        let store = store::Store::memory();
        let identity = Identity::open(store, random, "https://as.example", false, now).await.unwrap();
        let overview = ClientOverview::default();
        assert!(!overview.has_origin("https://app.example", &identity, now).await.unwrap());
        // From here on the answer is known.
        assert!(overview.current(&identity).is_some());
        let client = Client {
            redirect_uris: vec![RegisteredRedirectUri::parse("https://app.example/cb", false).unwrap()],
            auth_methods: vec![AuthMethod::None],
            ..Client::new("app")
        };
        identity.clients.add_client(&client, now).await.unwrap();
        assert!(overview.current(&identity).is_none());
        assert!(overview.has_origin("https://app.example", &identity, now).await.unwrap());
        let has =
            async |response_type| overview.has_response_type(response_type, &identity, now).await.unwrap();
        assert!(!has(ResponseType::Token).await);
        let implicit = Client {
            response_types: vec![ResponseType::Token],
            ..Client { client_id: "implicit".to_owned(), ..client.clone() }
        };
        identity.clients.add_client(&implicit, now).await.unwrap();
        assert!(has(ResponseType::Token).await && !has(ResponseType::IdToken).await);
    }
}
