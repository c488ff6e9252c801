//! Tests of signing keys: stages, rotation by command and by schedule, and encryption at rest.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::SignedDuration;
use store::{Ledger as _, Store};
use trefoil_identity::storage::encryption::{
    EncryptionError, KeyEncryptionKey, SecretEncryption, SecretStorageError,
};
use trefoil_identity::tokens::id_token::IdTokenContext;
use trefoil_identity::tokens::signing_key::{KeyPurpose, KeyStage};
use trefoil_identity::tokens::signing_keys::RotateError;
use trefoil_identity::{Dependencies, Identity, SigningAlg, SystemRandom};

use crate::support::{Setup, at, client};

const NEVER: SignedDuration = SignedDuration::from_hours(24 * 365);

async fn open(store: &Store, encryption: SecretEncryption) -> Result<Identity, SecretStorageError> {
    let dependencies = Dependencies { encryption, ..Dependencies::default() };
    Identity::open_with(
        store.clone(),
        Arc::new(SystemRandom),
        dependencies,
        "https://as.example",
        false,
        at(0),
    )
    .await
}

async fn kid(identity: &Identity, stage: KeyStage) -> String {
    let keys = identity.signing_keys.list_keys(at(0)).await.unwrap();
    let candidate = keys.into_iter().find(|key| key.purpose == KeyPurpose::AccessToken && key.stage == stage);
    candidate.expect("each slot has a key in this stage").kid
}

async fn published(identity: &Identity, second: i64) -> Vec<String> {
    let set = identity.signing_keys.published_key_set(at(second)).await.unwrap();
    let keys = set["keys"].as_array().unwrap();
    keys.iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_key_is_published_before_it_signs_and_until_its_last_token_has_expired() {
    let identity = open(&Store::memory(), SecretEncryption::default()).await.unwrap();
    let (first, second) = (kid(&identity, KeyStage::Active).await, kid(&identity, KeyStage::Next).await);
    assert!(
        published(&identity, 0).await.contains(&first) && published(&identity, 0).await.contains(&second)
    );
    // Rotation is rejected, because clients may not have fetched the next keys yet.
    assert!(matches!(
        identity.signing_keys.rotate_keys(false, at(299)).await,
        Err(RotateError::TooSoon { .. })
    ));
    identity.signing_keys.rotate_keys(false, at(300)).await.unwrap();
    assert_eq!(kid(&identity, KeyStage::Active).await, second);
    // A second rotation would activate next keys that no client has fetched.
    let error = identity.signing_keys.rotate_keys(false, at(301)).await.unwrap_err();
    assert!(error.to_string().contains("--now"), "{error}");
    assert!(published(&identity, 300 + 3600).await.contains(&first), "a token lives an hour");
    assert!(!published(&identity, 300 + 3660).await.contains(&first));
    // Maintenance removes expired keys.
    identity.signing_keys.maintain_keys(NEVER, at(300 + 3660)).await.unwrap();
    assert!(identity.signing_keys.list_keys(at(0)).await.unwrap().iter().all(|key| key.kid != first));
    identity.signing_keys.rotate_keys(true, at(4000)).await.unwrap();
    identity.signing_keys.rotate_keys(true, at(4001)).await.unwrap();
}

/// Keys with RSA take long to generate, and exist once they are needed: also if an earlier one retires.
#[tokio::test]
async fn a_missing_key_is_generated_when_a_token_needs_it() {
    let store = Store::memory();
    let plain = open(&store, SecretEncryption::default()).await.unwrap();
    let count = async || secrets(&store).await.matches("pkcs8").count();
    assert_eq!(count().await, 8, "no RSA key yet");
    let grant = Setup::new().await.grant("openid");
    let mint = async |identity: &Identity| {
        let token =
            identity.tokens.mint_id_token(&client("app"), &grant, IdTokenContext::default(), at(0)).await;
        identity.tokens.verify_id_token_hint(&token.unwrap(), at(0)).is_some()
    };
    assert!(mint(&plain).await);
    assert_eq!(count().await, 10);
    // The keys retire, because they were stored in plain.
    let encrypted = open(&store, SecretEncryption { current: kek(1), previous: None }).await.unwrap();
    assert!(mint(&encrypted).await);
}

#[tokio::test]
async fn two_nodes_rotate_once() {
    let store = Store::memory();
    let every = SignedDuration::from_hours(24);
    let (one, two) = (
        open(&store, SecretEncryption::default()).await.unwrap(),
        open(&store, SecretEncryption::default()).await.unwrap(),
    );
    assert_eq!(
        kid(&one, KeyStage::Active).await,
        kid(&two, KeyStage::Active).await,
        "both nodes use the same keys"
    );
    let next = kid(&one, KeyStage::Next).await;
    let due = at(24 * 3600);
    assert!(!one.signing_keys.maintain_keys(every, at(24 * 3600 - 1)).await.unwrap());
    let (a, b) =
        tokio::join!(one.signing_keys.maintain_keys(every, due), two.signing_keys.maintain_keys(every, due));
    assert_eq!(usize::from(a.unwrap()) + usize::from(b.unwrap()), 1);
    assert_eq!(kid(&one, KeyStage::Active).await, next);
    // The node that did not rotate loads the rotated keys.
    one.signing_keys.maintain_keys(every, due).await.unwrap();
    two.signing_keys.maintain_keys(every, due).await.unwrap();
    assert_eq!(published(&one, 24 * 3600).await, published(&two, 24 * 3600).await);
    // An interval shorter than the lifetime of a cached key set has no effect.
    assert!(!one.signing_keys.maintain_keys(SignedDuration::ZERO, at(24 * 3600 + 299)).await.unwrap());
    assert!(one.signing_keys.maintain_keys(SignedDuration::ZERO, at(24 * 3600 + 300)).await.unwrap());
}

#[tokio::test]
async fn a_revoked_active_key_has_a_successor_at_once() {
    let identity = open(&Store::memory(), SecretEncryption::default()).await.unwrap();
    let (active, next) = (kid(&identity, KeyStage::Active).await, kid(&identity, KeyStage::Next).await);
    assert!(identity.signing_keys.revoke_key(&active, at(10)).await.unwrap());
    assert_eq!(kid(&identity, KeyStage::Active).await, next);
    assert!(!published(&identity, 10).await.contains(&active));
    assert!(!identity.signing_keys.revoke_key("nobody", at(10)).await.unwrap());
}

#[tokio::test]
async fn id_tokens_are_signed_with_the_algorithm_of_the_client() {
    let setup = Setup::new().await;
    for (chosen, alg, hash) in [
        (None, "RS256", 16),
        (Some("ES256"), "ES256", 16),
        (Some("ES384"), "ES384", 24),
        (Some("EdDSA"), "EdDSA", 32),
    ] {
        let mut app = client("app");
        app.id_token_alg = chosen.map(str::to_owned);
        let beside = IdTokenContext { access_token: Some("access"), user: None };
        let token =
            setup.identity.tokens.mint_id_token(&app, &setup.grant("openid"), beside, at(0)).await.unwrap();
        let part = |at: usize| -> serde_json::Value {
            use base64::engine::general_purpose::URL_SAFE_NO_PAD;
            let part = token.split('.').nth(at).unwrap();
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
        };
        assert_eq!(part(0)["alg"], alg);
        assert_eq!(part(1)["at_hash"].as_str().unwrap().len(), (hash * 4_usize).div_ceil(3), "{alg}");
        let (sub, aud, _) = setup
            .identity
            .tokens
            .verify_id_token_hint(&token, at(0))
            .expect("the ID token was issued by this server");
        assert_eq!((sub, aud.as_str()), (setup.user.sub.clone(), "app"));
    }
    let mut wrong = client("wrong");
    wrong.id_token_alg = Some("none".to_owned());
    let error = setup.identity.clients.add_client(&wrong, at(0)).await.unwrap_err().to_string();
    assert!(error.contains("'none' is not an algorithm for ID tokens; use RS256"), "{error}");
    assert_eq!(SigningAlg::parse("HS256"), None);
}

async fn secrets(store: &Store) -> String {
    let records = store.scan("secret/", None, 100, at(0)).await.unwrap();
    assert_eq!(records.len(), 2, "one record for the signing keys and one for the server secret");
    records.iter().map(|(_, record)| String::from_utf8_lossy(&record.value).into_owned()).collect()
}

fn kek(byte: u8) -> Option<KeyEncryptionKey> {
    Some(KeyEncryptionKey::from_base64(&STANDARD.encode([byte; 32])).unwrap())
}

#[tokio::test]
async fn secrets_are_encrypted_at_rest_and_the_key_can_be_rotated() {
    let store = Store::memory();
    let encrypted = open(&store, SecretEncryption { current: kek(1), previous: None }).await.unwrap();
    let (active, mac) =
        (kid(&encrypted, KeyStage::Active).await, encrypted.server_secret.mac("test", "text"));
    let text = secrets(&store).await;
    assert!(!text.contains("pkcs8") && !text.contains(&active), "{text}");
    let again = open(&store, SecretEncryption { current: kek(1), previous: None }).await.unwrap();
    assert_eq!(
        (kid(&again, KeyStage::Active).await, again.server_secret.mac("test", "text")),
        (active, mac.clone())
    );
    encrypted.signing_keys.rotate_keys(true, at(1)).await.unwrap();
    assert!(!secrets(&store).await.contains("pkcs8"), "later writes are encrypted too");
    let missing = open(&store, SecretEncryption::default()).await.err();
    assert!(matches!(missing, Some(SecretStorageError::Encryption(EncryptionError::Missing(_)))));
    let wrong = open(&store, SecretEncryption { current: kek(2), previous: None }).await.err();
    assert!(matches!(wrong, Some(SecretStorageError::Encryption(EncryptionError::WrongKey(_)))));
    // After a rotation of the key-encryption key, the previous key is no longer needed.
    open(&store, SecretEncryption { current: kek(2), previous: kek(1) }).await.unwrap();
    let rotated = open(&store, SecretEncryption { current: kek(2), previous: None }).await.unwrap();
    assert_eq!(rotated.server_secret.mac("test", "text"), mac);
    // Encryption can be disabled.
    open(&store, SecretEncryption { current: None, previous: kek(2) }).await.unwrap();
    assert!(open(&store, SecretEncryption::default()).await.is_ok());
}

#[tokio::test]
async fn secrets_that_were_stored_in_plain_are_replaced_when_a_key_is_configured() {
    let setup = Setup::new().await;
    let store = Store::memory();
    let plain = open(&store, SecretEncryption::default()).await.unwrap();
    plain.signing_keys.rotate_keys(true, at(0)).await.unwrap();
    let before = secrets(&store).await;
    let exposed = plain.signing_keys.list_keys(at(0)).await.unwrap();
    let (active, mac) = (kid(&plain, KeyStage::Active).await, plain.server_secret.mac("test", "text"));
    let hint = plain
        .tokens
        .mint_id_token(&client("app"), &setup.grant("openid"), IdTokenContext::default(), at(0))
        .await
        .unwrap();
    // Only active and next keys have a private part.
    let private = exposed.iter().filter(|key| key.stage != KeyStage::Retiring).count();
    assert_eq!(before.matches("pkcs8").count(), private);

    let encrypted = open(&store, SecretEncryption { current: kek(1), previous: None }).await.unwrap();
    assert!(!secrets(&store).await.contains("pkcs8"));
    assert!(encrypted.server_secret.mac("test", "text") != mac, "the server secret was replaced");
    for key in encrypted.signing_keys.list_keys(at(0)).await.unwrap() {
        let is_old = exposed.iter().any(|old| old.kid == key.kid);
        assert_eq!(is_old, key.stage == KeyStage::Retiring, "{}", key.kid);
    }
    // Tokens that the old keys signed are accepted until they expire, also after a restart.
    let encrypted = open(&store, SecretEncryption { current: kek(1), previous: None }).await.unwrap();
    assert!(published(&encrypted, 3600).await.contains(&active));
    assert!(encrypted.tokens.verify_id_token_hint(&hint, at(3600)).is_some());
    encrypted.signing_keys.maintain_keys(NEVER, at(3660)).await.unwrap();
    assert!(encrypted.tokens.verify_id_token_hint(&hint, at(3660)).is_none());
    assert!(encrypted.signing_keys.list_keys(at(3660)).await.unwrap().iter().all(|key| key.kid != active));
    // Even after decryption, the records contain no private part of an exposed key.
    open(&store, SecretEncryption { current: None, previous: kek(1) }).await.unwrap();
    let after = secrets(&store).await;
    let halves = |text: &str| -> Vec<String> {
        text.split("\"pkcs8\":\"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
    };
    assert!(!halves(&after).is_empty());
    assert!(halves(&before).iter().all(|half| !after.contains(half.as_str())));
}

#[tokio::test]
async fn the_server_secret_is_rotated_without_the_signing_keys() {
    for encryption in
        [|| SecretEncryption::default(), || SecretEncryption { current: kek(1), previous: None }]
    {
        let store = Store::memory();
        let identity = open(&store, encryption()).await.unwrap();
        let (active, mac) =
            (kid(&identity, KeyStage::Active).await, identity.server_secret.mac("test", "text"));
        identity.server_secret.rotate(at(1)).await.unwrap();
        let rotated = identity.server_secret.mac("test", "text");
        assert!(
            !identity.server_secret.verify_mac("test", "text", &mac),
            "message authentication codes of the old secret are invalid"
        );
        let again = open(&store, encryption()).await.unwrap();
        assert!(again.server_secret.verify_mac("test", "text", &rotated));
        assert_eq!(kid(&again, KeyStage::Active).await, active, "the signing keys are unchanged");
    }
}
