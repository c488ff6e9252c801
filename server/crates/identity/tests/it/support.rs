//! Test support: identity services with one user and two clients, at a fixed time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::{SignedDuration, Timestamp};
use store::Store;
use trefoil_identity::lifetimes;
use trefoil_identity::model::client::{AuthMethod, Client, GrantType, ResponseType};
use trefoil_identity::model::redirect_uri::RegisteredRedirectUri;
use trefoil_identity::model::scope::Scopes;
use trefoil_identity::model::user::{StandardClaims, User};
use trefoil_identity::tokens::grant::Grant;
use trefoil_identity::{Identity, Random};

/// A deterministic source of random bytes: a counter, so that all secrets differ.
#[derive(Default)]
struct Counting(AtomicU64);

impl Random for Counting {
    fn fill(&self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(8) {
            let next = self.0.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            chunk.copy_from_slice(&next.to_be_bytes()[..chunk.len()]);
        }
    }
}

pub const CALLBACK: &str = "https://app.example/cb";

pub struct Setup {
    pub store: Store,
    pub identity: Identity,
    pub user: User,
    pub client: Client,
}

pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap() + SignedDuration::from_secs(seconds)
}

impl Setup {
    pub async fn new() -> Self {
        Self::on(Store::memory()).await
    }

    /// Opens the services on an empty store.
    pub async fn on(store: Store) -> Self {
        let random = Arc::new(Counting::default());
        let identity =
            Identity::open(store.clone(), random, "https://as.example", false, at(0)).await.unwrap();
        let user = User {
            username: "ada".to_owned(),
            claims: StandardClaims { name: Some("Ada Example".to_owned()), ..StandardClaims::default() },
            allowed_scopes: Scopes::parse("openid profile offline_access").unwrap(),
            ..User::default()
        };
        let user = identity.users.add_user(user, at(0)).await.unwrap();
        let client = client("app");
        identity.clients.add_client(&client, at(0)).await.unwrap();
        // The client as stored, which has a generation.
        let client = identity.clients.active_client("app", at(0)).await.unwrap().unwrap();
        identity.clients.add_client(&self::client("other"), at(0)).await.unwrap();
        Self { store, identity, user, client }
    }

    pub fn grant(&self, scopes: &str) -> Grant {
        Grant {
            client_id: self.client.client_id.clone(),
            generation: self.client.generation.clone(),
            granted: at(0),
            sub: self.user.sub.clone(),
            scopes: Scopes::parse(scopes).unwrap(),
            auth_time: Some(at(0)),
            provider: None,
            sid: "sid".to_owned(),
            session_ends: at(12 * 3600),
            epoch: self.user.epoch,
            nonce: None,
            family: "family".to_owned(),
            amr: vec!["pwd".to_owned()],
            patient: None,
            encounter: None,
            need_patient_banner: true,
            jkt: None,
            resource: None,
            fhir_context: Vec::new(),
            intent: None,
        }
    }

    pub async fn code(&self, scopes: &str) -> String {
        let to = RegisteredRedirectUri::parse(CALLBACK, false).unwrap();
        self.identity
            .grants
            .issue_authorization_code(
                self.grant(scopes),
                to,
                None,
                None,
                lifetimes::AUTHORIZATION_CODE,
                at(0),
            )
            .await
            .unwrap()
    }
}

pub fn client(id: &str) -> Client {
    Client {
        redirect_uris: vec![RegisteredRedirectUri::parse(CALLBACK, false).unwrap()],
        response_types: vec![ResponseType::Code],
        grant_types: vec![GrantType::AuthorizationCode, GrantType::RefreshToken],
        auth_methods: vec![AuthMethod::ClientSecretBasic],
        secret_digests: vec![Client::secret_digest("a secret")],
        scopes: Scopes::parse("openid profile offline_access").unwrap(),
        pkce_required: false,
        always_refresh: true,
        ..Client::new(id)
    }
}
