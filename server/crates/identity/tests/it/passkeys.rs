//! Passkeys and recovery codes, with an authenticator made of software.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use trefoil_identity::passkey::{Begun, PasskeyError};
use trefoil_identity::user::User;

use crate::support::{World, at};

const ORIGIN: &str = "https://as.example";
const VERIFIED: u8 = 0b101;
const PRESENT_ONLY: u8 = 0b001;

fn b64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// An authenticator with one key (Web Authentication 6.1, 6.5).
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

    fn client_data(&self, kind: &str, begun: &Begun) -> String {
        json!({ "type": kind, "challenge": begun.options["challenge"], "origin": self.origin, "crossOrigin": false })
            .to_string()
    }

    /// Relying party, flags, counter.
    fn data(&self, more_flags: u8) -> Vec<u8> {
        let mut data = Sha256::digest("as.example").to_vec();
        data.push(self.flags | more_flags);
        data.extend(self.counter.to_be_bytes());
        data
    }

    fn create(&mut self, begun: &Begun) -> String {
        self.handle = begun.options["user"]["id"].as_str().unwrap().to_owned();
        let mut data = self.data(0b100_0000);
        data.extend([0; 16]);
        data.extend([0, 16]);
        data.extend(self.id);
        // COSE key: EC2, ES256, P-256 (RFC 9053 7.1.1).
        let (x, y) = self.key.public_key().as_ref()[1..].split_at(32);
        data.extend([0xa5, 0x01, 0x02, 0x03, 0x26, 0x20, 0x01, 0x21, 0x58, 0x20]);
        data.extend(x);
        data.extend([0x22, 0x58, 0x20]);
        data.extend(y);
        // {"fmt": "none", "attStmt": {}, "authData": …}
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

    fn get(&mut self, begun: &Begun) -> String {
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
        let begun = self.identity.begin_passkey_registration(&self.user, "browser", at(0)).await?;
        let made = key.create(&begun);
        self.identity
            .finish_passkey_registration(&self.user, &begun.ceremony, &made, name, "browser", at(1))
            .await
    }

    async fn sign_in(
        &self,
        key: &mut Authenticator,
        after: Option<&User>,
    ) -> Result<Vec<String>, PasskeyError> {
        let begun = self.identity.begin_passkey_sign_in(after, "browser", at(2)).await?;
        let shown = key.get(&begun);
        let done = self.identity.finish_passkey_sign_in(&begun.ceremony, &shown, "browser", at(3)).await;
        done.map(|(user, proof)| {
            assert_eq!(user.sub, self.user.sub);
            proof.amr
        })
    }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(outcome: Result<T, PasskeyError>) {
    assert!(matches!(outcome, Err(PasskeyError::Refused(_))), "{outcome:?}");
}

#[track_caller]
fn over<T: std::fmt::Debug>(outcome: Result<T, PasskeyError>) {
    assert!(matches!(outcome, Err(PasskeyError::Over)), "{outcome:?}");
}

#[tokio::test]
async fn a_passkey_signs_its_user_in_and_a_removed_one_does_not() {
    let world = World::new().await;
    let mut key = Authenticator::new(1);
    let begun = world.identity.begin_passkey_registration(&world.user, "browser", at(0)).await.unwrap();
    let selection = &begun.options["authenticatorSelection"];
    assert_eq!(
        (&selection["residentKey"], &selection["userVerification"]),
        (&json!("required"), &json!("required"))
    );
    world.register(&mut key, "  my phone\u{7}  ").await.unwrap();
    let known = world.identity.passkeys_of(&world.user.sub, at(2)).await.unwrap();
    assert_eq!((known.len(), known[0].name.as_str(), known[0].last_used), (1, "my phone", None));

    let begun = world.identity.begin_passkey_sign_in(None, "browser", at(2)).await.unwrap();
    assert_eq!(begun.options["allowCredentials"], json!([]), "a sign-in names nobody");
    assert_eq!(begun.options["userVerification"], "required");
    assert_eq!(world.sign_in(&mut key, None).await.unwrap(), ["hwk", "user", "mfa"]);
    assert_eq!(world.sign_in(&mut key, Some(&world.user)).await.unwrap(), ["pwd", "hwk", "user", "mfa"]);
    let known = world.identity.passkeys_of(&world.user.sub, at(4)).await.unwrap();
    assert_eq!(known[0].last_used, Some(at(3)));

    let only = world.identity.remove_passkey(&world.user, &known[0].id, at(5)).await;
    assert!(matches!(only, Err(PasskeyError::OnlyWay)), "ada has no password");
    let set = |user: &mut User| user.password = Some("a hash".to_owned());
    let user = world.identity.change_user("ada", at(5), set).await.unwrap();
    world.identity.remove_passkey(&user, &known[0].id, at(5)).await.unwrap();
    refused(world.sign_in(&mut key, None).await);
}

#[tokio::test]
async fn a_ceremony_is_taken_once_in_time_and_by_its_browser() {
    let world = World::new().await;
    let mut key = Authenticator::new(1);
    world.register(&mut key, "").await.unwrap();
    let identity = &world.identity;
    let begun = identity.begin_passkey_sign_in(None, "browser", at(2)).await.unwrap();
    let shown = key.get(&begun);
    over(identity.finish_passkey_sign_in(&begun.ceremony, &shown, "another", at(3)).await);
    identity.finish_passkey_sign_in(&begun.ceremony, &shown, "browser", at(3)).await.unwrap();
    over(identity.finish_passkey_sign_in(&begun.ceremony, &shown, "browser", at(3)).await);
    // Also what failed is over.
    let begun = identity.begin_passkey_sign_in(None, "browser", at(4)).await.unwrap();
    refused(identity.finish_passkey_sign_in(&begun.ceremony, "{}", "browser", at(4)).await);
    over(identity.finish_passkey_sign_in(&begun.ceremony, &key.get(&begun), "browser", at(4)).await);
    let begun = identity.begin_passkey_sign_in(None, "browser", at(5)).await.unwrap();
    over(identity.finish_passkey_sign_in(&begun.ceremony, &key.get(&begun), "browser", at(305)).await);
    // One kind of ceremony is never taken for the other.
    let begun = identity.begin_passkey_sign_in(None, "browser", at(6)).await.unwrap();
    let made = Authenticator::new(2).create(&Begun {
        ceremony: String::new(),
        options: json!({ "challenge": begun.options["challenge"], "user": { "id": "x" } }),
    });
    over(
        identity.finish_passkey_registration(&world.user, &begun.ceremony, &made, "", "browser", at(6)).await,
    );
}

#[tokio::test]
async fn what_does_not_hold_is_refused() {
    let world = World::new().await;
    let mut key = Authenticator::new(1);
    world.register(&mut key, "").await.unwrap();
    world.sign_in(&mut key, None).await.unwrap();

    key.flags = PRESENT_ONLY;
    refused(world.sign_in(&mut key, None).await);
    key.flags = VERIFIED;
    key.origin = "https://as.example.evil.example";
    refused(world.sign_in(&mut key, None).await);
    key.origin = ORIGIN;
    world.sign_in(&mut key, None).await.unwrap();
    // A counter that does not go on is the mark of a copy.
    key.counter -= 1;
    refused(world.sign_in(&mut key, None).await);
    key.counter += 1;
    world.sign_in(&mut key, None).await.unwrap();

    let mut stranger = Authenticator::new(1);
    stranger.handle.clone_from(&key.handle);
    stranger.counter = 100;
    refused(world.sign_in(&mut stranger, None).await);
    let mut nobody = Authenticator::new(9);
    nobody.handle = b64([7; 16]);
    refused(world.sign_in(&mut nobody, None).await);

    let other = User { username: "grace".to_owned(), ..world.user.clone() };
    let other = world.identity.add_user(other, at(0)).await.unwrap();
    refused(world.sign_in(&mut key, Some(&other)).await);
    refused(world.register(&mut key, "twice").await);

    world.identity.change_user("ada", at(3), |user| user.disabled = true).await.unwrap();
    refused(world.sign_in(&mut key, None).await);
}

#[tokio::test]
async fn a_password_may_need_a_passkey_as_long_as_there_is_one() {
    let world = World::new().await;
    let identity = &world.identity;
    let sub = &world.user.sub;
    assert!(matches!(identity.ask_for_passkey(sub, true, at(0)).await, Err(PasskeyError::NoPasskey)));
    let set = |user: &mut User| user.password = Some("a hash".to_owned());
    let user = identity.change_user("ada", at(0), set).await.unwrap();
    let mut key = Authenticator::new(1);
    world.register(&mut key, "").await.unwrap();
    assert!(!identity.needs_passkey(sub, at(1)).await.unwrap());
    identity.ask_for_passkey(sub, true, at(1)).await.unwrap();
    assert!(identity.needs_passkey(sub, at(1)).await.unwrap());
    let known = identity.passkeys_of(sub, at(1)).await.unwrap();
    identity.remove_passkey(&user, &known[0].id, at(1)).await.unwrap();
    assert!(!identity.needs_passkey(sub, at(1)).await.unwrap());
}

#[tokio::test]
async fn a_recovery_code_works_once_and_new_ones_replace_it() {
    let world = World::new().await;
    let identity = &world.identity;
    let codes = identity.new_recovery_codes(&world.user.sub, at(0)).await.unwrap();
    assert_eq!(codes.iter().collect::<std::collections::BTreeSet<_>>().len(), 10);
    let spend =
        async |code: &str| identity.spend_recovery_code(Some(&world.user), code, at(1)).await.unwrap();
    assert!(!spend("0000-0000-0000-0000").await);
    assert!(!identity.spend_recovery_code(None, &codes[0], at(1)).await.unwrap());
    assert!(spend(&format!(" {} ", codes[0].to_uppercase().replace('0', "O").replace('-', " "))).await);
    assert!(!spend(&codes[0]).await);
    assert_eq!(identity.recovery_codes_left(&world.user.sub, at(2)).await.unwrap(), 9);
    let renewed = identity.new_recovery_codes(&world.user.sub, at(3)).await.unwrap();
    assert!(!spend(&codes[1]).await);
    assert!(spend(&renewed[1]).await);
}

#[tokio::test]
async fn a_server_without_a_host_name_has_no_passkeys() {
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
        assert_eq!(identity.has_passkeys(), can, "{issuer}");
    }
}
