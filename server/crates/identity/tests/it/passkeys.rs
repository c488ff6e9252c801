//! Tests of passkeys and recovery codes with a software authenticator.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use trefoil_identity::model::user::User;
use trefoil_identity::sign_in::passkey::{PasskeyCeremonyStart, PasskeyError};

use crate::support::{World, at};

const ORIGIN: &str = "https://as.example";
const VERIFIED: u8 = 0b101;
const PRESENT_ONLY: u8 = 0b001;

fn b64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A software authenticator with one key (Web Authentication sections 6.1 and 6.5).
struct Authenticator {
    key: EcdsaKeyPair,
    id: [u8; 16],
    handle: String,
    counter: u32,
    flags: u8,
    origin: &'static str,
}

impl Authenticator {
    fn new(id: u8) -> Self {
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap();
        Self { key, id: [id; 16], handle: String::new(), counter: 0, flags: VERIFIED, origin: ORIGIN }
    }

    fn client_data(&self, kind: &str, begun: &PasskeyCeremonyStart) -> String {
        json!({ "type": kind, "challenge": begun.options["challenge"], "origin": self.origin, "crossOrigin": false })
            .to_string()
    }

    /// Returns the authenticator data: relying party, flags, counter.
    fn data(&self, more_flags: u8) -> Vec<u8> {
        let mut data = Sha256::digest("as.example").to_vec();
        data.push(self.flags | more_flags);
        data.extend(self.counter.to_be_bytes());
        data
    }

    fn create(&mut self, begun: &PasskeyCeremonyStart) -> String {
        self.handle = begun.options["user"]["id"].as_str().unwrap().to_owned();
        let mut data = self.data(0b100_0000);
        data.extend([0; 16]);
        data.extend([0, 16]);
        data.extend(self.id);
        // COSE key: EC2, ES256, P-256 (RFC 9053 section 7.1.1).
        let (x, y) = self.key.public_key().as_ref()[1..].split_at(32);
        data.extend([0xa5, 0x01, 0x02, 0x03, 0x26, 0x20, 0x01, 0x21, 0x58, 0x20]);
        data.extend(x);
        data.extend([0x22, 0x58, 0x20]);
        data.extend(y);
        // CBOR of {"fmt": "none", "attStmt": {}, "authData": …}
        let mut object = vec![0xa3, 0x63];
        object.extend(b"fmt\x64none\x67attStmt\xa0\x68authData\x58");
        object.push(u8::try_from(data.len()).unwrap());
        object.extend(data);
        let response = json!({
            "clientDataJSON": b64(self.client_data("webauthn.create", begun)), "attestationObject": b64(object),
        });
        json!({ "id": b64(self.id), "rawId": b64(self.id), "type": "public-key", "response": response })
            .to_string()
    }

    fn get(&mut self, begun: &PasskeyCeremonyStart) -> String {
        self.counter += 1;
        let client_data = self.client_data("webauthn.get", begun);
        let data = self.data(0);
        let signed = [data.clone(), Sha256::digest(&client_data).to_vec()].concat();
        let signature = self.key.sign(&SystemRandom::new(), &signed).unwrap();
        let response = json!({
            "clientDataJSON": b64(client_data), "authenticatorData": b64(data), "signature": b64(signature),
            "userHandle": self.handle,
        });
        json!({ "id": b64(self.id), "rawId": b64(self.id), "type": "public-key", "response": response })
            .to_string()
    }
}

impl World {
    async fn register(&self, key: &mut Authenticator, name: &str) -> Result<(), PasskeyError> {
        let begun = self.identity.sign_in.begin_passkey_registration(&self.user, "browser", at(0)).await?;
        let made = key.create(&begun);
        self.identity
            .sign_in
            .finish_passkey_registration(&self.user, &begun.ceremony, &made, name, "browser", at(1))
            .await
    }

    async fn sign_in(
        &self,
        key: &mut Authenticator,
        after: Option<&User>,
    ) -> Result<Vec<String>, PasskeyError> {
        let begun = self.identity.sign_in.begin_passkey_sign_in(after, "browser", at(2)).await?;
        let shown = key.get(&begun);
        let done =
            self.identity.sign_in.finish_passkey_sign_in(&begun.ceremony, &shown, "browser", at(3)).await;
        done.map(|(user, proof)| {
            assert_eq!(user.sub, self.user.sub);
            proof.amr
        })
    }
}

#[track_caller]
fn assert_rejected<T: std::fmt::Debug>(outcome: Result<T, PasskeyError>) {
    assert!(matches!(outcome, Err(PasskeyError::Rejected(_))), "{outcome:?}");
}

#[track_caller]
fn assert_over<T: std::fmt::Debug>(outcome: Result<T, PasskeyError>) {
    assert!(matches!(outcome, Err(PasskeyError::CeremonyExpired)), "{outcome:?}");
}

#[tokio::test]
async fn a_passkey_signs_its_user_in_until_it_is_removed() {
    let world = World::new().await;
    let mut key = Authenticator::new(1);
    let begun =
        world.identity.sign_in.begin_passkey_registration(&world.user, "browser", at(0)).await.unwrap();
    let selection = &begun.options["authenticatorSelection"];
    assert_eq!(
        (&selection["residentKey"], &selection["userVerification"]),
        (&json!("required"), &json!("required"))
    );
    world.register(&mut key, "  my phone\u{7}  ").await.unwrap();
    let known = world.identity.sign_in.user_passkeys(&world.user.sub, at(2)).await.unwrap();
    assert_eq!((known.len(), known[0].name.as_str(), known[0].last_used), (1, "my phone", None));

    let begun = world.identity.sign_in.begin_passkey_sign_in(None, "browser", at(2)).await.unwrap();
    assert_eq!(
        begun.options["allowCredentials"],
        json!([]),
        "the options of a sign-in contain no credential ids"
    );
    assert_eq!(begun.options["userVerification"], "required");
    assert_eq!(world.sign_in(&mut key, None).await.unwrap(), ["hwk", "user", "mfa"]);
    assert_eq!(world.sign_in(&mut key, Some(&world.user)).await.unwrap(), ["pwd", "hwk", "user", "mfa"]);
    let known = world.identity.sign_in.user_passkeys(&world.user.sub, at(4)).await.unwrap();
    assert_eq!(known[0].last_used, Some(at(3)));

    let only = world.identity.sign_in.remove_passkey(&world.user, &known[0].id, at(5)).await;
    assert!(matches!(only, Err(PasskeyError::OnlyWay)), "ada has no password");
    let set = |user: &mut User| user.password = Some("a hash".to_owned());
    let user = world.identity.users.change_user("ada", at(5), set).await.unwrap();
    world.identity.sign_in.remove_passkey(&user, &known[0].id, at(5)).await.unwrap();
    assert_rejected(world.sign_in(&mut key, None).await);
}

#[tokio::test]
async fn a_ceremony_is_completed_once_in_time_and_in_its_browser() {
    let world = World::new().await;
    let mut key = Authenticator::new(1);
    world.register(&mut key, "").await.unwrap();
    let identity = &world.identity;
    let begun = identity.sign_in.begin_passkey_sign_in(None, "browser", at(2)).await.unwrap();
    let shown = key.get(&begun);
    assert_over(identity.sign_in.finish_passkey_sign_in(&begun.ceremony, &shown, "another", at(3)).await);
    identity.sign_in.finish_passkey_sign_in(&begun.ceremony, &shown, "browser", at(3)).await.unwrap();
    assert_over(identity.sign_in.finish_passkey_sign_in(&begun.ceremony, &shown, "browser", at(3)).await);
    // A failed attempt also uses up the ceremony.
    let begun = identity.sign_in.begin_passkey_sign_in(None, "browser", at(4)).await.unwrap();
    assert_rejected(identity.sign_in.finish_passkey_sign_in(&begun.ceremony, "{}", "browser", at(4)).await);
    assert_over(
        identity.sign_in.finish_passkey_sign_in(&begun.ceremony, &key.get(&begun), "browser", at(4)).await,
    );
    let begun = identity.sign_in.begin_passkey_sign_in(None, "browser", at(5)).await.unwrap();
    assert_over(
        identity.sign_in.finish_passkey_sign_in(&begun.ceremony, &key.get(&begun), "browser", at(305)).await,
    );
    // A sign-in ceremony is not accepted as a registration.
    let begun = identity.sign_in.begin_passkey_sign_in(None, "browser", at(6)).await.unwrap();
    let made = Authenticator::new(2).create(&PasskeyCeremonyStart {
        ceremony: String::new(),
        options: json!({ "challenge": begun.options["challenge"], "user": { "id": "x" } }),
    });
    assert_over(
        identity
            .sign_in
            .finish_passkey_registration(&world.user, &begun.ceremony, &made, "", "browser", at(6))
            .await,
    );
}

#[tokio::test]
async fn invalid_responses_are_rejected() {
    let world = World::new().await;
    let mut key = Authenticator::new(1);
    world.register(&mut key, "").await.unwrap();
    world.sign_in(&mut key, None).await.unwrap();

    key.flags = PRESENT_ONLY;
    assert_rejected(world.sign_in(&mut key, None).await);
    key.flags = VERIFIED;
    key.origin = "https://as.example.evil.example";
    assert_rejected(world.sign_in(&mut key, None).await);
    key.origin = ORIGIN;
    world.sign_in(&mut key, None).await.unwrap();
    // A counter that does not increase indicates a copied passkey.
    key.counter -= 1;
    assert_rejected(world.sign_in(&mut key, None).await);
    key.counter += 1;
    world.sign_in(&mut key, None).await.unwrap();

    let mut stranger = Authenticator::new(1);
    stranger.handle.clone_from(&key.handle);
    stranger.counter = 100;
    assert_rejected(world.sign_in(&mut stranger, None).await);
    let mut nobody = Authenticator::new(9);
    nobody.handle = b64([7; 16]);
    assert_rejected(world.sign_in(&mut nobody, None).await);

    let other = User { username: "grace".to_owned(), ..world.user.clone() };
    let other = world.identity.users.add_user(other, at(0)).await.unwrap();
    assert_rejected(world.sign_in(&mut key, Some(&other)).await);
    assert_rejected(world.register(&mut key, "twice").await);

    world.identity.users.change_user("ada", at(3), |user| user.disabled = true).await.unwrap();
    assert_rejected(world.sign_in(&mut key, None).await);
}

#[tokio::test]
async fn a_password_can_require_a_passkey_while_there_is_one() {
    let world = World::new().await;
    let identity = &world.identity;
    let sub = &world.user.sub;
    assert!(matches!(identity.sign_in.require_passkey(sub, true, at(0)).await, Err(PasskeyError::NoPasskey)));
    let set = |user: &mut User| user.password = Some("a hash".to_owned());
    let user = identity.users.change_user("ada", at(0), set).await.unwrap();
    let mut key = Authenticator::new(1);
    world.register(&mut key, "").await.unwrap();
    assert!(!identity.sign_in.requires_passkey(sub, at(1)).await.unwrap());
    identity.sign_in.require_passkey(sub, true, at(1)).await.unwrap();
    assert!(identity.sign_in.requires_passkey(sub, at(1)).await.unwrap());
    let known = identity.sign_in.user_passkeys(sub, at(1)).await.unwrap();
    identity.sign_in.remove_passkey(&user, &known[0].id, at(1)).await.unwrap();
    assert!(!identity.sign_in.requires_passkey(sub, at(1)).await.unwrap());
}

#[tokio::test]
async fn a_recovery_code_works_once_and_new_ones_replace_it() {
    let world = World::new().await;
    let identity = &world.identity;
    let codes = identity.sign_in.replace_recovery_codes(&world.user.sub, at(0)).await.unwrap();
    assert_eq!(codes.iter().collect::<std::collections::BTreeSet<_>>().len(), 10);
    let spend = async |code: &str| {
        identity.sign_in.redeem_recovery_code(Some(&world.user), code, at(1)).await.unwrap()
    };
    assert!(!spend("0000-0000-0000-0000").await);
    assert!(!identity.sign_in.redeem_recovery_code(None, &codes[0], at(1)).await.unwrap());
    assert!(spend(&format!(" {} ", codes[0].to_uppercase().replace('0', "O").replace('-', " "))).await);
    assert!(!spend(&codes[0]).await);
    assert_eq!(identity.sign_in.count_recovery_codes(&world.user.sub, at(2)).await.unwrap(), 9);
    let renewed = identity.sign_in.replace_recovery_codes(&world.user.sub, at(3)).await.unwrap();
    assert!(!spend(&codes[1]).await);
    assert!(spend(&renewed[1]).await);
}

#[tokio::test]
async fn a_server_with_an_ip_address_has_no_passkeys() {
    for (issuer, can) in [
        ("https://localhost:8443", true),
        ("http://localhost:8080", true),
        ("https://id.example", true),
        ("https://127.0.0.1:8443", false),
        ("https://[::1]:8443", false),
    ] {
        let random = std::sync::Arc::new(trefoil_identity::SystemRandom);
        let store = store::Store::memory();
        let identity = trefoil_identity::Identity::open(store, random, issuer, false, at(0)).await.unwrap();
        assert_eq!(identity.sign_in.supports_passkeys(), can, "{issuer}");
    }
}
