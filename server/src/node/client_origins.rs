//! Cross-origin requests: the origins of the clients' redirect URIs, cached as a set, so that a request with
//! an `Origin` header reads no client from the store.

use std::collections::HashSet;

use arc_swap::ArcSwapOption;
use identity::Identity;
use jiff::Timestamp;
use store::StoreError;
use tokio::sync::Mutex;

/// The origins of all clients, built on first use and again after a change of a client.
#[derive(Default)]
pub struct ClientOrigins {
    built: ArcSwapOption<OriginSet>,
    building: Mutex<()>,
}

struct OriginSet {
    /// The epoch of the clients before the clients were read.
    epoch: u64,
    origins: HashSet<String>,
}

impl ClientOrigins {
    /// Returns whether an origin is that of a redirect URI of a client.
    ///
    /// # Errors
    /// [`StoreError`] if the clients cannot be read.
    pub async fn contains(
        &self,
        origin: &str,
        identity: &Identity,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        if let Some(known_origin) = self.lookup(origin, identity) {
            return Ok(known_origin);
        }
        let _turn = self.building.lock().await;
        if let Some(known_origin) = self.lookup(origin, identity) {
            return Ok(known_origin);
        }
        let epoch = identity.clients.client_epoch();
        let clients = identity.clients.all_clients(now).await?;
        let usable = clients.iter().filter(|client| identity.demo || !client.demo);
        let uris = usable.flat_map(|client| &client.redirect_uris);
        let urls = uris.filter_map(|uri| url::Url::parse(uri.as_str()).ok());
        let origins: HashSet<_> = urls.map(|url| url.origin().ascii_serialization()).collect();
        let known_origin = origins.contains(origin);
        self.built.store(Some(OriginSet { epoch, origins }.into()));
        Ok(known_origin)
    }

    /// `None` if the set is missing or older than the last change of a client.
    fn lookup(&self, origin: &str, identity: &Identity) -> Option<bool> {
        let built = self.built.load();
        let built = built.as_ref().filter(|built| built.epoch == identity.clients.client_epoch())?;
        Some(built.origins.contains(origin))
    }
}

#[cfg(test)]
mod tests {
    use identity::model::client::{AuthMethod, Client};
    use identity::model::redirect_uri::RegisteredRedirectUri;

    use super::*;

    #[tokio::test]
    async fn the_set_is_built_again_only_after_a_change_of_a_client() {
        let now = Timestamp::UNIX_EPOCH;
        let random = std::sync::Arc::new(identity::SystemRandom);
        let store = store::Store::memory();
        let identity = Identity::open(store, random, "https://as.example", false, now).await.unwrap();
        let origins = ClientOrigins::default();
        assert!(!origins.contains("https://app.example", &identity, now).await.unwrap());
        // From here on the set contains the answer.
        assert_eq!(origins.lookup("https://app.example", &identity), Some(false));
        let client = Client {
            redirect_uris: vec![RegisteredRedirectUri::parse("https://app.example/cb", false).unwrap()],
            auth_methods: vec![AuthMethod::None],
            ..Client::new("app")
        };
        identity.clients.add_client(&client, now).await.unwrap();
        assert_eq!(origins.lookup("https://app.example", &identity), None);
        assert!(origins.contains("https://app.example", &identity, now).await.unwrap());
    }
}
