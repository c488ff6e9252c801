//! Tests of passkeys and recovery codes with a software authenticator.

use serde_json::json;
use test_parties::base64url;
use test_parties::{Authenticator, PRESENT, VERIFIED};
use trefoil_identity::model::user::User;
use trefoil_identity::sign_in::passkey_error::PasskeyError;

use crate::support::{Setup, at};

const ORIGIN: &str = "https://as.example";

fn authenticator(seed: u64) -> Authenticator {
    Authenticator::new(ORIGIN, seed)
}

impl Setup {
    async fn register(&self, key: &mut Authenticator, name: &str) -> Result<(), PasskeyError> {
        let start = self.identity.sign_in.begin_passkey_registration(&self.user, "browser", at(0)).await?;
        let credential = key.create(&start.options);
        self.identity
            .sign_in
            .finish_passkey_registration(&self.user, &start.ceremony, &credential, name, "browser", at(1))
            .await
    }

    async fn sign_in(
        &self,
        key: &mut Authenticator,
        after: Option<&User>,
    ) -> Result<Vec<String>, PasskeyError> {
        let start = self.identity.sign_in.begin_passkey_sign_in(after, "browser", at(2)).await?;
        let assertion = key.get(&start.options);
        let result =
            self.identity.sign_in.finish_passkey_sign_in(&start.ceremony, &assertion, "browser", at(3)).await;
        result.map(|(user, proof)| {
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
    let setup = Setup::new().await;
    let mut key = authenticator(1);
    let start =
        setup.identity.sign_in.begin_passkey_registration(&setup.user, "browser", at(0)).await.unwrap();
    let selection = &start.options["authenticatorSelection"];
    assert_eq!(
        (&selection["residentKey"], &selection["userVerification"]),
        (&json!("required"), &json!("required"))
    );
    setup.register(&mut key, "  my phone\u{7}  ").await.unwrap();
    let passkeys = setup.identity.sign_in.user_passkeys(&setup.user.sub, at(2)).await.unwrap();
    assert_eq!((passkeys.len(), passkeys[0].name.as_str(), passkeys[0].last_used), (1, "my phone", None));

    let start = setup.identity.sign_in.begin_passkey_sign_in(None, "browser", at(2)).await.unwrap();
    assert_eq!(
        start.options["allowCredentials"],
        json!([]),
        "the options of a sign-in contain no credential ids"
    );
    assert_eq!(start.options["userVerification"], "required");
    assert_eq!(setup.sign_in(&mut key, None).await.unwrap(), ["hwk", "user", "mfa"]);
    assert_eq!(setup.sign_in(&mut key, Some(&setup.user)).await.unwrap(), ["pwd", "hwk", "user", "mfa"]);
    let passkeys = setup.identity.sign_in.user_passkeys(&setup.user.sub, at(4)).await.unwrap();
    assert_eq!(passkeys[0].last_used, Some(at(3)));

    let only = setup.identity.sign_in.remove_passkey(&setup.user, &passkeys[0].id, at(5)).await;
    assert!(matches!(only, Err(PasskeyError::OnlyWay)), "ada has no password");
    let set = |user: &mut User| user.password = Some("a hash".to_owned());
    let user = setup.identity.users.change_user("ada", at(5), set).await.unwrap();
    setup.identity.sign_in.remove_passkey(&user, &passkeys[0].id, at(5)).await.unwrap();
    assert_rejected(setup.sign_in(&mut key, None).await);
}

#[tokio::test]
async fn a_ceremony_is_completed_once_in_time_and_in_its_browser() {
    let setup = Setup::new().await;
    let mut key = authenticator(1);
    setup.register(&mut key, "").await.unwrap();
    let identity = &setup.identity;
    let start = identity.sign_in.begin_passkey_sign_in(None, "browser", at(2)).await.unwrap();
    let assertion = key.get(&start.options);
    assert_over(identity.sign_in.finish_passkey_sign_in(&start.ceremony, &assertion, "another", at(3)).await);
    identity.sign_in.finish_passkey_sign_in(&start.ceremony, &assertion, "browser", at(3)).await.unwrap();
    assert_over(identity.sign_in.finish_passkey_sign_in(&start.ceremony, &assertion, "browser", at(3)).await);
    // A failed attempt also uses up the ceremony.
    let start = identity.sign_in.begin_passkey_sign_in(None, "browser", at(4)).await.unwrap();
    assert_rejected(identity.sign_in.finish_passkey_sign_in(&start.ceremony, "{}", "browser", at(4)).await);
    assert_over(
        identity
            .sign_in
            .finish_passkey_sign_in(&start.ceremony, &key.get(&start.options), "browser", at(4))
            .await,
    );
    let start = identity.sign_in.begin_passkey_sign_in(None, "browser", at(5)).await.unwrap();
    assert_over(
        identity
            .sign_in
            .finish_passkey_sign_in(&start.ceremony, &key.get(&start.options), "browser", at(305))
            .await,
    );
    // A sign-in ceremony is not accepted as a registration.
    let start = identity.sign_in.begin_passkey_sign_in(None, "browser", at(6)).await.unwrap();
    let credential =
        authenticator(2).create(&json!({ "challenge": start.options["challenge"], "user": { "id": "x" } }));
    assert_over(
        identity
            .sign_in
            .finish_passkey_registration(&setup.user, &start.ceremony, &credential, "", "browser", at(6))
            .await,
    );
}

#[tokio::test]
async fn invalid_responses_are_rejected() {
    let setup = Setup::new().await;
    let mut key = authenticator(1);
    setup.register(&mut key, "").await.unwrap();
    setup.sign_in(&mut key, None).await.unwrap();

    key.flags = PRESENT;
    assert_rejected(setup.sign_in(&mut key, None).await);
    key.flags = VERIFIED;
    key.origin = "https://as.example.evil.example".to_owned();
    assert_rejected(setup.sign_in(&mut key, None).await);
    key.origin = ORIGIN.to_owned();
    setup.sign_in(&mut key, None).await.unwrap();
    // A counter that does not increase indicates a copied passkey.
    key.counter -= 1;
    assert_rejected(setup.sign_in(&mut key, None).await);
    key.counter += 1;
    setup.sign_in(&mut key, None).await.unwrap();

    let mut stranger = authenticator(2);
    stranger.id = key.id;
    stranger.handle.clone_from(&key.handle);
    stranger.counter = 100;
    assert_rejected(setup.sign_in(&mut stranger, None).await);
    let mut nobody = authenticator(9);
    nobody.handle = base64url([7; 16]);
    assert_rejected(setup.sign_in(&mut nobody, None).await);

    let other = User { username: "grace".to_owned(), ..setup.user.clone() };
    let other = setup.identity.users.add_user(other, at(0)).await.unwrap();
    assert_rejected(setup.sign_in(&mut key, Some(&other)).await);
    assert_rejected(setup.register(&mut key, "twice").await);

    setup.identity.users.change_user("ada", at(3), |user| user.disabled = true).await.unwrap();
    assert_rejected(setup.sign_in(&mut key, None).await);
}

#[tokio::test]
async fn a_password_can_require_a_passkey_while_there_is_one() {
    let setup = Setup::new().await;
    let identity = &setup.identity;
    let sub = &setup.user.sub;
    assert!(matches!(identity.sign_in.require_passkey(sub, true, at(0)).await, Err(PasskeyError::NoPasskey)));
    let set = |user: &mut User| user.password = Some("a hash".to_owned());
    let user = identity.users.change_user("ada", at(0), set).await.unwrap();
    let mut key = authenticator(1);
    setup.register(&mut key, "").await.unwrap();
    assert!(!identity.sign_in.requires_passkey(sub, at(1)).await.unwrap());
    identity.sign_in.require_passkey(sub, true, at(1)).await.unwrap();
    assert!(identity.sign_in.requires_passkey(sub, at(1)).await.unwrap());
    let passkeys = identity.sign_in.user_passkeys(sub, at(1)).await.unwrap();
    identity.sign_in.remove_passkey(&user, &passkeys[0].id, at(1)).await.unwrap();
    assert!(!identity.sign_in.requires_passkey(sub, at(1)).await.unwrap());
}

#[tokio::test]
async fn a_recovery_code_works_once_and_new_ones_replace_it() {
    let setup = Setup::new().await;
    let identity = &setup.identity;
    let codes = identity.sign_in.replace_recovery_codes(&setup.user.sub, at(0)).await.unwrap();
    assert_eq!(codes.iter().collect::<std::collections::BTreeSet<_>>().len(), 10);
    let spend = async |code: &str| {
        identity.sign_in.redeem_recovery_code(Some(&setup.user), code, at(1)).await.unwrap()
    };
    assert!(!spend("0000-0000-0000-0000").await);
    assert!(!identity.sign_in.redeem_recovery_code(None, &codes[0], at(1)).await.unwrap());
    assert!(spend(&format!(" {} ", codes[0].to_uppercase().replace('0', "O").replace('-', " "))).await);
    assert!(!spend(&codes[0]).await);
    assert_eq!(identity.sign_in.count_recovery_codes(&setup.user.sub, at(2)).await.unwrap(), 9);
    let renewed = identity.sign_in.replace_recovery_codes(&setup.user.sub, at(3)).await.unwrap();
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
