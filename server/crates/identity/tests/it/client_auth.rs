//! Tests of `private_key_jwt` with every algorithm, and with keys from `jwks` and `jwks_uri`.

use std::sync::{Arc, Mutex};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PSS_SHA256, RSA_PSS_SHA384,
    RsaKeyPair,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use store::Store;
use trefoil_identity::client_auth::authenticator::JWT_BEARER;
use trefoil_identity::client_auth::error::BadAssertion;
use trefoil_identity::client_auth::error::ClientAuthError;
use trefoil_identity::client_auth::key_set_cache::{
    FetchKeySet, FetchedKeySet, KeySetFuture, KeySetUnreachable,
};
use trefoil_identity::model::client::{AuthMethod, Client, GrantType};
use trefoil_identity::params::Params;
use trefoil_identity::{Dependencies, Identity};

use crate::support::at;

const ALL: [&str; 7] = ["RS256", "RS384", "PS256", "PS384", "ES256", "ES384", "EdDSA"];

fn b64(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// One key for each supported algorithm.
struct Keys {
    rsa: RsaKeyPair,
    p256: EcdsaKeyPair,
    p384: EcdsaKeyPair,
    ed: Ed25519KeyPair,
}

impl Keys {
    fn new() -> Self {
        let ec = |alg: &'static EcdsaSigningAlgorithm| EcdsaKeyPair::generate(alg).unwrap();
        Self {
            rsa: RsaKeyPair::generate(KeySize::Rsa2048).unwrap(),
            p256: ec(&ECDSA_P256_SHA256_FIXED_SIGNING),
            p384: ec(&ECDSA_P384_SHA384_FIXED_SIGNING),
            ed: Ed25519KeyPair::generate().unwrap(),
        }
    }

    /// Returns the public key for an algorithm. Its `kid` is the name of the algorithm.
    fn jwk(&self, alg: &str) -> Value {
        let ec = |crv: &str, key: &EcdsaKeyPair| {
            let point = &key.public_key().as_ref()[1..];
            let (x, y) = point.split_at(point.len() / 2);
            json!({ "kty": "EC", "crv": crv, "x": b64(x), "y": b64(y) })
        };
        let mut jwk = match alg {
            "ES256" => ec("P-256", &self.p256),
            "ES384" => ec("P-384", &self.p384),
            "EdDSA" => json!({ "kty": "OKP", "crv": "Ed25519", "x": b64(self.ed.public_key().as_ref()) }),
            _ => {
                let public = self.rsa.public_key();
                let (n, e) = (public.modulus(), public.exponent());
                json!({
                    "kty": "RSA",
                    "n": b64(n.big_endian_without_leading_zero()),
                    "e": b64(e.big_endian_without_leading_zero()),
                })
            }
        };
        jwk["kid"] = alg.into();
        jwk
    }

    fn set(&self) -> Vec<Value> {
        ALL.map(|alg| self.jwk(alg)).to_vec()
    }

    /// Returns an assertion signed with `alg`. The members of `header` replace those of the default header.
    fn assertion(&self, alg: &str, header: Value, jti: &str) -> String {
        let mut whole = json!({ "alg": alg, "kid": alg, "typ": "JWT" });
        if let (Some(whole), Value::Object(header)) = (whole.as_object_mut(), header) {
            whole.extend(header);
        }
        let claims = json!({
            "iss": "batch", "sub": "batch", "aud": "https://as.example/oauth2/token",
            "exp": at(100).as_second(), "jti": jti,
        });
        let signed = format!("{}.{}", b64(whole.to_string().as_bytes()), b64(claims.to_string().as_bytes()));
        let random = SystemRandom::new();
        let rsa = |padding| {
            let mut signature = vec![0; self.rsa.public_modulus_len()];
            self.rsa.sign(padding, &random, signed.as_bytes(), &mut signature).unwrap();
            signature
        };
        let ec = |key: &EcdsaKeyPair| key.sign(&random, signed.as_bytes()).unwrap().as_ref().to_vec();
        let signature = match alg {
            "RS256" => rsa(&RSA_PKCS1_SHA256),
            "RS384" => rsa(&RSA_PKCS1_SHA384),
            "PS256" => rsa(&RSA_PSS_SHA256),
            "PS384" => rsa(&RSA_PSS_SHA384),
            "ES256" => ec(&self.p256),
            "ES384" => ec(&self.p384),
            _ => self.ed.sign(signed.as_bytes()).as_ref().to_vec(),
        };
        format!("{signed}.{}", b64(&signature))
    }
}

/// A key set fetcher that returns the configured keys and records the requested addresses.
#[derive(Default)]
struct Host {
    keys: Mutex<Option<Vec<Value>>>,
    requested: Mutex<Vec<String>>,
}

impl FetchKeySet for Host {
    fn fetch<'a>(&'a self, address: &'a str) -> KeySetFuture<'a> {
        self.requested.lock().unwrap().push(address.to_owned());
        let keys = self.keys.lock().unwrap().clone();
        Box::pin(
            async move { keys.map(|keys| FetchedKeySet { keys, lifetime: None }).ok_or(KeySetUnreachable) },
        )
    }
}

struct Setup {
    keys: Keys,
    host: Arc<Host>,
    identity: Identity,
}

impl Setup {
    async fn new(register: impl FnOnce(&Keys, &mut Client)) -> Self {
        let host = Arc::new(Host::default());
        let dependencies = Dependencies { fetch: host.clone(), ..Dependencies::default() };
        let random = Arc::new(trefoil_identity::SystemRandom);
        let identity_result =
            Identity::open_with(Store::memory(), random, dependencies, "https://as.example", false, at(0));
        let identity = identity_result.await.unwrap();
        let keys = Keys::new();
        let mut client = Client {
            auth_methods: vec![AuthMethod::PrivateKeyJwt],
            grant_types: vec![GrantType::ClientCredentials],
            ..Client::new("batch")
        };
        register(&keys, &mut client);
        identity.clients.add_client(&client, at(0)).await.unwrap();
        Self { keys, host, identity }
    }

    async fn present(&self, assertion: &str, second: i64) -> Result<Client, ClientAuthError> {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("client_assertion_type", JWT_BEARER).append_pair("client_assertion", assertion);
        self.identity
            .client_auth
            .authenticate_client(None, &Params::parse(form.finish().as_bytes()), at(second))
            .await
    }

    #[track_caller]
    fn unregistered(result: Result<Client, ClientAuthError>, alg: &'static str) {
        Self::bad(result, BadAssertion::UnregisteredAlgorithm { alg, registered: "none".to_owned() });
    }

    #[track_caller]
    fn bad(result: Result<Client, ClientAuthError>, expected: BadAssertion) {
        match result {
            Err(ClientAuthError::BadAssertion(bad)) => assert_eq!(bad, expected),
            other => panic!("{other:?} instead of {expected:?}"),
        }
    }
}

#[tokio::test]
async fn each_client_may_use_only_its_registered_algorithms() {
    let usual = Setup::new(|keys, client| client.jwks = keys.set()).await;
    for alg in ALL {
        let presented = usual.present(&usual.keys.assertion(alg, json!({}), alg), 0).await;
        match alg {
            "RS384" | "ES384" => assert!(presented.is_ok(), "{alg}"),
            _ => Setup::unregistered(presented, alg),
        }
    }
    let every = Setup::new(|keys, client| {
        client.jwks = keys.set();
        client.assertion_algs = ALL.map(str::to_owned).to_vec();
    })
    .await;
    for alg in ALL {
        let presented = every.present(&every.keys.assertion(alg, json!({}), alg), 0).await;
        assert!(presented.is_ok(), "{alg}: {presented:?}");
    }
    // The algorithm must be compatible with the key type and with the members `alg` and `use` of the key.
    for (alg, kid) in [("ES256", "ES384"), ("PS256", "EdDSA"), ("EdDSA", "ES256"), ("ES384", "RS384")] {
        let presented = every.present(&every.keys.assertion(alg, json!({ "kid": kid }), "k"), 0).await;
        Setup::bad(presented, BadAssertion::WrongKey);
    }
    Setup::bad(
        every.present(&every.keys.assertion("RS256", json!({ "alg": "PS256" }), "a"), 0).await,
        BadAssertion::Signature,
    );
    for alg in ["HS256", "none", "RS512", "es256"] {
        let presented = every.present(&every.keys.assertion("ES256", json!({ "alg": alg }), "n"), 0).await;
        Setup::bad(presented, BadAssertion::UnknownAlgorithm);
    }
    let narrow = Setup::new(|keys, client| {
        let (mut other_alg, mut other_use) = (keys.jwk("RS384"), keys.jwk("ES384"));
        (other_alg["alg"], other_use["use"]) = ("PS384".into(), "enc".into());
        client.jwks = vec![other_alg, other_use];
    })
    .await;
    for alg in ["RS384", "ES384"] {
        let presented = narrow.present(&narrow.keys.assertion(alg, json!({}), alg), 0).await;
        Setup::bad(presented, BadAssertion::WrongKey);
    }
}

#[tokio::test]
async fn key_sets_are_fetched_only_if_needed() {
    let setup = Setup::new(|_, client| client.jwks_uri = Some("https://c.example/jwks".to_owned())).await;
    let assertion = |header: Value, jti: &str| setup.keys.assertion("ES384", header, jti);
    let requested = || setup.host.requested.lock().unwrap().len();
    // An assertion that is invalid for another reason does not cause a fetch.
    Setup::bad(
        setup.present(&assertion(json!({ "jku": "https://evil.example/" }), "1"), 0).await,
        BadAssertion::Jku,
    );
    Setup::unregistered(setup.present(&assertion(json!({ "alg": "ES256" }), "1"), 0).await, "ES256");
    Setup::bad(setup.present(&assertion(json!({}), "1"), 500).await, BadAssertion::Expired);
    assert_eq!(requested(), 0);
    let unreachable = setup.present(&assertion(json!({}), "1"), 0).await;
    assert!(matches!(unreachable, Err(ClientAuthError::KeySet(_))), "{unreachable:?}");
    *setup.host.keys.lock().unwrap() = Some(setup.keys.set());
    // The failed attempt did not mark the `jti` as used.
    assert!(setup.present(&assertion(json!({}), "1"), 31).await.is_ok());
    assert!(setup.present(&assertion(json!({ "jku": "https://c.example/jwks" }), "2"), 32).await.is_ok());
    Setup::bad(setup.present(&assertion(json!({}), "2"), 33).await, BadAssertion::Replayed);
    assert_eq!(*setup.host.requested.lock().unwrap(), ["https://c.example/jwks", "https://c.example/jwks"]);
    // Weak keys in a fetched key set are rejected.
    let mut weak = setup.keys.jwk("RS384");
    (weak["kid"], weak["n"]) = ("weak".into(), b64(&[0xc5; 128]).into());
    *setup.host.keys.lock().unwrap() = Some(vec![weak]);
    let presented = setup.present(&setup.keys.assertion("RS384", json!({ "kid": "weak" }), "3"), 34).await;
    Setup::bad(presented, BadAssertion::WrongKey);
    let inline = Setup::new(|keys, client| client.jwks = keys.set()).await;
    let with_jku = inline.keys.assertion("ES384", json!({ "jku": "https://c.example/jwks" }), "1");
    Setup::bad(inline.present(&with_jku, 0).await, BadAssertion::Jku);
}
