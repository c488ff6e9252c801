//! Signing keys: stages, rotation by hand and by schedule, and what lies on the disk.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::SignedDuration;
use store::{Ledger as _, Store};
use trefoil_identity::keys::{Purpose, RotateError, Stage};
use trefoil_identity::seal::{OpenError, Seal, SealError, SealKey};
use trefoil_identity::token::Beside;
use trefoil_identity::{Identity, Outside, SigningAlg, SystemRandom};

use crate::support::{World, at, client};

const NEVER: SignedDuration = SignedDuration::from_hours(24 * 365);

async fn open(store: &Store, seal: Seal) -> Result<Identity, OpenError> {
    let outside = Outside { seal, ..Outside::default() };
    Identity::open_with(store.clone(), Arc::new(SystemRandom), outside, "https://as.example", false, at(0))
        .await
}

async fn kid(identity: &Identity, stage: Stage) -> String {
    let keys = identity.list_keys(at(0)).await.unwrap();
    let found = keys.into_iter().find(|key| key.purpose == Purpose::AccessToken && key.stage == stage);
    found.expect("there is one of each stage").kid
}

fn published(identity: &Identity, second: i64) -> Vec<String> {
    let keys = identity.jwks(at(second))["keys"].as_array().unwrap().clone();
    keys.iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_key_is_published_before_it_signs_and_until_its_last_token_has_expired() {
    let identity = open(&Store::memory(), Seal::default()).await.unwrap();
    let (first, second) = (kid(&identity, Stage::Active).await, kid(&identity, Stage::Next).await);
    assert!(published(&identity, 0).contains(&first) && published(&identity, 0).contains(&second));
    // Nobody has had the time to see the next ones.
    assert!(matches!(identity.rotate_keys(false, at(299)).await, Err(RotateError::TooSoon { .. })));
    identity.rotate_keys(false, at(300)).await.unwrap();
    assert_eq!(kid(&identity, Stage::Active).await, second);
    // Another one right after would make a key sign that nobody could have seen.
    let refused = identity.rotate_keys(false, at(301)).await.unwrap_err();
    assert!(refused.to_string().contains("--now"), "{refused}");
    assert!(published(&identity, 300 + 3600).contains(&first), "a token lives an hour");
    assert!(!published(&identity, 300 + 3660).contains(&first));
    // What is gone is taken away when somebody looks.
    identity.tend_keys(NEVER, at(300 + 3660)).await.unwrap();
    assert!(identity.list_keys(at(0)).await.unwrap().iter().all(|key| key.kid != first));
    identity.rotate_keys(true, at(4000)).await.unwrap();
    identity.rotate_keys(true, at(4001)).await.unwrap();
}

#[tokio::test]
async fn two_nodes_rotate_once() {
    let store = Store::memory();
    let every = SignedDuration::from_hours(24);
    let (one, two) =
        (open(&store, Seal::default()).await.unwrap(), open(&store, Seal::default()).await.unwrap());
    assert_eq!(kid(&one, Stage::Active).await, kid(&two, Stage::Active).await, "they made one ring");
    let next = kid(&one, Stage::Next).await;
    let due = at(24 * 3600);
    assert!(!one.tend_keys(every, at(24 * 3600 - 1)).await.unwrap());
    let (a, b) = tokio::join!(one.tend_keys(every, due), two.tend_keys(every, due));
    assert_eq!(usize::from(a.unwrap()) + usize::from(b.unwrap()), 1);
    assert_eq!(kid(&one, Stage::Active).await, next);
    // The one that did not rotate takes over what the other did.
    one.tend_keys(every, due).await.unwrap();
    two.tend_keys(every, due).await.unwrap();
    assert_eq!(published(&one, 24 * 3600), published(&two, 24 * 3600));
    // With an interval shorter than a key set is kept, the key set's life rules.
    assert!(!one.tend_keys(SignedDuration::ZERO, at(24 * 3600 + 299)).await.unwrap());
    assert!(one.tend_keys(SignedDuration::ZERO, at(24 * 3600 + 300)).await.unwrap());
}

#[tokio::test]
async fn a_revoked_active_key_has_a_successor_at_once() {
    let identity = open(&Store::memory(), Seal::default()).await.unwrap();
    let (active, next) = (kid(&identity, Stage::Active).await, kid(&identity, Stage::Next).await);
    assert!(identity.revoke_key(&active, at(10)).await.unwrap());
    assert_eq!(kid(&identity, Stage::Active).await, next);
    assert!(!published(&identity, 10).contains(&active));
    assert!(!identity.revoke_key("nobody", at(10)).await.unwrap());
}

#[tokio::test]
async fn id_tokens_are_signed_as_the_client_chose() {
    let world = World::new().await;
    for (chosen, alg, hash) in [
        (None, "RS256", 16),
        (Some("ES256"), "ES256", 16),
        (Some("ES384"), "ES384", 24),
        (Some("EdDSA"), "EdDSA", 32),
    ] {
        let mut app = client("app");
        app.id_token_alg = chosen.map(str::to_owned);
        let beside = Beside { access_token: Some("access"), user: None };
        let token = world.identity.mint_id_token(&app, &world.grant("openid"), beside, at(0));
        let part = |at: usize| -> serde_json::Value {
            use base64::engine::general_purpose::URL_SAFE_NO_PAD;
            let part = token.split('.').nth(at).unwrap();
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
        };
        assert_eq!(part(0)["alg"], alg);
        assert_eq!(part(1)["at_hash"].as_str().unwrap().len(), (hash * 4_usize).div_ceil(3), "{alg}");
        let (sub, aud, _) = world.identity.read_id_token_hint(&token, at(0)).expect("it is ours");
        assert_eq!((sub, aud.as_str()), (world.user.sub.clone(), "app"));
    }
    let mut wrong = client("wrong");
    wrong.id_token_alg = Some("none".to_owned());
    let refused = world.identity.add_client(&wrong, at(0)).await.unwrap_err().to_string();
    assert!(refused.contains("'none' is no algorithm for ID tokens; use RS256"), "{refused}");
    assert_eq!(SigningAlg::parse("HS256"), None);
}

async fn secrets(store: &Store) -> String {
    let records = store.scan("secret/", None, 100, at(0)).await.unwrap();
    assert_eq!(records.len(), 2, "the keys and the server's own secret");
    records.iter().map(|(_, record)| String::from_utf8_lossy(&record.value).into_owned()).collect()
}

fn kek(byte: u8) -> Option<SealKey> {
    Some(SealKey::from_base64(&STANDARD.encode([byte; 32])).unwrap())
}

#[tokio::test]
async fn secrets_are_sealed_at_rest_and_the_key_can_be_turned() {
    let store = Store::memory();
    let sealed = open(&store, Seal { current: kek(1), previous: None }).await.unwrap();
    let (active, mark) = (kid(&sealed, Stage::Active).await, sealed.mark("test", "text"));
    let text = secrets(&store).await;
    assert!(!text.contains("pkcs8") && !text.contains(&active), "{text}");
    let again = open(&store, Seal { current: kek(1), previous: None }).await.unwrap();
    assert_eq!((kid(&again, Stage::Active).await, again.mark("test", "text")), (active, mark.clone()));
    sealed.rotate_keys(true, at(1)).await.unwrap();
    assert!(!secrets(&store).await.contains("pkcs8"), "what is written later is sealed as well");
    let missing = open(&store, Seal::default()).await.err();
    assert!(matches!(missing, Some(OpenError::Seal(SealError::Missing(_)))));
    let wrong = open(&store, Seal { current: kek(2), previous: None }).await.err();
    assert!(matches!(wrong, Some(OpenError::Seal(SealError::WrongKey(_)))));
    // The key is turned: afterwards the old one is not needed.
    open(&store, Seal { current: kek(2), previous: kek(1) }).await.unwrap();
    let turned = open(&store, Seal { current: kek(2), previous: None }).await.unwrap();
    assert_eq!(turned.mark("test", "text"), mark);
    // And it can be taken off.
    open(&store, Seal { current: None, previous: kek(2) }).await.unwrap();
    assert!(open(&store, Seal::default()).await.is_ok());
}

#[tokio::test]
async fn secrets_that_were_stored_in_plain_are_replaced_when_a_key_is_configured() {
    let world = World::new().await;
    let store = Store::memory();
    let plain = open(&store, Seal::default()).await.unwrap();
    plain.rotate_keys(true, at(0)).await.unwrap();
    let before = secrets(&store).await;
    let exposed = plain.list_keys(at(0)).await.unwrap();
    let (active, mark) = (kid(&plain, Stage::Active).await, plain.mark("test", "text"));
    let hint = plain.mint_id_token(&client("app"), &world.grant("openid"), Beside::default(), at(0));
    // Only a key that signs, or will, has a private half.
    let private = exposed.iter().filter(|key| key.stage != Stage::Retiring).count();
    assert_eq!(before.matches("pkcs8").count(), private);

    let sealed = open(&store, Seal { current: kek(1), previous: None }).await.unwrap();
    assert!(!secrets(&store).await.contains("pkcs8"));
    assert!(sealed.mark("test", "text") != mark, "the server secret is another one");
    for key in sealed.list_keys(at(0)).await.unwrap() {
        let is_old = exposed.iter().any(|old| old.kid == key.kid);
        assert_eq!(is_old, key.stage == Stage::Retiring, "{}", key.kid);
    }
    // Tokens of the old keys are accepted until they expire, also after another start.
    let sealed = open(&store, Seal { current: kek(1), previous: None }).await.unwrap();
    assert!(published(&sealed, 3600).contains(&active));
    assert!(sealed.read_id_token_hint(&hint, at(3600)).is_some());
    sealed.tend_keys(NEVER, at(3660)).await.unwrap();
    assert!(sealed.read_id_token_hint(&hint, at(3660)).is_none());
    assert!(sealed.list_keys(at(3660)).await.unwrap().iter().all(|key| key.kid != active));
    // Decrypted, the records hold no private half of an exposed key.
    open(&store, Seal { current: None, previous: kek(1) }).await.unwrap();
    let after = secrets(&store).await;
    let halves = |text: &str| -> Vec<String> {
        text.split("\"pkcs8\":\"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
    };
    assert!(!halves(&after).is_empty());
    assert!(halves(&before).iter().all(|half| !after.contains(half.as_str())));
}

#[tokio::test]
async fn the_server_secret_is_rotated_on_its_own() {
    for seal in [|| Seal::default(), || Seal { current: kek(1), previous: None }] {
        let store = Store::memory();
        let identity = open(&store, seal()).await.unwrap();
        let (active, mark) = (kid(&identity, Stage::Active).await, identity.mark("test", "text"));
        identity.rotate_server_secret(at(1)).await.unwrap();
        let rotated = identity.mark("test", "text");
        assert!(!identity.is_marked("test", "text", &mark), "marks of the old secret are invalid");
        let again = open(&store, seal()).await.unwrap();
        assert!(again.is_marked("test", "text", &rotated));
        assert_eq!(kid(&again, Stage::Active).await, active, "signing keys stay");
    }
}
