//! Keys of backend clients: the public key verifies a signature of each supported private key.

use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde_json::Value;
use trefoil_tui::api::client_assertion;
use trefoil_tui::key::{self, KeyError, SigningKey};

use crate::support::{JWKS, now};

const TOKEN_URL: &str = "https://t.example/oauth2/token";
const EC_PEM: &str = include_str!("keys/es384.pem");
const EC_PUBLIC_PEM: &[u8] = include_bytes!("keys/es384.pub.pem");

fn jwk(at: usize) -> Value {
    serde_json::from_str::<Value>(JWKS).unwrap()["keys"][at].clone()
}

/// Signs with the key and verifies with its public half.
#[track_caller]
fn check(key: SigningKey, public: &DecodingKey, alg: Algorithm, kid: Option<&str>) {
    let assertion = client_assertion("backend", &key, TOKEN_URL, now(), "j1").unwrap();
    let mut validation = Validation::new(alg);
    validation.set_audience(&[TOKEN_URL]);
    validation.set_issuer(&["backend"]);
    // The times in the assertion are those of the test, so they are not compared with the clock.
    validation.validate_exp = false;
    let token = jsonwebtoken::decode::<Value>(&assertion, public, &validation).unwrap();
    assert_eq!((token.header.alg, token.header.kid.as_deref()), (alg, kid));
    let (iat, exp) = (token.claims["iat"].as_i64().unwrap(), token.claims["exp"].as_i64().unwrap());
    assert_eq!(iat, now().as_second());
    assert!(exp > iat && exp - iat <= 300, "SMART allows five minutes: {exp} - {iat}");
    assert_eq!((&token.claims["sub"], &token.claims["jti"]), (&"backend".into(), &"j1".into()));
}

fn public(jwk: &Value) -> DecodingKey {
    DecodingKey::from_jwk(&serde_json::from_value::<Jwk>(jwk.clone()).unwrap()).unwrap()
}

#[test]
fn both_kinds_of_jwk_sign() {
    let (ec, rsa) = (jwk(0), jwk(1));
    check(key::from_jwk(&ec, None, None).unwrap(), &public(&ec), Algorithm::ES384, Some("test-es384"));
    check(key::from_jwk(&rsa, None, None).unwrap(), &public(&rsa), Algorithm::RS384, Some("test-rs384"));
}

#[test]
fn a_jwk_set_and_pem_are_accepted() {
    check(key::read(JWKS, None, None).unwrap(), &public(&jwk(0)), Algorithm::ES384, Some("test-es384"));
    let pem = DecodingKey::from_ec_pem(EC_PUBLIC_PEM).unwrap();
    check(key::read(EC_PEM, None, Some("k")).unwrap(), &pem, Algorithm::ES384, Some("k"));
}

#[test]
fn unusable_keys_are_rejected_with_the_reason() {
    #[track_caller]
    fn refused(text: &str, alg: Option<&str>, expected: KeyError) {
        assert_eq!(key::read(text, alg, None).unwrap_err(), expected);
    }
    let without = |name: &str| {
        let mut jwk = jwk(0);
        jwk.as_object_mut().unwrap().remove(name);
        jwk.to_string()
    };
    refused("not a key", None, KeyError::Format);
    refused(r#"{"keys":[{"kty":"EC","crv":"P-384"}]}"#, None, KeyError::NoPrivateKey);
    refused(&without("d"), None, KeyError::Member("d"));
    refused(&without("x"), None, KeyError::Member("x"));
    refused(&without("alg"), Some("HS256"), KeyError::Alg("HS256".to_owned()));
    refused(EC_PEM, Some("none"), KeyError::Alg("none".to_owned()));
    let kind = |kty: &str, crv: &str| KeyError::Kind { kty: kty.to_owned(), crv: crv.to_owned() };
    refused(r#"{"kty":"EC","crv":"P-256"}"#, None, kind("EC", "P-256"));
    refused(r#"{"kty":"oct"}"#, None, kind("oct", ""));
}
