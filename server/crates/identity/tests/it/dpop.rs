//! Proofs of possession with each algorithm name (RFC 9449; RFC 9864).

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::json;
use trefoil_identity::tokens::dpop::DpopRequest;

use crate::support::{Setup, at};

#[tokio::test]
async fn both_names_of_ed25519_are_accepted() {
    let setup = Setup::new().await;
    let key = Ed25519KeyPair::generate().unwrap();
    let url = "https://as.example/oauth2/token";
    let mut thumbprints = Vec::new();
    for (number, alg) in ["EdDSA", "Ed25519", "none", "HS256"].into_iter().enumerate() {
        let jwk = json!({ "kty": "OKP", "crv": "Ed25519", "x": URL_SAFE_NO_PAD.encode(key.public_key()) });
        let header = json!({ "typ": "dpop+jwt", "alg": alg, "jwk": jwk });
        let claims =
            json!({ "htm": "POST", "htu": url, "iat": at(0).as_second(), "jti": format!("proof-{number}") });
        let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let signed = format!("{header}.{claims}");
        let proof = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes())));
        let request = DpopRequest { method: "POST", url, access_token: None };
        thumbprints.push(setup.identity.dpop.verify_proof(&proof, &request, at(0)).await.ok());
    }
    assert!(thumbprints[0].is_some() && thumbprints[0] == thumbprints[1], "{thumbprints:?}");
    assert_eq!(thumbprints[2..], [None, None]);
}
