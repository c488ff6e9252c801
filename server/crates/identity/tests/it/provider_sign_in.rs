//! Tests of sign-in at external providers: ID tokens with real signatures, and the content of token requests.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
    RSA_PSS_SHA256, RSA_PSS_SHA384, RsaKeyPair,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, DecodingKey, jwk::Jwk};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256, Sha384, Sha512};
use trefoil_identity::SigningAlg;
use trefoil_identity::model::claim_mapping::VERIFIED_CLAIMS;
use trefoil_identity::model::provider::{
    AssertionTarget, ExternalSignIn, IdentityProvider, ProviderClientAuth, ProviderEndpoints, ProviderFailure,
};
use trefoil_identity::sign_in::provider_id_token::{LackingClaims, ProviderTokens};
use trefoil_identity::sign_in::provider_sign_in::{ProviderSignIn, ProviderSignInStart, RequiredFreshness};

use crate::support::{Setup, at};

const ISSUER: &str = "https://idp.example";
const ACCESS_TOKEN: &str = "an access token";

fn provider(client_auth: ProviderClientAuth) -> IdentityProvider {
    IdentityProvider {
        name: "Clinic".to_owned(),
        issuer: ISSUER.to_owned(),
        endpoints: None,
        client_id: "trefoil".to_owned(),
        client_auth,
        scopes: "openid".to_owned(),
        google: false,
        create_users: false,
        link_by_email: false,
        own_methods: true,
        rights_max_age: jiff::SignedDuration::from_hours(24),
        mapping: Default::default(),
    }
}

fn endpoints() -> ProviderEndpoints {
    ProviderEndpoints {
        userinfo_endpoint: None,
        authorization_endpoint: format!("{ISSUER}/authorize"),
        token_endpoint: format!("{ISSUER}/token"),
        jwks_uri: format!("{ISSUER}/jwks"),
        sends_issuer: false,
    }
}

fn query_of(address: &str) -> std::collections::HashMap<String, String> {
    url::Url::parse(address).unwrap().query_pairs().into_owned().collect()
}

/// Starts a sign-in. Returns the sign-in and its nonce.
async fn begin(setup: &Setup, freshness: RequiredFreshness) -> (ProviderSignIn, String) {
    let sign_ins = &setup.identity.provider_sign_ins;
    let start = ProviderSignInStart { browser: "browser", freshness, ..ProviderSignInStart::default() };
    let rules = provider(ProviderClientAuth::None);
    let to = sign_ins.begin_provider_sign_in(&rules, &endpoints(), start, at(0)).await.unwrap();
    let query = query_of(&to);
    let flow = sign_ins.take_provider_sign_in(&query["state"], "browser", at(1)).await.unwrap().unwrap();
    (flow, query["nonce"].clone())
}

enum ProviderKey {
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
    Rsa(RsaKeyPair),
}

impl ProviderKey {
    fn ec() -> Self {
        Self::Ec(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap())
    }

    fn public(&self) -> Value {
        match self {
            Self::Ec(key) => {
                let point = &key.public_key().as_ref()[1..];
                json!({ "kty": "EC", "crv": "P-256", "x": encode(&point[..32]), "y": encode(&point[32..]) })
            }
            Self::Ed(key) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "x": encode(key.public_key().as_ref()) })
            }
            Self::Rsa(key) => {
                let public = key.public_key();
                let (n, e) = (public.modulus(), public.exponent());
                json!({ "kty": "RSA", "n": encode(n.big_endian_without_leading_zero()),
                    "e": encode(e.big_endian_without_leading_zero()) })
            }
        }
    }

    fn sign(&self, alg: &str, claims: &Value) -> String {
        let header = json!({ "alg": alg, "kid": "k" });
        let message =
            format!("{}.{}", encode(header.to_string().as_bytes()), encode(claims.to_string().as_bytes()));
        let (bytes, random) = (message.as_bytes(), SystemRandom::new());
        let signature = match self {
            Self::Ec(key) => key.sign(&random, bytes).unwrap().as_ref().to_vec(),
            Self::Ed(key) => key.sign(bytes).as_ref().to_vec(),
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                match alg {
                    "PS256" => key.sign(&RSA_PSS_SHA256, &random, bytes, &mut signature).unwrap(),
                    "PS384" => key.sign(&RSA_PSS_SHA384, &random, bytes, &mut signature).unwrap(),
                    _ => key.sign(&RSA_PKCS1_SHA256, &random, bytes, &mut signature).unwrap(),
                }
                signature
            }
        };
        format!("{message}.{}", encode(&signature))
    }
}

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Returns JSON with these members instead of, or in addition to, the members of `base`. `null` removes a
/// member.
fn with(base: &Value, changes: &Value) -> Value {
    let mut other = base.clone();
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(other.as_object_mut().unwrap().remove(name)),
            value => other[name] = value.clone(),
        }
    }
    other
}

fn claims(nonce: &str) -> Value {
    json!({
        "iss": ISSUER, "sub": "ash", "aud": "trefoil", "iat": at(0).as_second(),
        "exp": at(300).as_second(), "nonce": nonce, "email": "ash@mail.example",
    })
}

fn verify(flow: &ProviderSignIn, id_token: String, key: &Value) -> Result<ExternalSignIn, ProviderFailure> {
    let tokens = ProviderTokens { id_token, access_token: Some(ACCESS_TOKEN.to_owned()) };
    let provider = provider(ProviderClientAuth::None);
    flow.verify_id_token(&provider, &tokens, &json!({ "keys": [key] }), at(2))?.into_sign_in(&provider)
}

#[tokio::test]
async fn userinfo_adds_what_the_id_token_lacks_of_the_same_user() {
    let setup = Setup::new().await;
    let (flow, nonce) = begin(&setup, RequiredFreshness::default()).await;
    let key = ProviderKey::ec();
    let keys = json!({ "keys": [with(&key.public(), &json!({ "kid": "k", "alg": "ES256" }))] });
    let mut mapped = provider(ProviderClientAuth::None);
    mapped.mapping.fhir_user_claim = Some("fhirUser".to_owned());
    mapped.scopes = "openid email".to_owned();
    let verified = |claims: Value| {
        let tokens = ProviderTokens { id_token: key.sign("ES256", &claims), access_token: None };
        flow.verify_id_token(&mapped, &tokens, &keys, at(2)).unwrap()
    };
    let claims_of_ash = with(&claims(&nonce), &json!({ "name": "Ash", "fhirUser": "Practitioner/ash" }));
    assert_eq!(verified(claims_of_ash.clone()).lacking(&mapped), LackingClaims::None);
    for (member, lacking) in
        [("name", LackingClaims::Names), ("email", LackingClaims::Names), ("fhirUser", LackingClaims::Rights)]
    {
        assert_eq!(
            verified(with(&claims_of_ash, &json!({ member: null }))).lacking(&mapped),
            lacking,
            "{member}"
        );
    }
    let userinfo = json!({
        "sub": "ash", "name": "Ash Example", "email": "other@mail.example", "email_verified": "true",
        "fhirUser": "Practitioner/ash",
    });
    let mut token = verified(claims(&nonce));
    token.add_userinfo(userinfo.as_object().unwrap().clone()).unwrap();
    let user = token.into_sign_in(&mapped).unwrap().user;
    assert_eq!(user.claims.name.as_deref(), Some("Ash Example"));
    assert_eq!(user.claims.email_verified, None, "the flag is about the other address");
    assert_eq!(user.claims.email.as_deref(), Some("ash@mail.example"), "the signed claim stays");
    assert_eq!(user.rights.fhir_user.as_deref(), Some("Practitioner/ash"));
    for other in [json!({ "sub": "elm" }), json!({ "name": "Ash" })] {
        let added = verified(claims(&nonce)).add_userinfo(other.as_object().unwrap().clone());
        assert!(added.is_err(), "{other}");
    }
}

#[tokio::test]
async fn an_address_and_its_flag_come_from_one_document() {
    let setup = Setup::new().await;
    let (flow, nonce) = begin(&setup, RequiredFreshness::default()).await;
    let key = ProviderKey::ec();
    let keys = json!({ "keys": [with(&key.public(), &json!({ "kid": "k", "alg": "ES256" }))] });
    let provider = provider(ProviderClientAuth::None);
    let values = |addresses: &[Value]| {
        let flags = [Value::Null, json!(true), json!(false), json!("true")];
        let pair = |address: &Value| flags.clone().map(|flag| (address.clone(), flag));
        addresses.iter().flat_map(pair).collect::<Vec<_>>()
    };
    for (address, flag) in VERIFIED_CLAIMS {
        for (signed, signed_flag) in values(&[Value::Null, json!(""), json!("one@x.example")]) {
            for (told, told_flag) in values(&[Value::Null, json!("one@x.example"), json!("two@x.example")]) {
                let signed_pair = json!({ "email": null, address: &signed, flag: &signed_flag });
                let tokens = ProviderTokens {
                    id_token: key.sign("ES256", &with(&claims(&nonce), &signed_pair)),
                    access_token: None,
                };
                let mut token = flow.verify_id_token(&provider, &tokens, &keys, at(2)).unwrap();
                let userinfo = with(&json!({ "sub": "ash" }), &json!({ address: &told, flag: &told_flag }));
                token.add_userinfo(userinfo.as_object().unwrap().clone()).unwrap();
                let user = serde_json::to_value(token.into_sign_in(&provider).unwrap().user.claims).unwrap();
                let is_verified = user[flag] == true;
                let says_so = |flag: &Value| *flag == true || flag == "true";
                let expected = match signed.as_str() {
                    Some(text) if !text.is_empty() => (signed.clone(), says_so(&signed_flag)),
                    _ if told.is_null() => (Value::Null, false),
                    _ => (told.clone(), says_so(&told_flag)),
                };
                let value = if user[address] == "" { Value::Null } else { user[address].clone() };
                assert_eq!((value, is_verified), expected, "{signed_pair} {userinfo}");
            }
        }
    }
}

#[tokio::test]
async fn id_tokens_are_verified_with_each_algorithm_and_its_hash() {
    let setup = Setup::new().await;
    let (flow, nonce) = begin(&setup, RequiredFreshness::default()).await;
    let rsa = || ProviderKey::Rsa(RsaKeyPair::generate(KeySize::Rsa2048).unwrap());
    let sha256 = encode(&Sha256::digest(ACCESS_TOKEN)[..16]);
    let sha384 = encode(&Sha384::digest(ACCESS_TOKEN)[..24]);
    let sha512 = encode(&Sha512::digest(ACCESS_TOKEN)[..32]);
    let ed = || ProviderKey::Ed(Ed25519KeyPair::generate().unwrap());
    for (alg, key, at_hash) in [
        ("ES256", ProviderKey::ec(), &sha256),
        ("RS256", rsa(), &sha256),
        ("PS256", rsa(), &sha256),
        ("PS384", rsa(), &sha384),
        ("EdDSA", ed(), &sha512),
        ("Ed25519", ed(), &sha512),
    ] {
        let token = key.sign(alg, &with(&claims(&nonce), &json!({ "at_hash": at_hash })));
        let public = with(&key.public(), &json!({ "kid": "k", "alg": alg }));
        assert_eq!(verify(&flow, token, &public).unwrap().user.sub, "ash", "{alg}");
        let other = key.sign(alg, &with(&claims(&nonce), &json!({ "at_hash": "another" })));
        assert!(verify(&flow, other, &public).is_err(), "{alg}");
    }
}

#[tokio::test]
async fn a_key_verifies_only_what_its_members_permit() {
    let setup = Setup::new().await;
    let (flow, nonce) = begin(&setup, RequiredFreshness::default()).await;
    let key = ProviderKey::ec();
    for (members, accepted) in [
        (json!({}), true),
        (json!({ "use": "sig" }), true),
        (json!({ "use": "enc" }), false),
        (json!({ "key_ops": ["verify"] }), true),
        (json!({ "key_ops": ["deriveKey"] }), false),
        (json!({ "alg": "ES256" }), true),
        (json!({ "alg": "ECDH-ES" }), false),
        (json!({ "kid": "other" }), false),
    ] {
        let public = with(&key.public(), &with(&json!({ "kid": "k" }), &members));
        let result = verify(&flow, key.sign("ES256", &claims(&nonce)), &public);
        assert_eq!(result.is_ok(), accepted, "{members}");
    }
}

#[tokio::test]
async fn claims_of_an_id_token_are_checked() {
    let setup = Setup::new().await;
    let (flow, nonce) = begin(&setup, RequiredFreshness::default()).await;
    let key = ProviderKey::ec();
    let public = with(&key.public(), &json!({ "kid": "k" }));
    let check = |changes: Value| verify(&flow, key.sign("ES256", &with(&claims(&nonce), &changes)), &public);
    for (changes, verified) in [
        (json!({}), None),
        (json!({ "email_verified": true }), Some(true)),
        (json!({ "email_verified": "true" }), Some(true)),
        (json!({ "email_verified": "false" }), Some(false)),
        (json!({ "azp": "trefoil", "aud": ["trefoil", "other"] }), None),
        (json!({ "azp": "trefoil" }), None),
        (json!({ "sub": "x".repeat(255) }), None),
    ] {
        let user = check(changes.clone()).unwrap_or_else(|error| panic!("{changes}: {error:?}")).user;
        assert_eq!(user.claims.email_verified, verified, "{changes}");
    }
    for changes in [
        json!({ "sub": "" }),
        json!({ "sub": "x".repeat(256) }),
        json!({ "sub": null }),
        json!({ "azp": "other" }),
        json!({ "aud": ["trefoil", "other"] }),
        json!({ "aud": "other", "azp": "trefoil" }),
        json!({ "iss": "https://other.example" }),
        json!({ "nonce": "other" }),
        json!({ "nonce": null }),
        json!({ "exp": at(-60).as_second() }),
        json!({ "iat": at(120).as_second() }),
        json!({ "email_verified": "yes" }),
        json!({ "auth_time": at(120).as_second() }),
    ] {
        assert!(matches!(check(changes.clone()), Err(ProviderFailure::Other(_))), "{changes}");
    }
}

#[tokio::test]
async fn the_authentication_is_as_recent_as_the_client_requires() {
    let setup = Setup::new().await;
    let any = RequiredFreshness::default();
    let login = RequiredFreshness { login: true, ..any };
    let within = |seconds| RequiredFreshness { max_age: Some(seconds), ..any };
    let key = ProviderKey::ec();
    let public = with(&key.public(), &json!({ "kid": "k" }));
    for (freshness, auth_time, expected) in [
        (any, None, Ok(None)),
        (any, Some(-9_000), Ok(Some(-9_000))),
        // The clock of the provider is ahead.
        (any, Some(30), Ok(Some(2))),
        // The user was authenticated after the redirect.
        (login, None, Ok(Some(0))),
        (login, Some(-30), Ok(Some(-30))),
        (login, Some(-90), Err(true)),
        (within(600), Some(-600), Ok(Some(-600))),
        (within(600), Some(-900), Err(true)),
        (within(600), None, Err(false)),
    ] {
        let (flow, nonce) = begin(&setup, freshness).await;
        let auth_time = auth_time.map_or(Value::Null, |seconds| at(seconds).as_second().into());
        let claims = with(&claims(&nonce), &json!({ "auth_time": auth_time }));
        let result = verify(&flow, key.sign("ES256", &claims), &public);
        let result = result.map(|sign_in| sign_in.auth_time);
        let expected = expected.map(|seconds: Option<i64>| seconds.map(at));
        match (result, expected) {
            (Ok(actual), Ok(expected)) => assert_eq!(actual, expected, "{freshness:?} {auth_time}"),
            (Err(actual), Err(not_recent)) => {
                assert_eq!(actual == ProviderFailure::NotRecent, not_recent, "{freshness:?} {auth_time}");
            }
            (found, _) => panic!("{freshness:?} {auth_time}: {found:?}"),
        }
    }
}

#[tokio::test]
async fn the_provider_receives_what_the_client_requires() {
    let setup = Setup::new().await;
    let sign_ins = &setup.identity.provider_sign_ins;
    let rules = provider(ProviderClientAuth::None);
    for (login, select_account, max_age, sent) in [
        (false, false, None, (None, None)),
        (true, true, None, (Some("login"), None)),
        (false, true, Some(0), (Some("select_account"), Some("0"))),
        (false, false, Some(60), (None, Some("60"))),
    ] {
        let freshness = RequiredFreshness { login, select_account, max_age };
        let start = ProviderSignInStart { freshness, ..ProviderSignInStart::default() };
        let to = sign_ins.begin_provider_sign_in(&rules, &endpoints(), start, at(0)).await.unwrap();
        let query = query_of(&to);
        let parameters = (query.get("prompt").map(String::as_str), query.get("max_age").map(String::as_str));
        assert_eq!(parameters, sent);
    }
}

#[tokio::test]
async fn the_server_authenticates_at_the_token_endpoint_by_each_method() {
    let setup = Setup::new().await;
    let (flow, _) = begin(&setup, RequiredFreshness::default()).await;
    let secret = "a secret of the provider".to_owned();
    let request = async |client_auth| {
        let rules = provider(client_auth);
        setup
            .identity
            .provider_sign_ins
            .token_request(&rules, &endpoints(), &flow, "code", at(2))
            .await
            .unwrap()
    };
    let member = |form: &[(&str, String)], name: &str| {
        form.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
    };
    let public = request(ProviderClientAuth::None).await;
    assert_eq!((public.basic, member(&public.form, "client_id")), (None, Some("trefoil".to_owned())));
    let basic = request(ProviderClientAuth::SecretBasic(secret.clone())).await;
    assert_eq!(basic.basic, Some(("trefoil".to_owned(), secret.clone())));
    assert_eq!((member(&basic.form, "client_id"), member(&basic.form, "client_secret")), (None, None));
    let post = request(ProviderClientAuth::SecretPost(secret.clone())).await;
    assert_eq!((post.basic, member(&post.form, "client_secret")), (None, Some(secret)));

    let published = setup.identity.signing_keys.published_key_set(at(2)).await.unwrap();
    for (alg, verifier) in [(SigningAlg::Rs256, Algorithm::RS256), (SigningAlg::EdDsa, Algorithm::EdDSA)] {
        for (audience, aud) in
            [(AssertionTarget::Issuer, ISSUER), (AssertionTarget::TokenEndpoint, "https://idp.example/token")]
        {
            let form = request(ProviderClientAuth::PrivateKeyJwt { alg, audience }).await.form;
            let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
            assert_eq!(member(&form, "client_assertion_type").as_deref(), Some(kind));
            let assertion = member(&form, "client_assertion").unwrap();
            let (message, signature) = assertion.rsplit_once('.').unwrap();
            let (header, payload) = message.split_once('.').unwrap();
            let read = |part: &str| -> Value {
                serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
            };
            let kid = read(header)["kid"].clone();
            let key = published["keys"].as_array().unwrap().iter().find(|key| key["kid"] == kid).unwrap();
            let key: Jwk = serde_json::from_value(key.clone()).unwrap();
            let key = DecodingKey::from_jwk(&key).unwrap();
            assert!(jsonwebtoken::crypto::verify(signature, message.as_bytes(), &key, verifier).unwrap());
            let claims = read(payload);
            assert_eq!(
                (&claims["iss"], &claims["sub"], &claims["aud"]),
                (&json!("trefoil"), &json!("trefoil"), &json!(aud))
            );
            assert_eq!(claims["exp"].as_i64(), Some(at(62).as_second()));
        }
    }
}
